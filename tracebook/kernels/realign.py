"""The same attempt with slices that begin where steps do, where those of anchors do not fit.

Where kinds of step alternate a slice from anchor to anchor holds the end of one kind and the
begin of another, so that what it shares with the others of its kind lacks a piece. And two
parts of a trace may have slices of one kind from two anchors, turned against each other.
"""

from __future__ import annotations

import itertools

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Ints
from tracebook.kernels.attempts import Attempt, attempt_kind
from tracebook.kernels.begins import how_steps_begin, step_begins
from tracebook.kernels.kinds import Choice, choose_kinds
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Slice, sort_kinds
from tracebook.kernels.template import Template

#: Slices are mixed where a run of them has fewer than this on average.
SHORT_RUN = 6
#: Slices whose steps begin this share of a step apart are turned against each other.
TURNED = 0.02
#: What a step of any kind has of the kernels of the template.
SHORTEST, LONGEST = 0.35, 1.35
#: The attempt with other slices may fit less well by this much: it has more of the step.
HARDLY_WORSE = 0.02


def has_breaks(template: Template) -> bool:
    """Whether something stands between slices, so that they may not fit together."""
    return len(template.runs()) > 1


def is_mixed(template: Template) -> bool:
    """Whether most slices stand alone or nearly so, among others of other kinds."""
    return len(template.slices) < SHORT_RUN * len(template.runs()) and has_breaks(template)


def is_turned(kernels: Kernels, template: Template, names: Ints) -> bool:
    """Whether steps begin elsewhere in the slices of one run than in those of another."""
    length = len(template.symbol)
    begins = [
        int(found[0]) - first.first
        for first in (template.slices[run[0]] for run in template.runs())
        if len(found := step_begins(kernels, first, names)) == 1
    ]
    apart = [(begin - begins[0]) % length for begin in begins]
    return any(min(by, length - by) > max(3, TURNED * length) for by in apart)


def realigned(
    attempt: Attempt, cut: int, plan: Plan | None, peak_gbps: float | None, choice: Choice | None
) -> Attempt:
    """Slice at the begins of steps and try again.

    Args:
        attempt: With slices that begin at an anchor.
        cut: Template position at which a step begins.
        plan: As for `best_attempt`, like the two behind it.
        peak_gbps: Peak bandwidth.
        choice: Kind of step to take.

    Returns:
        The new attempt, or the old one where its slices fit together, steps are not found
        by their begins, or it fits better.
    """
    kernels, length = attempt.kernels, len(attempt.template.symbol)
    names = how_steps_begin(kernels, attempt.template, cut)
    if names is None:
        return attempt
    if not is_mixed(attempt.template) and not is_turned(kernels, attempt.template, names):
        return attempt
    edges = [*step_begins(kernels, Slice(0, len(kernels)), names).tolist(), len(kernels)]
    slices = [
        Slice(first, end)
        for first, end in itertools.pairwise(edges)
        if SHORTEST * length <= end - first <= LONGEST * length
    ]
    kinds = sort_kinds(kernels, slices)
    for kind in choose_kinds(kernels, kinds, choice)[:1]:
        again = attempt_kind(kernels, plan, peak_gbps, kind, kinds)
        if again is not None and again.goodness >= attempt.goodness - HARDLY_WORSE:
            return again
    return attempt
