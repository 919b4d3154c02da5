"""Fit a plan to the kernels of one step: bandwidth, rotation, habits, small reads.

The large reads are aligned first, cyclically, since nobody knows where in the
sequence the step begins; several bandwidths are tried because long kernels that
read no weights spoil a single guess. Then the sequence is rotated, aligned again
with what was learnt about each kernel name, and the small reads are placed
between the large ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracebook.checkpoint.plan import Plan, Read
from tracebook.columns import Floats, Ints
from tracebook.kernels.align import BETWEEN_PARTS, LAUNCH_NS, Column, Match, expected_ns
from tracebook.kernels.coarse import MOST_ABOVE_PEAK, Coarse, Solution, turning_points
from tracebook.kernels.gaps import fill_small
from tracebook.kernels.runs import COLLECTIVE, UNREAD, build_runs, with_unread

#: Fusion groups that together hold less than this share of the bytes are placed last.
SMALL_SHARE = 0.02
#: A bandwidth above the peak by more than this cannot be (cached reads apart).
PEAK_SLACK = 1.02
#: Launch times that are tried once the reads are placed, and the gain that one must bring.
LAUNCHES_TRIED_NS = (*np.arange(500.0, 3000.0, 250.0), 3000.0, 3500.0, 4000.0, 5000.0, 6000.0)
LINE_GAIN = 0.8
#: Most kernels of a step read no weights, and the shortest of them hardly anything.
GLUE_QUANTILE = 0.25
LEAST_LAUNCH_NS, MOST_LAUNCH_NS = 1000.0, 4000.0
#: A launch matters where the smallest group of matrices that matters is read in less than so many
#: launches; then these guesses are tried as well, if they differ by this factor.
LAUNCH_MATTERS, LAUNCH_GUESSES_NS, LAUNCHES_ALIKE = 2.0, (LAUNCH_NS, 2250.0), 1.2
#: Products that take so many times as long as the shortest may read as little, if that is less
#: than so much of what the smallest of the larger matrices takes.
PRODUCTS_ALIKE, WITHOUT_READ = 1.1, 0.95
#: Times of two alignments that differ by less, as mean |ln| by bytes, are as good.
MISSES_ALIKE = 0.05
#: What ranks add up takes longer than so many times what glue does.
LONG_GLUE = 2.0
#: Kernels are collectives where this share of the layers' halves have one.
MOST_COLLECTIVES = 0.8
#: A launch takes at most this share of the shortest kernel: in a model of 100 million weights
#: a matrix of 1 MB takes 0.3 us to read and the rest is launch, but some of it is reading.
LAUNCH_SHARE = 0.95


@dataclass(frozen=True)
class Found:
    """Reads [first, end) of the plan, made by `kernels` (indices in the step as given)."""

    kernels: tuple[int, ...]
    first: int
    end: int


@dataclass(frozen=True)
class Fit:
    """Where each read of a plan was found in the kernels of a step.

    Attributes:
        found: In plan order.
        bandwidth_gbps: Fitted bandwidth.
        cost: Total cost of the alignment of the large reads.
        length: Number of kernels of the step.
        launch_ns: Time of a kernel that reads nothing, fitted with the bandwidth.
        collectives: Kernels by which ranks add up, where only their place tells them.
    """

    found: tuple[Found, ...]
    bandwidth_gbps: float
    cost: float
    length: int
    launch_ns: float = LAUNCH_NS
    collectives: tuple[int, ...] = ()


def fit_plan(column: Column, plan: Plan, *, peak_gbps: float | None) -> Fit | None:
    """Lay the reads of a plan along a cyclic sequence of kernels.

    Args:
        column: Kernels of one step in launch order, beginning anywhere.
        plan: What one step must read.
        peak_gbps: Peak bandwidth of the machine, None where unknown.

    Returns:
        The best fit, or None where no read of the plan finds a kernel.
    """
    reads = plan.reads
    passes = [
        _lay_large(replace(column, launch_ns=launch_ns), plan, peak_gbps)
        for launch_ns in _launches_ns(column, reads, peak_gbps)
    ]
    laid = _best_laid([one for one in passes if one is not None])
    located = [] if laid is None else laid.located()
    if laid is None or not located:
        return None
    column, order = laid.column, laid.order
    found = [Found(tuple(order[k].tolist()), first, end) for k, first, end in located]
    # What stands between the last and the first large read is looked at from both ends.
    begin, end_kernel = int(located[0][0][0]), int(located[-1][0][-1]) + 1
    longer = np.concatenate([order[end_kernel:], order, order[:begin]])
    ahead = len(order) - end_kernel
    taken = [
        Match(int(k[0]) + ahead, int(k[-1]) + 1 + ahead, first, end) for k, first, end in located
    ]
    for m in fill_small(column.take(longer), reads, taken, laid.solution.bandwidth_gbps):
        kernels = tuple(longer[m.first_kernel : m.end_kernel].tolist())
        # Seen from both ends, a kernel may have been taken twice: it makes one read.
        if not any(set(kernels) & set(other.kernels) for other in found[len(located) :]):
            found.append(Found(kernels, m.first, m.end))
    found.sort(key=lambda f: f.first)
    bandwidth, launch_ns = fit_line(column, reads, found, laid.solution.bandwidth_gbps, peak_gbps)
    cost, collectives = laid.solution.cost, laid.collectives()
    return Fit(tuple(found), bandwidth, cost, len(order), launch_ns, collectives)


def _launches_ns(
    column: Column, reads: Sequence[Read], peak_gbps: float | None
) -> tuple[float, ...]:
    """What a kernel may take before it streams weights, as first guesses, ns.

    About as much as those that do hardly anything. In small models, where it is most of the
    time, other guesses are worth a try: glue may take longer than a launch, or hardly one.
    """
    shortest_ns = float(np.quantile(column.duration_ns, GLUE_QUANTILE))
    likely = min(max(shortest_ns, LEAST_LAUNCH_NS), MOST_LAUNCH_NS)
    starts = _starting_bandwidths(column, reads, peak_gbps)
    streamed_ns = smallest_group_that_matters(reads) / max(starts)
    if streamed_ns >= LAUNCH_MATTERS * likely:
        return (likely,)
    others = (g for g in LAUNCH_GUESSES_NS if abs(np.log(g / likely)) > np.log(LAUNCHES_ALIKE))
    return (likely, *others)


@dataclass(frozen=True)
class _Laid:
    """The large reads of a plan laid along a step.

    `large` numbers them in the plan, `reads` are these and what reads no weights beside them;
    `index` numbers the kernels that were laid along in the step, from `turn` on.
    """

    column: Column
    index: Ints
    large: list[int]
    reads: Sequence[Read]
    solution: Solution
    turn: int
    misses: float

    @cached_property
    def order(self) -> Ints:
        """The kernels of the step from the one on with which the alignment begins."""
        return np.roll(np.arange(len(self.column.duration_ns)), -int(self.index[self.turn]))

    @cached_property
    def place(self) -> Ints:
        """Where the laid kernels stand in that order."""
        return np.argsort(self.order)[np.roll(self.index, -self.turn)]

    def located(self) -> list[tuple[Ints, int, int]]:
        """Places of the kernels of each match, and the reads [first, end) of the plan."""
        number = np.cumsum([read.op not in UNREAD for read in self.reads]) - 1
        place, order = self.place, self.order

        def parts(m: Match) -> Ints:
            """Without what stands between the parts of a matrix."""
            own = place[m.first_kernel : m.end_kernel]
            duration_ns = self.column.duration_ns[order[own]]
            return np.asarray(own[duration_ns > BETWEEN_PARTS * duration_ns.max()])

        return [
            (
                parts(m),
                self.large[number[m.first]],
                self.large[number[m.end - 1]] + 1,
            )
            for m in self.solution.matches
            if self.reads[m.first].op not in UNREAD
        ]

    def collectives(self) -> tuple[int, ...]:
        """Kernels by which ranks add up; none where too few of the layers have one."""
        matches = self.solution.matches
        found = [m.first_kernel for m in matches if self.reads[m.first].op == COLLECTIVE]
        if len(found) < MOST_COLLECTIVES * sum(r.op == COLLECTIVE for r in self.reads):
            return ()
        return tuple(sorted(self.order[self.place[found]].tolist()))


def _best_laid(tried: Sequence[_Laid]) -> _Laid | None:
    """The cheapest of those whose times agree with the bytes about as well as the best one's."""
    least = min((laid.misses for laid in tried), default=0.0)
    near = [laid for laid in tried if laid.misses <= least + MISSES_ALIKE]
    return min(near, key=lambda laid: laid.solution.cost, default=None)


