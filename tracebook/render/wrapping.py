"""Sentences broken into lines: a figure stays with its percent sign."""

from __future__ import annotations

import re
import textwrap

_APART = re.compile(r"(?<=\d) (?=%)")
#: A space at which no line is broken.
_TIED = "\N{NO-BREAK SPACE}"


def fill(sentence: str, width: int, *, first: str = "", others: str = "") -> str:
    """A sentence in lines of so many cells.

    Args:
        sentence: Text.
        width: Cells in a line.
        first: What the first line begins with.
        others: What all further lines begin with.
    """
    lines = textwrap.fill(
        _APART.sub(_TIED, sentence),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
    )
    return lines.replace(_TIED, " ")
