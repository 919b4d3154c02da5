"""Populations: kernels of one shape whose durations are clearly separate.

Where names and grids say nothing, durations are all there is: of the kernels of one shape
those that read a small and those that read a large matrix are two populations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracebook.columns import Floats, Ints

#: Durations of one kernel name are taken for two populations where neighbours in the
#: sorted list differ by more than this factor and both sides are well filled.
SPLIT_FACTOR = 1.6
SPLIT_SHARE = 0.004
SPLIT_TIME_SHARE = 0.005
SPLIT_LEAST = 3
SPLIT_WINDOW = 200_000
#: Parts of the trace in which two populations of one name have to run side by side.
SPLIT_PARTS = 16


@dataclass(frozen=True)
class Populations:
    """Populations of durations that the kernels of some shapes fall in.

    Attributes:
        groups: Number of populations per shape.
        first: Symbol of the first of them.
        row: Row of `limits` per shape, -1 where there is but one population.
        limits: From which duration on the next population begins; infinite where there is none.
    """

    groups: Ints
    first: Ints
    row: Ints
    limits: Floats

    @classmethod
    def divided(cls, shapes: int, limits: Sequence[tuple[int, float]]) -> Populations:
        """Of so many shapes, divided at pairs (shape, limit); limits of one shape rise."""
        groups = np.ones(shapes, dtype=np.int64)
        divided = np.unique([shape for shape, _ in limits]).astype(np.int64)
        row = np.full(shapes, -1, dtype=np.int64)
        row[divided] = np.arange(len(divided))
        most = max((sum(s == shape for s, _ in limits) for shape in divided), default=0)
        table = np.full((len(divided), most), np.inf)
        for shape, limit in limits:
            table[row[shape], groups[shape] - 1] = limit
            groups[shape] += 1
        return cls(groups, np.cumsum(groups) - groups, row, table)

    def symbols(self, shape_symbol: Ints, duration_ns: Ints | Floats) -> Ints:
        """Number of shape and population of some kernels."""
        symbol = self.first[shape_symbol]
        if len(self.limits):
            row = self.row[shape_symbol]
            several = np.flatnonzero(row >= 0)
            reached = duration_ns[several, None] >= self.limits[row[several]]
            symbol[several] += reached.sum(axis=1)
        return symbol


def split_by_duration(shape_symbol: Ints, duration_ns: Floats) -> Ints:
    """Refine symbols where one shape has clearly separate durations (any number of groups)."""
    shapes = int(shape_symbol.max(initial=-1)) + 1
    return find_populations(shape_symbol, duration_ns, shapes).symbols(shape_symbol, duration_ns)


def find_populations(shape_symbol: Ints, duration_ns: Any, shapes: int) -> Populations:
    """Tell populations apart on a window from the middle of the trace.

    Args:
        shape_symbol: Number of shape per kernel.
        duration_ns: Of kernels; an array, or what gives one for a part.
        shapes: Number of shapes.
    """
    spare = max(0, len(shape_symbol) - SPLIT_WINDOW) // 2
    window = slice(spare, min(spare + SPLIT_WINDOW, len(shape_symbol)))
    if window.stop == window.start:
        return Populations.divided(shapes, [])
    limits = _population_limits(shape_symbol[window], duration_ns[window])
    return Populations.divided(shapes, limits)


def _population_limits(shape_symbol: Ints, duration_ns: Floats) -> list[tuple[int, float]]:
    """Pairs (shape, shortest duration of its next population)."""
    order = np.lexsort((duration_ns, shape_symbol))
    shape, duration = shape_symbol[order], duration_ns[order]
    log = np.log(np.maximum(duration, 1.0))
    first = np.flatnonzero(np.diff(shape, prepend=shape[0] - 1))
    count = np.diff(np.append(first, len(shape)))
    jump = np.diff(log, prepend=log[0]) > np.log(SPLIT_FACTOR)
    jump[first] = True
    # A group too small to be a population of its own joins the one below it: it needs its
    # share of the kernels of that name, or of all time (a head is rare and long).
    edges = np.flatnonzero(jump)
    size = np.diff(np.append(edges, len(shape)))
    owner = np.searchsorted(first, edges, side="right") - 1
    time = np.add.reduceat(duration, edges)
    heavy = time >= SPLIT_TIME_SHARE * duration.sum()
    own = (size >= SPLIT_LEAST) & (heavy | (size >= SPLIT_SHARE * count[owner]))
    keep = own & np.append(True, own[:-1]) & ~np.isin(edges, first)
    ends = np.append(edges[1:], len(shape))
    parts = min(SPLIT_PARTS, 1 + len(shape) // 64)
    part = order * parts // len(shape)
    return [
        (int(shape[edges[i]]), float(duration[edges[i]]))
        for i in np.flatnonzero(keep)
        if _side_by_side(part[edges[i - 1] : edges[i]], part[edges[i] : ends[i]])
    ]


def _side_by_side(low: Ints, high: Ints) -> bool:
    """Whether two populations run in the same parts of the trace.

    Those of two roles do; the same role before and after a drop of the clock does not.
    """
    low_parts, high_parts = np.unique(low), np.unique(high)
    shared = len(np.intersect1d(low_parts, high_parts))
    return shared >= 0.5 * min(len(low_parts), len(high_parts))
