"""Steps: slices of the launch sequence that repeat, and their kinds.

A period gives anchors, anchors cut the sequence into slices, slices with nearly
the same kernels are one kind.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools, Floats, Ints
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.edit import match_positions
from tracebook.kernels.period import Anchor
from tracebook.kernels.sequence import Kernels

#: Slices of one kind differ in less than this share of their kernels.
KIND_DISTANCE = 0.12
#: This share of the kernels of a step may be replaced by another tactic.
MOST_TACTICS = 0.5
#: Classes most of whose kernels launch one block per token.
ROW_CLASSES = ("norm", "activation", "quantize")
#: Of these a few may have stalled, and look like those of a larger batch.
STALLED_ROWS = 0.1
#: A kernel of this share of a step has to occur equally often in all steps of a kind.
LONG_SHARE = 0.02
MOSTLY_BROKEN = 0.6
#: A slice whose length is this far from the period is no step.
LENGTH_SLACK = 0.35
MOST_EDITS_SHARE = 0.2
#: Durations of a shape that fewer slices have, so many times each, are outliers and no role: what
#: a step does it does in every step.
SELDOM, MOST_OUTLIERS = 0.5, 3.0


@dataclass(frozen=True)
class Slice:
    """Kernels [first, end) of the launch sequence."""

    first: int
    end: int


@dataclass(frozen=True)
class Kind:
    """Slices whose kernels are nearly the same, in time order."""

    slices: tuple[Slice, ...]

    def time_ns(self, kernels: Kernels) -> float:
        """Sum of kernel durations."""
        return float(sum(kernels.busy_between(s.first, s.end) for s in self.slices))


def between(pieces: Sequence[Slice], length: int) -> list[Slice]:
    """Stretches of so many kernels that lie in no piece; those of no kernels as well.

    One in front of each piece and one behind the last: pieces are in order and do not overlap.
    """
    edges = [0, *(edge for piece in pieces for edge in (piece.first, piece.end)), length]
    return [Slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def cut_slices(length: int, anchors: Sequence[Anchor], period: int) -> list[Slice]:
    """Cut the sequence at the best anchor; where it is missing, at the others.

    Returns:
        Slices of about one period, in order; what lies between them is no step.
    """
    marks = anchors[0].positions
    marks = _fill_holes(marks, anchors[1:], period)
    slices: list[Slice] = []
    edges = [*marks.tolist(), min(int(marks[-1]) + period, length)]
    for first, end in itertools.pairwise(edges):
        if end - first > (1 + LENGTH_SLACK) * period:
            # A step followed by something else: keep the step.
            end = first + period
        if abs(end - first - period) <= LENGTH_SLACK * period:
            slices.append(Slice(first, end))
    # Where nearly every step is followed by something else, that is a part of the step.
    breaks = sum(a.end < b.first for a, b in itertools.pairwise(slices))
    return slices if breaks < MOSTLY_BROKEN * len(slices) or breaks < 3 else []


def _fill_holes(marks: Ints, others: Sequence[Anchor], period: int) -> Ints:
    """Add marks inside intervals of two or more periods, from other anchors' positions."""
    gaps = np.diff(marks)
    holes = np.flatnonzero(gaps > (1 + LENGTH_SLACK) * period)
    if not len(holes):
        return marks
    added: list[int] = []
    for anchor in others:
        offset = _usual_offset(marks, anchor.positions, period)
        if offset is None:
            continue
        guesses = anchor.positions - offset
        for hole in holes.tolist():
            low, high = int(marks[hole]), int(marks[hole + 1])
            for guess in guesses[(guesses > low) & (guesses < high)].tolist():
                near = [low, high, *added]
                if min(abs(guess - other) for other in near) > (1 - LENGTH_SLACK) * period:
                    added.append(guess)
    return np.sort(np.concatenate([marks, np.array(added, dtype=np.int64)]))


def _usual_offset(marks: Ints, positions: Ints, period: int) -> int | None:
    """Median distance from a mark to the anchor's next position, where it is steady."""
    behind = np.searchsorted(marks, positions, side="right") - 1
    known = behind >= 0
    offsets = positions[known] - marks[behind[known]]
    offsets = offsets[offsets < period]
    if not len(offsets):
        return None
    usual = int(np.median(offsets))
    steady = np.mean(np.abs(offsets - usual) <= 0.05 * period)
    return usual if steady > 0.6 else None


