"""Changes that the machine made and not the code: clocks, power limits, heat.

Two signs are looked for. Where every phase slows (or speeds up) by the same factor, a
clock moved: code changes touch phases unequally. Where the steps of one capture fall
into two separate groups which differ in every phase alike, the clock moved during it.
Neither can pass a check, and neither may be blamed on the code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracebook.compare.baseline import Run
from tracebook.compare.gates import IDLE
from tracebook.compare.inference import Floats
from tracebook.compare.series import Series
from tracebook.regimes import two_groups as separate

#: A factor nearer to 1 is told as a change of the step: below it, the small phases do
#: not tell a common factor from none.
LEAST_FACTOR = 0.03
#: Clocks that differ by more are named as the cause.
LEAST_CLOCK = 0.02
#: How far a phase's factor may lie from the common one, as a part of its logarithm.
_TOLERANCE = 0.2
#: The same in standard errors, where those are wider.
_ERRORS = 3.0
#: A phase counts where it takes this part of the step.
_LEAST_SHARE = 0.005
#: Kernel classes that make up this part of the step must have moved along, at least by
#: half of the factor: a matrix kernel that got slower slows no norm.
_CLASS_SHARE, _CLASS_PART = 0.005, 0.5


def uniform_factor(
    names: Sequence[str], old: Sequence[Series], new: Sequence[Series]
) -> float | None:
    """New over old time, where it is one factor for every phase; else None."""
    before = np.mean([series.median for series in old], axis=0)
    after = np.mean([series.median for series in new], axis=0)
    shares = before / before[0]
    rows = [
        row
        for row, name in enumerate(names)
        if row > 0 and name != IDLE and max(before[row], after[row]) >= _LEAST_SHARE * before[0]
    ]
    if len(rows) < 2 or min(before[rows].min(), after[rows].min()) <= 0:
        return None
    moved = np.log(after[rows] / before[rows])
    errors = np.sqrt(_relative_variance(old, rows) + _relative_variance(new, rows))
    weight = 1.0 / (errors**2 + (0.1 * abs(float(moved.mean()))) ** 2 + 1e-12)
    common = float((weight * moved).sum() / weight.sum())
    near = np.abs(moved - common) <= np.maximum(_TOLERANCE * abs(common), _ERRORS * errors)
    clear = moved * np.sign(common) > 2.0 * errors
    if near.all() and clear.all() and shares[rows].sum() > 0.5:
        return math.exp(common)
    return None


def _relative_variance(side: Sequence[Series], rows: Sequence[int]) -> Floats:
    """Variance of the mean of the runs' medians, relative to them."""
    parts = [(series.error[rows] / series.median[rows]) ** 2 for series in side]
    return np.asarray(np.sum(parts, axis=0) / len(side) ** 2)


def classes_moved(old: Run, new: Run, factor: float) -> bool:
    """Whether every kernel class took part in a change by `factor`; True if not known."""
    before, after = _class_times(old), _class_times(new)
    common = math.log(factor)
    total = sum(before.values())
    for kernel_class, ns in before.items():
        if ns < _CLASS_SHARE * total:
            continue
        moved = math.log(after.get(kernel_class, 0) / ns) if after.get(kernel_class) else 0.0
        if moved / common < _CLASS_PART:
            return False
    return True


def _class_times(run: Run) -> dict[str, int]:
    times: dict[str, int] = {}
    for part in run.parts:
        times[part.kernel_class] = times.get(part.kernel_class, 0) + part.ns
    return times


def two_groups(series: Series, names: Sequence[str]) -> tuple[float, float] | None:
    """Medians in ns of two groups of steps that differ in every phase alike; else None."""
    wall = series.values[0]
    slow = separate(np.log(wall))
    if slow is None:
        return None
    low, high = np.median(wall[~slow]), np.median(wall[slow])
    apart = math.log(high / low)
    for row, name in enumerate(names):
        if row == 0 or name == IDLE or series.median[row] < 0.02 * series.median[0]:
            continue
        first, second = (float(np.median(series.values[row][g])) for g in (~slow, slow))
        if first <= 0 or second <= 0 or math.log(second / first) < apart / 2:
            return None
    return float(low), float(high)


def clock_ratio(old: Sequence[Run], new: Sequence[Run]) -> float | None:
    """New over old median clock, where every run has one."""
    clocks = [[run.clock for run in side] for side in (old, new)]
    if any(clock is None or clock <= 0 for side in clocks for clock in side):
        return None
    first, second = (float(np.mean([c for c in side if c is not None])) for side in clocks)
    return second / first
