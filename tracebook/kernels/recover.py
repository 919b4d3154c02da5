"""Steps beside the chains: found by how a step begins, once that is known.

Slices begin at an anchor somewhere in a step, so where steps of several kinds alternate (batches
that change, drafts of other lengths) a slice holds the end of one kind and the begin of another
and is like neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracebook.kernels.begins import how_steps_begin, step_begins
from tracebook.kernels.realign import LONGEST, SHORTEST
from tracebook.kernels.segments import Placed, Rotated, alike, lay_whole
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Kind, Slice, between, sort_kinds
from tracebook.kernels.template import Template

#: Steps before the first chain of this many are warm-up.
CHAIN = 3
#: Warm-up never alternates with other kinds of decode step: they come more than once, and none
#: takes this many times as long as the steady one.
OFTEN, LONG = 2, 2.0


@dataclass(frozen=True)
class Recovered:
    """Steps of the steady kind, and the slices between them that are of other kinds.

    `others` is None where nothing marks the begin of a step reliably, or nothing stands between
    the steps. `isolated` counts steps before the first chain, which are warm-up.
    """

    placed: Placed
    others: tuple[Kind, ...] | None = None
    isolated: int = 0


def recover_steps(kernels: Kernels, template: Template, cut: int, placed: Placed) -> Recovered:
    """Find steps of the steady kind, and of others, between the chains of steps.

    Args:
        kernels: The launch sequence.
        template: Of the steady kind.
        cut: Template position at which a step begins.
        placed: What was found in chains; its places are completed.
    """
    length = len(template.symbol)
    least, most = max(8, round(SHORTEST * length)), round(LONGEST * length)
    stretches = [s for s in between(placed.bounds, len(kernels)) if s.end - s.first >= least]
    begin = how_steps_begin(kernels, template, cut) if stretches and placed.bounds else None
    if begin is None:
        return _without_warm_up(placed, None, set())
    whole = Rotated.of(template, cut)
    steps: list[Slice] = []
    others: list[Slice] = []
    cut_off = 0
    for stretch in stretches:
        edges = [stretch.first, *step_begins(kernels, stretch, begin).tolist(), stretch.end]
        for number, (first, end) in enumerate(itertools.pairwise(edges)):
            # A step followed by something else that begins otherwise: the step.
            piece = Slice(first, end if end - first <= most else min(first + length, end))
            if lay_whole(kernels, whole, piece, placed.place):
                steps.append(piece)
            elif piece.end == len(kernels) and alike(kernels, template, piece, part=True):
                cut_off += 1
            elif number and least <= end - first <= most:
                others.append(piece)
    kinds = sort_kinds(kernels, others)
    bounds = sorted((*placed.bounds, *steps), key=lambda piece: piece.first)
    usual_ns = float(np.median([kernels.busy_between(b.first, b.end) for b in bounds]))
    often = {s for kind in kinds if _is_decode(kernels, kind, usual_ns) for s in kind.slices}
    return _without_warm_up(Placed(placed.place, tuple(bounds), cut_off), tuple(kinds), often)


def _without_warm_up(
    placed: Placed, others: tuple[Kind, ...] | None, often: set[Slice]
) -> Recovered:
    """What was found, without the first steps where they are warm-up."""
    first = _warm_up(placed.bounds, often)
    return Recovered(replace(placed, bounds=placed.bounds[first:]), others, first)


def _is_decode(kernels: Kernels, kind: Kind, usual_ns: float) -> bool:
    """Whether another kind may be decode as well, with a steady step of this busy time."""
    if len(kind.slices) < OFTEN:
        return False
    piece = kind.middle
    marked = kernels.prefill[piece.first : piece.end].any()
    return not marked and kernels.busy_between(piece.first, piece.end) <= LONG * usual_ns


def _warm_up(bounds: Sequence[Slice], often: set[Slice]) -> int:
    """How many of the first steps are warm-up: a few, with something else behind them.

    Something else is anything but steps of kinds that come often.
    """
    first = next(
        (
            number
            for number in range(len(bounds) - CHAIN + 1)
            if all(
                bounds[at].end == bounds[at + 1].first for at in range(number, number + CHAIN - 1)
            )
        ),
        0,
    )
    begins = {piece.end: piece.first for piece in often}
    while first:
        at = bounds[first].first
        while at in begins:
            at = begins[at]
        if bounds[first - 1].end != at:
            break
        first -= 1
    return first