def _lay_large(column: Column, plan: Plan, peak_gbps: float | None) -> _Laid | None:
    """Lay the large reads of a plan along the kernels long enough to make them."""
    reads = plan.reads
    smallest = smallest_group_that_matters(reads)
    large = _large_reads(reads, smallest)
    large_reads = [reads[i] for i in large]
    starts = _starting_bandwidths(column, large_reads, peak_gbps)
    # Kernels too short for half of the smallest read are left to the second pass.
    least_ns = min(read.weight_bytes for read in large_reads) / max(starts)
    floor_ns = 0.5 * (LAUNCH_NS + least_ns) * np.where(column.reads_weights, 1, 4)
    short = column.duration_ns < floor_ns
    glue_ns = float(np.quantile(column.duration_ns, GLUE_QUANTILE))
    may_add_up = column.may_add_up & (column.duration_ns > LONG_GLUE * glue_ns) & (plan.ranks > 1)
    index = np.flatnonzero(~short | column.mixes | may_add_up)
    if not len(index):
        return None
    kept = replace(
        column.take(index),
        distance=_distances(index, len(column.duration_ns)),
        # What is only kept to tell where layers are, or what ranks add up, makes no read.
        match_penalty=np.where(short, np.inf, column.match_penalty)[index],
        may_add_up=may_add_up[index],
    )
    collectives = bool(kept.may_add_up.any())
    if collectives or (kept.may_mix | kept.mixes).any():
        large_reads = with_unread(large_reads, collectives=collectives)
    coarse = Coarse(
        kept,
        large_reads,
        build_runs(large_reads),
        tau_ns=0.5 * smallest / float(np.median(starts)),
        # On some machines what does hardly anything takes twice the usual launch.
        glue_ns=max(LAUNCH_NS, glue_ns),
        peak_gbps=peak_gbps,
        product_ns=_small_product_ns(column, least_ns) if len(large) < len(reads) else 0.0,
    )
    best = _best_turn(coarse, starts)
    if best is None:
        return None
    misses = coarse.turned(best[1]).misses(best[0])
    return _Laid(column, index, large, large_reads, *best, misses)


