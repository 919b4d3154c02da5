"""The report as JSON: all of it, whatever the detail."""

from __future__ import annotations

from tracebook.report import Report


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Write the JSON of the report."""
    return report.to_json()
