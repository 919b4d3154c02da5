"""Runs of one side as series of steps, in one order of quantities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.compare.baseline import Run
from tracebook.compare.gates import IDLE, STEP
from tracebook.compare.inference import Floats, inflation, medians
from tracebook.phases import STEP_PHASES


@dataclass(frozen=True)
class Series:
    """The steps of one run: `values` of shape (quantities, steps), in ns."""

    values: Floats
    inflated: Floats
    median: Floats
    error: Floats

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.values.shape[1])


def phases_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Phases that any of the runs has, in report order."""
    present = {phase for run in runs for phase in run.phases_ns}
    return tuple(phase.value for phase in STEP_PHASES if phase.value in present)


def quantities_of(phases: Sequence[str]) -> tuple[str, ...]:
    """The step, its phases, idle: the order of every table here."""
    return (STEP, *phases, IDLE)


def series_of(run: Run, phases: Sequence[str]) -> Series:
    """A run as series; a phase that it does not have takes 0 ns in every step."""
    none = np.zeros(run.steps, dtype=np.int64)
    rows = [run.wall_ns, *(run.phases_ns.get(phase, none) for phase in phases), run.idle_ns]
    values = np.array(rows, dtype=np.float64)
    inflated = inflation(values)
    found = medians(values, inflated)
    return Series(values, inflated, found.value, found.error)
