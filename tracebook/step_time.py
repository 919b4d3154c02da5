"""The law of time: every nanosecond of a step belongs to one kernel, or to none.

In: labelled kernels and the wall intervals of the steps. Out: who owns each
stretch of each step, added up by label: a step has a kernel or two of each. Where kernels
overlap, an instant goes to the running kernel that started first (ties: the smaller
kernel_id). A kernel then owns what begins after every earlier kernel has ended:
[max(start, latest earlier end), end). All of it is integers, so the law is checked exactly,
for every step of every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.kernels.labels import LabelledKernels

Ints = NDArray[np.int64]

#: Kernels that are shared out at a time: what they need meanwhile then stays in the
#: processor's cache.
_CHUNK = 65_536
#: Later than any time in a trace.
_LATEST = 2**63 - 1


class ConservationError(Exception):
    """A law of conservation does not hold: a fault of the program, not of the input."""


@dataclass(frozen=True)
class StepTime:
    """The time of every kept step, shared out.

    Attributes:
        labels: Distinct labels, as in `LabelledKernels`.
        owned: Exclusive time of each label in each step, shape (labels, steps), ns.
        whole: Full durations, overlaps counted twice, same shape.
        kernels: How many kernels that belong to the step, same shape.
        pieces: Per label, the stretches of exclusive time.
        wall_ns: Per step.
        idle_ns: Per step, the time in which no kernel runs.
    """

    labels: pl.DataFrame
    owned: Ints
    whole: Ints
    kernels: Ints
    pieces: Ints
    wall_ns: Ints
    idle_ns: Ints

    @property
    def steps(self) -> int:
        """Number of kept steps."""
        return len(self.wall_ns)


@dataclass(frozen=True)
class Groups:
    """Labels put together by key columns: `keys[code]` names a group, code -1 is none."""

    keys: tuple[tuple[str | int, ...], ...]
    code: Ints


def share_out(kernels: LabelledKernels, steps: pl.DataFrame) -> StepTime:
    """Give every instant of every step to one kernel or to idle.

    Args:
        kernels: Those of other steps and of none count where they run inside a step's
            wall interval.
        steps: STEP_SCHEMA, in time order.

    Raises:
        ConservationError: Steps overlap, or a step's phases and idle do not add up.
    """
    borders = _Borders(_ints(steps, "start_ns"), _ints(steps, "end_ns"))
    if borders.backwards():
        raise ConservationError("steps overlap or run backwards")
    wall_ns = borders.end - borders.start
    shape = (kernels.labels.height, len(wall_ns))
    owned, whole, count = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    pieces = np.zeros(shape[0], dtype=np.int64)
    idle_ns, busy_ns = np.zeros(shape[1], dtype=np.int64), np.zeros(shape[1], dtype=np.int64)
    position = _positions(steps)
    all_start, all_end = _ints(kernels.frame, "start_ns"), _ints(kernels.frame, "end_ns")
    order = _time_order(all_start, kernels.frame)
    # No kernel has ended before the first one: what lies in front of it is idle.
    reached = int(borders.start[0]) if shape[1] else 0
    earlier = np.iinfo(np.int64).min
    for first in range(0, len(kernels), _CHUNK):
        part = slice(first, first + _CHUNK) if order is None else order[first : first + _CHUNK]
        start, end = all_start[part], all_end[part]
        label, step = kernels.label[part], kernels.step[part]
        latest = np.maximum.accumulate(end)
        np.maximum(latest, earlier, out=latest)
        before = np.concatenate(([earlier], latest[:-1]))
        full = borders.cut(start, end)
        overlap = bool((before > start).any())
        own = borders.cut(np.maximum(start, before), end) if overlap else full
        before[0] = reached
        idle = borders.cut(before, start)
        _add(owned, label[own.row], own.step, own.ns)
        _add(whole, label[full.row], full.step, full.ns)
        pieces += np.bincount(label[own.row], minlength=shape[0])
        np.add.at(busy_ns, own.step, own.ns)
        np.add.at(idle_ns, idle.step, idle.ns)
        at = position[np.where((step >= 0) & (step < len(position)), step, -1)]
        _add(count, label[at >= 0], at[at >= 0], 1)
        reached = earlier = int(latest[-1])
    rest = borders.cut(np.array([reached]), borders.end[-1:])
    np.add.at(idle_ns, rest.step, rest.ns)
    if not np.array_equal(busy_ns + idle_ns, wall_ns):
        step_number = int(np.flatnonzero(busy_ns + idle_ns != wall_ns)[0])
        raise ConservationError(
            f"step {step_number}: {busy_ns[step_number]} ns in phases and "
            f"{idle_ns[step_number]} ns idle do not make {wall_ns[step_number]} ns of wall time"
        )
    return StepTime(kernels.labels, owned, whole, count, pieces, wall_ns, idle_ns)


def group(labels: pl.DataFrame, columns: Sequence[str]) -> Groups:
    """Number the distinct values of some columns; labels with a null in them are in no group."""
    keys = labels.select(columns).drop_nulls().unique().sort(columns).with_row_index("code")
    code = labels.select(columns).join(keys, on=list(columns), how="left", maintain_order="left")
    return Groups(
        tuple(keys.select(columns).iter_rows()),
        code["code"].cast(pl.Int64).fill_null(-1).to_numpy(),
    )


def per_step(groups: Groups, values: Ints, weights: Ints | None = None) -> Ints:
    """Sum of what each label has in each step over the labels of each group.

    Args:
        groups: Groups of labels.
        values: `owned`, `whole` or `kernels` of a StepTime.
        weights: What a value of each label is multiplied by, 1 if None.

    Returns:
        Shape (groups, steps).
    """
    sums = np.zeros((len(groups.keys), values.shape[1]), dtype=np.int64)
    for label, code in enumerate(groups.code.tolist()):
        if code >= 0:
            sums[code] += values[label] if weights is None else weights[label] * values[label]
    return sums


@dataclass(frozen=True)
class _Pieces:
    """Stretches of time, cut at the borders of steps: row, step (both positions), ns."""

    row: Ints
    step: Ints
    ns: Ints


@dataclass(frozen=True)
class _Borders:
    """Start and end of the steps."""

    start: Ints
    end: Ints

    def backwards(self) -> bool:
        """Whether steps overlap, or are not in the order of time."""
        return bool(np.any(self.end < self.start) or np.any(self.start[1:] < self.end[:-1]))

    def cut(self, start: Ints, end: Ints) -> _Pieces:
        """Cut intervals at the borders of the steps; what lies in no step falls away."""
        # A search among the few steps that can be met is quicker than one among all.
        low = int(np.searchsorted(self.end, start.min(initial=_LATEST), side="right"))
        high = int(np.searchsorted(self.start, end.max(initial=-_LATEST), side="left"))
        first = np.searchsorted(self.end[low:high], start, side="right")
        behind = np.searchsorted(self.start[low:high], end, side="left")
        count = np.where(end > start, behind - first, 0)
        if count.max(initial=0) <= 1:
            row = np.flatnonzero(count > 0)
            step = first[row] + low
        else:
            count = np.maximum(count, 0)
            row = np.repeat(np.arange(len(start)), count)
            nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
            step = first[row] + nth + low
        ns = np.minimum(end[row], self.end[step]) - np.maximum(start[row], self.start[step])
        return _Pieces(row, step, ns)


def _time_order(start: Ints, frame: pl.DataFrame) -> Ints | None:
    """Order by start, then by kernel_id; None where the kernels are in it."""
    if bool((start[1:] > start[:-1]).all()):
        return None
    return np.lexsort((_ints(frame, "kernel_id"), start))


def _positions(steps: pl.DataFrame) -> Ints:
    """Position of a step by its id; one more entry, the last, stands for no step."""
    ids = _ints(steps, "step_id")
    positions = np.full(int(ids.max(initial=-1)) + 2, -1, dtype=np.int64)
    positions[ids] = np.arange(len(ids))
    return positions


def _add(table: Ints, label: NDArray[np.int32], step: Ints, value: Ints | int) -> None:
    """Add up integers by label and step (np.bincount would go through floats)."""
    np.add.at(table.reshape(-1), label.astype(np.int64) * table.shape[1] + step, value)


def _ints(frame: pl.DataFrame, column: str) -> Ints:
    return frame[column].cast(pl.Int64).to_numpy()
