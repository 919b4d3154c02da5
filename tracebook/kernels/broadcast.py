"""From labels of a template to labels of every kernel, and the frame of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.kernels.assign import Label
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.labels import ROW_SCHEMA, SHARED, STEP_SCHEMA, LabelledKernels
from tracebook.kernels.segments import Placed
from tracebook.kernels.sequence import Bools, Ints, Kernels
from tracebook.phases import Phase

#: A kernel of another name that stands in for one of the template takes about its time.
SWAP_RATIO = 1.35
#: Up to so many keys more than there are kernels a table is quicker than sorting.
_FEW_KEYS = 1 << 20


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
    step = np.full(len(kernels), -1, dtype=np.int32)
    for number, bound in enumerate(placed.bounds):
        step[bound.first : bound.end] = number
    place = _swapped(kernels, placed.place, step)
    inside = step >= 0
    outside, phases = _outside_phase(kernels, inside)
    inserted = inside & (place < 0)
    index = np.where(inside, place, len(labels) + outside.astype(np.int32))
    holes = np.flatnonzero(inserted)
    index[holes] = _inherited(place, step, holes)
    table = pl.DataFrame(
        {
            "phase": [x.phase for x in labels] + phases,
            "layer": [x.layer for x in labels] + [None] * len(phases),
            "op": [x.op for x in labels] + [None] * len(phases),
            "matrix": [x.matrix for x in labels] + [None] * len(phases),
            "weight_bytes": [x.weight_bytes for x in labels] + [None] * len(phases),
            "evidence": [x.evidence for x in labels] + ["none"] * len(phases),
            "pass_index": [x.pass_index for x in labels] + [None] * len(phases),
        },
        schema_overrides={k: ROW_SCHEMA[k] for k in SHARED if k not in ("kernel_class", "name_id")},
    )
    label, distinct = _distinct_labels(kernels, table, index, inserted)
    frame = kernels.frame.select("kernel_id", "start_ns", "end_ns", "stream")
    labelled = LabelledKernels(frame, step, label, distinct)
    if (kernels.start_ns[1:] > kernels.start_ns[:-1]).all():
        return labelled
    order = np.lexsort((frame["kernel_id"].to_numpy(), kernels.end_ns, kernels.start_ns))
    return replace(labelled, frame=frame[order], step=step[order], label=label[order])


def _swapped(kernels: Kernels, place: Ints, step: Ints) -> Ints:
    """Places with those of kernels that stand in for one of the template (another tactic).

    Such a kernel stands exactly where one is missing, is of its class and takes its time.
    """
    holes = np.flatnonzero((place[1:-1] < 0) & (step[1:-1] >= 0)) + 1
    holes = holes[(step[holes - 1] == step[holes]) & (step[holes + 1] == step[holes])]
    holes = holes[(place[holes - 1] >= 0) & (place[holes + 1] == place[holes - 1] + 2)]
    if not len(holes):
        return place
    known = np.flatnonzero((place >= 0) & (step >= 0))
    size = int(place.max()) + 1
    count = np.bincount(place[known], minlength=size)
    spent = np.bincount(place[known], weights=kernels.duration_ns[known], minlength=size)
    class_at = np.full(size, -1)
    class_at[place[known]] = kernels.kernel_class[known]
    missing = place[holes - 1] + 1
    usual = spent[missing] / np.maximum(count[missing], 1)
    ratio = kernels.duration_ns[holes] / np.maximum(usual, 1.0)
    alike = (class_at[missing] == kernels.kernel_class[holes]) & (count[missing] > 0)
    alike &= (ratio < SWAP_RATIO) & (ratio > 1 / SWAP_RATIO)
    result = place.copy()
    result[holes[alike]] = missing[alike]
    return result


def _distinct_labels(
    kernels: Kernels, table: pl.DataFrame, index: Ints, inserted: Bools
) -> tuple[NDArray[np.int32], pl.DataFrame]:
    """Number per kernel of its label, and the labels: rows of the table with name and class.

    A kernel that was inserted has phase and layer of what it stands in, but reads nothing.
    """
    names = len(kernels.name_ids)
    key = (2 * index.astype(np.int64) + inserted) * names + kernels.name
    keys, label = _number(key, 2 * len(table) * names)
    name, row, new = keys % names, keys // names // 2, keys // names % 2 == 1
    of_name = np.zeros(names, dtype=np.int64)
    of_name[kernels.name] = kernels.kernel_class
    told = table[row].with_columns(
        name_id=pl.Series(kernels.name_ids[name], dtype=pl.Int64),
        kernel_class=pl.Series([CLASSES[code] for code in of_name[name]], dtype=pl.String),
        _new=pl.Series(new, dtype=pl.Boolean),
    )
    told = told.with_columns(
        op=pl.when("_new").then("kernel_class").otherwise("op"),
        matrix=pl.when(~pl.col("_new")).then("matrix"),
        weight_bytes=pl.when(~pl.col("_new")).then("weight_bytes"),
        evidence=pl.when("_new").then(pl.lit("neighbour")).otherwise("evidence"),
    )
    return label, told.select(SHARED)


def _number(key: Ints, limit: int) -> tuple[Ints, NDArray[np.int32]]:
    """The distinct keys, all below a limit, in order, and the number of each key among them."""
    if limit > len(key) + _FEW_KEYS:
        keys, number = np.unique(key, return_inverse=True)
        return keys, number.astype(np.int32)
    seen = np.zeros(limit, dtype=bool)
    seen[key] = True
    keys = np.flatnonzero(seen)
    return keys, (np.cumsum(seen, dtype=np.int32) - 1)[key]


def _inherited(place: Ints, step: Ints, holes: Ints) -> Ints:
    """Place before each hole in the same step, else the one behind it."""
    known = np.flatnonzero((step >= 0) & (place >= 0)) if len(holes) else holes
    at = np.searchsorted(known, holes)
    before = known[np.maximum(at - 1, 0)]
    same_step = (at > 0) & (step[before] == step[holes])
    behind = known[np.minimum(at, len(known) - 1)]
    return place[np.where(same_step, before, behind)]


def _outside_phase(kernels: Kernels, inside: Bools) -> tuple[Ints, list[str]]:
    """What kernels outside steps are: index into the returned phases, per kernel."""
    phases = [Phase.WARMUP.value, Phase.PREFILL.value, Phase.UNCLASSIFIED.value]
    edges = np.flatnonzero(np.append(True, inside[1:] != inside[:-1]))
    prefill = np.logical_or.reduceat(kernels.prefill & ~inside, edges)
    kind = np.repeat(np.where(prefill, 1, 2).astype(np.int8), np.diff(edges, append=len(inside)))
    first = int(inside.argmax())
    kind[:first][kind[:first] != 1] = 0
    if first and kernels.prefill[:first].any():
        # Before the first step both occur: prefill from its first marker on.
        kind[: int(kernels.prefill[:first].argmax())] = 0
    return kind, phases


def step_frame(kernels: Kernels, placed: Placed) -> pl.DataFrame:
    """STEP_SCHEMA of the whole steps, in time order."""
    records = []
    for number, bound in enumerate(placed.bounds):
        start = int(kernels.start_ns[bound.first : bound.end].min())
        end = int(kernels.end_ns[bound.first : bound.end].max())
        if number + 1 < len(placed.bounds) and placed.bounds[number + 1].first == bound.end:
            following = placed.bounds[number + 1]
            end = int(kernels.start_ns[following.first : following.end].min())
        records.append((number, start, end, bound.end - bound.first))
    return pl.DataFrame(records, schema=pl.Schema(STEP_SCHEMA), orient="row")
