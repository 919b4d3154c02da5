"""A capture that is not one thing: two regimes, or steps that grow slower and slower.

A clock that drops halfway or a machine that flips between two states gives a median
that no step has, and so does a machine that heats up. Both are found, shown and warned of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: The smaller group holds at least this part of the steps and this many of them.
GROUP_SHARE, GROUP_STEPS = 0.15, 5
#: Medians lie this many spreads apart (Ashman's D: a normal distribution cut at its mean
#: has 2.6, a uniform one 3.5), and by this factor at least.
GROUP_GAP, LEAST_FACTOR = 4.5, 0.03
#: Hardly any step lies in the middle third between the medians.
BETWEEN_SHARE = 0.12
#: A drift: time follows the order of the steps (Spearman's rho) and changes by this share.
DRIFT_ORDER, DRIFT_SHARE, DRIFT_STEPS = 0.8, 0.03, 12


@dataclass(frozen=True)
class Regime:
    """Steps of one regime: how many, their median busy time, and which come first and last.

    `phase_ms` is the median exclusive time of each phase in these steps.
    """

    steps: int
    busy_ms: float
    first_step: int
    last_step: int
    phase_ms: Mapping[str, float] = field(default_factory=dict)


def two_groups(logarithms: Floats) -> Bools | None:
    """Split values in two separate groups, if they are two.

    Args:
        logarithms: ln of the step times, shape (steps,).

    Returns:
        True for the upper group, shape (steps,); None where the values are one group.
    """
    n = len(logarithms)
    least = max(GROUP_STEPS, math.ceil(GROUP_SHARE * n))
    if n < 2 * least:
        return None
    ordered = np.sort(logarithms)
    # Otsu's cut: the two means explain as much of the variance as two can.
    count = np.arange(1, n)
    left = np.cumsum(ordered)[:-1] / count
    right = (ordered.sum() - np.cumsum(ordered)[:-1]) / (n - count)
    cut = int(np.argmax(count * (n - count) * (right - left) ** 2))
    low, high = ordered[: cut + 1], ordered[cut + 1 :]
    if min(len(low), len(high)) < least:
        return None
    gap = float(np.median(high) - np.median(low))
    spread = math.sqrt((_spread(low) ** 2 + _spread(high) ** 2) / 2)
    third = gap / 3
    inside = (ordered > np.median(low) + third) & (ordered < np.median(high) - third)
    apart = gap > GROUP_GAP * spread and gap >= math.log1p(LEAST_FACTOR)
    if not apart or inside.sum() > BETWEEN_SHARE * n:
        return None
    return np.asarray(logarithms > ordered[cut])


def _spread(values: Floats) -> float:
    """Standard deviation that a few outliers do not move: from the median deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def find_regimes(
    busy_ns: NDArray[np.int64], phase_ns: Mapping[str, NDArray[np.int64]] | None = None
) -> tuple[Regime, ...]:
    """Describe the two regimes of a capture, the faster first; empty where there is one.

    Args:
        busy_ns: Busy time of each step in time order, ns.
        phase_ns: Exclusive time of each phase in each step, ns.
    """
    if not len(busy_ns) or busy_ns.min() <= 0:
        return ()
    upper = two_groups(np.log(busy_ns.astype(np.float64)))
    if upper is None:
        return ()
    regimes = []
    for group in (~upper, upper):
        where = np.flatnonzero(group)
        median = _median_ms(busy_ns[group])
        phase_ms = {name: _median_ms(ns[group]) for name, ns in (phase_ns or {}).items()}
        regimes.append(Regime(len(where), median, int(where[0]), int(where[-1]), phase_ms))
    return tuple(regimes)


def _median_ms(values_ns: NDArray[np.int64]) -> float:
    return round(float(np.median(values_ns)) / 1e6, 6)


def find_drift(busy_ns: NDArray[np.int64]) -> float | None:
    """How much slower the last quarter of the steps is than the first, as a share.

    Args:
        busy_ns: Busy time of each step in time order, ns.

    Returns:
        The change (negative where steps get faster) where the steps change steadily from
        the first to the last; None where they do not, and for fewer than 12 steps.
    """
    n = len(busy_ns)
    if n < DRIFT_STEPS or busy_ns.min() <= 0:
        return None
    rank = np.argsort(np.argsort(busy_ns, kind="stable"), kind="stable")
    order = float(np.corrcoef(rank, np.arange(n))[0, 1])
    first, last = np.median(busy_ns[: n // 4]), np.median(busy_ns[-(n // 4) :])
    change = float(last / first) - 1
    if abs(order) < DRIFT_ORDER or abs(change) < DRIFT_SHARE:
        return None
    return round(change, 6)
