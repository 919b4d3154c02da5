"""Step boundaries: from slices at an anchor to whole steps that begin at the cut.

A slice begins wherever its anchor stands, so the first step of a chain lacks its
beginning and the last its end; both are looked for in the kernels around the chain.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from tracebook.columns import Ints, index_type, parts
from tracebook.kernels.edit import dense_head, dense_tail, match_positions
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import KIND_DISTANCE, Slice
from tracebook.kernels.template import Template

#: A step at the edge of a chain counts when this share of its kernels is there: it may differ as
#: much as others of its kind do.
WHOLE = 1 - KIND_DISTANCE
#: So many kernels may be missing where a step meets something else than its like.
MISSING_AT_EDGE = 3
#: Below this share of its usual kernels, the part of a slice before the cut is not its own.
SOUND = 0.8
#: Bags of kernels that differ by less than this share may be the same kind of step.
ALIKE = 0.25


@dataclass(frozen=True)
class Placed:
    """Kernels of the launch sequence and their template positions (-1: not in it).

    `bounds` are the steps [first, end) in order; `cut_off` counts steps that the capture or
    another kind of step cut.
    """

    place: Ints
    bounds: tuple[Slice, ...]
    cut_off: int


def place_steps(kernels: Kernels, template: Template, cut: int) -> Placed:
    """Find the whole steps of the steady kind.

    Args:
        kernels: The launch sequence.
        template: With slices that begin at an anchor.
        cut: Template position at which a step begins.

    Returns:
        Template position per kernel and the bounds of whole steps.
    """
    place = kernels.scratch.empty(len(kernels), index_type(len(template.symbol)))
    for part in parts(len(kernels)):
        place[part] = -1
    edges: dict[int, _Edge] = {}
    pieces: list[_Piece] = []
    for piece, places in zip(template.slices, template.places, strict=True):
        place[piece.first : piece.end] = places
        if id(places) not in edges:  # slices that lie alike share their places
            edges[id(places)] = _edge(places, cut)
        pieces.append(_Piece(piece.first, piece.end, edges[id(places)]))
    bounds: list[Slice] = []
    cut_off = 0
    chains = [[pieces[number] for number in run] for run in template.runs()]
    low = 0
    for number, chain in enumerate(chains):
        high = chains[number + 1][0].first if number + 1 < len(chains) else len(kernels)
        found, lost = _steps_of_chain(kernels, template, cut, chain, place, Slice(low, high))
        low = found[-1].end if found else chain[-1].end
        bounds += found
        cut_off += lost
    return Placed(place, tuple(bounds), cut_off)


@dataclass(frozen=True)
class _Edge:
    """Where a slice that lies along a template crosses the cut.

    Attributes:
        sound: Whether enough of what belongs in front of the cut is there.
        first: Kernel of the slice behind the last one in front of the cut.
        last: Its first kernel at or behind the cut, None where there is none.
    """

    sound: bool
    first: int
    last: int | None


@dataclass(frozen=True)
class _Piece(Slice):
    """A slice of the template, and where it crosses the cut."""

    edge: _Edge


def _edge(places: Ints, cut: int) -> _Edge:
    """Where a slice with these places crosses the cut."""
    ahead = (places >= 0) & (places < cut)
    sound = bool(ahead.sum() >= SOUND * cut)
    behind = np.flatnonzero(places >= cut)
    if not len(behind):
        return _Edge(sound, 0, None)
    before = np.flatnonzero(ahead[: behind[0]])
    return _Edge(sound, int(before[-1]) + 1 if len(before) else 0, int(behind[0]))


def _steps_of_chain(
    kernels: Kernels,
    template: Template,
    cut: int,
    chain: list[_Piece],
    place: Ints,
    free: Slice,
) -> tuple[list[Slice], int]:
    """Whole steps of one chain, those at its two ends completed from around it.

    `free` is the range that no other chain lays claim to.
    """
    chain = [*chain[:-1], _prolonged(kernels, template, cut, chain[-1], place, free.end)]
    edges = [_boundary(kernels, template, place, piece, cut, free.first) for piece in chain]
    lost = 0
    head = (
        _extend_back(kernels, template, cut, chain[0], place, free.first) if cut > 0 else edges[0]
    )
    if head is None:
        lost += 1
    else:
        edges = [head, *edges] if cut > 0 else edges
        edges = _whole_steps_before(kernels, template, cut, edges, place, free.first)
    if not _reaches(kernels, cut, chain[-1], place):
        return [Slice(a, b) for a, b in itertools.pairwise(edges[:-1]) if b > a], lost + 1
    tail = _extend_forward(kernels, template, cut, chain[-1], place, free.end)
    if tail is None:
        lost += 1
    else:
        edges = _whole_steps_behind(kernels, template, cut, [*edges, tail], place, free.end)
    return [Slice(a, b) for a, b in itertools.pairwise(edges) if b > a], lost


def _prolonged(
    kernels: Kernels, template: Template, cut: int, piece: _Piece, place: Ints, high: int
) -> _Piece:
    """The last slice of a chain with what follows of its step: nothing told where it ends."""
    reached = int(place[piece.first : piece.end].max(initial=-1)) + 1
    if piece.edge.last is not None or reached >= cut:
        return piece
    wanted = template.symbol[reached:]
    found = _match(wanted, kernels.symbol[piece.end : min(high, piece.end + _reach(len(wanted)))])
    if found is None:
        return piece
    kept = found[: dense_head(found)]
    end = piece.end + len(kept)
    place[piece.end : end] = np.where(kept >= 0, kept + reached, -1)
    return _Piece(piece.first, end, _edge(place[piece.first : end], cut))


def _reaches(kernels: Kernels, cut: int, piece: _Piece, place: Ints) -> bool:
    """Whether nothing, or hardly anything, of the step that ends in a slice is missing."""
    if piece.edge.last is not None:
        return True
    allowed = MISSING_AT_EDGE if piece.end < len(kernels) else 0
    return int(place[piece.first : piece.end].max(initial=-1)) >= cut - 1 - allowed


@dataclass(frozen=True)
class Rotated:
    """A template from the cut on, and the position of each of its kernels in the template."""

    template: Template
    positions: Ints

    @classmethod
    def of(cls, template: Template, cut: int) -> Rotated:
        """The template as a step has it."""
        positions = np.roll(np.arange(len(template.symbol)), -cut)
        return cls(replace(template, symbol=template.symbol[positions]), positions)

    def back(self, place: Ints) -> Ints:
        """Positions of the template for places in the rotated one."""
        return np.where(place >= 0, self.positions[place], -1)


def lay_whole(kernels: Kernels, whole: Rotated, piece: Slice, place: Ints) -> bool:
    """Lay a slice along a whole step; `place` is only changed where it is one."""
    if not alike(kernels, whole.template, piece):
        return False
    wanted = whole.template.symbol
    found = _match(wanted, kernels.symbol[piece.first : piece.end])
    if found is None or not _complete(found, len(wanted), len(wanted)):
        return False
    at = np.flatnonzero(found >= 0)
    begins, ends = found[at[0]], len(wanted) - 1 - found[at[-1]]
    cut_off = (begins and piece.first == 0) or (ends and piece.end == len(kernels))
    if max(begins, ends) > MISSING_AT_EDGE or cut_off:
        return False
    place[piece.first : piece.end] = whole.back(found)
    return True


def _whole_steps_before(
    kernels: Kernels, template: Template, cut: int, edges: list[int], place: Ints, low: int
) -> list[int]:
    """Steps in front of the first one: the anchor may be missing where a chain begins."""
    whole = Rotated.of(template, cut)
    while True:
        end = edges[0]
        start = max(low, end - len(template.symbol))
        if not alike(kernels, template, Slice(start, end)):
            return edges
        found = _extend_back(kernels, whole.template, 0, Slice(end, end), place, low)
        if found is None:
            return edges
        place[found:end] = whole.back(place[found:end])
        edges = [found, *edges]


def _whole_steps_behind(
    kernels: Kernels, template: Template, cut: int, edges: list[int], place: Ints, high: int
) -> list[int]:
    """Steps behind the last one."""
    whole, length = Rotated.of(template, cut), len(template.symbol)
    while True:
        start = edges[-1]
        if not alike(kernels, template, Slice(start, min(start + length, high))):
            return edges
        end = _extend_forward(kernels, whole.template, length, Slice(start, start), place, high)
        if end is None:
            return edges
        place[start:end] = whole.back(place[start:end])
        edges = [*edges, end]


def alike(kernels: Kernels, template: Template, piece: Slice, *, part: bool = False) -> bool:
    """Whether a region holds about the kernels of a template, whatever their order.

    With `part` it may lack some of them, but has hardly any other.
    """
    symbol, region = template.symbol, kernels.symbol[piece.first : piece.end]
    if not len(region) or (len(region) < WHOLE * len(symbol) and not part):
        return False
    usual = kernels.in_graph[template.source].mean()
    if abs(usual - kernels.in_graph[piece.first : piece.end].mean()) > 0.5:
        return False
    size = int(max(symbol.max(), region.max())) + 1
    difference = np.bincount(region, minlength=size) - np.bincount(symbol, minlength=size)
    if part:
        return float(np.maximum(difference, 0).sum()) <= ALIKE * len(region)
    return float(np.abs(difference).sum()) <= ALIKE * len(symbol)


def _boundary(
    kernels: Kernels, template: Template, place: Ints, piece: _Piece, cut: int, low: int
) -> int:
    """Index of the first kernel of a slice at or behind the cut.

    Kernels that the template does not know and that stand at the cut go to the side of
    the longest pause.
    """
    edge = piece.edge
    if not edge.sound:
        start = _keep_dense_tail(kernels, template, place, piece, cut, low)
        if start is not None:
            return start
        edge = _edge(place[piece.first : piece.end], cut)
    if edge.last is None:
        return piece.end
    last = edge.last
    if edge.first < last and cut > 0:
        gaps = kernels.gap_ns[piece.first + edge.first : piece.first + last + 1]
        last = edge.first + int(gaps.argmax())
    return piece.first + last


def _keep_dense_tail(
    kernels: Kernels, template: Template, place: Ints, piece: Slice, cut: int, low: int
) -> int | None:
    """Place a slice again whose part before the cut is something else than usual.

    Few of its kernels belong there, and those of the step behind the cut may have been
    matched with look-alikes in front of it, or stand in front of the slice. Returns where
    the step begins, None where that stays open.
    """
    wanted = template.symbol[cut:]
    first = max(low, piece.first - _reach(0) - int(0.05 * len(wanted)))
    if (place[first : piece.first] >= 0).any():
        first = piece.first
    found = _match(wanted, kernels.symbol[first : piece.end])
    if found is None:
        return None
    start = dense_tail(found)
    found[:start] = -1
    place[first : piece.end] = np.where(found >= 0, found + cut, -1)
    return first + start if found[start] <= MISSING_AT_EDGE else None


def _extend_back(
    kernels: Kernels, template: Template, cut: int, piece: Slice, place: Ints, low: int
) -> int | None:
    """The step that ends in the first slice: find template[cut:] in front of it."""
    wanted = template.symbol[cut:]
    first = max(low, piece.first - _reach(len(wanted)))
    found = _match(wanted, kernels.symbol[first : piece.first])
    # Of so few kernels all may be missing.
    without = piece.first if len(wanted) <= MISSING_AT_EDGE and piece.first > 0 else None
    if found is None:
        return without
    # Drop matches in what lies in front of the step: keep the tail that matches densely.
    start = dense_tail(found)
    kept = found[start:]
    complete = _complete(kept, len(wanted), len(template.symbol))
    begins = kept[0] <= (MISSING_AT_EDGE if first + start > 0 else 0)
    if not complete or not begins:
        return without
    place[first + start : piece.first] = np.where(kept >= 0, kept + cut, -1)
    return first + start


def _extend_forward(
    kernels: Kernels, template: Template, cut: int, piece: Slice, place: Ints, high: int
) -> int | None:
    """The end of the step that begins in the last slice: the rest of it and template[:cut]."""
    positions = len(template.symbol)
    own = place[piece.first : piece.end]
    behind = own[np.append(np.flatnonzero(own >= cut), len(own))[0] :]
    allowed = max(MISSING_AT_EDGE, (1 - WHOLE) * (positions - cut))
    if _lacking(behind - cut, positions - cut) > allowed:
        return None
    if cut == 0:
        last = int(np.flatnonzero(own >= 0)[-1])
        return piece.first + last + 1 if own[last] >= positions - 2 else None
    wanted = template.symbol[:cut]
    found = _match(wanted, kernels.symbol[piece.end : min(high, piece.end + _reach(len(wanted)))])
    without = piece.end if len(wanted) <= MISSING_AT_EDGE and piece.end < len(kernels) else None
    if found is None:
        return without
    kept = found[: dense_head(found)]
    end = piece.end + len(kept)
    allowed = MISSING_AT_EDGE if end < len(kernels) else 0
    if not _complete(kept, len(wanted), positions) or kept[-1] < len(wanted) - 1 - allowed:
        return without
    place[piece.end : end] = kept
    return end


def _complete(kept: Ints, wanted: int, positions: int) -> bool:
    """Whether nearly nothing of a whole step is missing in the part that was looked for."""
    missing = _lacking(kept, wanted)
    return missing <= min(max(MISSING_AT_EDGE, (1 - WHOLE) * positions), 0.5 * wanted)


def _lacking(kept: Ints, wanted: int) -> int:
    """How many of so many template positions no kernel takes.

    Where as many kernels stand between two matched ones as positions are left out there,
    they are other tactics for the same work.
    """
    at = np.flatnonzero(kept >= 0)
    if not len(at):
        return wanted
    skipped = np.diff(kept[at], prepend=-1, append=wanted) - 1
    other = np.diff(at, prepend=-1, append=len(kept)) - 1
    return int(np.maximum(skipped - other, 0).sum())


def _reach(wanted: int) -> int:
    """How many kernels to look through for so many: some may have been inserted."""
    return int(1.1 * wanted) + 16


def _match(wanted: Ints, region: Ints) -> Ints | None:
    """Template positions of a region's kernels, None where they differ too much."""
    if not len(region):
        return None
    spare = max(0, len(region) - len(wanted))
    found = match_positions(wanted, region, spare + max(24, int(0.3 * len(wanted))))
    return found if found is not None and (found >= 0).any() else None
