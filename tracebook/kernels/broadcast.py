"""From labels of a template to labels of every kernel, and the frame of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracebook.columns import Bools, Floats, Ints, parts
from tracebook.kernels.assign import Label
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.labels import ROW_SCHEMA, SHARED, STEP_SCHEMA, LabelledKernels
from tracebook.kernels.numbering import Numbering
from tracebook.kernels.segments import Placed
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Slice, between
from tracebook.phases import Phase

#: A kernel of another name that stands in for one of the template takes about its time.
SWAP_RATIO = 1.35
#: Phases of kernels outside steps.
OUTSIDE = (Phase.WARMUP.value, Phase.PREFILL.value, Phase.UNCLASSIFIED.value)
_WARMUP, _PREFILL, _UNCLASSIFIED = range(len(OUTSIDE))


def label_rows(kernels: Kernels, placed: Placed, labels: Sequence[Label]) -> LabelledKernels:
    """Broadcast the labels of the template to every kernel.

    Args:
        kernels: The launch sequence.
        placed: Template position per kernel, and the steps.
        labels: One per template position.

    Returns:
        Every kernel. Those of a step that the template does not know inherit the phase of
        the one before them; those outside steps are prefill, warm-up or unclassified.
    """
    step = kernels.scratch.empty(len(kernels), np.int32)
    label = kernels.scratch.empty(len(kernels), np.int32)
    for part in parts(len(kernels)):
        step[part] = -1
    for number, bound in enumerate(placed.bounds):
        step[bound.first : bound.end] = number
    for piece, kind in _outside(kernels, placed.bounds):
        label[piece.first : piece.end] = len(labels) + kind
    names = len(kernels.name_ids)
    distinct = Numbering()
    for part, index, inserted in _indices(kernels, placed.place, step):
        index = np.where(step[part] >= 0, index, label[part])
        key = (2 * index.astype(np.int64) + inserted) * names + kernels.name[part]
        label[part] = distinct.number(key.view(np.uint64))
    told = _told(kernels, labels, distinct.values.view(np.int64))
    return LabelledKernels(
        kernels.frame.select("kernel_id", "start_ns", "end_ns", "stream"),
        _by_start(kernels, step),
        _by_start(kernels, label),
        told,
        kernels.rows,
    )


def _by_start(kernels: Kernels, values: Ints) -> Ints:
    """Values in the order of start instead of launch."""
    if kernels.order is None:
        return values
    placed = kernels.scratch.empty(len(values), values.dtype)
    for part in parts(len(values)):
        placed[kernels.order[part]] = values[part]
    return placed


def _indices(kernels: Kernels, place: Ints, step: Ints) -> Iterator[tuple[slice, Ints, Bools]]:
    """Template position of the kernels of steps by part, and which of them were inserted.

    An inserted kernel has the position of the one before it in its step, else of the next
    one. One that stands in for a kernel of the template is none.
    """
    usual: _Usual | None = None
    before = _Known(-1, -1)
    for part in parts(len(kernels)):
        index, steps = place[part], step[part]
        inserted = (index < 0) & (steps >= 0)
        if inserted.any():
            if usual is None:
                usual = _usual(kernels, place, step)
            index = _swapped(kernels, place, step, usual, part)
            inserted = (index < 0) & (steps >= 0)
            behind = _next_known(place, step, part.stop)
            index = _inherited(index, steps, before, behind)
        known = np.flatnonzero((steps >= 0) & ~inserted)
        if len(known):
            before = _Known(int(index[known[-1]]), int(steps[known[-1]]))
        yield part, index, inserted


@dataclass(frozen=True)
class _Known:
    """Place and step of a kernel that the template knows, -1 where there is none."""

    place: int
    step: int


def _next_known(place: Ints, step: Ints, first: int) -> _Known:
    """The first kernel from `first` on that a step has and the template knows."""
    for part in parts(len(place), first):
        known = np.flatnonzero((place[part] >= 0) & (step[part] >= 0))
        if len(known):
            at = part.start + int(known[0])
            return _Known(int(place[at]), int(step[at]))
    return _Known(-1, -1)


def _inherited(index: Ints, step: Ints, before: _Known, behind: _Known) -> Ints:
    """Places with those of inserted kernels taken from the one before or behind them."""
    place = np.concatenate(([before.place], index, [behind.place]))
    steps = np.concatenate(([before.step], step, [behind.step]))
    known = (place >= 0) & (steps >= 0)
    number = np.arange(len(place))
    last = np.maximum.accumulate(np.where(known, number, 0))
    following = np.where(known, number, len(place))[::-1]
    following = np.minimum.accumulate(following)[::-1]
    # Behind the last one of all there is only what stands before.
    following = np.where(following < len(place), following, last)
    same = known[last] & (steps[last] == steps)
    source = np.where(same, last, following)[1:-1]
    return np.asarray(np.where((step >= 0) & (index < 0), place[source], index))


@dataclass(frozen=True)
class _Usual:
    """What kernels at each template position are: class, how many, and their mean time."""

    kernel_class: Ints
    count: Ints
    duration_ns: Floats


def _usual(kernels: Kernels, place: Ints, step: Ints) -> _Usual:
    """What stands at each position, over all steps."""
    size = max(int(place[part].max()) for part in parts(len(place))) + 1
    count, spent = np.zeros(size, dtype=np.int64), np.zeros(size)
    class_at = np.full(size, -1)
    for part in parts(len(place)):
        known = np.flatnonzero((place[part] >= 0) & (step[part] >= 0))
        at = place[part][known]
        count += np.bincount(at, minlength=size)
        spent += np.bincount(at, weights=kernels.duration_ns[part][known], minlength=size)
        class_at[at] = kernels.kernel_class[part][known]
    return _Usual(class_at, count, spent / np.maximum(count, 1))


def _swapped(kernels: Kernels, place: Ints, step: Ints, usual: _Usual, part: slice) -> Ints:
    """Places of a part with those of kernels that stand in for one of the template.

    Another tactic: such a kernel stands exactly where one is missing, is of its class and
    takes its time.
    """
    first, end = max(part.start - 1, 0), min(part.stop + 1, len(place))
    near, steps = place[first:end], step[first:end]
    holes = np.flatnonzero((near[1:-1] < 0) & (steps[1:-1] >= 0)) + 1
    holes = holes[(steps[holes - 1] == steps[holes]) & (steps[holes + 1] == steps[holes])]
    holes = holes[(near[holes - 1] >= 0) & (near[holes + 1] == near[holes - 1] + 2)]
    result = np.array(place[part])
    if len(holes):
        missing = near[holes - 1] + 1
        at = holes + first
        ratio = kernels.duration_ns[at] / np.maximum(usual.duration_ns[missing], 1.0)
        alike = usual.kernel_class[missing] == kernels.kernel_class[at]
        alike &= (usual.count[missing] > 0) & (ratio < SWAP_RATIO) & (ratio > 1 / SWAP_RATIO)
        result[at[alike] - part.start] = missing[alike]
    return result


def _told(kernels: Kernels, labels: Sequence[Label], keys: Ints) -> pl.DataFrame:
    """Distinct labels in full, from keys made of template position, insertion and name.

    A kernel that was inserted has phase and layer of what it stands in, but reads nothing.
    """
    none = [None] * len(OUTSIDE)
    table = pl.DataFrame(
        {
            "phase": [x.phase for x in labels] + list(OUTSIDE),
            "layer": [x.layer for x in labels] + none,
            "op": [x.op for x in labels] + none,
            "matrix": [x.matrix for x in labels] + none,
            "weight_bytes": [x.weight_bytes for x in labels] + none,
            "evidence": [x.evidence for x in labels] + ["none"] * len(OUTSIDE),
            "pass_index": [x.pass_index for x in labels] + none,
        },
        schema_overrides={k: ROW_SCHEMA[k] for k in SHARED if k not in ("kernel_class", "name_id")},
    )
    names = len(kernels.name_ids)
    name, row, new = keys % names, keys // names // 2, keys // names % 2 == 1
    class_of_name = np.zeros(names, dtype=np.int64)
    class_of_name[kernels.name.of_code] = kernels.kernel_class.of_code
    told = table[row].with_columns(
        name_id=pl.Series(kernels.name_ids[name], dtype=pl.Int64),
        kernel_class=pl.Series([CLASSES[code] for code in class_of_name[name]], dtype=pl.String),
        _new=pl.Series(new, dtype=pl.Boolean),
    )
    told = told.with_columns(
        op=pl.when("_new").then("kernel_class").otherwise("op"),
        matrix=pl.when(~pl.col("_new")).then("matrix"),
        weight_bytes=pl.when(~pl.col("_new")).then("weight_bytes"),
        evidence=pl.when("_new").then(pl.lit("neighbour")).otherwise("evidence"),
    )
    return told.select(SHARED)


def _outside(kernels: Kernels, bounds: Sequence[Slice]) -> Iterator[tuple[Slice, int]]:
    """Kernels outside steps, and what they are: a number of OUTSIDE."""
    for piece in between(bounds, len(kernels)):
        first, end = piece.first, piece.end
        if first == end:
            continue
        marker = _first_prefill(kernels, first, end)
        if first == 0:
            # Before the first step both occur: prefill from its first marker on.
            yield Slice(0, marker), _WARMUP
            yield Slice(marker, end), _PREFILL
        else:
            yield piece, _UNCLASSIFIED if marker == end else _PREFILL


def _first_prefill(kernels: Kernels, first: int, end: int) -> int:
    """The first kernel of a prefill in [first, end), `end` where there is none."""
    if kernels.prefill.any():
        for part in parts(end, first):
            found = np.flatnonzero(kernels.prefill[part])
            if len(found):
                return int(found[0]) + int(part.start)
    return end


def step_frame(kernels: Kernels, placed: Placed) -> pl.DataFrame:
    """STEP_SCHEMA of the whole steps, in time order."""
    bounds = placed.bounds
    start = [int(kernels.start_ns[b.first : b.end].min()) for b in bounds]
    end = [int(kernels.end_ns[b.first : b.end].max()) for b in bounds]
    for number, (bound, following) in enumerate(itertools.pairwise(bounds)):
        if bound.end == following.first:
            end[number] = start[number + 1]
    kernels_of = [bound.end - bound.first for bound in bounds]
    return pl.DataFrame(
        {"step_id": range(len(bounds)), "start_ns": start, "end_ns": end, "kernels": kernels_of},
        schema=pl.Schema(STEP_SCHEMA),
    )
