"""Text that came from a file, made safe to show: no escape of a terminal gets through."""

from __future__ import annotations

import re
from typing import Any

#: Control characters, and those that reorder a line: no compiler and no person writes them,
#: and on a terminal they could hide or forge text. Also half surrogates, which no encoding
#: can write.
ODD_LETTERS = "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_ODD = re.compile(ODD_LETTERS[:-1] + "\ud800-\udfff]")
_ODD_BUT_LINES = re.compile(_ODD.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def printable(text: str, *, lines: bool = False) -> str:
    """The text with such characters replaced; `lines` keeps ends of lines."""
    return (_ODD_BUT_LINES if lines else _ODD).sub("\ufffd", text)


def printable_json(value: Any) -> Any:
    """A value that `json.loads` gave, with every text in it made printable, keys included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_json(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable_json(item) for key, item in value.items()}
    return value
