"""Bytes from tensor headers: header, formats, roles, ledger, plan."""

from tracebook.checkpoint.header import Checkpoint, read_checkpoint, save_bundle
from tracebook.checkpoint.ledger import Ledger, build_ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_builder import build_plan

__all__ = [
    "Checkpoint",
    "Ledger",
    "Plan",
    "build_ledger",
    "build_plan",
    "read_checkpoint",
    "save_bundle",
]
