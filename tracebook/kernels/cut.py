"""Where a step begins: the weakest link, so several kinds of evidence are weighed.

The host prepares inputs between steps, so a step begins with the first kernel after a
pause, with a preparation kernel, or with the first eager kernel behind a graph, and
always in a zone between blocks, never inside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools, Floats
from tracebook.kernels.classes import CHOOSES
from tracebook.kernels.ends import Ends
from tracebook.kernels.joints import joint_at_end
from tracebook.kernels.zones import LAYERED, Facts, Zone

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
#: A pause is what exceeds most of the gaps: between eager kernels there is one of a
#: microsecond or ten, and which of those is the longest tells nothing.
USUAL_GAP = 0.9
#: What is shorter, less than half of the unit, is chance.
LEAST_GAP = 0.5
#: From here on a pause says that the host was waited for; how long hardly matters any more.
LONG_GAP = 5.0
STEP_MARKER = 4.0
PREPARE_START = 2.0
GRAPH_END = 0.5
#: What the ends of runs of steps weigh: the pause in front of the first step more than any
#: that comes in every step, since what an engine does between two phases is over there. Where
#: a pause and a limit of the capture agree it is no chance, of a thousand kernels.
PAUSE_AT_END = 9.0
CAPTURE_LIMIT = 4.0
ENDS_AGREE = 4.0
#: Where runs of steps begin and end at the same place, with other work around them.
BORDERS = 3.0
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
#: Blocks that logits come from, and kernels of a zone without names that read them: this many
#: times as long as the usual one, of at least so many.
HEADS = ("output", "draft_head")
LONG_IN_ZONE, LEAST_COMPARED = 1.5, 5
#: Two candidates closer than this in different zones are called ambiguous.
MARGIN = 1.0


@dataclass(frozen=True)
class Cut:
    """First position of the step.

    `certain` is False where another zone is as good. Where nothing marks the begin within its
    zone, neither name nor pause nor end of a run, `unmarked` is the number of kernels from it on
    that may be the first as well; else 0.
    """

    position: int
    certain: bool
    unmarked: int = 0


def may_begin(zones: list[Zone], facts: Facts, joints: Sequence[tuple[int, ...]] = ()) -> Bools:
    """Positions at which a step can begin, shape (positions,).

    Args:
        zones: Stretches between blocks.
        facts: Class and launch per position.
        joints: Names of the kernels at the joint of two layers, the usual ones.
    """
    result = np.zeros(len(facts.duration_ns), dtype=bool)
    for zone in zones:
        if (zone.before.name, zone.after.name) in CUTTABLE:
            candidates = [*zone.positions, zone.next_mark.position]
            begun = _begun(zone, facts, joints)
            undecided = _last_undecided(zone, facts, begun)
            result[candidates[undecided + 1 : begun + 1]] = True
    return result


def find_cut(
    zones: list[Zone], facts: Facts, gap_ns: Floats, step_marker: Bools, ends: Ends, may: Bools
) -> Cut:
    """Choose the first kernel of the step among all positions where one can begin.

    Args:
        zones: Stretches between blocks.
        facts: Class and launch per position.
        gap_ns: Median idle time before each position.
        step_marker: Positions whose name marks the preparation of a step.
        ends: What the ends of runs of steps tell.
        may: Positions at which a step can begin.
    """
    usual_ns = float(np.quantile(gap_ns, USUAL_GAP))
    pause_ns = np.maximum(gap_ns - usual_ns, 0.0)
    told = _told_by_ends(ends)
    best: list[tuple[float, int, bool, int]] = []
    for zone in zones:
        prior = CUTTABLE.get((zone.before.name, zone.after.name))
        if prior is None:
            continue
        candidates = [*zone.positions, zone.next_mark.position]
        previous = zone.first_mark.position
        scored: list[tuple[float, int, int, bool]] = []
        ahead = _marker_ahead(candidates, facts, step_marker)
        for number, position in enumerate(candidates):
            score = prior + ahead[number] + _evidence(facts, pause_ns, previous, position)
            score += float(told[position])
            score -= 0.0 if may[position] else NOT_DECIDED
            likely = ahead[number] > 0 or prior > 0 or told[position] >= CAPTURE_LIMIT
            scored.append((score, -len(scored), position, likely))
            previous = position
        score, _, position, likely = max(scored)
        alike = sum(bool(may[at]) and other >= score for other, _, at, _ in scored)
        best.append((score, position, likely, alike - 1 if score == prior else 0))
    if not best:
        return Cut(int(np.argmax(gap_ns)), certain=False)
    best.sort(reverse=True)
    # A step that begins with the drafter is the rarer kind: a pause alone does not prove it,
    # since an engine that synchronises after the verify pass leaves one there as well.
    certain = len(best) == 1 or (best[0][2] and best[0][0] - best[1][0] > MARGIN)
    return Cut(best[0][1], certain, best[0][3])


def _begun(zone: Zone, facts: Facts, joints: Sequence[tuple[int, ...]]) -> int:
    """Number of the last kernel of a zone with which a step can begin.

    What prepares inputs belongs to the step that it prepares, and so do the layers. What stands
    at the joint of two layers, a norm, stands in front of the first one too, and the gather of
    the embedding in front of that.
    """
    count = len(zone.positions)
    if zone.after.name not in LAYERED:
        return count
    classes = facts.classes(zone.positions)
    chosen = facts.last_of(CHOOSES, zone.positions) + 1
    prepares = [n for n in range(chosen, count) if classes[n] in ("prepare", "draft_prepare")]
    gathers = [n for n in range(chosen, count) if classes[n] == "embed"]
    if prepares or gathers:
        return prepares[0] if prepares else gathers[-1]
    tail = joint_at_end(facts.names(zone.positions), joints)
    return max(0, count - tail - 1) if tail else count


def _last_undecided(zone: Zone, facts: Facts, begun: int) -> int:
    """Number of the last kernel of a zone that chooses tokens, -1 where none does.

    Where no name tells, what reads the logits of all tokens takes longer than what prepares
    or begins.
    """
    last = facts.last_of(CHOOSES, zone.positions)
    duration_ns = facts.duration_ns[list(zone.positions[:begun])]
    if last >= 0 or zone.before.name not in HEADS or len(duration_ns) < LEAST_COMPARED:
        return last
    long = duration_ns > LONG_IN_ZONE * np.median(duration_ns)
    return int(np.flatnonzero(long).max(initial=-1))


def _told_by_ends(ends: Ends) -> Floats:
    """How much the ends of runs of steps speak for each position."""
    agree = (ends.pauses >= AGREEING) & (ends.limits >= AGREEING)
    told = PAUSE_AT_END * ends.pauses + CAPTURE_LIMIT * ends.limits + ENDS_AGREE * agree
    return np.asarray(told + BORDERS * ends.borders)


def _marker_ahead(candidates: list[int], facts: Facts, step_marker: Bools) -> Floats:
    """Bonus for standing at, or a few glue kernels in front of, a preparation kernel."""
    bonus = np.zeros(len(candidates))
    for number, position in enumerate(candidates):
        name = facts.class_name(position)
        weight = STEP_MARKER if step_marker[position] else 0.0
        if name == "prepare":
            weight += PREPARE_START
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


def _evidence(facts: Facts, pause_ns: Floats, previous: int, position: int) -> float:
    """How much speaks for a step that begins at `position`: a pause, the end of a graph."""
    score = float(np.log2(1.0 + pause_ns[position] / GAP_UNIT_NS))
    score = 0.0 if score < LEAST_GAP else min(score, LONG_GAP) + 0.5 * max(0.0, score - LONG_GAP)
    if facts.in_graph[previous] and not facts.in_graph[position]:
        score += GRAPH_END
    return score
