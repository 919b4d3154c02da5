"""The period of a trace: how many kernels pass until everything comes round again.

Layers repeat inside a step and look like a period themselves. What tells them apart
is the vocabulary: within one step nearly every recurring kernel occurs, also the
ones that run once a step, while a layer holds only its own. So a lag is scored by
the share of distinct symbols, not of kernels, that recur at it, and the smallest
lag that scores like the best one is the period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Ints, gather_groups, index_type, parts
from tracebook.scratch import MEMORY, Scratch

#: The period is looked for in a window of this many kernels from the middle of the trace.
WINDOW = 60_000
#: A lag is a period when it scores at least this share of the best lag's score.
AS_GOOD = 0.9
MIN_SCORE = 0.35
#: Positions that differ by less than this share of the lag count as recurring.
TOLERANCE = 0.02
MIN_PERIOD = 8
#: The window is divided into so many parts to see how spread a symbol is.
SPREAD_BINS = 16


@dataclass(frozen=True)
class Period:
    """A lag in kernels and its score: share of distinct recurring symbols that fit it."""

    kernels: int
    score: float


@dataclass(frozen=True)
class Anchor:
    """Positions that occur once a period, in order, and how regular they are (0..1)."""

    positions: Ints
    regularity: float
    symbol: int


def find_periods(
    symbols: Ints, accept: Callable[[int], bool], as_good: float = AS_GOOD
) -> list[Period]:
    """Candidate periods, best first.

    Args:
        symbols: Symbols in launch order, shape (kernels,).
        accept: Says whether a lag can be a step at all (bounds on its duration).
        as_good: Share of the best score from which on a shorter lag is preferred. Where
            later stages can tell a wrong period, less is enough.

    Returns:
        Periods in the order in which they should be tried; empty where nothing recurs.
    """
    window = _middle(symbols)
    positions = positions_by_symbol(window)
    lags = [lag for lag in _candidate_lags(positions, len(window)) if accept(lag)]
    spread = [
        len(np.unique(where * SPREAD_BINS // len(window))) / SPREAD_BINS for where in positions
    ]
    scored = [Period(lag, _score(positions, spread, lag, len(window))) for lag in lags]
    scored = [period for period in scored if period.score >= MIN_SCORE]
    if not scored:
        return []
    best = max(period.score for period in scored)
    by_score = sorted(scored, key=lambda p: (-p.score, p.kernels))
    near = [p for p in scored if p.score >= AS_GOOD * best]
    likely = [min(near, key=lambda p: p.kernels), by_score[0]]
    good = sorted((p for p in scored if p.score >= as_good * best), key=lambda p: p.kernels)
    return _without_neighbours(likely + good + by_score)


def _middle(symbols: Ints) -> Ints:
    spare = max(0, len(symbols) - WINDOW)
    return symbols[spare // 2 : spare // 2 + WINDOW]


def positions_by_symbol(symbols: Ints, scratch: Scratch = MEMORY) -> list[Ints]:
    """Positions of each symbol, index = symbol."""
    length = len(symbols)
    if not length:
        return []
    most = max(int(symbols[part].max()) for part in parts(length)) + 1
    count = np.zeros(most, dtype=np.int64)
    for part in parts(length):
        count += np.bincount(symbols[part], minlength=most)
    positions = scratch.empty(length, np.int32 if length < 2**31 else np.int64)
    narrow = index_type(most)  # numpy sorts 16 bits digit by digit
    gather_groups(lambda part: symbols[part].astype(narrow, copy=False), count, positions)
    return np.split(positions, np.cumsum(count)[:-1])


def _candidate_lags(positions: list[Ints], length: int) -> list[int]:
    """Lags at which symbols recur, from the rare ones to the common ones."""
    votes: dict[int, float] = {}
    for where in positions:
        if len(where) < 2:
            continue
        gaps = np.diff(where)
        large = np.quantile(gaps, 0.95) if len(gaps) > 20 else gaps.max()
        for lag in {int(np.median(gaps)), int(np.median(gaps[gaps >= 0.5 * large]))}:
            votes[lag] = votes.get(lag, 0.0) + 1.0
        # A symbol that occurs a few times a step: sums of neighbouring gaps.
        for several in (2, 3, 4, 5, 6, 8):
            if len(gaps) >= 2 * several:
                sums = where[several:] - where[:-several]
                lag = int(np.median(sums))
                if np.mean(np.abs(sums - lag) <= TOLERANCE * lag) > 0.6:
                    votes[lag] = votes.get(lag, 0.0) + 0.5
        # A symbol of the layers: the long way round, from a rare long gap to the next.
        long_ends = where[1:][gaps >= 0.6 * gaps.max()]
        if 2 <= len(long_ends) < 0.5 * len(where):
            lag = int(np.median(np.diff(long_ends)))
            votes[lag] = votes.get(lag, 0.0) + 1.0
    usable = [lag for lag in votes if MIN_PERIOD <= lag <= length // 2 + 1]
    merged: list[tuple[int, float]] = []
    for lag in sorted(usable):
        if merged and lag - merged[-1][0] <= 0.01 * lag:
            head, weight = merged[-1]
            merged[-1] = (head if weight >= votes[lag] else lag, weight + votes[lag])
        else:
            merged.append((lag, votes[lag]))
    merged.sort(key=lambda item: -item[1])
    return [lag for lag, _ in merged[:60]]


def _score(positions: list[Ints], spread: list[float], lag: int, length: int) -> float:
    """Share of recurring symbols of which an occurrence is followed by another at `lag`.

    Symbols count by how much of the window they occur in, so that those of a prefill or a
    warm-up, which recur within a moment only, hardly count.
    """
    tolerance = max(2.0, TOLERANCE * lag)
    total, weights = 0.0, 0.0
    for where, weight in zip(positions, spread, strict=True):
        if len(where) < 2:
            continue
        inner = where[where + lag + tolerance < length]
        if not len(inner):
            continue
        target = inner + lag
        right = np.searchsorted(where, target)
        ahead = where[np.minimum(right, len(where) - 1)]
        behind = where[np.maximum(right - 1, 0)]
        near = np.minimum(np.abs(ahead - target), np.abs(behind - target)) <= tolerance
        total += weight * float(near.mean())
        weights += weight
    return total / weights if weights else 0.0


def _without_neighbours(periods: list[Period]) -> list[Period]:
    """Drop lags within 3 % of one that stands further in front."""
    kept: list[Period] = []
    for period in periods:
        if all(abs(period.kernels - other.kernels) > 0.03 * other.kernels for other in kept):
            kept.append(period)
    return kept


def find_anchors(
    symbols: Ints, before_ns: Ints, period: int, most: int = 8, scratch: Scratch = MEMORY
) -> list[Anchor]:
    """Symbols that can mark one place of the period, the most regular first.

    A symbol that occurs several times a period is used at the occurrence that follows
    the longest pause, so that layer kernels can serve where nothing occurs just once.

    Args:
        symbols: In launch order, shape (kernels,).
        before_ns: Busy time in front of each kernel and of all, shape (kernels + 1,);
            regularity is a share of it.
        period: Kernels per step.
        most: How many anchors to return.
        scratch: Where positions of all kernels go.
    """
    span = float(before_ns[-1] - before_ns[0]) or 1.0
    anchors: list[Anchor] = []
    for symbol, where in enumerate(positions_by_symbol(symbols, scratch)):
        marks = _marks(where, period) if len(where) >= 2 else where
        if len(marks) < 2:
            continue
        gaps = np.diff(marks)
        regular = np.flatnonzero(np.abs(gaps - period) <= max(3.0, 0.06 * period))
        # Marks too many would cut a step in pieces.
        single = len(regular) / max(1.0, int((gaps < 0.9 * period).sum()) + len(regular))
        covered = float((before_ns[marks[regular + 1]] - before_ns[marks[regular]]).sum())
        if covered > 0:
            anchors.append(Anchor(marks, covered / span * single, symbol))
    anchors.sort(key=lambda a: (-round(a.regularity, 3), len(a.positions)))
    return anchors[:most]


def _marks(where: Ints, period: int) -> Ints:
    """Occurrences that come once a period: all of them, or those behind the longest pause."""
    long = 0
    shorter = np.zeros(int(np.ceil(1.2 * period)), dtype=np.int64)  # how often each gap occurs
    for part, gaps in _gaps(where, period):
        long += int((gaps >= 0.8 * period).sum())
        inner = gaps[1:] if part.start == 0 else gaps
        shorter += np.bincount(inner[inner < 1.2 * period], minlength=len(shorter))
    if long / len(where) > 0.8 or not shorter.any():
        return where
    rank = max(1, int(shorter.sum()) // 200)
    longest = len(shorter) - 1 - int(np.searchsorted(np.cumsum(shorter[::-1]), rank))
    found = [where[part][gaps >= 0.7 * longest] for part, gaps in _gaps(where, period)]
    return np.concatenate(found)


def _gaps(where: Ints, period: int) -> Iterator[tuple[slice, Ints]]:
    """Distances to the occurrence before, by part; in front of the first one lies a period."""
    for part in parts(len(where)):
        before = where[part.start - 1] if part.start else where[0] - period
        yield part, np.diff(where[part], prepend=before)
