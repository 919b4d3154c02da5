"""The change of the step as a sum of changes of its phases.

Medians do not add up: the median step is not made of median phases. So each side is
first given the profile of its median step: over the middle half of the steps by wall
time, each phase is drawn against the wall time by a straight line and read off at the
median. Phases and idle add up to the wall time in every step, so they do in the lines,
and the differences between two such profiles add up to the change of the step's median,
with nothing left over. Outliers do not enter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracebook.compare.inference import Floats
from tracebook.compare.series import Series

#: Part of the steps, by wall time, that the lines are drawn through.
_MIDDLE = 0.5


def profile(series: Series) -> Floats:
    """Time of each quantity in a step of median length, in ns; row 0 is the step."""
    values = series.values
    order = np.argsort(values[0], kind="stable")
    spare = int(len(order) * (1 - _MIDDLE) / 2)
    middle = values[:, order[spare : len(order) - spare]]
    mean = middle.mean(axis=1)
    centred = middle - mean[:, None]
    spread = float(centred[0] @ centred[0])
    slope = centred @ centred[0] / spread if spread > 0 else np.zeros(len(values))
    slope[0] = 1.0
    at_median = mean + slope * (series.median[0] - mean[0])
    at_median[0] = series.median[0]
    return np.asarray(at_median)


def contributions_ns(old: Sequence[Series], new: Sequence[Series]) -> tuple[int, ...]:
    """Whole ns that each phase and idle add to the change of the step.

    Returns:
        For each quantity in order, the step first; the others sum to it exactly.
    """
    sides = [np.mean([profile(series) for series in side], axis=0) for side in (old, new)]
    change = sides[1] - sides[0]
    total = round(float(change[0]))
    return (total, *_whole_numbers(change[1:], total))


def _whole_numbers(parts: Floats, total: int) -> list[int]:
    """Round so that the sum is `total`: the largest remainders are rounded up."""
    below = np.floor(parts)
    missing = total - int(below.sum())
    up = np.argsort(-(parts - below), kind="stable")
    whole = [int(value) for value in below]
    for position in range(abs(missing)):
        whole[int(up[position % len(whole)])] += 1 if missing > 0 else -1
    return whole
