"""Byte-time alignment: lay the reads of a plan along the kernels of one step.

At decode a kernel that reads a matrix lasts about bytes / bandwidth, and the
checkpoint says which matrices are read, in which order. The cheapest monotone
assignment of kernels to reads is found by dynamic programming over (kernels x
reads). Moves: a kernel reads nothing, a read has no kernel, a kernel reads one
run of neighbouring reads of a fusion group, several kernels share one run.

The table is filled row by row with numpy: the only dependency inside a row, a
read without kernel, is a running minimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tracebook.checkpoint.plan import Read
from tracebook.columns import Floats, Ints, distinct_rows
from tracebook.kernels.runs import PARTIAL_GROUP_COST, Runs

#: Cost of leaving out a kernel or a read that is large against the smallest group that
#: matters. One wrong duration costs about 3 (the tail is logarithmic), so a read is
#: rather matched with an odd kernel than dropped together with it.
SKIP_COST = 6.0
GRID_BONUS = 0.4
ODD_NAME_COST = 1.5
SPLIT_COST = 0.8
#: Parts of one fusion group run in a row: each launch between them costs this much.
APART_COST = 0.25
MOST_APART = 8
#: Cost of a kernel whose name tells nothing as the attention, recurrence or collective of a layer:
#: how long that takes depends on the context, so that its time speaks neither for nor against it.
UNREAD_COST = 1.0
#: Gain of a kernel, several times as long as glue, that stands where ranks may add up, over one
#: that is left out.
COLLECTIVE_GAIN = 0.2
#: Gain where the name says so: between the input and the output projection stands attention.
MIXER_GAIN = 1.0
#: Time a kernel takes before it streams weights, ns.
LAUNCH_NS = 1500.0
#: Output tile sizes N/tile of common GEMM kernels (reference: CUTLASS and cuBLASLt tile lists),
#: and of matrix-vector kernels, that have a block for each row (llama.cpp's `mul_mat_vec`).
TILES = (1, 16, 32, 64, 96, 128, 160, 192, 208, 256)
MAX_SPLIT = 8
#: Parts of one matrix follow each other, or have a kernel in between of less than this share.
PART_STRIDES, BETWEEN_PARTS = (1, 2), 0.2
#: Parts of one matrix are alike: neither of two in a row takes longer by more than this factor.
PARTS_ALIKE = 1.25


@dataclass(frozen=True)
class Column:
    """Kernels of a step in launch order, arrays of shape (kernels,).

    `match_penalty` is added where the name says that the kernel reads no weights;
    `skip_factor` scales the cost of leaving it out. `grid` has shape (kernels, 3),
    0 where unknown. `symbol` compares names and launch shapes for equality only.
    `named` is True where the name says that the kernel is a matrix product. `distance` is
    the number of launches since the kernel before it in this column, 1 where none is left out.
    `telling` is False for names that a library gives to all its kernels. `mixes` is True where
    the name says attention or a recurrence, `may_add_up` where it does not rule out a collective.
    `launch_ns` is what a kernel takes before it streams weights.
    """

    duration_ns: Floats
    symbol: Ints
    match_penalty: Floats
    skip_factor: Floats
    grid: Ints
    named: NDArray[np.bool_]
    distance: Ints
    telling: NDArray[np.bool_]
    mixes: NDArray[np.bool_]
    may_add_up: NDArray[np.bool_]
    launch_ns: float = LAUNCH_NS

    @property
    def reads_weights(self) -> NDArray[np.bool_]:
        """True where the name does not rule out that the kernel reads weights."""
        return np.asarray(self.match_penalty == 0)

    @property
    def may_mix(self) -> NDArray[np.bool_]:
        """True where no name tells whether the kernel reads weights or a cache."""
        return np.asarray(self.reads_weights & ~self.named)

    def take(self, index: Ints) -> Column:
        """The kernels at `index`, in that order."""
        return Column(
            self.duration_ns[index],
            self.symbol[index],
            self.match_penalty[index],
            self.skip_factor[index],
            self.grid[index],
            self.named[index],
            self.distance[index],
            self.telling[index],
            self.mixes[index],
            self.may_add_up[index],
            self.launch_ns,
        )


@dataclass(frozen=True)
class Match:
    """Kernels [first_kernel, end_kernel) of a column read the reads [first, end)."""

    first_kernel: int
    end_kernel: int
    first: int
    end: int


@dataclass(frozen=True)
class Habits:
    """What a first alignment taught: bias per symbol and which names serve which kind.

    `bias` has shape (symbols,): ln of measured over expected time. `odd` has shape
    (symbols, kinds): extra cost of a match that goes against the habit.
    """

    bias: Floats
    odd: Floats


Number = TypeVar("Number", float, Floats)


def expected_ns(
    weight_bytes: Number, bandwidth_gbps: float, launch_ns: float = LAUNCH_NS
) -> Number:
    """Time of a kernel that reads so many bytes, ns (1 byte/ns = 1 GB/s)."""
    return launch_ns + weight_bytes / bandwidth_gbps


def match_costs(
    column: Column,
    runs: Runs,
    bandwidth_gbps: float,
    habits: Habits | None,
    duration_ns: Floats | None = None,
) -> Floats:
    """Cost of each kernel reading each run, shape (kernels, runs + 1); the last is infinite."""
    duration = column.duration_ns if duration_ns is None else duration_ns
    ratio = (
        np.log(np.maximum(duration, 1.0))[:, None]
        - np.log(expected_ns(runs.weight_bytes, bandwidth_gbps, column.launch_ns))[None, :]
    )
    if habits is not None:
        ratio = ratio - habits.bias[column.symbol][:, None]
    cost = np.log1p((ratio / runs.spread) ** 2 / 2)
    cost += runs.penalty + column.match_penalty[:, None]
    cost -= GRID_BONUS * grid_fits(column.grid, runs.rows)
    cost[:, runs.mixer] = np.where(column.may_mix, UNREAD_COST, np.inf)[:, None]
    cost[np.ix_(column.mixes, runs.mixer)] = -MIXER_GAIN
    cost[:, runs.collective] = np.inf
    if habits is not None:
        cost += habits.odd[column.symbol[:, None], runs.kind[None, :]]
    padded = np.full((len(duration), len(runs.first) + 1), np.inf)
    padded[:, :-1] = cost
    return padded


def grid_fits(grid: Ints, rows: Ints) -> NDArray[np.bool_]:
    """True where a grid dimension is ceil(N / tile) of a common tile, shape (kernels, runs)."""
    different, row_of = np.unique(rows, return_inverse=True)
    example, grid_of = distinct_rows(tuple(grid.T))
    distinct_grids = grid[example]
    tiles = np.array(TILES)
    counts = -(-different[:, None] // tiles[None, :])
    hit = (distinct_grids[:, :, None, None] == counts[None, None, :, :]).any(axis=(1, 3))
    hit &= (different > 0)[None, :]
    # One block fits any small matrix: no evidence.
    hit &= (distinct_grids.max(axis=1) > 1)[:, None]
    return np.asarray(hit[grid_of][:, row_of])


def skip_costs(
    column: Column,
    reads: Sequence[Read],
    tau_ns: float,
    bandwidth_gbps: float,
    glue_ns: float = LAUNCH_NS,
    product_ns: float = 0.0,
) -> tuple[Floats, Floats]:
    """Cost of leaving out each kernel, and each read.

    `tau_ns` is the streaming time that counts as half large, and `glue_ns` what a kernel takes
    that does hardly anything, `product_ns` what a product of a few rows takes that is no read
    here. The cost rises with the square, so that the glue between matrices
    costs little however much of it there is.
    """
    spared = np.where(_repeated(column.symbol), LAUNCH_NS, glue_ns)
    spared = np.where(column.named, np.maximum(spared, product_ns), spared)
    streamed = np.maximum(column.duration_ns - spared, 0.0) / tau_ns
    kernel = SKIP_COST * streamed**2 / (1 + streamed**2) * column.skip_factor
    size = np.array([read.weight_bytes for read in reads], dtype=np.float64)
    relative = size / (tau_ns * bandwidth_gbps)
    read_cost = SKIP_COST * relative**2 / (1 + relative**2)
    return kernel, np.where([read.optional for read in reads], 0.0, read_cost)


def _repeated(symbol: Ints) -> NDArray[np.bool_]:
    """True where a kernel like this one is next to it or next but one: k and v, say.

    Glue stands alone; where one of such a pair is a matrix, the other is as well.
    """
    result = np.zeros(len(symbol), dtype=bool)
    for by in (1, 2):
        same = symbol == np.roll(symbol, by)
        result |= same | np.roll(same, -by)
    return result


@dataclass(frozen=True)
class Table:
    """Everything one alignment needs, computed once: costs for (kernels x distinct runs).

    `alike` gives, for each run, the column of its costs; shape (runs + 1,), the last for none.
    `split` has, per kernel that others like it precede, how many kernels in front of it share a
    run with it or stand between those that do, and the costs, of shape (distinct runs + 1,).
    """

    column: Column
    runs: Runs
    match: Floats
    kernel_skip: Floats
    read_skip: Floats
    alike: Ints
    split: Mapping[int, Sequence[tuple[int, Floats]]] = field(default_factory=dict)


def build_table(
    column: Column,
    reads: Sequence[Read],
    runs: Runs,
    *,
    bandwidth_gbps: float,
    tau_ns: float,
    habits: Habits | None = None,
    allow_split: bool = False,
    glue_ns: float = LAUNCH_NS,
    product_ns: float = 0.0,
) -> Table:
    """Compute all costs. `allow_split` lets up to MAX_SPLIT equal kernels share one run."""
    kernel_skip, read_skip = skip_costs(column, reads, tau_ns, bandwidth_gbps, glue_ns, product_ns)
    distinct, alike = runs.distinct
    match = match_costs(column, distinct, bandwidth_gbps, habits)
    # Where ranks may add up a kernel that does costs less than one that is left out.
    added_up = np.minimum(UNREAD_COST, kernel_skip - COLLECTIVE_GAIN)
    collective = np.append(distinct.collective, False)
    match[:, collective] = np.where(column.may_add_up, added_up, np.inf)[:, None]
    split = _split_costs(column, distinct, bandwidth_gbps, habits) if allow_split else {}
    return Table(column, runs, match, kernel_skip, read_skip, alike, split)


def _split_costs(
    column: Column, runs: Runs, bandwidth_gbps: float, habits: Habits | None
) -> dict[int, list[tuple[int, Floats]]]:
    """Costs of sharing a run with the kernels before, for the few kernels that could.

    Per kernel, how many kernels in front of it belong to the match, and the costs. The kernel
    before the first is the last one: an alignment that is not cyclic never asks.
    """
    costs: dict[int, list[tuple[int, Floats]]] = {}
    # Kernels alike in a row rather make one read of a group each than all of it together.
    many = runs.end - runs.first
    apart = np.where(many > 1, PARTIAL_GROUP_COST, 0.0)
    for stride in PART_STRIDES:
        same = parts_alike(column, stride)
        last = np.arange(len(same))
        total = column.duration_ns
        for parts in range(2, min(MAX_SPLIT, len(same) // stride) + 1):
            alike = same[last - stride * (parts - 2)]
            last = last[alike]
            if not len(last):
                break
            total = total[alike] + column.duration_ns[last - stride * (parts - 1)]
            cost = match_costs(column.take(last), runs, bandwidth_gbps, habits, total)
            cost[:, :-1] += SPLIT_COST + 0.1 * parts + apart * np.minimum(many, parts)
            for kernel, row in zip(last.tolist(), cost, strict=True):
                costs.setdefault(kernel, []).append((stride * (parts - 1), row))
    return costs


def parts_alike(column: Column, stride: int = 1) -> NDArray[np.bool_]:
    """True where a kernel and that so many before it may be parts of one matrix, shape (kernels,).

    With a stride of 2 a short kernel stands in between: an engine may quantize in front of each.
    """
    ratio = column.duration_ns / np.maximum(np.roll(column.duration_ns, stride), 1.0)
    same = column.symbol == np.roll(column.symbol, stride)
    same &= (ratio > 1 / PARTS_ALIKE) & (ratio < PARTS_ALIKE)
    for between in range(1, stride):
        same &= np.roll(column.duration_ns, between) < BETWEEN_PARTS * column.duration_ns
    return np.asarray(same)


def align(table: Table, *, cyclic: bool = False) -> tuple[tuple[Match, ...], float]:
    """Find the cheapest path.

    Args:
        table: Costs.
        cyclic: Read the kernels twice over with free ends, so that a step may begin
            anywhere; kernel indices in the result are then taken modulo the length.

    Returns:
        The matches in order, and the cost.
    """
    kernels = len(table.kernel_skip)
    length = 2 * kernels if cyclic else kernels
    reads = len(table.read_skip)
    skipped = np.concatenate([[0.0], np.cumsum(table.read_skip)])
    moves = np.zeros((length + 1, reads + 1), dtype=np.int16)
    rows: list[Floats] = [skipped.copy()]
    moves[0, 1:] = -1
    first_of = np.concatenate([table.runs.first, [0]])[table.runs.table]
    width = table.runs.table.shape[0]
    cost_of = table.alike[table.runs.table]
    columns = np.arange(reads + 1)
    apart = APART_COST * table.runs.inside
    for row in range(1, length + 1):
        kernel = (row - 1) % kernels
        between = min(int(table.column.distance[kernel]) - 1, MOST_APART)
        before = rows[row - 1] + apart * between
        best = before + apart + table.kernel_skip[kernel]
        if cyclic:
            best[0] = 0.0
        options = before[first_of] + table.match[kernel][cost_of]
        choice = options.argmin(axis=0)
        value = options[choice, columns]
        move = moves[row]
        better = value < best
        np.copyto(best, value, where=better)
        move[better] = choice[better] + 1
        for extra, cost in table.split.get(kernel, ()):
            if row <= extra:
                continue
            options = rows[row - 1 - extra][first_of] + cost[cost_of]
            choice = options.argmin(axis=0)
            value = options[choice, columns]
            better = value < best
            np.copyto(best, value, where=better)
            move[better] = choice[better] + 1 + width * extra
        filled = skipped + np.minimum.accumulate(best - skipped)
        dropped = filled < best - 1e-12
        move[dropped] = -1
        rows.append(filled)
    last = length
    if cyclic:
        ends = np.array([row[reads] for row in rows])
        last = int(ends.argmin())
    return _trace_back(moves, table.runs, last, reads, width), float(rows[last][reads])


def _trace_back(
    moves: NDArray[np.int16], runs: Runs, row: int, column: int, width: int
) -> tuple[Match, ...]:
    """Walk from the end of the table to its first column."""
    found: list[Match] = []
    while row > 0 and column > 0:
        move = int(moves[row, column])
        if move == -1:
            column -= 1
        elif move == 0:
            row -= 1
        else:
            extra, slot = divmod(move - 1, width)
            run = int(runs.table[slot, column])
            found.append(Match(row - 1 - extra, row, int(runs.first[run]), int(runs.end[run])))
            row -= 1 + extra
            column = int(runs.first[run])
    return tuple(reversed(found))