def _best_turn(coarse: Coarse, starts: Sequence[float]) -> tuple[Solution, int] | None:
    """The best alignment of the large reads, and the kernel with which its sequence begins."""
    best = coarse.find_turn(starts)
    if not best.matches:
        return None
    turns = turning_points(coarse.column, best.matches, len(coarse.reads))
    # What the best cycle leaves between its ends may belong in front of it or behind it.
    turns = turns if coarse.leaves_open(best) else turns[:1]
    begun = [coarse.turned(turn) for turn in turns]
    settled = [one.settle(best) for one in begun]
    chosen = min(range(len(turns)), key=lambda number: settled[number].cost)
    return begun[chosen].refined(settled[chosen]), turns[chosen]


def fit_line(
    column: Column,
    reads: Sequence[Read],
    found: Sequence[Found],
    bandwidth_gbps: float,
    peak_gbps: float | None,
) -> tuple[float, float]:
    """Fit bandwidth and launch time together: in small models both matter.

    Args:
        column: Kernels of the step.
        reads: Reads of the plan.
        found: Where they were found.
        bandwidth_gbps: What the alignment used, kept where a line fits no better.
        peak_gbps: Peak bandwidth, None where unknown.

    Returns:
        Bandwidth in GB/s and the time of a kernel that reads nothing, ns.
    """
    size = np.array([sum(r.weight_bytes for r in reads[f.first : f.end]) for f in found], float)
    taken = np.array([column.duration_ns[list(f.kernels)].sum() for f in found])
    weight = np.sqrt(size)

    def misfit(bandwidth: float, launch_ns: float) -> float:
        ratio = np.log(np.maximum(taken, 1.0) / expected_ns(size, bandwidth, launch_ns))
        return float((weight * np.abs(ratio)).sum())

    usual = (bandwidth_gbps, column.launch_ns), (bandwidth_gbps, LAUNCH_NS)
    best = min((LINE_GAIN * misfit(*line), *line) for line in usual)
    for launch_ns in LAUNCHES_TRIED_NS:
        if launch_ns >= LAUNCH_SHARE * taken.min():
            break
        rate = size / np.maximum(taken - launch_ns, 1.0)
        # By bytes as well: in many small matrices an error in the launch time is all there is.
        for bandwidth in (_median(rate, weight), _median(rate, size)):
            if peak_gbps is None or bandwidth <= MOST_ABOVE_PEAK * peak_gbps:
                best = min(best, (misfit(bandwidth, launch_ns), bandwidth, launch_ns))
    return best[1], best[2]


