"""Steps: slices of the launch sequence that repeat, their kinds, and one template.

A period gives anchors, anchors cut the sequence into slices, slices with nearly
the same kernels are one kind. The steady kind is described by a template, its
usual sequence; every slice of that kind is laid along it, so that all later work
is done once per template position and not once per kernel.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.kernels.classes import CLASSES
from tracebook.kernels.edit import match_positions
from tracebook.kernels.period import Anchor
from tracebook.kernels.sequence import Bools, Floats, Ints, Kernels

#: Slices of one kind differ in less than this share of their kernels.
KIND_DISTANCE = 0.12
#: This share of the kernels of a step may be replaced by another tactic.
MOST_TACTICS = 0.35
#: Classes most of whose kernels launch one block per token.
ROW_CLASSES = ("norm", "activation", "quantize")
#: A kernel of this share of a step has to occur equally often in all steps of a kind.
LONG_SHARE = 0.02
MOSTLY_BROKEN = 0.6
#: A slice whose length is this far from the period is no step.
LENGTH_SLACK = 0.35
#: A kernel belongs to the template when this share of the slices has it.
MAJORITY = 0.5
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

    def time_ns(self, kernels: Kernels) -> float:
        """Sum of kernel durations."""
        return float(sum(kernels.duration_ns[s.first : s.end].sum() for s in self.slices))


@dataclass(frozen=True)
class Template:
    """The usual sequence of a kind and how its slices lie along it.

    Attributes:
        symbol: Symbols of the positions, shape (positions,).
        source: Index into the launch sequence of one kernel per position.
        slices: The slices laid along the template.
        places: Per slice, the position of each of its kernels or -1.
        duration_ns: Median duration per position.
        gap_ns: Median idle time before the kernel at the position.
    """

    symbol: Ints
    source: Ints
    slices: tuple[Slice, ...]
    places: tuple[Ints, ...]
    duration_ns: Floats
    gap_ns: Floats


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
    symbols = int(kernels.symbol.max()) + 1
    long = _long_symbols(kernels, slices, symbols)
    groups: dict[bytes, list[Slice]] = {}
    for piece in slices:
        part = slice(piece.first, piece.end)
        key = kernels.symbol[part].tobytes() + kernels.in_graph[part].tobytes()
        groups.setdefault(key, []).append(piece)
    leaders: list[tuple[Ints, bool, list[Slice]]] = []
    for members in sorted(groups.values(), key=lambda m: (-len(m), m[0].first)):
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


def _long_symbols(kernels: Kernels, slices: Sequence[Slice], symbols: int) -> Bools:
    """Symbols whose single kernel takes so much of a step that its number matters.

    One more output layer is one more draft pass, however few kernels that is.
    """
    count = np.bincount(kernels.symbol, minlength=symbols)
    total = np.bincount(kernels.symbol, weights=kernels.duration_ns, minlength=symbols)
    step = float(np.median([kernels.duration_ns[s.first : s.end].sum() for s in slices]))
    return np.asarray(total / np.maximum(count, 1) > LONG_SHARE * step)


def unify_tactics(kernels: Kernels, kinds: Sequence[Kind]) -> Ints | None:
    """Give one symbol to kernels that replace each other from one kind of step to another.

    An engine that picks another tactic for a matrix changes a name and a grid, and nothing
    around it, while another batch size changes nearly everything.

    Returns:
        New symbols for all kernels, None where no two kinds differ in tactics only.
    """
    if len(kinds) < 2:
        return None
    symbols = int(kernels.symbol.max()) + 1
    alias = np.arange(symbols)
    by_row = np.zeros(symbols, dtype=bool)
    by_row[kernels.symbol] = np.isin(CLASSES, ROW_CLASSES)[kernels.kernel_class]
    main = _mean_bag(kernels, kinds[0], symbols)
    for other in kinds[1:]:
        bag = _mean_bag(kernels, other, symbols)
        gone = (main > 0.5) & (bag < 0.2 * main)
        come = (bag > 0.5) & (main < 0.2 * bag)
        size = max(main.sum(), bag.sum())
        # Kernels that work row by row change with the batch, not with a tactic.
        if (come & by_row).any():
            continue
        if come.any() and gone.any() and bag[come].sum() <= MOST_TACTICS * size:
            for old, new in _substitutes(kernels, kinds[0], other, gone, come):
                alias[new] = alias[old]
    return None if (alias == np.arange(symbols)).all() else alias[kernels.symbol]


def _mean_bag(kernels: Kernels, kind: Kind, symbols: int) -> Floats:
    bags = [np.bincount(kernels.symbol[s.first : s.end], minlength=symbols) for s in kind.slices]
    return np.asarray(np.mean(bags, axis=0))


def _substitutes(
    kernels: Kernels, main: Kind, other: Kind, gone: Bools, come: Bools
) -> list[tuple[int, int]]:
    """Pairs (symbol of main, symbol of other) that stand at the same places among the rest."""
    first, second = main.slices[len(main.slices) // 2], other.slices[len(other.slices) // 2]
    a = kernels.symbol[first.first : first.end]
    b = kernels.symbol[second.first : second.end]
    hidden = int(kernels.symbol.max()) + 1
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


def build_template(kernels: Kernels, kind: Kind) -> Template:
    """Find the usual sequence of a kind and lay every slice along it."""
    sequences = [kernels.symbol[s.first : s.end] for s in kind.slices]
    source = _medoid(sequences, kind.slices)
    symbol = kernels.symbol[source]
    for _ in range(2):
        places = _lay_along(symbol, sequences)
        changed = _majority(symbol, source, kind.slices, sequences, places)
        if changed is None:
            break
        source = changed
        symbol = kernels.symbol[source]
    places = _lay_along(symbol, sequences)
    laid = [i for i, place in enumerate(places) if place is not None]
    slices = tuple(kind.slices[i] for i in laid)
    found = tuple(p for p in places if p is not None)
    return Template(
        symbol=symbol,
        source=source,
        slices=slices,
        places=found,
        duration_ns=_medians(kernels.duration_ns, slices, found, len(symbol)),
        gap_ns=_medians(kernels.gap_ns, slices, found, len(symbol)),
    )


def _medoid(sequences: Sequence[Ints], slices: Sequence[Slice]) -> Ints:
    """Kernel indices of the most frequent sequence, or of the one nearest to the others."""
    counts = Counter(sequence.tobytes() for sequence in sequences)
    usual, times = counts.most_common(1)[0]
    if times == 1 and len(sequences) > 2:
        symbols = max(int(s.max()) for s in sequences) + 1
        bags = np.array([np.bincount(s, minlength=symbols) for s in sequences])
        middle = np.median(bags, axis=0)
        usual = sequences[int(np.abs(bags - middle).sum(axis=1).argmin())].tobytes()
    index = next(i for i, s in enumerate(sequences) if s.tobytes() == usual)
    return np.arange(slices[index].first, slices[index].end)


def _lay_along(symbol: Ints, sequences: Sequence[Ints]) -> list[Ints | None]:
    """Match each sequence with the template, each distinct one once."""
    most = max(8, int(MOST_EDITS_SHARE * len(symbol)))
    known: dict[bytes, Ints | None] = {}
    result: list[Ints | None] = []
    for sequence in sequences:
        key = sequence.tobytes()
        if key not in known:
            known[key] = match_positions(symbol, sequence, most)
        result.append(known[key])
    return result


def _majority(
    symbol: Ints,
    source: Ints,
    slices: Sequence[Slice],
    sequences: Sequence[Ints],
    places: Sequence[Ints | None],
) -> Ints | None:
    """A better template: insertions most slices have, without positions few have; None if same."""
    usable = [i for i, place in enumerate(places) if place is not None]
    present = np.zeros(len(symbol))
    inserted: Counter[tuple[int, int, int]] = Counter()
    example: dict[tuple[int, int, int], int] = {}
    for i in usable:
        place = places[i]
        assert place is not None
        present[place[place >= 0]] += 1
        last, run = -1, 0
        for j in np.flatnonzero(place < 0).tolist():
            before = int(place[:j].max(initial=-1))
            run = run + 1 if before == last else 0
            last = before
            key = (before, run, int(sequences[i][j]))
            inserted[key] += 1
            example.setdefault(key, slices[i].first + j)
    needed = MAJORITY * len(usable)
    extra = sorted(key for key, count in inserted.items() if count > needed)
    keep = present >= needed
    if not extra and keep.all():
        return None
    merged = [((int(p), -1), int(source[p])) for p in np.flatnonzero(keep)]
    merged += [((before, run), example[(before, run, s)]) for before, run, s in extra]
    return np.array([index for _, index in sorted(merged)], dtype=np.int64)


def _medians(
    values: Floats, slices: Sequence[Slice], places: Sequence[Ints], positions: int
) -> Floats:
    """Median over the slices per template position."""
    table = np.full((len(slices), positions), np.nan)
    for row, (piece, place) in enumerate(zip(slices, places, strict=True)):
        on = place >= 0
        table[row, place[on]] = values[piece.first : piece.end][on]
    missing = np.isnan(table).all(axis=0)
    table[:, missing] = 0.0
    return np.asarray(np.nanmedian(table, axis=0))
