"""What single steps took, and the kernels of one of them: what pictures are drawn from.

In: the kept steps with their time shared out. Out: data that goes into a saved report on
demand, so that steps and timelines can be drawn again without the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.kernels.labels import Labelled
from tracebook.phases import Phase
from tracebook.step_time import StepTime, group, per_step
from tracebook.units import NS_PER_MS


@dataclass(frozen=True)
class StepSamples:
    """Every kept step, in time order; phases and idle add up to the wall time.

    Attributes:
        start_ms: Start since the capture began.
        wall_ms: Wall time.
        idle_ms: Time in which no kernel runs.
        phases_ms: Phase to its exclusive time in each step.
    """

    start_ms: tuple[float, ...]
    wall_ms: tuple[float, ...]
    idle_ms: tuple[float, ...]
    phases_ms: dict[str, list[float]]

    @property
    def frame(self) -> pl.DataFrame:
        """One row per step: start_ms, wall_ms, idle_ms and one column `PHASE_ms` each."""
        columns = {"start_ms": self.start_ms, "wall_ms": self.wall_ms, "idle_ms": self.idle_ms}
        phases = {f"{phase}_ms": values for phase, values in self.phases_ms.items()}
        return pl.DataFrame(columns | phases)


@dataclass(frozen=True)
class MedianStep:
    """The kernels of the kept step whose wall time is nearest the median, by start.

    All lists but `names` have one entry per kernel.

    Attributes:
        position: Of the step among the kept ones, from 0.
        wall_ns: Its wall time.
        names: Distinct kernel names.
        name: Position in `names`.
        stream: Stream it ran on; None where the export does not tell.
        start_ns: Since the start of the step.
        duration_ns: Whole duration, overlaps included.
        phase: A `Phase` value.
        layer: Layer, None outside layers.
        op: What it does, where known.
        matrix: Matrices it reads, joined by "+".
        kernel_class: Class of its name.
        weight_bytes: Bytes of the matrices; None where it reads none or it is not known.
        evidence: What decided the phase.
    """

    position: int
    wall_ns: int
    names: tuple[str, ...]
    name: tuple[int, ...]
    stream: tuple[int | None, ...]
    start_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]
    phase: tuple[str, ...]
    layer: tuple[int | None, ...]
    op: tuple[str | None, ...]
    matrix: tuple[str | None, ...]
    kernel_class: tuple[str, ...]
    weight_bytes: tuple[int | None, ...]
    evidence: tuple[str, ...]

    @property
    def frame(self) -> pl.DataFrame:
        """One row per kernel, with its name in full."""
        kernels = {column: getattr(self, column) for column in _COLUMNS if column != "name"}
        return pl.DataFrame(
            {"name": [self.names[index] for index in self.name], **kernels}, schema=_FRAME
        )


_COLUMNS = tuple(
    field.name for field in fields(MedianStep) if field.name not in ("position", "wall_ns", "names")
)
_TEXTS = ("name", "phase", "op", "matrix", "kernel_class", "evidence")
_FRAME = {column: pl.String() if column in _TEXTS else pl.Int64() for column in _COLUMNS}


def ms_each(ns: NDArray[np.int64]) -> list[float]:
    """Whole ns as ms: the quotient has six decimals at most, so there is nothing to round."""
    times: list[float] = (ns / NS_PER_MS).tolist()
    return times


def step_samples(time: StepTime, steps: pl.DataFrame) -> StepSamples:
    """Times of every kept step.

    Args:
        time: The steps, shared out.
        steps: STEP_SCHEMA.
    """
    groups = group(time.labels, ("phase",))
    owned = per_step(groups, time.owned)
    by_phase = {str(key[0]): owned[code] for code, key in enumerate(groups.keys)}
    return StepSamples(
        start_ms=tuple(ms_each(steps["start_ns"].to_numpy())),
        wall_ms=tuple(ms_each(time.wall_ns)),
        idle_ms=tuple(ms_each(time.idle_ns)),
        phases_ms={
            phase.value: ms_each(by_phase[phase.value])
            for phase in Phase
            if phase.value in by_phase and by_phase[phase.value].any()
        },
    )


def median_step(time: StepTime, labelled: Labelled, names: pl.DataFrame) -> MedianStep:
    """The kernels of the step nearest the median (of equally near ones the first).

    Args:
        time: The steps, shared out.
        labelled: The kernels, and the steps.
        names: NAME_SCHEMA.
    """
    away = np.abs(time.wall_ns - np.median(time.wall_ns))
    position = int(np.argmin(away))
    step = labelled.steps.row(position, named=True)
    # A kernel of the step before may reach into it: it ran here too.
    rows = labelled.kernels.during(step["start_ns"], step["end_ns"]).rows
    rows = rows.sort("start_ns", "kernel_id")
    by_id = dict(names.select("name_id", "name").iter_rows())
    ids = rows["name_id"].unique(maintain_order=True).to_list()
    place = {name_id: index for index, name_id in enumerate(ids)}
    columns = {
        "name": [place[name_id] for name_id in rows["name_id"]],
        "start_ns": (rows["start_ns"] - step["start_ns"]).to_list(),
        "duration_ns": (rows["end_ns"] - rows["start_ns"]).to_list(),
    }
    for column in _COLUMNS:
        if column not in columns:
            columns[column] = rows[column].to_list()
    return MedianStep(
        position=position,
        wall_ns=int(time.wall_ns[position]),
        names=tuple(str(by_id.get(name_id, f"name {name_id}")) for name_id in ids),
        **{column: tuple(values) for column, values in columns.items()},
    )
