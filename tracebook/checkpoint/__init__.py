"""Bytes from tensor headers: header, formats, roles, ledger, plan."""
