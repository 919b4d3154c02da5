"""Where a step begins: the weakest link, so several kinds of evidence are weighed.

The host prepares inputs between steps, so a step begins with the first kernel after a
pause, with a preparation kernel, or with the first eager kernel behind a graph, and
always in a zone between blocks, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracebook.kernels.assign import Facts, Zone
from tracebook.kernels.sequence import Bools, Floats

#: Zones in which a step can begin. vLLM ends a step with the drafter, SGLang begins with it.
CUTTABLE = {
    ("output", "target"): 1.0,
    ("draft_head", "target"): 1.0,
    ("output", "draft"): 0.0,
    ("output", "draft_context"): 0.0,
    ("draft_context", "draft"): 0.0,
    ("target", "target"): 1.0,
}
GAP_UNIT_NS = 2000.0
STEP_MARKER = 4.0
PREPARE_START = 2.0
DRAFT_PREPARE_START = 1.5
GRAPH_END = 0.5
#: Two candidates closer than this in different zones are called ambiguous.
MARGIN = 1.0


@dataclass(frozen=True)
class Cut:
    """First position of the step; `certain` is False where another zone is as good."""

    position: int
    certain: bool


def find_cut(zones: list[Zone], facts: Facts, gap_ns: Floats, step_marker: Bools) -> Cut:
    """Choose the first kernel of the step among all positions where one can begin.

    Args:
        zones: Stretches between blocks.
        facts: Class and launch per position.
        gap_ns: Median idle time before each position.
        step_marker: Positions whose name marks the preparation of a step.
    """
    best: list[tuple[float, int]] = []
    for zone in zones:
        prior = CUTTABLE.get((zone.before.name, zone.after.name))
        if prior is None:
            continue
        candidates = [*zone.positions, zone.next_mark.position]
        previous = zone.first_mark.position
        scored: list[tuple[float, int, int]] = []
        for position in candidates:
            score = prior + _evidence(facts, gap_ns, step_marker, previous, position)
            scored.append((score, -len(scored), position))
            previous = position
        score, _, position = max(scored)
        best.append((score, position))
    if not best:
        return Cut(int(np.argmax(gap_ns)), certain=False)
    best.sort(reverse=True)
    certain = len(best) == 1 or best[0][0] - best[1][0] > MARGIN
    return Cut(best[0][1], certain)


def _evidence(
    facts: Facts, gap_ns: Floats, step_marker: Bools, previous: int, position: int
) -> float:
    """How much speaks for a step that begins at `position`."""
    score = float(np.log2(1.0 + gap_ns[position] / GAP_UNIT_NS))
    if step_marker[position] and not step_marker[previous]:
        score += STEP_MARKER
    name, before = facts.class_name(position), facts.class_name(previous)
    if name == "prepare" and before not in ("prepare", "draft_prepare"):
        score += PREPARE_START
    if name == "draft_prepare" and before not in ("prepare", "draft_prepare"):
        score += DRAFT_PREPARE_START
    if facts.in_graph[previous] and not facts.in_graph[position]:
        score += GRAPH_END
    return score
