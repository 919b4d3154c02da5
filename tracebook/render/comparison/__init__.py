"""Renderers of comparisons and checks: one module per format; none of them computes.

They import neither polars nor rich, so that a check of two saved runs starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracebook.compare.comparison import Comparison
    from tracebook.compare.outcome import Outcome

#: Formats of `tracebook diff`, and those of `tracebook check`.
DIFF_FORMATS = ("text", "json", "markdown", "html")
CHECK_FORMATS = (*DIFF_FORMATS, "junit", "github")


def render(found: Comparison, outcome: Outcome | None, format_name: str) -> str:
    """Write a comparison.

    Args:
        found: The comparison.
        outcome: What it means as a check; None for a plain diff.
        format_name: One of `CHECK_FORMATS` (a plain diff: of `DIFF_FORMATS`).
    """
    module = importlib.import_module(f"tracebook.render.comparison.{format_name}")
    text: str = module.render(found, outcome)
    return text
