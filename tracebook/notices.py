"""Warnings as data: they travel with a result instead of being printed where they arise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Notice:
    """A warning that travels with a result: code, sentence, hint (or None)."""

    code: str
    message: str
    hint: str | None = None
