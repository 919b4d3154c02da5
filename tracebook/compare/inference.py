"""Statistics of steps that depend on each other.

A step resembles the step before it: clocks, temperature and the host drift. Taking 60
such steps for 60 independent ones makes every interval too narrow, so the number of
steps is first replaced by the effective number: n over the variance inflation
1 + 2 (r1 + r2 + ...), where r are the autocorrelations of the ranks, which outliers do
not disturb. The sum ends where pairs of them turn negative (Geyer, Practical Markov
chain Monte Carlo, 1992, section 3.3).

All functions take one row per series and one column per step. Nothing is drawn at
random: the same runs always give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracebook.compare.student import two_sided_p

Floats = NDArray[np.float64]

#: 97.5 % point of the normal distribution: order-statistic intervals are cut there.
_Z = 1.959963984540054
#: Lags that are looked at, as a part of the steps.
_LAGS = 1 / 3


@dataclass(frozen=True)
class Medians:
    """Medians of some series: value, standard error, effective number of steps."""

    value: Floats
    error: Floats
    effective: Floats


def ranks(values: Floats) -> Floats:
    """Ranks in each row from 1; equal values share their mean rank."""
    placed = np.empty(values.shape, dtype=np.float64)
    for row, out in zip(values, placed, strict=True):
        ordered = np.sort(row)
        out[:] = (
            np.searchsorted(ordered, row, "left") + np.searchsorted(ordered, row, "right") + 1
        ) / 2
    return placed


def inflation(values: Floats) -> Floats:
    """By how much dependence inflates the variance of a mean: at least 1, per row.

    Args:
        values: Shape (series, steps).
    """
    steps = values.shape[1]
    if steps < 4:
        return np.ones(len(values))
    correlation = _autocorrelations(ranks(values))
    first = _initial_positive_sum(correlation)
    # Subtracting the mean lowers every autocorrelation by about inflation / n.
    return _initial_positive_sum(correlation + (1.0 - correlation) * (first / steps)[:, None])


def _autocorrelations(values: Floats) -> Floats:
    """Autocorrelations of lags 0, 1, ...: shape (series, lags)."""
    steps = values.shape[1]
    lags = max(2, int(steps * _LAGS) // 2 * 2)
    centred = values - values.mean(axis=1, keepdims=True)
    size = 1 << (steps + lags).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(spectrum, size)[:, :lags]
    variance = covariance[:, :1]
    flat = variance[:, 0] <= 1e-12 * steps
    found = covariance / np.where(variance > 0, variance, 1.0)
    found[flat] = 0.0
    found[:, 0] = 1.0
    return np.asarray(found)


def _initial_positive_sum(correlation: Floats) -> Floats:
    """1 + 2 (r1 + r2 + ...) as far as pairs of lags stay positive and do not rise."""
    pairs = correlation[:, 0::2] + correlation[:, 1::2]
    kept = np.minimum.accumulate(np.where(pairs > 0, pairs, 0.0), axis=1)
    return np.asarray(np.maximum(2.0 * kept.sum(axis=1) - 1.0, 1.0))


def medians(values: Floats, inflated: Floats) -> Medians:
    """Medians with the standard error that their order-statistic interval implies.

    The interval between the order statistics that bracket the median at 95 % is taken
    with the effective number of steps and divided by 2 * 1.96 (McKean and Schrader,
    1984).

    Args:
        values: Shape (series, steps).
        inflated: What `inflation` gave.
    """
    steps = values.shape[1]
    ordered = np.sort(values, axis=1)
    half = _Z * np.sqrt(steps * inflated) / 2.0
    middle = (steps - 1) / 2.0
    low = _at(ordered, middle - half)
    high = _at(ordered, middle + half)
    return Medians(np.median(ordered, axis=1), (high - low) / (2.0 * _Z), steps / inflated)


def _at(ordered: Floats, position: Floats) -> Floats:
    """Values between order statistics, by straight lines."""
    last = ordered.shape[1] - 1
    clipped = np.clip(position, 0, last)
    left = np.floor(clipped).astype(np.int64)
    right = np.minimum(left + 1, last)
    row = np.arange(len(ordered))
    part = clipped - left
    return np.asarray(ordered[row, left] * (1 - part) + ordered[row, right] * part)


def rank_test(old: Floats, new: Floats, old_inflated: Floats, new_inflated: Floats) -> Floats:
    """Two-sided p-values that `old` and `new` are draws of one distribution, per row.

    Welch's t test on the ranks of both together (Conover and Iman, 1981), with the
    effective numbers of steps.
    """
    together = ranks(np.concatenate((old, new), axis=1))
    sides = (together[:, : old.shape[1]], together[:, old.shape[1] :])
    effective = (old.shape[1] / old_inflated, new.shape[1] / new_inflated)
    parts = [side.var(axis=1, ddof=1) / count for side, count in zip(sides, effective, strict=True)]
    gap = sides[1].mean(axis=1) - sides[0].mean(axis=1)
    p = np.ones(len(gap))
    for row in range(len(gap)):
        spread = float(parts[0][row] + parts[1][row])
        if spread == 0.0:
            p[row] = 1.0 if gap[row] == 0 else 0.0
            continue
        draws = zip(parts, effective, strict=True)
        df = welch_df([(float(part[row]), float(count[row])) for part, count in draws])
        p[row] = two_sided_p(float(gap[row]) / spread**0.5, df)
    return p


def welch_df(parts: list[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each given with its number of draws."""
    total = sum(part for part, _ in parts)
    below = sum(part * part / max(count - 1.0, 0.5) for part, count in parts)
    return max(total * total / below, 1.0) if below > 0 else 1e6


def holm(p: Floats) -> Floats:
    """p-values raised for having tested several (Holm, 1979)."""
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    raised = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    back = np.empty_like(raised)
    back[order] = raised
    return back
