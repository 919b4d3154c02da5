"""The law of time: every nanosecond of a step belongs to one kernel, or to none.

In: labelled kernels and the wall intervals of the steps. Out: who owns each
stretch of each step, added up by label: a step has a kernel or two of each. Where kernels
overlap, an instant goes to the running kernel that started first (ties: the smaller
kernel_id). A kernel then owns what begins after every earlier kernel has ended:
[max(start, latest earlier end), end). All of it is integers, so the law is checked exactly,
for every step of every report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.columns import CHUNK, Ints
from tracebook.kernels.labels import LabelledKernels
from tracebook.scratch import MEMORY, Scratch

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
    wall_ns: NDArray[np.int64]
    idle_ns: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Number of kept steps."""
        return len(self.wall_ns)


@dataclass(frozen=True)
class Groups:
    """Labels put together by key columns: `keys[code]` names a group, code -1 is none."""

    keys: tuple[tuple[str | int, ...], ...]
    code: Ints


def share_out(kernels: LabelledKernels, steps: pl.DataFrame, scratch: Scratch = MEMORY) -> StepTime:
    """Give every instant of every step to one kernel or to idle.

    Args:
        kernels: Those of other steps and of none count where they run inside a step's
            wall interval.
        steps: STEP_SCHEMA, in time order.
        scratch: Where tables of labels and steps go, which together have about as many
            entries as there are kernels.

    Raises:
        ConservationError: Steps overlap, or a step's phases and idle do not add up.
    """
    borders = _Borders(_ints(steps, "start_ns"), _ints(steps, "end_ns"))
    if borders.backwards():
        raise ConservationError("steps overlap or run backwards")
    sums = _Sums.empty(kernels.labels.height, borders, scratch)
    position = _positions(steps)
    idle = _Idle(borders)
    for part in _chunks(kernels):
        sums.add(part, idle.add(part), position)
    idle_ns = idle.per_step()
    scratch.release()
    wall_ns = borders.end - borders.start
    busy_ns = sums.owned.sum(axis=0)
    if not np.array_equal(busy_ns + idle_ns, wall_ns):
        step_number = int(np.flatnonzero(busy_ns + idle_ns != wall_ns)[0])
        raise ConservationError(
            f"step {step_number}: {busy_ns[step_number]} ns in phases and "
            f"{idle_ns[step_number]} ns idle do not make {wall_ns[step_number]} ns of wall time"
        )
    return StepTime(
        kernels.labels, sums.owned, sums.whole, sums.kernels, sums.pieces, wall_ns, idle_ns
    )


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
class _Chunk:
    """Some kernels in the order of start, then of kernel_id."""

    start: Ints
    end: Ints
    label: Ints
    step: Ints

    def taken(self, index: Ints) -> _Chunk:
        """Some of them."""
        return _Chunk(self.start[index], self.end[index], self.label[index], self.step[index])


def _chunks(kernels: LabelledKernels) -> Iterator[_Chunk]:
    """The kernels by part; those that start together are in one part."""
    start, end = kernels.column("start_ns"), kernels.column("end_ns")
    kernel_id = kernels.column("kernel_id")
    first = 0
    while first < len(kernels):
        stop = min(first + CHUNK, len(kernels))
        while stop < len(kernels) and start[stop : stop + 1] == start[stop - 1 : stop]:
            stop += 1
        part = slice(first, stop)
        chunk = _Chunk(start[part], end[part], kernels.label[part], kernels.step[part])
        if (chunk.start[1:] == chunk.start[:-1]).any():
            chunk = chunk.taken(np.lexsort((kernel_id[part], chunk.start)))
        yield chunk
        first = stop


