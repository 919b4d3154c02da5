"""Steps: slices of the launch sequence that repeat, and their kinds.

A period gives anchors, anchors cut the sequence into slices, slices with nearly
the same kernels are one kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools, Ints
from tracebook.kernels.period import Anchor
from tracebook.kernels.sequence import Kernels

#: Slices of one kind differ in less than this share of their kernels.
KIND_DISTANCE = 0.12
#: Classes most of whose kernels launch one block per token.
ROW_CLASSES = ("norm", "activation", "quantize")
#: A kernel of this share of a step has to occur equally often in all steps of a kind.
LONG_SHARE = 0.02
MOSTLY_BROKEN = 0.6
#: A slice whose length is this far from the period is no step.
LENGTH_SLACK = 0.35
MOST_EDITS_SHARE = 0.2


@dataclass(frozen=True)
class Slice:
    """Kernels [first, end) of the launch sequence."""

    first: int
    end: int


@dataclass(frozen=True)
class Kind:
    """Slices whose kernels are nearly the same, in time order."""

    slices: tuple[Slice, ...]

    @property
    def middle(self) -> Slice:
        """A slice that stands for the kind: by then it runs as it usually does."""
        return self.slices[len(self.slices) // 2]

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
