"""Renderers: a report in, text out. One module per format; none of them computes.

A new format is one module with a function `render` and one line in `FORMATS`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracebook.report import Report

#: Format and the module that writes it.
FORMATS: dict[str, str] = {
    "text": "tracebook.render.text",
    "json": "tracebook.render.json",
    "csv": "tracebook.render.csv",
    "markdown": "tracebook.render.markdown",
    "html": "tracebook.render.html",
}

#: How far down a report goes.
DETAILS = ("phases", "traffic", "layers", "matrices", "steps")


def render(
    report: Report, format_name: str, *, detail: str = "phases", terminal: bool = False
) -> str:
    """Write a report.

    Args:
        report: The report.
        format_name: A key of `FORMATS`.
        detail: One of `DETAILS`; the rows below phases that are wanted.
        terminal: Whether the text goes to a terminal (colour, bars) or a pipe.
    """
    module = importlib.import_module(FORMATS[format_name])
    text: str = module.render(report, detail=detail, terminal=terminal)
    return text
