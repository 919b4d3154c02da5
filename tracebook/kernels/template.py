"""The template of a kind of step: its usual sequence, and how every slice lies along it.

The steady kind is described by a template, so that all later work is done once per
template position and not once per kernel. Slices with the same symbols are laid along it
once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracebook.columns import Floats, Ints, Values, index_type
from tracebook.kernels.edit import match_positions
from tracebook.kernels.sequence import Durations, Kernels
from tracebook.kernels.steps import MOST_EDITS_SHARE, Kind, Slice, number_slices
from tracebook.scratch import Scratch

#: A kernel belongs to the template when this share of the slices has it.
MAJORITY = 0.5
#: Slices that are laid side by side at a time for their medians.
_SLICES = 64


@dataclass(frozen=True)
class Template:
    """The usual sequence of a kind and how its slices lie along it.

    Attributes:
        symbol: Symbols of the positions, shape (positions,).
        source: Index into the launch sequence of one kernel per position.
        slices: The slices laid along the template.
        places: Per slice, the position of each of its kernels or -1; one array for all
            slices with the same symbols.
        duration_ns: Median duration per position.
    """

    symbol: Ints
    source: Ints
    slices: tuple[Slice, ...]
    places: tuple[Ints, ...]
    duration_ns: Floats

    def runs(self) -> list[range]:
        """Numbers of the slices that follow each other without a kernel in between."""
        pairs = enumerate(itertools.pairwise(self.slices), start=1)
        begins = [0, *(number for number, (a, b) in pairs if a.end != b.first)]
        return [range(a, b) for a, b in itertools.pairwise([*begins, len(self.slices)])]

    def gap_ns(self, kernels: Kernels) -> Floats:
        """Median idle time before the kernel at each position."""
        return medians(kernels.gap_ns, self, kernels.scratch)


def build_template(kernels: Kernels, kind: Kind) -> Template:
    """Find the usual sequence of a kind and lay every slice along it."""
    number, examples = number_slices(kind.slices, kernels.symbol)
    symbols = tuple(kernels.symbol[piece.first : piece.end] for piece in examples)
    sequences = _Sequences(tuple(examples), symbols, np.bincount(number))
    source = _medoid(sequences, len(kernels.count), kernels.scratch)
    for _ in range(2):
        symbol = kernels.symbol[source]
        places = _lay_along(symbol, sequences, kernels.scratch)
        changed = _majority(source, sequences, places)
        if changed is None:
            break
        source = changed
    else:
        symbol = kernels.symbol[source]
        places = _lay_along(symbol, sequences, kernels.scratch)
    laid = [
        (piece, place)
        for piece, n in zip(kind.slices, number, strict=True)
        if (place := places[n]) is not None
    ]
    template = Template(
        symbol=symbol,
        source=source,
        slices=tuple(piece for piece, _ in laid),
        places=tuple(place for _, place in laid),
        duration_ns=np.zeros(len(symbol)),
    )
    duration_ns = medians(kernels.duration_ns, template, kernels.scratch)
    return replace(template, duration_ns=duration_ns)


@dataclass(frozen=True)
class _Sequences:
    """Distinct sequences of symbols: a slice that holds each, its symbols, how many do."""

    slices: tuple[Slice, ...]
    symbols: tuple[Ints, ...]
    count: Ints


def _medoid(sequences: _Sequences, symbols: int, scratch: Scratch) -> Ints:
    """Kernel indices of the most frequent sequence, or of the one nearest to the others."""
    usual = int(sequences.count.argmax())
    if sequences.count[usual] == 1 and len(sequences.count) > 2:
        usual = _nearest_to_all(sequences, symbols, scratch)
    return np.arange(sequences.slices[usual].first, sequences.slices[usual].end)


def _nearest_to_all(sequences: _Sequences, symbols: int, scratch: Scratch) -> int:
    """The sequence whose bag of symbols is nearest to the median bag."""
    count = len(sequences.slices)
    bags = scratch.empty(count * symbols, np.int32).reshape(count, symbols)
    for row, sequence in enumerate(sequences.symbols):
        bags[row] = np.bincount(sequence, minlength=symbols)
    middle = np.array([np.median(bags[:, symbol]) for symbol in range(symbols)])
    return int(np.argmin([np.abs(bag - middle).sum() for bag in bags]))


def _lay_along(symbol: Ints, sequences: _Sequences, scratch: Scratch) -> list[Ints | None]:
    """Match each sequence with the template."""
    most = max(8, int(MOST_EDITS_SHARE * len(symbol)))
    width = index_type(len(symbol))
    room = scratch.empty(sum(len(own) for own in sequences.symbols), width)
    result: list[Ints | None] = []
    begin = 0
    for own in sequences.symbols:
        found = match_positions(symbol, own, most)
        place = room[begin : begin + len(own)]
        if found is not None:
            place[:] = found
        result.append(None if found is None else place)
        begin += len(own)
    return result


def _majority(source: Ints, sequences: _Sequences, places: Sequence[Ints | None]) -> Ints | None:
    """A better template: insertions most slices have, without positions few have; None if same.

    A kernel that stands in for another one counts as that: of two tactics that alternate
    neither may have a majority.
    """
    usable, present = 0, np.zeros(len(source))
    inserted: Counter[tuple[int, int, int]] = Counter()
    example: dict[tuple[int, int, int], int] = {}
    for piece, own, count, place in zip(
        sequences.slices, sequences.symbols, sequences.count.tolist(), places, strict=True
    ):
        if place is None:
            continue
        usable += count
        place = _with_stand_ins(place, len(source))
        present[place[place >= 0]] += count
        last, run = -1, 0
        for j in np.flatnonzero(place < 0).tolist():
            before = int(place[:j].max(initial=-1))
            run = run + 1 if before == last else 0
            last = before
            key = (before, run, int(own[j]))
            inserted[key] += count
            example.setdefault(key, piece.first + j)
    needed = MAJORITY * usable
    extra = sorted(key for key, count in inserted.items() if count > needed)
    keep = present >= needed
    if not extra and keep.all():
        return None
    merged = [((int(p), -1), int(source[p])) for p in np.flatnonzero(keep)]
    merged += [((before, run), example[(before, run, s)]) for before, run, s in extra]
    return np.array([index for _, index in sorted(merged)], dtype=np.int64)


def _with_stand_ins(place: Ints, positions: int) -> Ints:
    """Places with those of kernels that stand where as many of the template are missing."""
    at = np.flatnonzero(place >= 0)
    before, behind = np.append(-1, at), np.append(at, len(place))
    known = np.concatenate([[-1], place[at], [positions]])
    missing, other = np.diff(known) - 1, behind - before - 1
    filled = place.copy()
    for gap in np.flatnonzero((missing == other) & (missing > 0)).tolist():
        first = int(before[gap]) + 1
        filled[first : first + int(missing[gap])] = np.arange(known[gap] + 1, known[gap + 1])
    return filled


def medians(values: Values | Durations, template: Template, scratch: Scratch) -> Floats:
    """Median over the slices of a template, per position; 0 where no slice has a kernel."""
    count, positions = len(template.slices), len(template.symbol)
    # A position's values lie side by side, written for some slices at a time; what is
    # missing is larger than all of them.
    table = scratch.empty(positions * count, np.int64).reshape(positions, count)
    present = np.zeros(positions, dtype=np.int64)
    for begin in range(0, count, _SLICES):
        end = min(begin + _SLICES, count)
        some = np.full((end - begin, positions), np.iinfo(np.int64).max)
        for first, last in _runs(template, begin, end):
            piece, place = template.slices[first], template.places[first]
            taken = values[piece.first : template.slices[last - 1].end]
            rows = taken.reshape(last - first, len(place))
            on = np.flatnonzero(place >= 0)
            present[place[on]] += last - first
            whole = len(on) == positions == len(place)
            some[first - begin : last - begin, slice(None) if whole else place[on]] = (
                rows if whole else rows[:, on]
            )
        table[:, begin:end] = some.T
    return np.array([_median(row, n) for row, n in zip(table, present.tolist(), strict=True)])


def _runs(template: Template, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of slices that follow each other and lie alike along the template."""
    first = begin
    for i in range(begin + 1, end + 1):
        if (
            i == end
            or template.places[i] is not template.places[first]
            or template.slices[i].first != template.slices[i - 1].end
        ):
            yield first, i
            first = i


def _median(values: Ints, count: int) -> float:
    """Median of the `count` smallest values, 0 where that is none; reorders the values."""
    if not count:
        return 0.0
    middle = count // 2
    values.partition(middle)
    upper = int(values[middle])
    return float(upper) if count % 2 else (int(values[:middle].max()) + upper) / 2
