"""Place the small reads of a plan between its large ones.

In: the kernels of a step and where the large reads were found. Out: where the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracebook.checkpoint.plan import Read
from tracebook.kernels.align import Column, Habits, Match, align, build_table
from tracebook.kernels.habits import learn_habits
from tracebook.kernels.runs import Runs, build_runs

#: Between large reads most kernels read nothing: leaving one out costs less there.
GLUE_SKIP = 0.3


def fill_small(
    column: Column, reads: tuple[Read, ...], matches: Sequence[Match], bandwidth_gbps: float
) -> list[Match]:
    """Place the reads that the coarse pass left out between its matches.

    A read that is missing is looked for among the kernels between the matches around it.
    The small reads of a group may also be made in front of its large ones (an engine can
    launch b and a before qkv and z); which it is, all groups of a kind decide together.
    Done twice, so that the second time the names that served a kind are known.
    """
    gaps = _open_gaps(reads, matches, len(column.duration_ns))
    if not gaps:
        return []
    runs = build_runs(reads)
    habits: Habits | None = None
    found: list[Match] = []
    for _ in range(2):
        costs: dict[tuple[str, ...], list[float]] = {}
        solved: list[tuple[tuple[str, ...], list[list[Match]]]] = []
        for gap in gaps:
            kind = tuple(read.family for read in reads[gap.first : gap.end])
            sides = [
                _solve_gap(column, reads, runs, gap, side, bandwidth_gbps, habits)
                for side in gap.sides
            ]
            if len(sides) > 1:
                total = costs.setdefault(kind, [0.0] * len(sides))
                for side, (_, cost) in enumerate(sides):
                    total[side] += cost
            solved.append((kind, [matched for matched, _ in sides]))
        found = []
        for kind, options in solved:
            side = int(np.argmin(costs[kind])) if len(options) > 1 else 0
            found += options[side]
        habits = learn_habits(column, runs, [*matches, *found], bandwidth_gbps)
    return found


@dataclass(frozen=True)
class _Gap:
    """Missing reads [first, end) and the kernel ranges in which they may have been made."""

    first: int
    end: int
    sides: tuple[tuple[int, int], ...]


def _solve_gap(
    column: Column,
    reads: tuple[Read, ...],
    runs: Runs,
    gap: _Gap,
    side: tuple[int, int],
    bandwidth_gbps: float,
    habits: Habits | None,
) -> tuple[list[Match], float]:
    """Align the missing reads of a gap with the kernels of one of its sides."""
    part = reads[gap.first : gap.end]
    smallest = min(read.weight_bytes for read in part)
    kernels = column.take(np.arange(*side))
    table = build_table(
        replace(kernels, skip_factor=GLUE_SKIP * kernels.skip_factor),
        part,
        _with_kinds(build_runs(part), runs, gap.first),
        bandwidth_gbps=bandwidth_gbps,
        tau_ns=0.5 * smallest / bandwidth_gbps,
        habits=habits,
    )
    matches, cost = align(table)
    # Sides of different length compare by what the reads gain, not by what glue costs.
    cost -= float(table.kernel_skip.sum())
    return [
        Match(
            m.first_kernel + side[0], m.end_kernel + side[0], m.first + gap.first, m.end + gap.first
        )
        for m in matches
    ], cost


def _with_kinds(local: Runs, whole: Runs, offset: int) -> Runs:
    """Give the runs of a stretch the kinds that they have in the whole plan."""
    near = (whole.first >= offset) & (whole.end <= offset + local.end.max(initial=0))
    columns = (whole.first[near], whole.end[near], whole.kind[near])
    key = {(int(f), int(e)): int(k) for f, e, k in zip(*columns, strict=True)}
    kind = [
        key.get((int(f) + offset, int(e) + offset), 0)
        for f, e in zip(local.first, local.end, strict=True)
    ]
    return replace(local, kind=np.array(kind, dtype=np.int64))


def _open_gaps(reads: tuple[Read, ...], matches: Sequence[Match], kernels: int) -> list[_Gap]:
    """Stretches of missing reads, with the kernels behind the match before them.

    Trailing reads of a group that was matched also get the kernels in front of it.
    """
    gaps: list[_Gap] = []
    kernel, read = 0, 0
    group: int | None = None
    group_range = (0, 0)
    for match in [*matches, Match(kernels, kernels, len(reads), len(reads))]:
        if match.first > read:
            ranges = [(kernel, match.first_kernel)]
            if reads[read].group == group == reads[match.first - 1].group:
                ranges.append(group_range)
            sides = tuple(side for side in ranges if side[1] > side[0])
            if sides:
                gaps.append(_Gap(read, match.first, sides))
        if match.first < len(reads) and reads[match.first].group != group:
            group_range = (kernel, match.first_kernel)
        kernel, read = match.end_kernel, match.end
        group = reads[read - 1].group
    return gaps
