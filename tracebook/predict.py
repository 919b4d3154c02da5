"""A decode step before it is run: bytes, floors, step times, tokens per second.

In: a run description and ledgers, and if wanted a saved report to learn from. Out: a
`Prediction`. The rule is that of the account turned round: time is bytes over a rate. Three
rates stand side by side: the machine's peak, its measured ceiling, and what a saved report
reached, learnt for the step as a whole or phase by phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracebook.analysis import models_of_run, plan_settings
from tracebook.checkpoint import Plan, build_plan
from tracebook.checkpoint.plan import Basis
from tracebook.config import RunDescription
from tracebook.errors import RunDescriptionError
from tracebook.machine import Machine, resolve_machine
from tracebook.notices import Notice
from tracebook.phases import STEP_PHASES, Phase
from tracebook.prediction import (
    Learnt,
    PhasePrediction,
    Prediction,
    Speculation,
    StepTime,
    SweepRow,
)
from tracebook.report import MachineFacts, Report
from tracebook.speculation import (
    best_drafts,
    break_even_alpha,
    expected_tokens,
    longest_paying,
    solve_alpha,
)
from tracebook.trace import TraceInfo
from tracebook.traffic import Models, Movement, step_traffic, together
from tracebook.units import counted, floor_ms, rounded

#: Most drafts that a sweep looks at unless told otherwise.
MOST_DRAFTS = 16

_BASES: tuple[Basis, ...] = ("exact", "derived", "assumed")


def predict(
    run: RunDescription,
    *,
    learn_from: Report | None = None,
    learnt_name: str | None = None,
    alpha: float | None = None,
    sweep: bool = False,
    most_drafts: int = MOST_DRAFTS,
) -> Prediction:
    """Predict the decode step of a run.

    Args:
        run: What is run; a target is needed, and K where tokens are drafted.
        learn_from: A saved report whose rates are to be reached again.
        learnt_name: What to call that report; its target if None.
        alpha: Acceptance per position; else solved from `run.tokens_per_step`.
        sweep: Whether to look at other numbers of drafts too.
        most_drafts: How far the sweep goes.

    Raises:
        RunDescriptionError: The description lacks what a prediction needs.
        CheckpointError: A checkpoint cannot be read.
    """
    run, models, notices = models_of_run(run)
    if models is None:
        raise RunDescriptionError(
            "A prediction needs a checkpoint.", "Name it in [target] checkpoint of the run.toml."
        )
    drafting = (run.draft_method or "none") != "none"
    if drafting and run.draft_tokens is None:
        raise RunDescriptionError(
            f"How many tokens {run.draft_method} drafts is not known.",
            "Add --draft-tokens K (in Python: draft_tokens=K).",
        )
    if (sweep or alpha is not None) and not drafting:
        raise RunDescriptionError(
            "Nothing is drafted, so there is no acceptance and no number of drafts to choose.",
            "Set [drafter] method, or leave --sweep and --alpha out.",
        )
    if alpha is not None and not 0 <= alpha <= 1:
        raise RunDescriptionError(f"An acceptance of {alpha:g} cannot be: it is 0 to 1.")
    machine = _machine(run, learn_from)
    learnt = _learnt(learn_from, machine, learnt_name) if learn_from is not None else None
    alpha = _alpha(run, alpha)
    moved = _moved(models, run)
    tokens = _tokens(run, alpha, run.draft_tokens or 0)
    phases = _phases(moved.movements, machine, learnt)
    steps = _steps(phases, machine, learnt, tokens)
    speculation: Speculation | None = None
    rows: tuple[SweepRow, ...] = ()
    if drafting and steps:
        speculation, rows = _speculation(
            models, run, machine, learnt, alpha, steps[-1], most_drafts if sweep else 0
        )
    assumed = [] if run.batch else ["batch 1"]
    if run.draft_method is None:
        assumed.append("draft method none")
    return Prediction(
        description=moved.plan.description,
        machine=MachineFacts(
            machine.name, machine.bandwidth_gbps, machine.ceiling_gbps, machine.source
        ),
        batch=run.batch or 1,
        tokens_per_step=None if tokens is None else rounded(tokens),
        phases=phases,
        weight_bytes=sum(phase.weight_bytes for phase in phases),
        traffic_bytes=sum(phase.traffic_bytes for phase in phases),
        steps=steps,
        learnt=learnt,
        speculation=speculation,
        sweep=rows,
        assumed=(*assumed, *moved.assumed),
        warnings=tuple(
            dict.fromkeys((*notices, *machine.notices, *moved.plan.notices, *moved.notices,
                           *_rate_notices(steps)))
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class _Moved:
    """Everything that a step of a plan moves."""

    plan: Plan
    movements: tuple[Movement, ...]
    assumed: tuple[str, ...]
    notices: tuple[Notice, ...]


def _moved(models: Models, run: RunDescription) -> _Moved:
    """Weights of the plan (reads that only some engines make left out) and all else."""
    plan = build_plan(models.target, **plan_settings(run, models))
    sizes = dict(plan.small_bytes)
    basis: dict[str, int] = {}
    for read in plan.reads:
        if not read.optional:
            sizes[read.phase] = sizes.get(read.phase, 0) + read.weight_bytes
            basis[read.phase] = max(basis.get(read.phase, 0), _BASES.index(read.basis))
    weights = [
        Movement(phase, "weights", "read", size, _BASES[basis.get(phase, 0)],
                 "the plan's reads and small tensors")
        for phase, size in sizes.items()
    ]  # fmt: skip
    found = step_traffic(models, plan, run)
    return _Moved(plan, together((*weights, *found.movements)), found.assumed, found.notices)


def _machine(run: RunDescription, learn_from: Report | None) -> Machine:
    """The machine that is described, else that of the report."""
    said = run.machine or run.bandwidth_gbps
    if not said and learn_from is not None and learn_from.machine.bandwidth_gbps:
        facts = learn_from.machine
        ceiling = run.ceiling_gbps or facts.ceiling_gbps
        return Machine(facts.name, facts.bandwidth_gbps, ceiling, facts.source or "saved report")
    return resolve_machine(
        TraceInfo(Path()),
        None,
        name=run.machine,
        bandwidth_gbps=run.bandwidth_gbps,
        ceiling_gbps=run.ceiling_gbps,
    )


def _learnt(report: Report, machine: Machine, name: str | None) -> Learnt:
    """Rates of a report, carried over to another machine by the ratio of the peaks."""
    if report.total.traffic_gbps is None:
        raise RunDescriptionError(
            "The saved report has no bytes, so no rate can be learnt from it.",
            "Make it again with --checkpoint.",
        )
    there, here = report.machine.bandwidth_gbps, machine.bandwidth_gbps
    scale = here / there if here and there else 1.0
    moving = [row for row in report.phase_rows if row.weight_bytes or row.phase == Phase.REPLAY]
    time_ms = sum(row.ms.median for row in moving)
    size = sum(row.traffic_bytes or 0 for row in moving)
    rates = {row.phase: rounded(row.traffic_gbps * scale) for row in moving if row.traffic_gbps}
    return Learnt(
        source=f"{name or report.run.target or 'a run'}, {counted(report.steps.kept, 'step')} of "
        f"{report.steps.wall_ms.median:.2f} ms",
        weights_gbps=_scaled(report.total.weight_gbps, scale),
        step_gbps=_scaled(report.total.traffic_gbps, scale),
        phase_gbps=rates,
        moving_gbps=rounded(size / (time_ms * 1e6) * scale) if time_ms else None,
        rest_ms=rounded(max(report.steps.wall_ms.median - time_ms, 0.0)),
        scale=rounded(scale),
    )


def _scaled(rate: float | None, scale: float) -> float | None:
    return None if rate is None else rounded(rate * scale)


def _alpha(run: RunDescription, alpha: float | None) -> float | None:
    if alpha is not None or not run.draft_tokens or run.tokens_per_step is None:
        return alpha
    return solve_alpha(run.tokens_per_step / (run.batch or 1), run.draft_tokens)


def _tokens(run: RunDescription, alpha: float | None, drafts: int) -> float | None:
    """Tokens of a step, all sequences together."""
    batch = run.batch or 1
    if not drafts:
        return float(batch)
    return None if alpha is None else batch * expected_tokens(alpha, drafts)


def _phases(
    movements: Sequence[Movement], machine: Machine, learnt: Learnt | None
) -> tuple[PhasePrediction, ...]:
    rows = []
    for phase in STEP_PHASES:
        moved = tuple(m for m in movements if m.phase == phase)
        if not moved:
            continue
        size = sum(m.bytes for m in moved)
        rate = _phase_rate(phase, learnt)
        rows.append(
            PhasePrediction(
                phase=phase.value,
                weight_bytes=sum(m.bytes for m in moved if m.name == "weights"),
                traffic_bytes=size,
                basis=_BASES[max(_BASES.index(m.basis) for m in moved)],
                floor_ms=floor_ms(size, machine.bandwidth_gbps),
                ceiling_ms=floor_ms(size, machine.ceiling_gbps),
                learnt_ms=floor_ms(size, rate),
                learnt_gbps=rate,
                traffic=moved,
            )
        )
    return tuple(rows)


#: Phases whose time follows from their bytes; that of the others is learnt as a whole.
_MOVING = (
    Phase.TARGET_LAYERS,
    Phase.OUTPUT_LAYER,
    Phase.DRAFTER_LAYERS,
    Phase.DRAFT_HEAD,
    Phase.REPLAY,
)


def _phase_rate(phase: Phase, learnt: Learnt | None) -> float | None:
    """The rate learnt for a phase, else that of all phases which move weights or state."""
    if learnt is None or phase not in _MOVING:
        return None
    return learnt.phase_gbps.get(phase.value, learnt.moving_gbps)


def _steps(
    phases: Sequence[PhasePrediction],
    machine: Machine,
    learnt: Learnt | None,
    tokens: float | None,
) -> tuple[StepTime, ...]:
    """The step at every rate that is known, the most telling last."""
    size = sum(phase.traffic_bytes for phase in phases)
    weights = sum(phase.weight_bytes for phase in phases)
    found = [
        _step("peak", machine.bandwidth_gbps, size, tokens),
        _step("ceiling", machine.ceiling_gbps, size, tokens),
    ]
    if learnt is not None:
        found += [
            _step("learnt, weights only", learnt.weights_gbps, weights, tokens),
            _step("learnt, whole step", learnt.step_gbps, size, tokens),
        ]
        times = [phase.learnt_ms for phase in phases if phase.learnt_ms is not None]
        if times:
            found.append(_timed("learnt, by phase", None, sum(times) + learnt.rest_ms, tokens))
    return tuple(step for step in found if step is not None)


def _step(at: str, rate: float | None, size: int, tokens: float | None) -> StepTime | None:
    return None if rate is None else _timed(at, rate, size / (rate * 1e6), tokens)


def _timed(at: str, rate: float | None, ms: float, tokens: float | None) -> StepTime:
    per_s = None if tokens is None else rounded(tokens / ms * 1e3)
    return StepTime(at, rate, rounded(ms), rounded(1e3 / ms), per_s)


def _speculation(
    models: Models,
    run: RunDescription,
    machine: Machine,
    learnt: Learnt | None,
    alpha: float | None,
    step: StepTime,
    most_drafts: int,
) -> tuple[Speculation, tuple[SweepRow, ...]]:
    """Drafting against plain decoding, and other numbers of drafts."""
    assert run.draft_tokens is not None

    def at(drafts: int) -> tuple[int, float]:
        changed = _with_drafts(run, drafts)
        kept = models if drafts else Models(models.target)
        phases = _phases(_moved(kept, changed).movements, machine, learnt)
        times = {s.at: s.ms for s in _steps(phases, machine, learnt, None)}
        return sum(phase.traffic_bytes for phase in phases), times[step.at]

    plain_ms = at(0)[1]
    looked_at = {0: at(0), **{k: at(k) for k in range(1, most_drafts + 1)}}
    step_ms = {k: ms for k, (_, ms) in looked_at.items()}
    rows = tuple(
        _sweep_row(k, size, ms, plain_ms, alpha, run.batch or 1)
        for k, (size, ms) in looked_at.items()
        if most_drafts
    )
    tokens = None if alpha is None else rounded(expected_tokens(alpha, run.draft_tokens))
    swept = most_drafts and alpha is not None
    found = Speculation(
        draft_tokens=run.draft_tokens,
        tokens_per_step=tokens,
        alpha=None if alpha is None else rounded(alpha),
        rate=step.at,
        plain_ms=plain_ms,
        break_even_alpha=_rounded(break_even_alpha(step.ms, plain_ms, run.draft_tokens)),
        best_draft_tokens=best_drafts(alpha, step_ms) if swept and alpha is not None else None,
        longest_paying=longest_paying(alpha, step_ms) if swept and alpha is not None else None,
    )
    return found, rows


def _with_drafts(run: RunDescription, drafts: int) -> RunDescription:
    """The same run with another number of drafts; none is plain decoding."""
    if drafts:
        return replace(run, draft_tokens=drafts)
    return replace(run, draft_tokens=None, draft_method="none", drafter=None, draft_head=None)


def _sweep_row(
    drafts: int, size: int, ms: float, plain_ms: float, alpha: float | None, batch: int
) -> SweepRow:
    tokens = 1.0 if not drafts else None if alpha is None else expected_tokens(alpha, drafts)
    return SweepRow(
        draft_tokens=drafts,
        expected_tokens=_rounded(tokens),
        traffic_bytes=size,
        step_ms=ms,
        tokens_per_s=_rounded(None if tokens is None else batch * tokens / ms * 1e3),
        speedup=_rounded(None if tokens is None else tokens * plain_ms / ms),
        break_even_alpha=_rounded(break_even_alpha(ms, plain_ms, drafts)) if drafts else None,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def _rate_notices(steps: Sequence[StepTime]) -> list[Notice]:
    if steps:
        return []
    return [
        Notice(
            "no_rate",
            "No time can be predicted: neither a peak, a ceiling nor a saved report is known.",
            "Add --machine NAME, --bandwidth GBPS or --from REPORT.",
        )
    ]
