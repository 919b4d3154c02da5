"""Kinds of step in a trace: slice at a period, and look again where nothing was sliced.

A batch that changes swaps nearly every kernel for one of another shape, so that steps of
one kind may hold no anchor of the other. What stays uncovered is therefore searched by
itself, with a period of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tracebook.kernels.period import find_anchors, find_periods
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Kind, Slice, cut_slices, sort_kinds, unify_tactics

#: Stretches without slices that are searched, the longest first.
MOST_STRETCHES = 6
#: A stretch holds other steps only if it is this many periods long.
LEAST_PERIODS = 2.5


def find_kinds(
    kernels: Kernels, period: int, accept: Callable[[int], bool]
) -> tuple[Kernels, list[Kind]]:
    """Find the kinds of step at a period and beside it.

    Args:
        kernels: One device and process in launch order.
        period: Kernels per step of the main kind.
        accept: Says whether a lag can be a step at all, as for `find_periods`.

    Returns:
        The kernels, with one symbol for those that replace each other, and the kinds of
        step, most frequent first; no kinds where nothing marks the period.
    """
    anchors = find_anchors(kernels.symbol, kernels.duration_ns, period)
    if not anchors:
        return kernels, []
    slices = cut_slices(len(kernels), anchors, period)
    for stretch in _uncovered(slices, len(kernels), period)[:MOST_STRETCHES]:
        slices += _slices_within(kernels, stretch, accept)
    slices.sort(key=lambda piece: piece.first)
    kinds = sort_kinds(kernels, slices)
    unified = unify_tactics(kernels, kinds)
    if unified is None:
        return kernels, kinds
    kernels = replace(kernels, symbol=unified)
    return kernels, sort_kinds(kernels, slices)


def _uncovered(slices: Sequence[Slice], length: int, period: int) -> list[Slice]:
    """Stretches between slices that could hold other steps, the longest first."""
    edges = [0, *(edge for piece in slices for edge in (piece.first, piece.end)), length]
    stretches = [Slice(edges[i], edges[i + 1]) for i in range(0, len(edges), 2)]
    long = [s for s in stretches if s.end - s.first >= LEAST_PERIODS * period]
    return sorted(long, key=lambda s: s.first - s.end)


def _slices_within(kernels: Kernels, stretch: Slice, accept: Callable[[int], bool]) -> list[Slice]:
    """Slices at the stretch's own period."""
    part = np.unique(kernels.symbol[stretch.first : stretch.end], return_inverse=True)[1]
    periods = find_periods(part, accept)
    if not periods:
        return []
    duration = kernels.duration_ns[stretch.first : stretch.end]
    anchors = find_anchors(part, duration, periods[0].kernels)
    if not anchors:
        return []
    found = cut_slices(len(part), anchors, periods[0].kernels)
    return [Slice(s.first + stretch.first, s.end + stretch.first) for s in found]
