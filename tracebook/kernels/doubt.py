"""The verdict on the best way to see steps, and what else is tried where the plan is in doubt.

Other plans that may have run are laid along the same template, and where none explains it
phases come from the structure of the step alone, without bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Ints
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.attempts import (
    FOREIGN,
    Attempt,
    attempt_by_structure,
    fit_orders,
)
from tracebook.kernels.collectives import check_ranks, has_collectives, ranks_in_names
from tracebook.kernels.fit import Fit
from tracebook.kernels.labels import Verdict
from tracebook.kernels.notdecode import check_drafter_alone, check_fitted, check_structure
from tracebook.kernels.refusal import no_decode
from tracebook.kernels.selfcheck import check_layers
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.verdict import judge
from tracebook.notices import Notice

Alternatives = Callable[[], Sequence[Plan]]

#: Another plan must fit better by this much before it is believed.
BETTER = 0.03
#: Steps in which layers are counted.
STEPS_COUNTED = 15
#: Where not even structure helps, less than this means that a part of the model never ran.
MOSTLY_FOUND = 0.9


def judge_attempt(
    attempt: Attempt,
    alternatives: Alternatives,
    peak_gbps: float | None,
    devices: int | None = None,
) -> tuple[Attempt, Verdict | None, list[Notice]]:
    """Judge the plan; where it is in doubt see whether another plan fits better.

    Args:
        attempt: The best attempt with the plan that was said.
        alternatives: Lays out other plans; called only where there is doubt.
        peak_gbps: Peak bandwidth, None where unknown.
        devices: Devices and processes that run as many kernels as this one, None if unknown.

    Returns:
        The attempt to label by, the verdict (None without a plan), and notices.

    Raises:
        NoDecodeSteps: The kernels are not those of the plan, and say nothing themselves.
    """
    source = attempt.template.source
    classes = attempt.kernels.kernel_class[source]
    if attempt.plan is None or attempt.fit is None:
        check_structure(attempt.marks, classes, attempt.template.duration_ns)
        return attempt, None, []
    verdict, notices = _judged(attempt, attempt.plan, attempt.fit, peak_gbps)
    collective = has_collectives(classes, attempt.column)
    told = ranks_in_names(_names(attempt.kernels, source)) if collective else None
    if (unlike := check_ranks(attempt.plan, collective, told, devices)) is not None:
        notices.append(unlike)
    trusted = verdict.phases_trusted
    check_fitted(attempt.fit, attempt.column, attempt.plan, peak_gbps, classes, trusted=trusted)
    if not notices:
        return attempt, verdict, []
    score = _score(attempt, notices)
    best = (score, attempt, verdict, notices)
    for plan in alternatives():
        if plan.ranks != attempt.plan.ranks and collective is not (plan.ranks > 1):
            continue
        if unlike is not None and told not in (None, plan.ranks):
            continue
        other = fit_orders(attempt.kernels, attempt.template, plan, peak_gbps)
        if other is None or other.fit is None or other.plan is None:
            continue
        judged, said = _judged(other, other.plan, other.fit, peak_gbps)
        # A report only goes by a plan that nobody named where that explains the times as well.
        if not (judged.phases_trusted and judged.bytes_trusted):
            continue
        value = _score(other, said)
        if value > best[0] + 1e-6:
            best = (value, other, judged, said)
    if best[0] > score + BETTER:
        _, other, judged, said = best
        other = replace(other, other_kinds=attempt.other_kinds, kind=attempt.kind)
        return other, judged, [_contradiction(attempt.plan, other.plan), *said]
    if verdict.phases_trusted:
        return attempt, verdict, notices
    return _without_trust(attempt, verdict, notices, peak_gbps)


def _judged(
    attempt: Attempt, plan: Plan, fit: Fit, peak_gbps: float | None
) -> tuple[Verdict, list[Notice]]:
    """The verdict on bytes and times, doubted where the number of layers contradicts it."""
    verdict, notices = judge(fit, attempt.column, plan, peak_gbps)
    classes = attempt.kernels.kernel_class[attempt.template.source]
    slices = attempt.template.slices
    steps = [
        attempt.kernels.kernel_class[piece.first : piece.end]
        for piece in slices[:: max(1, len(slices) // STEPS_COUNTED)]
    ]
    unlike = check_layers(plan, classes, attempt.template.duration_ns, steps)
    if unlike is None:
        return verdict, notices
    if unlike.code == "no_mixing_kernels":
        raise NoDecodeSteps(f"No steady decode found. {unlike.message}", unlike.hint)
    return replace(verdict, phases_trusted=False, bytes_trusted=False), [unlike, *notices]


def _names(kernels: Kernels, source: Ints) -> list[str]:
    """Distinct names of kernels."""
    return [kernels.names[int(i)] for i in np.unique(kernels.name_ids[kernels.name[source]])]


def _score(attempt: Attempt, notices: Sequence[Notice]) -> float:
    """How well a plan explains a step, to compare plans on one template."""
    unlike = sum(notice.code == "phase_unlike_rest" for notice in notices)
    above = sum(notice.code == "above_peak" for notice in notices)
    counted = sum(notice.code in ("plan_layers_unlike", "ranks_unlike") for notice in notices)
    return attempt.goodness - 0.05 * unlike - 0.3 * above - 0.3 * counted


def _contradiction(said: Plan, found: Plan | None) -> Notice:
    """The kernels fit another plan better than the one that was said."""
    other = found.description if found is not None else "another plan"
    return Notice(
        "plan_contradicted",
        f"The kernels do not fit {said.description}, they fit {other}; the report goes by that.",
        "Correct the run description (drafter, draft tokens, draft head, ranks) if it agrees.",
    )


def _depth(attempt: Attempt) -> int:
    """Layers of the target among the marks."""
    blocks = attempt.marks.blocks
    return len({m.layer for m in attempt.marks.marks if blocks[m.block].name == "target"})


def _depth_said(plan: Plan | None) -> int:
    """Layers that the checkpoint has."""
    return 0 if plan is None else len(plan.attention_layers) + len(plan.recurrent_layers)


def _without_trust(
    attempt: Attempt, verdict: Verdict, notices: list[Notice], peak_gbps: float | None
) -> tuple[Attempt, Verdict, list[Notice]]:
    """Label by structure where the plan explains too little, without bytes."""
    other = attempt_by_structure(attempt.kernels, attempt.template, attempt.other_kinds)
    if other is not None and attempt.plan is not None:
        check_drafter_alone(_depth(other), attempt.plan)
    wrong_depth = other is not None and _depth(other) <= FOREIGN * _depth_said(attempt.plan)
    hopeless = other is None and (
        attempt.goodness < FOREIGN
        or verdict.matched_share < MOSTLY_FOUND
        or not verdict.bytes_trusted
    )
    if verdict.matched_share < FOREIGN or wrong_depth or hopeless:
        raise no_decode(attempt.kernels, attempt.plan, peak_gbps)
    if other is None:
        return attempt, verdict, notices
    classes = other.kernels.kernel_class[other.template.source]
    check_structure(other.marks, classes, other.template.duration_ns)
    told = Notice(
        "phases_from_structure",
        "The checkpoint explains too little of the step, so phases come from its structure "
        "alone and bytes are withheld.",
        "Name the checkpoint, drafter and draft tokens that ran.",
    )
    withheld = replace(verdict, phases_trusted=True, bytes_trusted=False)
    return replace(other, kind=attempt.kind), withheld, [*notices, told]
