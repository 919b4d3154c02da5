"""The report as JSON: all of its figures, with the single steps where they are asked for."""

from __future__ import annotations

from tracebook.report import Report


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Write the JSON of the report."""
    return report.to_json(steps=detail == "steps")
