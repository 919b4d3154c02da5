"""Kinds of step in a trace: slice at a period, and look again where nothing was sliced.

A batch that changes swaps nearly every kernel for one of another shape, so that steps of
one kind may hold no anchor of the other. What stays uncovered is therefore searched by
itself, with a period of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracebook.columns import Ints, parts
from tracebook.kernels.period import find_anchors, find_periods
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Kind, Slice, between, cut_slices, sort_kinds
from tracebook.kernels.tactics import unify_outliers, unify_places, unify_tactics

#: Stretches without slices that are searched, the longest first.
MOST_STRETCHES = 6
#: A stretch holds other steps only if it is this many periods long.
LEAST_PERIODS = 2.5
#: A step of another kind has this share of the kernels of the main one at least: what is shorter
#: are layers in a row.
LEAST_SHARE = 0.2


def find_kinds(
    kernels: Kernels, period: int, accept: Callable[[int], bool], marks: Ints
) -> tuple[Kernels, list[Kind]]:
    """Find the kinds of step at a period and beside it.

    Args:
        kernels: One device and process in launch order.
        period: Kernels per step of the main kind.
        accept: Says whether a lag can be a step at all, as for `find_periods`.
        marks: What the period was found in, a number per kernel.

    Returns:
        The kernels, with one symbol for those that replace each other or stalled, and the kinds of
        step, most frequent first; no kinds where nothing marks the period.
    """
    anchors = find_anchors(marks, kernels.before_ns, period, scratch=kernels.scratch)
    if not anchors:
        return kernels, []
    slices = cut_slices(len(kernels), anchors, period)
    for stretch in _uncovered(slices, len(kernels), period)[:MOST_STRETCHES]:
        slices += _slices_within(
            kernels, stretch, lambda lag: lag >= LEAST_SHARE * period and accept(lag)
        )
    slices.sort(key=lambda piece: piece.first)
    kernels = unify_outliers(kernels, slices) or kernels
    kinds = sort_kinds(kernels, slices)
    for unify in (unify_tactics, unify_places):
        unified = unify(kernels, kinds)
        if unified is not None:
            kernels, kinds = unified, sort_kinds(unified, slices)
    return kernels, kinds


def _uncovered(slices: Sequence[Slice], length: int, period: int) -> list[Slice]:
    """Stretches between slices that could hold other steps, the longest first."""
    long = [s for s in between(slices, length) if s.end - s.first >= LEAST_PERIODS * period]
    return sorted(long, key=lambda s: s.first - s.end)


def _slices_within(kernels: Kernels, stretch: Slice, accept: Callable[[int], bool]) -> list[Slice]:
    """Slices at the stretch's own period."""
    part = _own_symbols(kernels, stretch)
    periods = find_periods(part, accept)
    if not periods:
        return []
    before_ns = kernels.before_ns[stretch.first : stretch.end + 1]
    anchors = find_anchors(part, before_ns, periods[0].kernels, scratch=kernels.scratch)
    if not anchors:
        return []
    found = cut_slices(len(part), anchors, periods[0].kernels)
    return [Slice(s.first + stretch.first, s.end + stretch.first) for s in found]


def _own_symbols(kernels: Kernels, stretch: Slice) -> Ints:
    """Symbols of a stretch, numbered anew without those that are not in it."""
    here = np.zeros(len(kernels.count), dtype=bool)
    for part in parts(stretch.end, stretch.first):
        here[kernels.symbol[part]] = True
    number = np.cumsum(here) - 1
    own = kernels.scratch.empty(stretch.end - stretch.first, kernels.symbol.dtype)
    for part in parts(stretch.end, stretch.first):
        own[part.start - stretch.first : part.stop - stretch.first] = number[kernels.symbol[part]]
    return own