def sort_kinds(kernels: Kernels, slices: Sequence[Slice]) -> list[Kind]:
    """Group slices by the kernels they hold (not their order), most frequent first."""
    if not slices:
        return []
    symbols = len(kernels.count)
    long = _long_symbols(kernels, slices)
    number, examples = number_slices(slices, kernels.symbol, kernels.in_graph)
    groups: list[list[Slice]] = [[] for _ in examples]
    for piece, own in zip(slices, number, strict=True):
        groups[own].append(piece)
    leaders: list[tuple[Ints, bool, list[Slice]]] = []
    for members in sorted(groups, key=lambda m: (-len(m), m[0].first)):
        piece = members[0]
        bag = np.bincount(kernels.symbol[piece.first : piece.end], minlength=symbols)
        # Eager and captured runs of the same kernels are two kinds: their gaps differ.
        graph = bool(kernels.in_graph[piece.first : piece.end].mean() > 0.5)
        for leader, in_graph, gathered in leaders:
            size = max(int(leader.sum()), piece.end - piece.first)
            apart = np.abs(leader - bag)
            if graph == in_graph and apart.sum() <= KIND_DISTANCE * size and not apart[long].any():
                gathered.extend(members)
                break
        else:
            leaders.append((bag, graph, list(members)))
    kinds = [Kind(tuple(sorted(m, key=lambda s: s.first))) for _, _, m in leaders]
    return sorted(kinds, key=lambda kind: (-len(kind.slices), kind.slices[0].first))


def number_slices(slices: Sequence[Slice], *columns: Ints | Bools) -> tuple[list[int], list[Slice]]:
    """Number slices by what they hold, so that equal numbers mean equal contents.

    Returns:
        The number of each slice, by first occurrence, and a slice of each number.
    """
    numbers: dict[int, list[int]] = {}  # a hash finds candidates, the contents decide
    examples: list[Slice] = []
    result: list[int] = []

    def contents(piece: Slice) -> list[bytes]:
        return [column[piece.first : piece.end].tobytes() for column in columns]

    for piece in slices:
        own = contents(piece)
        key = hash(tuple(own))
        for number in numbers.get(key, []):
            if contents(examples[number]) == own:
                break
        else:
            number = len(examples)
            examples.append(piece)
            numbers.setdefault(key, []).append(number)
        result.append(number)
    return result, examples


def _long_symbols(kernels: Kernels, slices: Sequence[Slice]) -> Bools:
    """Symbols whose single kernel takes so much of a step that its number matters.

    One more output layer is one more draft pass, however few kernels that is.
    """
    step = float(np.median([kernels.busy_between(s.first, s.end) for s in slices]))
    return np.asarray(kernels.busy_ns / np.maximum(kernels.count, 1) > LONG_SHARE * step)


def unify_outliers(kernels: Kernels, slices: Sequence[Slice]) -> Ints | None:
    """Give kernels that took unusually long the symbol of their like.

    A few stalled kernels of one name and grid look like the larger of two matrices. But where
    one is a matrix of its own, a step that has it has one more kernel of that shape.

    Returns:
        A symbol for each symbol, None where none is a matter of chance.
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
    return None if (alias == np.arange(len(shape))).all() else alias


def unify_tactics(kernels: Kernels, kinds: Sequence[Kind]) -> Ints | None:
    """Give one symbol to kernels that replace each other from one kind of step to another.

    An engine that picks another tactic for a matrix changes a name and a grid, and nothing
    around it, while another batch size changes nearly everything.

    Returns:
        A symbol for each symbol, None where no two kinds differ in tactics only.
    """
    if len(kinds) < 2:
        return None
    symbols = len(kernels.count)
    alias = np.arange(symbols)
    by_row = np.isin(CLASSES, ROW_CLASSES)[kernels.kernel_class.of_code]
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
    return None if (alias == np.arange(symbols)).all() else alias


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
    first, second = main.slices[len(main.slices) // 2], other.slices[len(other.slices) // 2]
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
        if agreeing >= 0.8 * counted.total():
            pairs.append((old, new))
    return pairs
