"""Runs of neighbouring reads of one fusion group: what one kernel may read at once."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracebook.checkpoint.plan import Read
from tracebook.columns import Bools, Floats, Ints, distinct_rows

#: Cost of a run that is only a part of its group.
PARTIAL_GROUP_COST = 0.9
#: Output projections: what stands in front of one, behind the layer's other reads, mixes tokens.
OUTPUTS = frozenset({"o", "out", "o_a", "v_b"})
#: Reads of no weights: what attention or a recurrence reads of its cache or state, and what ranks
#: add up behind the two halves of a layer.
MIXER, COLLECTIVE = "mixer", "collective"
UNREAD = frozenset({MIXER, COLLECTIVE})
#: Relative spread of durations around bytes / bandwidth of an exact read.
SPREAD = 0.10
DERIVED_SPREAD = 0.35


@dataclass(frozen=True)
class Runs:
    """Runs of neighbouring reads of one fusion group, each a candidate for one kernel.

    All arrays have shape (runs,); `first` and `end` index the read list (end exclusive).
    `inside`, shape (reads + 1,), is True for columns between two reads of one group.
    `mixer`, shape (runs,), is True for attention or a recurrence and `collective` for what ranks
    add up: these read no weights.
    `table` has shape (width, reads + 1): the runs that end at a column, padded with
    `len(first)`.
    """

    first: Ints
    end: Ints
    weight_bytes: Floats
    rows: Ints
    penalty: Floats
    spread: Floats
    kind: Ints
    inside: Bools
    mixer: Bools
    collective: Bools
    table: Ints

    @cached_property
    def distinct(self) -> tuple[Runs, Ints]:
        """One of all runs that cost the same, and the number of each run among these.

        A model has a hundred layers and a dozen kinds of matrix. The last number, one more than
        there are runs, is that of the padding of `table`.
        """
        names = ("weight_bytes", "rows", "penalty", "spread", "kind", "mixer", "collective")
        example, number = distinct_rows([getattr(self, name) for name in names])
        picked = {name: getattr(self, name)[example] for name in ("first", "end", *names)}
        return replace(self, **picked), np.append(number, len(example))


def build_runs(reads: Sequence[Read], apart: Collection[tuple[str, ...]] = ()) -> Runs:
    """List every run of neighbouring reads of one fusion group.

    Args:
        reads: Reads in plan order.
        apart: Kinds of group whose reads have a kernel each, as the families of the reads.

    Returns:
        The runs, with the penalty for covering only a part of a group, or for covering more
        than one read of a group whose reads stand apart.
    """
    first: list[int] = []
    end: list[int] = []
    penalty: list[float] = []
    kinds: dict[tuple[str, ...], int] = {}
    kind: list[int] = []
    start = 0
    while start < len(reads):
        stop = start + 1
        while stop < len(reads) and reads[stop].group == reads[start].group:
            stop += 1
        usual = 1 if tuple(r.family for r in reads[start:stop]) in apart else stop - start
        for i in range(start, stop):
            for j in range(i + 1, stop + 1):
                first.append(i)
                end.append(j)
                penalty.append(0.0 if j - i == usual else PARTIAL_GROUP_COST)
                name = tuple(read.family for read in reads[i:j])
                kind.append(kinds.setdefault(name, len(kinds)))
        start = stop
    size = np.array([read.weight_bytes for read in reads], dtype=np.float64)
    rows = np.array([read.rows or 0 for read in reads], dtype=np.int64)
    spread = np.array([SPREAD if read.basis == "exact" else DERIVED_SPREAD for read in reads])
    total = np.concatenate([[0.0], np.cumsum(size)])
    total_rows = np.concatenate([[0], np.cumsum(rows)])
    first_a, end_a = np.array(first, dtype=np.int64), np.array(end, dtype=np.int64)
    return Runs(
        first=first_a,
        end=end_a,
        weight_bytes=total[end_a] - total[first_a],
        rows=total_rows[end_a] - total_rows[first_a],
        penalty=np.array(penalty),
        spread=np.array([spread[i:j].max() for i, j in zip(first, end, strict=True)]),
        kind=np.array(kind, dtype=np.int64),
        inside=_inside_groups(reads),
        mixer=np.array([reads[i].op == MIXER for i in first], dtype=bool),
        collective=np.array([reads[i].op == COLLECTIVE for i in first], dtype=bool),
        table=_table_by_end(end_a, len(reads)),
    )


def group_kinds(reads: Sequence[Read]) -> dict[int, tuple[str, ...]]:
    """Kind of each fusion group with several reads: the families of its reads."""
    members: dict[int, list[str]] = {}
    for read in reads:
        members.setdefault(read.group, []).append(read.family)
    return {group: tuple(families) for group, families in members.items() if len(families) > 1}


def _inside_groups(reads: Sequence[Read]) -> Bools:
    """True for columns that have a read of the same group on both sides."""
    inside = np.zeros(len(reads) + 1, dtype=bool)
    inside[1:-1] = [a.group == b.group for a, b in itertools.pairwise(reads)]
    return inside


def with_unread(reads: Sequence[Read], *, collectives: bool) -> list[Read]:
    """The reads, and one of no bytes where a kernel of each layer stands that reads no weights.

    Args:
        reads: Reads in plan order.
        collectives: Whether ranks add up what each has behind both halves of a layer.
    """
    found: list[Read] = []

    def add(op: str, beside: Read) -> None:
        unread = replace(beside, op=op, matrix="", weight_bytes=0, rows=None, family=op)
        found.append(replace(unread, group=-len(found) - 1, optional=True))

    for read, following in zip(reads, [*reads[1:], None], strict=True):
        found.append(read)
        if following is not None and mixes_between(read, following):
            add(MIXER, following)
        elif collectives and _ends_half_layer(read, following):
            add(COLLECTIVE, read)
    return found


def _ends_half_layer(read: Read, following: Read | None) -> bool:
    """Whether a read is the output projection of a layer's first half, or the last of a layer."""
    if read.layer is None:
        return False
    last = following is None or (read.phase, read.layer) != (following.phase, following.layer)
    return last or read.op in OUTPUTS


def mixes_between(read: Read, following: Read) -> bool:
    """Whether attention or a recurrence of a layer stands between two reads of it."""
    same = (read.phase, read.layer) == (following.phase, following.layer)
    return same and following.op in OUTPUTS and read.op not in OUTPUTS


def _table_by_end(end: Ints, reads: int) -> Ints:
    """Indices of the runs that end at each column, padded with len(end)."""
    by_end: list[list[int]] = [[] for _ in range(reads + 1)]
    for run, column in enumerate(end.tolist()):
        by_end[column].append(run)
    width = max((len(runs) for runs in by_end), default=0)
    table = np.full((max(width, 1), reads + 1), len(end), dtype=np.int64)
    for column, runs in enumerate(by_end):
        table[: len(runs), column] = runs
    return table
