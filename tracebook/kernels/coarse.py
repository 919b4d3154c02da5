"""The coarse pass of a fit: large reads laid along the kernels long enough to make them.

In: kernels of one step, beginning anywhere, and reads. Out: which kernels make which reads,
first round the cycle, to see where a step begins, then from there with what was learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracebook.checkpoint.plan import Read
from tracebook.columns import Floats, Ints
from tracebook.kernels.align import (
    MAX_SPLIT,
    PART_STRIDES,
    Column,
    Habits,
    Match,
    align,
    build_table,
    expected_ns,
    parts_alike,
)
from tracebook.kernels.habits import learn_habits
from tracebook.kernels.runs import Runs, build_runs, group_kinds

#: No fit goes further above the peak: it would follow wrong bytes.
MOST_ABOVE_PEAK = 1.1
#: Where more of the bytes have no kernel, finer questions about a solution do not matter.
MOST_LEFT_OVER = 0.2
#: A kernel that takes less than this share of what its read needs makes but half of it: half the
#: bytes at less than the usual bandwidth, and the launch.
HALF = 0.7
#: With more than this the kernels are not those of the reads.
FOREIGN = 0.5
#: Kernels of a kind that usually take less than this share of what their reads need make a part.
TOO_SHORT = 0.87
#: Glue takes at most so many times as long as the shorter quarter of all kernels.
GLUE_AT_MOST = 1.2


@dataclass(frozen=True)
class Solution:
    """Matches, what they cost, the bandwidth they speak for, and whether reads were shared."""

    matches: tuple[Match, ...]
    cost: float
    bandwidth_gbps: float
    split: bool


def _cost(solution: Solution) -> float:
    return solution.cost


@dataclass(frozen=True)
class Coarse:
    """The alignment of large reads with the kernels long enough to make them."""

    column: Column
    reads: Sequence[Read]
    runs: Runs
    tau_ns: float
    glue_ns: float
    peak_gbps: float | None
    product_ns: float = 0.0
    apart: tuple[tuple[str, ...], ...] = ()

    def solve(
        self, bandwidth: float, habits: Habits | None, *, cyclic: bool = False, split: bool = False
    ) -> Solution:
        """Align once, with several kernels to a read where `split`."""
        table = build_table(
            self.column,
            self.reads,
            self.runs,
            bandwidth_gbps=bandwidth,
            tau_ns=self.tau_ns,
            habits=habits,
            allow_split=split,
            glue_ns=self.glue_ns,
            product_ns=self.product_ns,
        )
        matches, cost = align(table, cyclic=cyclic)
        return Solution(matches, cost, self.refit(matches, bandwidth), split)

    def again(self, solution: Solution, *, split: bool) -> Solution:
        """Align with the bandwidth and the habits that a solution speaks for."""
        bandwidth = solution.bandwidth_gbps
        habits = learn_habits(self.column, self.runs, solution.matches, bandwidth)
        return self.solve(bandwidth, habits, split=split)

    def find_turn(self, starts: Sequence[float]) -> Solution:
        """The best cyclic alignment; only one that leaves much open is tried with shared reads.

        A head in parts cannot be laid on one kernel, so that without sharing the sequence may
        seem to begin elsewhere: every later pass would only refine that.
        """
        best = min((self.solve(start, None, cyclic=True) for start in starts), key=_cost)
        if self.left_over(best) > FOREIGN or not self.may_share(best):
            return best
        shared = (self.solve(start, None, cyclic=True, split=True) for start in starts)
        return min(best, *shared, key=_cost)

    def turned(self, turn: int) -> Coarse:
        """The same with the sequence begun at kernel `turn`."""
        order = np.roll(np.arange(len(self.column.duration_ns)), -turn)
        return replace(self, column=self.column.take(order))

    def settle(self, turned: Solution) -> Solution:
        """Align, learn bandwidth and habits, align again."""
        split = turned.split
        return self.again(self.solve(turned.bandwidth_gbps, None, split=split), split=split)

    def refined(self, solution: Solution) -> Solution:
        """Try a kernel for each read of a group, and then several kernels to a read."""
        apart, solution = self.taken_apart(solution)
        if solution.split or not self.may_share(solution):
            return solution
        shared = apart.again(solution, split=True)
        return apart.again(shared, split=True) if shared.cost < solution.cost - 1 else solution

    def taken_apart(self, solution: Solution) -> tuple[Coarse, Solution]:
        """Align with a kernel for each read of a kind of group, where that costs less.

        Of q, k and v the first is nearly all, so that its kernel may seem to read all three.
        """
        if self.left_over(solution) > MOST_LEFT_OVER:
            return self, solution
        best, used, fits = self, solution, self.misses(solution)
        kinds = [*self.beside_products(solution), *self.too_short(solution)]
        for kind in dict.fromkeys(kinds):
            apart = (*best.apart, kind)
            other = replace(best, runs=build_runs(self.reads, apart), apart=apart)
            # Without what was learnt from the kernels that seemed to read all of it.
            first = other.solve(used.bandwidth_gbps, None, split=used.split)
            again = other.again(first, split=used.split)
            if again.cost < used.cost - 1 and self.misses(again) < fits:
                best, used, fits = other, again, self.misses(again)
        return best, used

    def misses(self, solution: Solution) -> float:
        """Mean of how far times are from those that the bytes take, by bytes, as |ln|."""
        size = self.bytes_read(solution.matches)
        needed = expected_ns(size, solution.bandwidth_gbps, self.column.launch_ns)
        off = np.abs(np.log(self.taken_ns(solution.matches) / needed))
        return float((size * off).sum() / max(size.sum(), 1.0))

    def beside_products(self, solution: Solution) -> list[tuple[str, ...]]:
        """Kinds of group next to kernels that may read weights, are no mere glue, and read none."""
        free = self.column.reads_weights & (self.column.duration_ns > GLUE_AT_MOST * self.glue_ns)
        taken = np.full(len(free), -1)
        for number, m in enumerate(solution.matches):
            taken[m.first_kernel : m.end_kernel] = number
        last = np.maximum.accumulate(taken)[free & (taken < 0)]
        last = last[last >= 0]
        beside = np.unique(np.concatenate([last, last + 1]))
        kind_of = group_kinds(self.reads)
        groups = [self.reads[m.first].group for m in solution.matches]
        kinds = (kind_of.get(groups[n]) for n in beside.tolist() if n < len(groups))
        return list(dict.fromkeys(kind for kind in kinds if kind))

    def too_short(self, solution: Solution) -> list[tuple[str, ...]]:
        """Kinds of group that seem to be read by one kernel each, in less time than they need."""
        kind_of = group_kinds(self.reads)
        size = self.bytes_read(solution.matches)
        needed = expected_ns(size, solution.bandwidth_gbps, self.column.launch_ns)
        ratios: dict[tuple[str, ...], list[float]] = {}
        for m, ratio in zip(
            solution.matches, self.taken_ns(solution.matches) / needed, strict=True
        ):
            kind = kind_of.get(self.reads[m.first].group, ())
            if len(kind) > 1 and m.end - m.first == len(kind):
                ratios.setdefault(kind, []).append(float(ratio))
        return [kind for kind, own in ratios.items() if np.median(own) < TOO_SHORT]

    def may_share(self, solution: Solution) -> bool:
        """Whether reads are left open, and kernels that could share them stand side by side."""
        alike = (parts_alike(self.column, stride).any() for stride in PART_STRIDES)
        return self.leaves_open(solution) and any(alike)

    def leaves_open(self, solution: Solution) -> bool:
        """Whether reads have no kernel, or one far too short: others may share them with it.

        One that is too short for most of the bytes shows as a bandwidth that cannot be.
        """
        above = self.peak_gbps is not None and solution.bandwidth_gbps > self.peak_gbps
        return above or self.left_over(solution) > 0.01 or self.misfit(solution) > 0.01

    def left_over(self, solution: Solution) -> float:
        """Share of the bytes without kernel."""
        size = np.array([0.0 if r.optional else r.weight_bytes for r in self.reads])
        found = sum(size[m.first : m.end].sum() for m in solution.matches)
        return 1.0 - float(found) / float(size.sum())

    def misfit(self, solution: Solution) -> float:
        """Share of the bytes in reads whose kernel makes half of them at most."""
        size = self.bytes_read(solution.matches)
        needed = expected_ns(size, solution.bandwidth_gbps, self.column.launch_ns)
        short = size[self.taken_ns(solution.matches) < HALF * needed].sum()
        return float(short) / float(sum(read.weight_bytes for read in self.reads))

    def bytes_read(self, matches: Sequence[Match]) -> Floats:
        """Bytes of the reads of each match."""
        total = np.cumsum([0, *(read.weight_bytes for read in self.reads)])
        return np.array([total[m.end] - total[m.first] for m in matches], dtype=np.float64)

    def taken_ns(self, matches: Sequence[Match]) -> Floats:
        """Time of the kernels of each match; a cyclic alignment counts kernels twice over."""
        durations = np.concatenate([self.column.duration_ns, self.column.duration_ns])
        return np.array([durations[m.first_kernel : m.end_kernel].sum() for m in matches])

    def refit(self, matches: Sequence[Match], bandwidth: float) -> float:
        """Byte-weighted median of bytes / (duration - launch cost), not above the peak."""
        if not matches:
            return bandwidth
        size, taken = self.bytes_read(matches), self.taken_ns(matches)
        rate = size / np.maximum(np.maximum(taken - self.column.launch_ns, 0.3 * taken), 1.0)
        order = np.argsort(rate)
        middle = int(np.searchsorted(np.cumsum(size[order]), size.sum() / 2))
        fitted = float(rate[order][min(middle, len(order) - 1)])
        return fitted if self.peak_gbps is None else min(fitted, MOST_ABOVE_PEAK * self.peak_gbps)


def turning_points(column: Column, matches: Sequence[Match], reads: int) -> list[int]:
    """Where to begin the sequence: just behind the last match of the cycle, or at its first.

    Kernels like the last one that follow it at once may be further parts of its matrix. The last
    of so many reads may also be made by the longest kernel that is left between the ends, or by
    the longest of all: what is left out at the ends costs a cycle nothing.
    """
    kernels = len(column.duration_ns)
    used = {k % kernels for m in matches for k in range(m.first_kernel, m.end_kernel)}
    first = matches[0].first_kernel % kernels
    start = first
    while (start - 1) % kernels not in used and (start - 1) % kernels != first:
        start = (start - 1) % kernels
    left = (start + np.arange((first - start) % kernels)) % kernels
    alike = parts_alike(column)
    for _ in range(MAX_SPLIT - 1):
        if start in used or not alike[start]:
            break
        start = (start + 1) % kernels
    turns = [start, first]
    last_ns = column.duration_ns[matches[-1].first_kernel % kernels]
    if matches[-1].end < reads or column.duration_ns[left].max(initial=0.0) >= HALF * last_ns:
        turns += _behind_longest(column, left)
    turns += _behind_longest(column, np.flatnonzero(column.reads_weights))
    return list(dict.fromkeys(turns))


def _behind_longest(column: Column, kernels: Ints) -> list[int]:
    """The kernel behind the last of those among some that take about as long as the longest."""
    if not len(kernels):
        return []
    duration_ns = column.duration_ns[kernels]
    last = kernels[np.flatnonzero(duration_ns >= HALF * duration_ns.max())[-1]]
    return [int(last + 1) % len(column.duration_ns)]