@dataclass(frozen=True)
class _Borders:
    """Start and end of the steps."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def backwards(self) -> bool:
        """Whether steps overlap, or are not in the order of time."""
        return bool(np.any(self.end < self.start) or np.any(self.start[1:] < self.end[:-1]))

    def near(self, start: Ints, end: Ints) -> slice:
        """The steps that intervals can meet."""
        low = np.searchsorted(self.end, start.min(initial=_LATEST), side="right")
        high = np.searchsorted(self.start, end.max(initial=-_LATEST), side="left")
        return slice(int(low), max(int(low), int(high)))

    def cut(self, start: Ints, end: Ints, near: slice) -> tuple[Ints | slice, Ints, Ints]:
        """Cut intervals at the borders of the steps; what lies in no step falls away.

        Args:
            start: In order.
            end: Of each interval; it is empty where that is not behind the start.
            near: The steps that they can meet.

        Returns:
            Of each piece the interval, the step (both positions) and the length.
        """
        # Most intervals lie within a step whole: one search per border tells which.
        both = np.stack([self.start[near], self.end[near]], axis=1).ravel()
        count = np.diff(np.searchsorted(start, both), prepend=0, append=len(start))
        numbers = np.full(len(count), -1)
        numbers[1::2] = np.arange(near.start, near.stop)
        limits = np.full(len(count), -_LATEST)
        limits[1::2] = self.end[near]
        step = np.repeat(numbers, count)
        whole = end <= np.repeat(limits, count)
        lasting = end > start
        whole &= lasting
        if whole.all():
            return slice(None), step, end - start
        row = np.flatnonzero(whole)
        other = np.flatnonzero(lasting & ~whole)
        of_other, step_of_other, ns_of_other = self._cut_each(start[other], end[other])
        return (
            np.concatenate([row, other[of_other]]),
            np.concatenate([step[row], step_of_other]),
            np.concatenate([end[row] - start[row], ns_of_other]),
        )

    def _cut_each(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """The same for intervals that may cross borders."""
        first = np.searchsorted(self.end, start, side="right")
        behind = np.searchsorted(self.start, end, side="left")
        count = np.maximum(behind - first, 0)
        row = np.repeat(np.arange(len(start)), count)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        step = first[row] + nth
        ns = np.minimum(end[row], self.end[step]) - np.maximum(start[row], self.start[step])
        return row, step, ns


class _Idle:
    """Idle time of the steps, from the pauses between kernels."""

    def __init__(self, borders: _Borders) -> None:
        self.borders = borders
        self.at = np.concatenate([borders.start, borders.end])
        self.order = np.argsort(self.at, kind="stable")
        self.idle_before = np.zeros(len(self.at), dtype=np.int64)  # of each border
        self.passed = 0  # borders that lie before a kernel
        self.total = 0
        self.reached: int | None = None

    def add(self, chunk: _Chunk) -> Ints:
        """Count the pauses before some kernels.

        Returns:
            The end of what ran before each.
        """
        if self.reached is None:
            # No kernel has ended before the first one: what lies in front of it is idle.
            first = int(chunk.start[0])
            self.reached = min(first, int(self.at.min(initial=first)))
        latest = np.empty(len(chunk.start) + 1, dtype=np.int64)
        latest[0], latest[1:] = self.reached, chunk.end
        np.maximum.accumulate(latest, out=latest)
        before = latest[:-1]
        pause = chunk.start - before
        np.maximum(pause, 0, out=pause)
        idle = np.cumsum(pause)
        idle += self.total
        self._pass(chunk.start, before, idle - pause)
        self.total, self.reached = int(idle[-1]), int(latest[-1])
        return before

    def _pass(self, start: Ints, before: Ints, idle_before: Ints) -> None:
        """Tell the idle time in front of the borders up to the last start."""
        ahead = self.order[self.passed :]
        ahead = ahead[: np.searchsorted(self.at[ahead], start[-1], side="right")]
        at = self.at[ahead]
        kernel = np.searchsorted(start, at, side="left")
        self.idle_before[ahead] = idle_before[kernel] + np.maximum(at - before[kernel], 0)
        self.passed += len(ahead)

    def per_step(self) -> NDArray[np.int64]:
        """Idle time of each step, ns."""
        rest = self.order[self.passed :]
        reached = self.at.min(initial=0) if self.reached is None else self.reached
        self.idle_before[rest] = self.total + np.maximum(self.at[rest] - reached, 0)
        steps = len(self.borders.start)
        return self.idle_before[steps:] - self.idle_before[:steps]


@dataclass
class _Sums:
    """What each label has in each step, as `StepTime`; filled by part."""

    borders: _Borders
    owned: Ints
    whole: Ints
    kernels: Ints
    pieces: Ints
    scratch: Scratch

    @classmethod
    def empty(cls, labels: int, borders: _Borders, scratch: Scratch) -> _Sums:
        """All zero."""
        wall_ns = int((borders.end - borders.start).max(initial=0))
        shape = (labels, len(borders.start))
        narrow = np.int32 if wall_ns < 2**31 else np.int64
        size = shape[0] * shape[1]
        owned = scratch.zeros(size, narrow).reshape(shape)
        kernels = scratch.zeros(size, np.int32).reshape(shape)
        return cls(borders, owned, owned, kernels, np.zeros(labels, dtype=np.int64), scratch)

    def add(self, chunk: _Chunk, before: Ints, position: Ints) -> None:
        """Count some kernels, before each of which all is over at `before`."""
        near = self.borders.near(chunk.start, chunk.end)
        overlap = bool((before > chunk.start).any())
        own_start = np.maximum(chunk.start, before) if overlap else chunk.start
        if overlap and self.whole is self.owned:
            whole = self.scratch.zeros(self.owned.size, np.int64)
            self.whole = whole.reshape(self.owned.shape)
            self.whole += self.owned
        row, step, ns = self.borders.cut(own_start, chunk.end, near)
        one_each = isinstance(row, slice)  # each kernel makes one piece
        cells = _Cells.of(len(self.pieces), near, chunk.label[row], step)
        cells.add_to(self.owned, ns)
        counted = cells.count()
        self.pieces += counted.sum(axis=1)
        if self.whole is not self.owned:
            row, full, ns = self.borders.cut(chunk.start, chunk.end, near)
            _Cells.of(len(self.pieces), near, chunk.label[row], full).add_to(self.whole, ns)
        belongs = position[np.minimum(chunk.step, len(position) - 1)]
        if one_each and np.array_equal(belongs, step):
            self.kernels[:, near] += counted
        else:
            self._count(chunk.label, belongs)

    def _count(self, label: Ints, step: Ints) -> None:
        """Count kernels in the steps they belong to, if any."""
        known = np.flatnonzero(step >= 0)
        if len(known):
            step = step[known]
            near = slice(int(step.min()), int(step.max()) + 1)
            self.kernels[:, near] += _Cells.of(len(self.pieces), near, label[known], step).count()


@dataclass(frozen=True)
class _Cells:
    """Cells of a table of labels and steps that values go to: those of the steps `near`."""

    labels: int
    near: slice
    number: Ints

    @classmethod
    def of(cls, labels: int, near: slice, label: Ints, step: Ints) -> _Cells:
        """The cell of each pair of label and step."""
        number = label * np.int64(near.stop - near.start)
        number += step
        number -= near.start
        return cls(labels, near, number)

    @property
    def shape(self) -> tuple[int, int]:
        """Labels and steps."""
        return self.labels, self.near.stop - self.near.start

    def count(self) -> Ints:
        """How often each cell occurs."""
        return np.bincount(self.number, minlength=math.prod(self.shape)).reshape(self.shape)

    def add_to(self, table: Ints, ns: Ints) -> None:
        """Add integers; through floats where these are exact, which is quicker."""
        size = math.prod(self.shape)
        if len(ns) * int(ns.max(initial=0)) < 2**53:
            sums = np.bincount(self.number, weights=ns, minlength=size).astype(table.dtype)
        else:
            sums = np.zeros(size, dtype=table.dtype)
            np.add.at(sums, self.number, ns)
        table[:, self.near] += sums.reshape(self.shape)


def _positions(steps: pl.DataFrame) -> Ints:
    """Position of a step by its id; one more entry, the last, stands for no step."""
    ids = _ints(steps, "step_id")
    positions = np.full(int(ids.max(initial=-1)) + 2, -1, dtype=np.int64)
    positions[ids] = np.arange(len(ids))
    return positions


def _ints(frame: pl.DataFrame, column: str) -> NDArray[np.int64]:
    return frame[column].cast(pl.Int64).to_numpy()
