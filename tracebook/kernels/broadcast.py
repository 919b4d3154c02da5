"""From labels of a template to labels of every kernel, and the frame of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tracebook.kernels.assign import Label
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA
from tracebook.kernels.segments import Placed
from tracebook.kernels.sequence import Ints, Kernels
from tracebook.phases import Phase


def label_rows(kernels: Kernels, placed: Placed, labels: Sequence[Label]) -> pl.DataFrame:
    """Broadcast the labels of the template to every kernel.

    Args:
        kernels: The launch sequence.
        placed: Template position per kernel, and the steps.
        labels: One per template position.

    Returns:
        ROW_SCHEMA. Kernels of a step that the template does not know inherit the phase of
        the one before them; kernels outside steps are prefill, warm-up or unclassified.
    """
    step = np.full(len(kernels), -1, dtype=np.int64)
    for number, bound in enumerate(placed.bounds):
        step[bound.first : bound.end] = number
    place = np.where(step >= 0, placed.place, -1)
    place = _inherit(place, step)
    outside = _outside_phase(kernels, step)
    table = pl.DataFrame(
        {
            "phase": [x.phase for x in labels] + outside[1],
            "layer": [x.layer for x in labels] + [None] * len(outside[1]),
            "op": [x.op for x in labels] + [None] * len(outside[1]),
            "matrix": [x.matrix for x in labels] + [None] * len(outside[1]),
            "weight_bytes": [x.weight_bytes for x in labels] + [None] * len(outside[1]),
            "evidence": [x.evidence for x in labels] + ["none"] * len(outside[1]),
            "pass_index": [x.pass_index for x in labels] + [None] * len(outside[1]),
        },
        schema_overrides={
            k: ROW_SCHEMA[k] for k in ("layer", "op", "matrix", "weight_bytes", "pass_index")
        },
    )
    index = np.where(step >= 0, place, len(labels) + outside[0])
    inserted = (step >= 0) & (np.where(step >= 0, placed.place, 0) < 0)
    frame = kernels.frame.select(
        "kernel_id", "kernel_class", "start_ns", "end_ns", "stream", "name_id"
    ).with_columns(
        step_id=pl.Series(step, dtype=pl.Int64),
        _inserted=pl.Series(inserted),
    )
    rows = pl.concat([frame, table[index]], how="horizontal").with_columns(
        step_id=pl.when(pl.col("step_id") >= 0).then("step_id"),
        op=pl.when("_inserted").then("kernel_class").otherwise("op"),
        matrix=pl.when(~pl.col("_inserted")).then("matrix"),
        weight_bytes=pl.when(~pl.col("_inserted")).then("weight_bytes"),
        evidence=pl.when("_inserted").then(pl.lit("neighbour")).otherwise("evidence"),
    )
    rows = rows.select(list(ROW_SCHEMA)).cast(pl.Schema(ROW_SCHEMA))
    if (np.diff(kernels.start_ns) > 0).all():
        return rows
    return rows.sort(["start_ns", "end_ns", "kernel_id"])


def _inherit(place: Ints, step: Ints) -> Ints:
    """Kernels of a step that the template does not know take the place before them."""
    index = np.where(place >= 0, np.arange(len(place)), -1)
    before = np.maximum.accumulate(index)
    same_step = (before >= 0) & (step[np.maximum(before, 0)] == step)
    following = np.minimum.accumulate(
        np.where(place >= 0, np.arange(len(place)), len(place))[::-1]
    )[::-1]
    source = np.where(same_step, before, np.minimum(following, len(place) - 1))
    return np.where(place >= 0, place, place[source])


def _outside_phase(kernels: Kernels, step: Ints) -> tuple[Ints, list[str]]:
    """What kernels outside steps are: index into the returned phases, per kernel."""
    phases = [Phase.WARMUP.value, Phase.PREFILL.value, Phase.UNCLASSIFIED.value]
    inside = step >= 0
    stretch = np.cumsum(np.diff(inside.astype(np.int8), prepend=0) != 0)
    prefill = np.isin(stretch, np.unique(stretch[kernels.prefill & ~inside]))
    first = int(np.flatnonzero(inside)[0])
    early = np.arange(len(step)) < first
    kind = np.where(prefill, 1, np.where(early, 0, 2))
    if early.any() and kernels.prefill[:first].any():
        # Before the first step both occur: prefill from its first marker on.
        begin = int(np.flatnonzero(kernels.prefill[:first])[0])
        kind[:begin] = 0
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
