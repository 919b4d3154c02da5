"""The law of time: every nanosecond of a step belongs to one kernel, or to none.

In: labelled kernel rows and the wall intervals of the steps. Out: who owns each
stretch of each step. Where kernels overlap, an instant goes to the running kernel
that started first (ties: the smaller kernel_id). A kernel then owns what begins after
every earlier kernel has ended: [max(start, latest earlier end), end). All of it is
integers, so the law is checked exactly, for every step of every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class ConservationError(Exception):
    """A law of conservation does not hold: a fault of the program, not of the input."""


@dataclass(frozen=True)
class Pieces:
    """Stretches of time, cut at the borders of steps: row, step (both positions), ns."""

    row: Ints
    step: Ints
    ns: Ints


@dataclass(frozen=True)
class StepTime:
    """The time of every kept step, shared out.

    Attributes:
        rows: Kernel rows in order of start; positions in `owned` and `whole` mean these.
        owned: Exclusive time.
        whole: Full durations, overlaps counted twice.
        wall_ns: Per step.
        idle_ns: Per step, the time in which no kernel runs.
    """

    rows: pl.DataFrame
    owned: Pieces
    whole: Pieces
    wall_ns: Ints
    idle_ns: Ints

    @property
    def steps(self) -> int:
        """Number of kept steps."""
        return len(self.wall_ns)


@dataclass(frozen=True)
class Groups:
    """Rows put together by key columns: `keys[code]` names a group, code -1 is none."""

    keys: tuple[tuple[str | int, ...], ...]
    code: Ints


def share_out(rows: pl.DataFrame, steps: pl.DataFrame) -> StepTime:
    """Give every instant of every step to one kernel or to idle.

    Args:
        rows: ROW_SCHEMA. Rows of other steps and of none count where they run inside
            a step's wall interval.
        steps: STEP_SCHEMA, in time order.

    Raises:
        ConservationError: Steps overlap, or a step's phases and idle do not add up.
    """
    rows = rows.sort("start_ns", "kernel_id")
    start, end = _ints(rows, "start_ns"), _ints(rows, "end_ns")
    step_start, step_end = _ints(steps, "start_ns"), _ints(steps, "end_ns")
    if np.any(step_end < step_start) or np.any(step_start[1:] < step_end[:-1]):
        raise ConservationError("steps overlap or run backwards")

    reached = np.maximum.accumulate(end)
    earlier = np.concatenate(([np.iinfo(np.int64).min], reached[:-1]))
    owned = _cut(np.maximum(start, earlier), end, step_start, step_end)
    gaps = _cut(
        np.concatenate((step_start[:1], reached)),
        np.concatenate((start, step_end[-1:])),
        step_start,
        step_end,
    )
    wall_ns = step_end - step_start
    idle_ns = _sum(gaps.step, gaps.ns, len(wall_ns))
    busy_ns = _sum(owned.step, owned.ns, len(wall_ns))
    if not np.array_equal(busy_ns + idle_ns, wall_ns):
        step = int(np.flatnonzero(busy_ns + idle_ns != wall_ns)[0])
        raise ConservationError(
            f"step {step}: {busy_ns[step]} ns in phases and {idle_ns[step]} ns idle "
            f"do not make {wall_ns[step]} ns of wall time"
        )
    whole = _cut(start, end, step_start, step_end)
    return StepTime(rows, owned, whole, wall_ns, idle_ns)


def group(rows: pl.DataFrame, columns: Sequence[str]) -> Groups:
    """Number the distinct values of some columns; rows with a null in them are in no group."""
    keys = rows.select(columns).drop_nulls().unique().sort(columns).with_row_index("code")
    code = rows.select(columns).join(keys, on=list(columns), how="left", maintain_order="left")
    return Groups(
        tuple(keys.select(columns).iter_rows()),
        code["code"].cast(pl.Int64).fill_null(-1).to_numpy(),
    )


def time_per_step(groups: Groups, pieces: Pieces, steps: int) -> Ints:
    """Time of each group in each step: shape (groups, steps), in ns."""
    return _per_step(groups, pieces.row, pieces.step, pieces.ns, steps)


def sum_per_step(groups: Groups, rows: pl.DataFrame, values: Ints, steps: pl.DataFrame) -> Ints:
    """Sum of a value over the kernels that belong to each step: shape (groups, steps)."""
    ids = steps.select("step_id").with_row_index("step")
    step = rows.select("step_id").join(ids, on="step_id", how="left", maintain_order="left")["step"]
    positions = step.cast(pl.Int64).fill_null(-1).to_numpy()
    row = np.flatnonzero(positions >= 0)
    return _per_step(groups, row, positions[row], values[row], steps.height)


def _per_step(groups: Groups, row: Ints, step: Ints, value: Ints, steps: int) -> Ints:
    code = groups.code[row]
    kept = code >= 0
    cell = code[kept] * steps + step[kept]
    return _sum(cell, value[kept], len(groups.keys) * steps).reshape(len(groups.keys), steps)


def _cut(start: Ints, end: Ints, step_start: Ints, step_end: Ints) -> Pieces:
    """Cut intervals at the borders of the steps; what lies in no step falls away."""
    first = np.searchsorted(step_end, start, side="right")
    behind = np.searchsorted(step_start, end, side="left")
    count = np.where(end > start, np.maximum(behind - first, 0), 0)
    row = np.repeat(np.arange(len(start)), count)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    step = first[row] + nth
    ns = np.minimum(end[row], step_end[step]) - np.maximum(start[row], step_start[step])
    return Pieces(row, step, ns)


def _sum(cell: Ints, value: Ints, cells: int) -> Ints:
    """Integer sums by cell (np.bincount would go through floats)."""
    totals = np.zeros(cells, dtype=np.int64)
    np.add.at(totals, cell, value)
    return totals


def _ints(frame: pl.DataFrame, column: str) -> Ints:
    return frame[column].cast(pl.Int64).to_numpy()