def _median(values: Floats, weight: Floats) -> float:
    """Weighted median."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][int(np.searchsorted(total, total[-1] / 2))])


def _small_product_ns(column: Column, least_ns: float) -> float:
    """What a product takes that reads next to nothing: often more than glue, a launch of its own.

    `least_ns` is the time in which the smallest of the larger matrices is read.
    """
    if not column.named.any():
        return 0.0
    shortest = PRODUCTS_ALIKE * float(column.duration_ns[column.named].min())
    return min(shortest, WITHOUT_READ * (column.launch_ns + least_ns))


def _distances(index: Ints, length: int) -> Ints:
    """Launches from each kept kernel back to the one kept before it, cyclic."""
    return np.asarray((index - np.roll(index, 1)) % length)


def _large_reads(reads: Sequence[Read], smallest: float) -> list[int]:
    """Reads of the coarse pass: large ones, partners that a fused kernel would show, loners.

    A partner of less than 3 % of its group cannot be told from noise in a fused kernel. A
    small read alone in its group (a router) has a kernel of its own that must go somewhere.
    """
    groups = group_sizes(reads)
    members = Counter(read.group for read in reads)

    def large(read: Read) -> bool:
        total = groups[read.group]
        partner = total >= 0.5 * smallest and read.weight_bytes >= 0.03 * total
        alone = members[read.group] == 1 and read.weight_bytes >= 0.01 * smallest
        return read.weight_bytes >= 0.1 * smallest or partner or alone

    return [i for i, read in enumerate(reads) if large(read)]


def group_sizes(reads: Sequence[Read]) -> dict[int, int]:
    """Bytes per fusion group."""
    sizes: dict[int, int] = {}
    for read in reads:
        sizes[read.group] = sizes.get(read.group, 0) + read.weight_bytes
    return sizes


def smallest_group_that_matters(reads: Sequence[Read]) -> float:
    """Bytes of the smallest fusion group, groups that hold 2 % together left out."""
    sizes = group_sizes([read for read in reads if not read.optional])
    ordered = np.sort(np.array(list(sizes.values()), dtype=np.float64))
    keep = np.cumsum(ordered) > SMALL_SHARE * ordered.sum()
    return float(ordered[keep][0])


def _starting_bandwidths(
    column: Column, reads: Sequence[Read], peak_gbps: float | None
) -> list[float]:
    """Bandwidths to try, GB/s."""
    total = float(sum(read.weight_bytes for read in reads if not read.optional))
    candidates = column.duration_ns[column.match_penalty == 0]
    guess = total / max(float(candidates.sum()), 1.0)
    starts = [guess, 1.2 * guess, 1.5 * guess]
    if peak_gbps is not None:
        starts.append(0.85 * peak_gbps)
        starts = [min(start, PEAK_SLACK * peak_gbps) for start in starts]
    distinct: list[float] = []
    for start in sorted(starts):
        if not distinct or start > 1.07 * distinct[-1]:
            distinct.append(start)
    return distinct


def bytes_of(fit: Fit, reads: Sequence[Read]) -> Ints:
    """Weight bytes per kernel of the step, shape (kernels,), 0 where none; exact integers.

    Bytes that several kernels share are divided in equal integers, the rest to the first.
    """
    result = np.zeros(fit.length, dtype=np.int64)
    for found in fit.found:
        total = sum(read.weight_bytes for read in reads[found.first : found.end])
        share, rest = divmod(total, len(found.kernels))
        result[list(found.kernels)] = share
        result[found.kernels[0]] += rest
    return result


def ratio_of(fit: Fit, column: Column, reads: Sequence[Read]) -> Floats:
    """Measured over expected time of each finding, shape (found,)."""
    result = []
    for found in fit.found:
        size = float(sum(read.weight_bytes for read in reads[found.first : found.end]))
        taken = float(column.duration_ns[list(found.kernels)].sum())
        result.append(taken / expected_ns(size, fit.bandwidth_gbps, fit.launch_ns))
    return np.array(result)
