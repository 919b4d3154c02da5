"""Where a step begins: the weakest link, so several kinds of evidence are weighed.

The host prepares inputs between steps, so a step begins with the first kernel after a
pause, with a preparation kernel, or with the first eager kernel behind a graph, and
always in a zone between blocks, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools, Floats
from tracebook.kernels.classes import CHOOSES
from tracebook.kernels.ends import Ends
from tracebook.kernels.zones import Facts, Zone

#: Zones in which a step can begin. vLLM ends a step with the drafter, SGLang begins with it.
CUTTABLE = {
    ("output", "target"): 1.0,
    ("draft_head", "target"): 1.0,
    ("output", "draft"): 0.0,
    # Appending to the draft cache goes by the verdict and follows it in the same iteration.
    ("output", "draft_context"): -2.0,
    ("draft_context", "draft"): 0.0,
    # Between two passes of a drafter: where the first one ends the step before (SGLang's EAGLE
    # lets the drafter take in what was accepted behind the verify pass).
    ("draft_head", "draft"): -2.0,
    ("target", "target"): 1.0,
}
GAP_UNIT_NS = 2000.0
#: From here on a pause says that the host was waited for; how long hardly matters any more.
LONG_GAP = 5.0
STEP_MARKER = 4.0
PREPARE_START = 2.0
DRAFT_PREPARE_START = 1.5
GRAPH_END = 0.5
#: What the ends of runs of steps weigh: the pause in front of the first step more than any
#: that comes in every step, since what an engine does between two phases is over there. Where
#: a pause and a limit of the capture agree it is no chance, of a thousand kernels.
PAUSE_AT_END = 9.0
CAPTURE_LIMIT = 4.0
ENDS_AGREE = 4.0
AGREEING = 0.5
#: A step may begin so many glue kernels in front of its first preparation kernel.
REACH = 5
#: What each glue kernel in front of it adds. A fill clears a buffer of the new step, and a copy
#: may bring its inputs; anything else may as well write down what the last step decided.
AHEAD = {"fill": 0.15, "copy": -0.15, "prepare": -0.15, "draft_prepare": -0.15}
OTHER_AHEAD = -0.6
#: A step does not begin before the tokens of the last one are chosen: a sampler behind a graph
#: that holds the output layer is the first eager kernel there, and no begin.
NOT_DECIDED = 6.0
GLUE = frozenset({"copy", "fill", "elementwise", "unknown", "prepare", "draft_prepare"})
#: Two candidates closer than this in different zones are called ambiguous.
MARGIN = 1.0


@dataclass(frozen=True)
class Cut:
    """First position of the step; `certain` is False where another zone is as good."""

    position: int
    certain: bool


def find_cut(
    zones: list[Zone], facts: Facts, gap_ns: Floats, step_marker: Bools, ends: Ends
) -> Cut:
    """Choose the first kernel of the step among all positions where one can begin.

    Args:
        zones: Stretches between blocks.
        facts: Class and launch per position.
        gap_ns: Median idle time before each position.
        step_marker: Positions whose name marks the preparation of a step.
        ends: What the ends of runs of steps tell.
    """
    told = _told_by_ends(ends)
    best: list[tuple[float, int, bool]] = []
    for zone in zones:
        prior = CUTTABLE.get((zone.before.name, zone.after.name))
        if prior is None:
            continue
        candidates = [*zone.positions, zone.next_mark.position]
        previous = zone.first_mark.position
        scored: list[tuple[float, int, int, bool]] = []
        ahead = _marker_ahead(candidates, facts, step_marker)
        undecided = facts.last_of(CHOOSES, candidates)
        for number, position in enumerate(candidates):
            score = prior + ahead[number] + _evidence(facts, gap_ns, previous, position)
            score += float(told[position]) - (NOT_DECIDED if number <= undecided else 0.0)
            likely = ahead[number] > 0 or prior > 0 or told[position] >= CAPTURE_LIMIT
            scored.append((score, -len(scored), position, likely))
            previous = position
        score, _, position, likely = max(scored)
        best.append((score, position, likely))
    if not best:
        return Cut(int(np.argmax(gap_ns)), certain=False)
    best.sort(reverse=True)
    # A step that begins with the drafter is the rarer kind: a pause alone does not prove it,
    # since an engine that synchronises after the verify pass leaves one there as well.
    certain = len(best) == 1 or (best[0][2] and best[0][0] - best[1][0] > MARGIN)
    return Cut(best[0][1], certain)


def _told_by_ends(ends: Ends) -> Floats:
    """How much the ends of runs of steps speak for each position."""
    agree = (ends.pauses >= AGREEING) & (ends.limits >= AGREEING)
    told = PAUSE_AT_END * ends.pauses + CAPTURE_LIMIT * ends.limits + ENDS_AGREE * agree
    return np.asarray(told)


def _marker_ahead(candidates: list[int], facts: Facts, step_marker: Bools) -> Floats:
    """Bonus for standing at, or a few glue kernels in front of, a preparation kernel."""
    bonus = np.zeros(len(candidates))
    for number, position in enumerate(candidates):
        name = facts.class_name(position)
        weight = STEP_MARKER if step_marker[position] else 0.0
        if name == "prepare":
            weight += PREPARE_START
        elif name == "draft_prepare":
            weight += DRAFT_PREPARE_START
        if not weight:
            continue
        for back in range(REACH + 1):
            glue = facts.class_name(candidates[number - back]) if back <= number else ""
            if back and glue not in GLUE:
                break
            weight += AHEAD.get(glue, OTHER_AHEAD) if back else 0.0
            bonus[number - back] = max(bonus[number - back], weight)
        if number and facts.class_name(candidates[number - 1]) in ("prepare", "draft_prepare"):
            bonus[number] = 0.0
    return bonus


def _evidence(facts: Facts, gap_ns: Floats, previous: int, position: int) -> float:
    """How much speaks for a step that begins at `position`: a pause, the end of a graph."""
    score = float(np.log2(1.0 + gap_ns[position] / GAP_UNIT_NS))
    score = min(score, LONG_GAP) + 0.5 * max(0.0, score - LONG_GAP)
    if facts.in_graph[previous] and not facts.in_graph[position]:
        score += GRAPH_END
    return score
