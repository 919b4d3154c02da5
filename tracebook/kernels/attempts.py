"""Ways to see steps in a trace, and which of them explains the plan best.

A period, a kind of step and a plan make an attempt: a template with marks and a
goodness. Where the plan that was said fits badly, other plans and the structure of
the step itself are tried, and the caller is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Bools, Ints
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.align import Column
from tracebook.kernels.column import template_column
from tracebook.kernels.fit import Fit, fit_plan
from tracebook.kernels.kinds import Choice, choose_kinds
from tracebook.kernels.marks import Marks, marks_of_fit
from tracebook.kernels.period import AS_GOOD, Period, find_periods
from tracebook.kernels.refusal import RECORD, busy_ns, floor_ns, no_decode
from tracebook.kernels.search import find_kinds
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Kind
from tracebook.kernels.structure import marks_of_structure
from tracebook.kernels.template import Template, build_template
from tracebook.kernels.variants import read_orders
from tracebook.kernels.verdict import off_share, unmatched_share

LEAST_STEPS = 3
#: Busy time of a step over the time its reads take at the peak: shorter means that a smaller
#: model ran (a quarter is BF16 said of NVFP4), longer that reading weights does not bound it.
STEP_BOUNDS = (0.25, 8.0)
#: No step takes less than this share of the time that its reads take at the peak, if the plan
#: is right and the peak about.
POSSIBLE = 0.9
#: Time that a kernel takes however little it does: in small models most of a step.
SMALL_NS = 2500.0
#: Periods and kinds of step that are tried before giving up.
PERIODS_TRIED = 6
KINDS_TRIED = 2
#: A shorter period is tried first when it scores nearly as well; a plan unmasks wrong ones.
AS_GOOD_WITH_PLAN = 0.75
#: An attempt this good ends the search for a better period.
GOOD = 0.93
#: Of two orders of reads whose fits differ by less the cheaper one is taken.
ORDERS_ALIKE = 0.05
#: Lags that differ by less than this share from so many periods are that.
SEVERAL_ALIKE = 0.02
#: With less of its bytes found, the kernels are not those of the plan; nor are layers half as
#: many: a model of a pair that was cut down for drafting often has just half.
FOREIGN = 0.5


@dataclass(frozen=True)
class Attempt:
    """One way to see steps in the trace, and how well the plan fits it."""

    kernels: Kernels
    template: Template
    marks: Marks
    fit: Fit | None
    column: Column
    source: str
    other_kinds: tuple[Kind, ...]
    goodness: float
    plan: Plan | None
    kind: Kind | None = None
    laid_out: Plan | None = None


def best_attempt(
    kernels: Kernels, plan: Plan | None, peak_gbps: float | None, choice: Choice | None = None
) -> Attempt:
    """Try periods and step kinds in order of likelihood until one explains the plan.

    Args:
        kernels: One device and process in launch order.
        plan: What one step must read, None without a checkpoint.
        peak_gbps: Peak bandwidth, None where unknown.
        choice: Kind of step to take instead of the most frequent one.

    Raises:
        NoDecodeSteps: Nothing that repeats can be decode; the message says why.
    """
    if len(kernels) < 2 * 8:
        raise NoDecodeSteps(f"Only {len(kernels)} kernels: too few for a step to repeat.", RECORD)

    def can_be_a_step(lag: int) -> bool:
        """Whether so many kernels usually last as long as a step of the plan can."""
        if plan is None or peak_gbps is None:
            return True
        shortest, longest = STEP_BOUNDS
        busy, floor = busy_ns(kernels.before_ns, lag), floor_ns(plan, peak_gbps)
        most = longest * (floor + plan.state_bytes / peak_gbps)
        return shortest * floor <= busy and busy - SMALL_NS * lag <= most

    # Training repeats whatever it is compared by.
    for alphabet in ALPHABETS[:1] if kernels.train.any() else ALPHABETS:
        marks = alphabet(kernels)
        best = _best_period(kernels, marks, plan, peak_gbps, choice, can_be_a_step)
        if best is not None:
            return best
    raise no_decode(kernels, plan, peak_gbps)


#: What is compared to find a period: kernels by name, shape and duration, and where nothing
#: recurs so, since batches change from step to step, by name or by class.
ALPHABETS: tuple[Callable[[Kernels], Ints], ...] = (
    lambda kernels: kernels.symbol,
    lambda kernels: kernels.grouped(kernels.name),
    lambda kernels: kernels.grouped(kernels.kernel_class),
)


def _best_period(
    kernels: Kernels,
    marks: Ints,
    plan: Plan | None,
    peak_gbps: float | None,
    choice: Choice | None,
    can_be_a_step: Callable[[int], bool],
) -> Attempt | None:
    """The best attempt at the periods of some marks, None where no period can be decode."""
    best: Attempt | None = None
    as_good = AS_GOOD if plan is None else AS_GOOD_WITH_PLAN
    periods = find_periods(marks, can_be_a_step, as_good)
    least_ns = np.inf
    if plan is not None and peak_gbps is not None:
        least_ns = POSSIBLE * floor_ns(plan, peak_gbps)
        periods = _by_floor(periods, kernels.before_ns, least_ns)

    def long_enough(period: Period) -> bool:
        """Whether so many kernels last as long as a step must."""
        return busy_ns(kernels.before_ns, period.kernels) >= least_ns

    whole: list[int] = []
    for period in periods[:PERIODS_TRIED]:
        # Several steps in a row have kernels for any drafter that somebody may have named.
        if _is_several(period.kernels, whole):
            continue
        found, kinds = find_kinds(kernels, period.kernels, can_be_a_step, marks)
        for kind in choose_kinds(found, kinds, choice)[:KINDS_TRIED]:
            if len(kind.slices) < max(2, min(LEAST_STEPS, len(kinds[0].slices))):
                continue
            attempt = attempt_kind(found, plan, peak_gbps, kind, kinds)
            if attempt is not None and (best is None or attempt.goodness > best.goodness + 0.02):
                best = attempt
            often = len(kind.slices) >= LEAST_STEPS and long_enough(period)
            if attempt is not None and attempt.goodness > FOREIGN and often:
                whole.append(period.kernels)
        if best is not None and best.goodness > GOOD:
            break
    return best


def _is_several(lag: int, whole: Sequence[int]) -> bool:
    """Whether a lag is two or more of the periods that may be one step each."""
    times = [(lag / one, round(lag / one)) for one in whole]
    return any(n >= 2 and abs(share - n) <= SEVERAL_ALIKE * n for share, n in times)


def _by_floor(periods: list[Period], before_ns: Ints, least_ns: float) -> list[Period]:
    """Periods in the order to be tried, where a step takes at least so long.

    Layers in a row repeat as steps do: what is too short for all reads comes last. Several
    steps in a row repeat as well: of what is long enough and as good the shortest comes first.
    """
    short = [p for p in periods if busy_ns(before_ns, p.kernels) < least_ns]
    whole = [p for p in periods if p not in short]
    best = max((p.score for p in whole), default=0.0)
    near = sorted((p for p in whole if p.score >= AS_GOOD * best), key=lambda p: p.kernels)
    return [*near, *(p for p in whole if p not in near), *short]


def attempt_kind(
    kernels: Kernels, plan: Plan | None, peak_gbps: float | None, kind: Kind, kinds: list[Kind]
) -> Attempt | None:
    """Template and marks of one kind of step out of several; None where it cannot be decode."""
    template = build_template(kernels, kind)
    if len(template.slices) < 2:
        return None
    if plan is None:
        others = tuple(k for k in kinds if k is not kind)
        attempt = attempt_by_structure(kernels, template, others)
        return None if attempt is None else replace(attempt, kind=kind)
    if _not_decode(kernels, template).any():
        return None
    others = tuple(k for k in kinds if k is not kind)
    fitted = fit_orders(kernels, template, plan, peak_gbps)
    return None if fitted is None else replace(fitted, other_kinds=others, kind=kind)


def _not_decode(kernels: Kernels, template: Template) -> Bools:
    """Template positions whose names belong to training, prefill or autotuning."""
    source = template.source
    marked = kernels.train[source] | kernels.prefill[source] | kernels.autotune[source]
    return np.asarray(marked)


def fit_orders(
    kernels: Kernels, template: Template, plan: Plan, peak_gbps: float | None
) -> Attempt | None:
    """Fit the plan to a template, in whichever order of its reads fits best."""
    column = template_column(kernels, template)
    tried: list[tuple[float, float, Plan, Fit]] = []
    for ordered in read_orders(plan):
        fit = fit_plan(column, ordered, peak_gbps=peak_gbps)
        if fit is not None:
            tried.append((_goodness(fit, column, ordered), fit.cost, ordered, fit))
    if not tried:
        return None
    # What a kernel takes that reads nothing counts in the costs, times of large reads more.
    least = max(goodness for goodness, *_ in tried) - ORDERS_ALIKE
    goodness, _, ordered, fit = min((one for one in tried if one[0] >= least), key=lambda t: t[1])
    marks = marks_of_fit(fit, ordered)
    source = "repetition of the launch sequence"
    return Attempt(
        kernels, template, marks, fit, column, source, (), goodness, ordered, laid_out=plan
    )


def _goodness(fit: Fit, column: Column, plan: Plan) -> float:
    """How much of a plan and of a step explain each other, 0..1."""
    found = sum(r.weight_bytes for f in fit.found for r in plan.reads[f.first : f.end])
    wanted = sum(r.weight_bytes for r in plan.reads if not r.optional)
    explained = min(1.0, found / max(wanted, 1)) * (1 - unmatched_share(fit, column, plan.reads))
    return explained * (1 - 0.5 * off_share(fit, column, plan.reads))


def attempt_by_structure(
    kernels: Kernels, template: Template, others: tuple[Kind, ...]
) -> Attempt | None:
    """Phases from structure; None where what repeats is training, prefill or no model."""
    if _not_decode(kernels, template).any():
        return None
    column = template_column(kernels, template)
    classes = kernels.kernel_class[template.source]
    symbols = kernels.shape_symbol[template.source]
    marks = marks_of_structure(classes, symbols, template.duration_ns)
    if marks is None:
        return None
    used = np.zeros(len(classes), dtype=bool)
    used[[mark.position for mark in marks.marks]] = True
    products = column.duration_ns[column.named]
    share = float(column.duration_ns[used].sum() / max(float(products.sum()), 1.0))
    source = "repetition of the launch sequence and of layers"
    return Attempt(kernels, template, marks, None, column, source, others, share, None)
