"""The rows of the report as CSV: phases with idle, traffic, layers, matrices or steps."""

from __future__ import annotations

import polars as pl

from tracebook.render import words
from tracebook.report import Report


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Write one row per phase, movement, layer, matrix or step; units stand in the names."""
    return rows(report, detail).write_csv()


def rows(report: Report, detail: str) -> pl.DataFrame:
    """The rows as a frame."""
    if detail == "traffic":
        return report.traffic
    if detail == "layers":
        return report.layers
    if detail == "matrices":
        return report.matrices
    if detail == "steps":
        return words.samples(report).frame
    return pl.concat([report.phases, _idle(report)], how="diagonal")


def _idle(report: Report) -> pl.DataFrame:
    """The idle time as a row, so that the rows' means add up to the step."""
    idle = report.steps.idle_ms
    low, high = idle.ci95 or (None, None)
    values = {
        "phase": "idle",
        "ms": idle.median,
        "ms_mean": idle.mean,
        "ms_p05": idle.p05,
        "ms_p95": idle.p95,
        "ms_ci95_lo": low,
        "ms_ci95_hi": high,
        "share": report.steps.idle_share,
        "kernels": 0,
    }
    schema = {name: report.phases.schema[name] for name in values}
    return pl.DataFrame([values], schema=schema)
