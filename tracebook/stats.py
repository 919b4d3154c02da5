"""Statistics of one figure over the kept steps.

The interval of the median is the order-statistic interval: it needs no model of
the distribution, only that steps are independent draws. (David and Nagaraja,
Order Statistics, 3rd ed., section 7.1.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tracebook.units import ms, rounded

#: Fewest draws for which a 95 % interval of the median exists (1 - 2 * 0.5**6 = 0.969).
FEWEST_FOR_INTERVAL = 6


@dataclass(frozen=True)
class Summary:
    """One figure over `n` steps, in the unit of its name.

    `ci95` is the 95 % interval of the median, None below `FEWEST_FOR_INTERVAL`.
    """

    median: float
    mean: float
    p05: float
    p95: float
    ci95: tuple[float, float] | None
    n: int


def summarise_ns(values: NDArray[np.integer]) -> Summary:
    """Summarise times given in ns as figures in ms.

    Args:
        values: At least one time, in ns.
    """
    ordered = np.sort(values)
    p05, median, p95 = (float(q) for q in np.quantile(ordered, [0.05, 0.5, 0.95]))
    ranks = median_interval_ranks(len(ordered))
    return Summary(
        median=ms(median),
        mean=rounded(int(ordered.sum()) / len(ordered) / 1e6),
        p05=ms(p05),
        p95=ms(p95),
        ci95=None if ranks is None else (ms(ordered[ranks[0]]), ms(ordered[ranks[1]])),
        n=len(ordered),
    )


@cache
def median_interval_ranks(n: int, confidence: float = 0.95) -> tuple[int, int] | None:
    """Positions (from 0) in the sorted draws that bracket the median.

    The narrowest symmetric pair whose coverage is at least `confidence`: the number
    of draws below the median is binomial(n, 1/2), so dropping k draws at either end
    leaves 1 - 2 P(X <= k - 1). None where even the extremes do not cover enough.
    """
    tail = (1.0 - confidence) / 2.0
    below, dropped = 0.0, 0
    while dropped <= n // 2:
        log_chance = (
            math.lgamma(n + 1) - math.lgamma(dropped + 1) - math.lgamma(n - dropped + 1)
        ) - n * math.log(2.0)
        below += math.exp(log_chance)
        if below > tail:
            break
        dropped += 1
    return (dropped - 1, n - dropped) if dropped else None
