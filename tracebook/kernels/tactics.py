"""Kernels that stand for each other: other tactics for the same work, and stalled ones.

A step is one of a kind by what it does. An engine may do it with other kernels from step to
step, and a machine stalls now and then: neither makes another kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracebook.columns import Bools, Floats, Ints
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.edit import match_positions
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import MOST_EDITS_SHARE, ROW_CLASSES, Kind, Slice, number_slices

#: Durations of a shape that fewer slices have, so many times each, are outliers and no role: what
#: a step does it does in every step.
SELDOM, MOST_OUTLIERS = 0.5, 3.0
#: This share of the kernels of a step may be replaced by another tactic.
MOST_TACTICS = 0.5
#: Of kernels that work row by row, as all glue does, a few may have stalled or belong to another
#: tactic, and look like those of a larger batch.
STALLED_ROWS = 0.1
#: Two steps do the same work where this share of their kernels is of one class in one order, this
#: share of those takes about as long, and kernels of one name have the same grid.
SAME_CLASS, SAME_TIME, SAME_SHAPE = 0.95, 0.95, 0.9
#: Another tactic for a matrix is hardly this many times as fast or slow.
ABOUT_AS_LONG = 2.0


def unify_outliers(kernels: Kernels, slices: Sequence[Slice]) -> Kernels | None:
    """Give kernels that took unusually long the symbol of their like.

    A few stalled kernels of one name and grid look like the larger of two matrices. But where
    one is a matrix of its own, a step that has it has one more kernel of that shape.

    Returns:
        The kernels with other symbols, None where none is a matter of chance.
    """
    shape = kernels.shape_symbol.of_code
    several = np.flatnonzero(np.bincount(shape)[shape] > 1)
    if not len(several) or not slices:
        return None
    number, examples = number_slices(slices, kernels.symbol)
    bags = np.empty((len(examples), len(several)), dtype=np.int32)
    for row, piece in zip(bags, examples, strict=True):
        own = kernels.symbol[piece.first : piece.end]
        row[:] = np.bincount(own, minlength=len(shape))[several]
    bags = bags[number]
    mean_ns = kernels.busy_ns / np.maximum(kernels.count, 1)
    alias = np.arange(len(shape))
    for alike in (np.flatnonzero(shape[several] == own) for own in np.unique(shape[several])):
        have, total = bags[:, alike] > 0, bags[:, alike].sum(axis=1)
        usual = have.sum(axis=0) >= SELDOM * have.any(axis=1).sum()
        for column, has in zip(alike[~usual].tolist(), have.T[~usual], strict=True):
            few = has.any() and bags[has, column].mean() <= MOST_OUTLIERS
            if few and usual.any() and np.median(total[has]) == np.median(total[~has]):
                near = np.log(mean_ns[several[alike[usual]]] / mean_ns[several[column]])
                alias[several[column]] = several[alike[usual]][np.abs(near).argmin()]
    return None if (alias == np.arange(len(shape))).all() else kernels.renamed(alias)


def unify_tactics(kernels: Kernels, kinds: Sequence[Kind]) -> Kernels | None:
    """Give one symbol to kernels that replace each other from one kind of step to another.

    An engine that picks another tactic for a matrix changes a name and a grid, and nothing
    around it, while another batch size changes nearly everything.

    Returns:
        The kernels with other symbols, None where no two kinds differ in tactics only.
    """
    if len(kinds) < 2:
        return None
    symbols = len(kernels.count)
    alias = np.arange(symbols)
    by_row = np.isin(CLASSES, (*ROW_CLASSES, "elementwise"))[kernels.kernel_class.of_code]
    main = _mean_bag(kernels, kinds[0], symbols)
    for other in kinds[1:]:
        bag = _mean_bag(kernels, other, symbols)
        gone = (main > 0.5) & (bag < 0.2 * main)
        come = (bag > 0.5) & (main < 0.2 * bag)
        size = max(main.sum(), bag.sum())
        # Kernels that work row by row change with the batch, not with a tactic.
        if bag[come & by_row].sum() > STALLED_ROWS * bag[by_row].sum():
            continue
        if come.any() and gone.any() and bag[come].sum() <= MOST_TACTICS * size:
            for old, new in _substitutes(kernels, kinds[0], other, gone, come):
                alias[new] = alias[old]
    return None if (alias == np.arange(symbols)).all() else kernels.renamed(alias)


def _mean_bag(kernels: Kernels, kind: Kind, symbols: int) -> Floats:
    """How many kernels of each symbol a slice of a kind has, on average."""
    bag = np.zeros(symbols, dtype=np.int64)
    for s in kind.slices:
        bag += np.bincount(kernels.symbol[s.first : s.end], minlength=symbols)
    return np.asarray(bag / len(kind.slices))


def _substitutes(
    kernels: Kernels, main: Kind, other: Kind, gone: Bools, come: Bools
) -> list[tuple[int, int]]:
    """Pairs (symbol of main, symbol of other) that stand at the same places among the rest."""
    first, second = main.middle, other.middle
    a = kernels.symbol[first.first : first.end]
    b = kernels.symbol[second.first : second.end]
    hidden = len(kernels.count)
    places = match_positions(
        np.where(gone[a], hidden, a), np.where(come[b], hidden, b), int(MOST_EDITS_SHARE * len(a))
    )
    if places is None:
        return []
    votes: dict[int, Counter[int]] = {}
    for j in np.flatnonzero((places >= 0) & come[b]).tolist():
        votes.setdefault(int(b[j]), Counter())[int(a[places[j]])] += 1
    pairs = []
    for new, counted in votes.items():
        old, agreeing = counted.most_common(1)[0]
        if agreeing >= 0.8 * counted.total() and _may_replace(kernels, old, new):
            pairs.append((old, new))
    return pairs


def _may_replace(kernels: Kernels, old: int, new: int) -> bool:
    """Whether kernels of one symbol may do the work of another: not a norm that of a matrix."""
    classes = {CLASSES[int(kernels.kernel_class.of_code[symbol])] for symbol in (old, new)}
    return len(classes - {"unknown"}) < 2


def unify_places(kernels: Kernels, kinds: Sequence[Kind]) -> Kernels | None:
    """Give kernels that do in another step what others do in the main kind their symbols.

    Where two tactics use each other's kernels no symbol stands for another one, but each place
    of the step does what it always does, in about its usual time.

    Args:
        kernels: The launch sequence.
        kinds: Kinds of step, the most frequent first, which gives its symbols to the others.

    Returns:
        The kernels with other symbols, None where no kind does the work of the main one.
    """
    if len(kinds) < 2:
        return None
    main = kinds[0].middle
    symbol: Ints | None = None
    for kind in kinds[1:]:
        if _same_work(kernels, main, kind.middle) is None:
            continue
        for piece in kind.slices:
            found = _same_work(kernels, main, piece)
            if found is None:
                continue
            if symbol is None:
                symbol = kernels.scratch.empty(len(kernels), kernels.symbol.dtype)
                symbol[:] = kernels.symbol
            own, standing_for = found
            symbol[own] = kernels.symbol[standing_for]
    return None if symbol is None else kernels.with_symbols(symbol)


def _same_work(kernels: Kernels, main: Slice, piece: Slice) -> tuple[Ints, Ints] | None:
    """Kernels of a slice and those of another one that do the same; None where work differs."""
    usual, mine = (kernels.kernel_class[s.first : s.end] for s in (main, piece))
    most = round((1 - SAME_CLASS) * len(usual))
    apart = np.bincount(usual, minlength=len(CLASSES)) - np.bincount(mine, minlength=len(CLASSES))
    place = match_positions(usual, mine, most) if np.abs(apart).sum() <= most else None
    if place is None:
        return None
    at = np.flatnonzero(place >= 0)
    own, other = piece.first + at, main.first + place[at]
    times = np.log(
        np.maximum(kernels.duration_ns[own], 1) / np.maximum(kernels.duration_ns[other], 1)
    )
    alike = np.abs(times) <= np.log(ABOUT_AS_LONG)
    named = kernels.name[own] == kernels.name[other]
    shaped = kernels.shape_symbol[own] == kernels.shape_symbol[other]
    if alike.mean() < SAME_TIME or shaped[named].sum() < SAME_SHAPE * named.sum():
        return None
    return own[alike], other[alike]
