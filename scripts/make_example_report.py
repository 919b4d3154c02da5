"""Write docs/example-report.md: python scripts/make_example_report.py in the repository."""

from __future__ import annotations

from pathlib import Path

import tracebook
from tracebook.render import render

PAGE = Path("docs/example-report.md")
TRACE = Path("fixtures/full-recipe/trace.sqlite")

_HEAD = f"""# A report in Markdown

What `tracebook report {TRACE} --format markdown --detail matrices` writes; it pastes into a
pull request as it is.

"""


def example() -> str:
    """The whole page; paths in it are relative to the working directory."""
    report = tracebook.analyze(TRACE)
    return _HEAD + render(report, "markdown", detail="matrices")


if __name__ == "__main__":
    PAGE.write_text(example(), encoding="utf-8")
