"""The only place that runs the nsys binary."""

from __future__ import annotations

from pathlib import Path

from tracebook.errors import NsysError


def export(report: Path) -> Path:
    """Export a report to SQLite in the cache directory and return the file's path."""
    raise NsysError(
        f"{report} is an nsys report, and reports cannot be exported yet.",
        "Export it: nsys export --type sqlite " + report.name,
    )
