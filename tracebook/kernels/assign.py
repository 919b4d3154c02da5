"""Phases of the kernels between marks: neighbours, names with one meaning, launches.

Inside a block a kernel belongs to the block. Between two blocks lies a zone that is
walked through in stages, always forward: a class that can only belong to a later
stage moves on, a kernel of the next block's graph launch ends the walk. The rules
of membership are those of docs/method.md ("Phases").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools
from tracebook.kernels.classes import CHOOSES, CLASSES
from tracebook.kernels.joints import common_start, joint_at_end, layer_joints, norm_lengths
from tracebook.kernels.marks import Mark, Marks
from tracebook.kernels.nameless import is_nameless, lead, pass_starts, unknowable
from tracebook.kernels.zones import LAYERED, STAGES, Facts, Zone, find_zones
from tracebook.phases import Phase

#: Classes that name their phase wherever they stand.
NAMED_PHASE = {
    "prepare": Phase.PREPARE,
    "draft_prepare": Phase.PREPARE,
    "replay": Phase.REPLAY,
    "verify": Phase.SAMPLING,
    "comm": Phase.COMMUNICATION,
}
#: Classes that begin the next block's layers, and classes that come before that.
LAYER_STARTS = frozenset({"embed", "norm"})
#: So many kernels (gather, norm, quantisation and the like) precede the first matrix at most.
LAYER_START_REACH = 5
EARLIER = frozenset({*CHOOSES, "prepare", "draft_prepare", "replay"})
#: Classes that finish a layer behind its last matrix, until the next layer's norm.
LAYER_ENDS = frozenset({"moe", "splitk_reduce", "gemm", "elementwise", "activation", "comm"})
#: Classes that say little enough for the joint of layers to decide.
VAGUE = frozenset({"unknown", "elementwise", "norm", "copy", "activation"})
#: Classes that can write into a buffer.
WRITES = frozenset({"elementwise", "copy", "fill"})
#: A kernel between sampling and drafting that lasts at least this share of the step and
#: is no sampler can only be the commit of recurrent state.
REPLAY_SHARE = 0.002


@dataclass(frozen=True)
class Label:
    """Everything that is said of one template position."""

    phase: str
    layer: int | None
    op: str | None
    matrix: str | None
    weight_bytes: int | None
    evidence: str
    pass_index: int | None


def assign_labels(marks: Marks, facts: Facts, cut: int | None) -> list[Label]:
    """Label every template position.

    Args:
        marks: Positions whose reads are known.
        facts: Class, duration and launch of each position.
        cut: First position of the step, None where not yet known.

    Returns:
        One label per position.
    """
    positions = len(facts.duration_ns)
    labels: list[Label | None] = [None] * positions
    for mark in marks.marks:
        block = marks.blocks[mark.block]
        labels[mark.position] = Label(
            block.phase,
            mark.layer,
            mark.op,
            mark.matrix,
            mark.weight_bytes,
            mark.evidence,
            block.pass_index if block.name.startswith("draft") else None,
        )
    joints = layer_joints(marks, facts.name)
    starts = np.isin(facts.kernel_class, [CLASSES.index(name) for name in LAYER_STARTS])
    norms = norm_lengths(marks, facts.name, starts)
    zones = find_zones(marks, positions)
    nameless = is_nameless(facts.kernel_class)
    begins = _pass_begins(zones, facts) if nameless else None
    for zone in zones:
        walked = _walk_zone(zone, facts, cut, joints, begins)
        if nameless or any(_is_structural_replay(label) for label in walked):
            walked = _without_guesses(zone, facts, cut, walked)
        for position, label in zip(zone.positions, walked, strict=True):
            labels[position] = label
    ordered = marks.by_position()
    for mark, following in zip(ordered, [*ordered[1:], ordered[0]], strict=True):
        position = (mark.position + 1) % positions
        while position != following.position and labels[position] is None:
            lead = position >= following.position - norms.get(following.position, 0)
            labels[position] = _inside(mark, following, marks, facts, position, lead=lead)
            position = (position + 1) % positions
    nothing = Label(Phase.UNCLASSIFIED.value, None, None, None, None, "none", None)
    return [label if label is not None else nothing for label in labels]


def _inside(
    mark: Mark, following: Mark, marks: Marks, facts: Facts, position: int, *, lead: bool
) -> Label:
    """A kernel between two marks of one block; `lead` where it is the norm of the second."""
    name = facts.class_name(position)
    block = marks.blocks[mark.block]
    pass_index = block.pass_index if block.name.startswith("draft") else None
    if name in NAMED_PHASE:
        return Label(NAMED_PHASE[name].value, None, name, None, None, "name", pass_index)
    if facts.collective[position]:
        phase = Phase.COMMUNICATION.value
        return Label(phase, None, name, None, None, "alignment", pass_index)
    count = len(facts.name)
    joint = range(mark.position + 1, position + 1 + count * (position < mark.position))
    end = following.position + count * (following.position < mark.position)
    norms = [p for p in range(mark.position + 1, end) if facts.class_name(p % count) == "norm"]
    # Of two norms at a joint the first one ends a layer (Gemma's behind its last matrix).
    ends = set(norms[:-1])
    stays = not lead and all(p in ends or facts.class_name(p % count) in LAYER_ENDS for p in joint)
    # Ranks add up what a layer has made, before the next one begins.
    stays |= any(facts.collective[p % count] for p in range(joint.stop, end))
    layer = mark.layer if stays or mark.layer == following.layer else following.layer
    return Label(block.phase, layer, name, None, None, "neighbour", pass_index)


def _pass_begins(zones: Sequence[Zone], facts: Facts) -> int | None:
    """How many kernels all passes of a drafter begin with, None where there is one pass."""
    names: dict[str, list[list[int]]] = {"output": [], "draft_head": []}
    for zone in zones:
        if zone.after.name == "draft" and zone.before.name in names:
            names[zone.before.name].append(facts.names(zone.positions))
    first, later = names["output"], names["draft_head"]
    return pass_starts(first[0], later) if len(first) == 1 else None


def _without_guesses(zone: Zone, facts: Facts, cut: int | None, labels: list[Label]) -> list[Label]:
    """Labels of a zone whose names tell nothing, those left out that only their place told."""
    told = np.array([label.evidence != "neighbour" for label in labels], dtype=bool)
    number = zone.positions.index(cut) if cut in zone.positions else None
    next_launch = facts.launch[zone.next_mark.position]
    launched = bool(len(told) and facts.launch[zone.positions[-1]] == next_launch)
    duration_ns = facts.duration_ns[list(zone.positions)].tolist()
    vague = np.array([name in VAGUE for name in facts.classes(zone.positions)], dtype=bool)
    unknown = vague & unknowable(
        zone.before.phase,
        zone.after.phase,
        told,
        duration_ns,
        number,
        lead(told, launched=launched),
    )
    nothing = Phase.UNCLASSIFIED.value
    return [
        Label(nothing, None, label.op, None, None, "none", None) if open_ else label
        for label, open_ in zip(labels, unknown, strict=True)
    ]


def _is_structural_replay(label: Label) -> bool:
    """Whether only its time told a commit of state, so that what stands around it may be one."""
    return label.phase == Phase.REPLAY and label.evidence == "structure"


def _at_joint(
    zone: Zone, facts: Facts, joints: list[tuple[int, ...]], begins: int | None
) -> tuple[int, int]:
    """How many kernels at the start and at the end of a zone are as at the joint of layers."""
    names = facts.names(zone.positions)
    head = max((common_start(names, joint) for joint in joints), default=0)
    tail = joint_at_end(names, joints)
    if zone.after.name == "draft" and begins is not None:
        tail = max(tail, min(begins, len(names)))
    return (
        # A drafter's final norm belongs to its head, a target's to its layers.
        head if zone.before.name == "target" else 0,
        tail if zone.after.name in LAYERED else 0,
    )


def _walk_zone(
    zone: Zone, facts: Facts, cut: int | None, joints: list[tuple[int, ...]], begins: int | None
) -> list[Label]:
    """Labels of the positions of a zone, in order."""
    stages = STAGES.get((zone.before.name, zone.after.name))
    if stages is None:
        stages = (
            (Phase(zone.before.phase), frozenset()),
            (Phase(zone.after.phase), frozenset({"embed", "norm"})),
        )
    stage = _default_stage(zone, stages)
    joined = _joins_next(zone, facts, begins)
    head, tail = _at_joint(zone, facts, joints, begins)
    after_cut = False
    labels: list[Label] = []
    foreign = [n for n, p in enumerate(zone.positions) if facts.foreign[p]]
    # A gather or norm starts the next layers only behind the last sampler or preparation.
    settled = facts.last_of(EARLIER, zone.positions)
    # State is committed by the verdict: what stands in front of a sampler is no commit.
    chosen = facts.last_of(CHOOSES, zone.positions)
    floor_ns = REPLAY_SHARE * float(facts.duration_ns.sum())
    inputs = _inputs(zone, facts)
    for number, position in enumerate(zone.positions):
        name = facts.class_name(position)
        evidence = "neighbour"
        after_cut = after_cut or position == cut
        in_first = number == 0 and name in stages[0][1]
        early = number < max(settled, len(zone.positions) - LAYER_START_REACH)
        if not in_first and not (name in LAYER_STARTS and early):
            stage = max(stage, _entered(stages, stage, name))
        if after_cut or number in inputs:
            stage = max(stage, _index_of(stages, Phase.PREPARE, stage))
        phase = stages[0][0] if in_first and not after_cut else stages[stage][0]
        if name in NAMED_PHASE:
            phase, evidence = NAMED_PHASE[name], "name"
        elif facts.collective[position]:
            phase, evidence = Phase.COMMUNICATION, "alignment"
        elif (
            number > chosen
            and not joined[number]
            and _is_replay(zone, facts, position, name, phase, floor_ns)
        ):
            phase, evidence = Phase.REPLAY, "structure"
        elif foreign and foreign[0] <= number <= foreign[-1]:
            phase, evidence = Phase.UNCLASSIFIED, "none"
        elif joined[number]:
            phase, evidence = Phase(zone.after.phase), "launch"
        elif name in VAGUE and number >= len(zone.positions) - tail:
            phase, evidence = Phase(zone.after.phase), "structure"
        elif name in VAGUE and number < head and not after_cut:
            phase, evidence = Phase(zone.before.phase), "structure"
        labels.append(_zone_label(zone, phase, name, evidence))
    return labels


def _inputs(zone: Zone, facts: Facts) -> range:
    """Glue of a zone behind the draft head that stands directly in front of a preparation.

    What the head or its sampler hands to the first of them is still the head's result; what
    follows fills the buffers of the next verify pass.
    """
    names = facts.classes(zone.positions)
    if (zone.before.name, zone.after.name) != ("draft_head", "target") or "prepare" not in names:
        return range(0)
    end = first = names.index("prepare")
    while first and names[first - 1] in WRITES:
        first -= 1
    handed_on = first == 0 or names[first - 1] in ("sample", "select")
    return range(first + handed_on, end)


def _zone_label(zone: Zone, phase: Phase, name: str, evidence: str) -> Label:
    """A label in a zone; layer and pass come from the block whose phase it is."""
    layer, pass_index = None, None
    if phase == zone.after.phase and phase != zone.before.phase:
        layer = zone.next_mark.layer
        pass_index = zone.after.pass_index if zone.after.name.startswith("draft") else None
    elif phase == zone.before.phase:
        pass_index = zone.before.pass_index if zone.before.name.startswith("draft") else None
    return Label(phase.value, layer, name, None, None, evidence, pass_index)


def _default_stage(zone: Zone, stages: tuple[tuple[Phase, frozenset[str]], ...]) -> int:
    """Where a zone begins: behind the output layer everything is sampling at first."""
    return 1 if zone.before.name == "output" else 0


def _entered(stages: tuple[tuple[Phase, frozenset[str]], ...], stage: int, name: str) -> int:
    """The first stage from `stage` on that takes the class, else `stage`."""
    for number in range(stage, len(stages)):
        if name in stages[number][1]:
            return number
    return stage


def _index_of(stages: tuple[tuple[Phase, frozenset[str]], ...], phase: Phase, default: int) -> int:
    return next((i for i, (p, _) in enumerate(stages) if p == phase), default)


def _joins_next(zone: Zone, facts: Facts, begins: int | None) -> Bools:
    """True for positions that were launched in one graph with the zone's next mark.

    Where nothing is known of launches, nor of what each pass begins with, the last kernel in
    front of a layer is its norm; an embedding gather and what follows it belong to it as well.
    """
    joined = np.zeros(len(zone.positions), dtype=bool)
    launch = facts.launch[zone.next_mark.position]
    before = facts.launch[zone.first_mark.position]
    graph = bool(facts.in_graph[zone.next_mark.position]) and launch != before
    known = zone.after.name == "draft" and begins is not None
    layered = zone.after.name in LAYERED | {"draft_context"} and not known
    for number, position in enumerate(zone.positions):
        joined[number] = graph and facts.launch[position] == launch
    if layered and not joined.any() and len(zone.positions):
        names = facts.classes(zone.positions)
        number = len(names) - 1
        while (
            number >= 0
            and names[number] in ("norm", "quantize", "copy", "unknown")
            and (len(names) - number <= 2)
        ):
            joined[number] = names[number] != "unknown" or number == len(names) - 1
            number -= 1
        if zone.after.name == "draft_context" and not joined.any():
            joined[-1] = names[-1] in ("copy", "elementwise", "norm", "quantize", "unknown")
    return joined


def _is_replay(
    zone: Zone, facts: Facts, position: int, name: str, phase: Phase, floor_ns: float
) -> bool:
    """Whether a long kernel behind the sampler can only be the commit of state."""
    if not (facts.speculative and facts.recurrent) or zone.before.name != "output":
        return False
    if zone.after.name == "target" and zone.after.pass_index == 0 and not facts.speculative:
        return False
    undecided = name in ("unknown", "copy", "elementwise", "gdn", "conv", "fill")
    return undecided and float(facts.duration_ns[position]) >= floor_ns and phase != Phase.REPLAY
