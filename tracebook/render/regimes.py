"""Two regimes of one capture side by side: the phases of the faster and of the slower steps.

Medians over all steps mix both; here each has its own, and the bandwidth that follows.
"""

from __future__ import annotations

from tracebook.regimes import Regime
from tracebook.render.words import Column
from tracebook.report import Report
from tracebook.units import counted, gbps, number_text

COLUMNS = (
    Column("phase", text=True),
    Column("faster ms"),
    Column("slower ms"),
    Column("ratio", drop=1),
    Column("faster GB/s", drop=2),
    Column("slower GB/s", drop=3),
)


def regime_sentence(report: Report) -> str:
    """Which steps are in which regime."""
    fast, slow = report.steps.regimes
    return f"Two regimes: the faster one is {_which(fast)}, the slower one {_which(slow)}."


def regime_table(report: Report) -> tuple[tuple[Column, ...], list[list[str]]]:
    """Columns and rows: phases in the order of the report, and the busy time last."""
    fast, slow = report.steps.regimes
    weights = {row.phase: row.weight_bytes for row in report.phase_rows}
    rows = [
        _cells(phase, fast.phase_ms.get(phase, 0.0), slow.phase_ms.get(phase, 0.0), weights[phase])
        for phase in weights
        if phase in fast.phase_ms or phase in slow.phase_ms
    ]
    rows.append(_cells("busy", fast.busy_ms, slow.busy_ms, report.total.weight_bytes))
    return COLUMNS, rows


def _which(regime: Regime) -> str:
    return (
        f"{counted(regime.steps, 'step')} between steps {regime.first_step} and {regime.last_step}"
    )


def _cells(phase: str, fast_ms: float, slow_ms: float, weight_bytes: int | None) -> list[str]:
    return [
        phase.replace("_", " "),
        number_text(fast_ms, 2),
        number_text(slow_ms, 2),
        number_text(slow_ms / fast_ms if fast_ms else None, 3),
        *(number_text(gbps(weight_bytes, spent_ms), 1) for spent_ms in (fast_ms, slow_ms)),
    ]
