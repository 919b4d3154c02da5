"""The account of a step: time and bytes per phase, and how near to the roofline.

In: labelled kernels, the machine and the run description. Out: a `Report`. Two laws
hold here: time (`step_time`), and bytes: a phase's weight bytes are those of the plan's
reads that a kernel was found for, and the total is their sum. A rate is bytes over the
median time; a floor is bytes over the machine's published peak.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from tracebook.cautions import cautions
from tracebook.checkpoint.plan import Basis, Plan
from tracebook.columns import Ints
from tracebook.config import REMOTE, RunDescription, is_hub_id
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.labels import Labelled
from tracebook.machine import Machine
from tracebook.phases import Phase
from tracebook.regimes import find_drift, find_regimes
from tracebook.report import (
    Dropped,
    MachineFacts,
    PartRow,
    PhaseRow,
    Report,
    RunFacts,
    StepFacts,
    Total,
    TraceFacts,
    Unclassified,
    UnknownName,
)
from tracebook.stats import summarise_ns
from tracebook.step_detail import median_step, step_samples
from tracebook.step_time import Groups, StepTime, group, per_step, share_out
from tracebook.trace import Trace
from tracebook.traffic import Models, Movement, StepTraffic, step_traffic, together
from tracebook.units import floor_ms, gbps, ms, percent, rounded

#: Stands for no layer in a key, which cannot be null.
_NO_LAYER = -1
_BASES: tuple[Basis, ...] = ("exact", "derived", "assumed")


def account(
    labelled: Labelled,
    *,
    trace: Trace,
    machine: Machine,
    run: RunDescription,
    models: Models | None = None,
) -> Report:
    """Account for the kept steps.

    Args:
        labelled: What the kernel stages found.
        trace: The capture that it was found in.
        machine: The roofline.
        run: The run description, methods and defaults filled in where they are known.
        models: The ledgers, from which traffic beyond the weights is counted; without
            them it is the weights only.

    Raises:
        NoDecodeSteps: No step was kept.
        ConservationError: A law of conservation does not hold (a fault of the program).
    """
    if labelled.steps.is_empty():
        raise NoDecodeSteps(
            "No steady decode step was kept, so there is nothing to account for.",
            "Record more decode steps, or look at the kernels with `tracebook kernels`.",
        )
    run = _as_it_ran(run, labelled.plan)
    time = share_out(labelled.kernels, labelled.steps, trace.scratch)
    traffic = _traffic(labelled, time, run, models)
    labelled = replace(labelled, notices=(*labelled.notices, *traffic.notices))
    phases = group(time.labels, ("phase",))
    owned = per_step(phases, time.owned)
    phase_rows = _phase_rows(labelled, time, machine, traffic, phases, owned)
    run_facts = _run_facts(run, labelled.plan, traffic, drafts=_drafts(phase_rows))
    report = Report(
        trace=_trace_facts(trace, labelled),
        machine=MachineFacts(
            machine.name, machine.bandwidth_gbps, machine.ceiling_gbps, machine.source
        ),
        run=run_facts,
        steps=_step_facts(labelled, time, run_facts.tokens_per_step, phases, owned),
        phase_rows=phase_rows,
        total=_total(labelled, time, machine, phase_rows),
        unclassified=_unclassified(time, trace.names),
        warnings=(),
        layer_rows=_part_rows(labelled, time, machine, ("phase", "layer")),
        matrix_rows=_part_rows(labelled, time, machine, ("phase", "op", "matrix")),
        step_samples=step_samples(time, labelled.steps),
        median_step=median_step(time, labelled, trace.names),
    )
    return cautions(report, labelled, machine)


def shown(source: str | Path) -> str:
    """A path as a report may keep it: below the working directory, else its name alone.

    An absolute path can hold a user's name, which must not get into anything saved.
    """
    text = str(source)
    if text.startswith(REMOTE):
        return text
    if is_hub_id(text) and not Path(text).exists():
        return text
    path = Path(os.path.abspath(text))  # noqa: PTH100  folds ".." away
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _trace_facts(trace: Trace, labelled: Labelled) -> TraceFacts:
    info = trace.info
    names = [gpu.name for gpu in info.gpus if gpu.device == labelled.device]
    gpu = names[0] if names else info.gpus[0].name if len(info.gpus) == 1 else None
    return TraceFacts(
        path=shown(info.path),
        nsys_version=info.nsys_version,
        schema_version=info.schema_version,
        capture_mode=info.capture_mode,
        gpu=gpu,
        synthetic=info.synthetic,
        device=labelled.device,
        pid=labelled.pid,
    )


def _traffic(
    labelled: Labelled, time: StepTime, run: RunDescription, models: Models | None
) -> StepTraffic:
    """What the step moves beside its weights; nothing where bytes are not to be trusted."""
    trusted = labelled.verdict is not None and labelled.verdict.bytes_trusted
    if models is None or labelled.plan is None or not trusted:
        return StepTraffic()
    replay_seen = bool((time.labels["phase"] == Phase.REPLAY).any())
    return step_traffic(models, labelled.plan, run, replay_seen=replay_seen)


def _as_it_ran(run: RunDescription, plan: Plan | None) -> RunDescription:
    """The description with the ranks and draft tokens of the plan that the report goes by.

    That plan may be another one than was said: all bytes have to be of the same run.
    """
    if plan is None:
        return run
    ranks = plan.ranks if plan.ranks != (run.tensor_parallel or 1) else run.tensor_parallel
    return replace(run, tensor_parallel=ranks, draft_tokens=plan.draft_tokens or run.draft_tokens)


def _drafts(rows: Sequence[PhaseRow]) -> bool:
    """Whether a drafter was seen to run."""
    return any(row.phase in (Phase.DRAFTER_LAYERS, Phase.DRAFT_HEAD) for row in rows)


def _run_facts(
    run: RunDescription, plan: Plan | None, traffic: StepTraffic, *, drafts: bool
) -> RunFacts:
    """What was run, and which settings nobody gave."""
    assumed = []
    method: str | None = run.draft_method
    if method is None and plan is not None:
        method = plan.draft_method
        assumed.append(f"draft method {method}")
    batch = run.batch
    if batch is None:
        batch = 1
        assumed.append("batch 1")
    tokens, basis = run.tokens_per_step, "given"
    if tokens is None:
        # A drafter that nobody named yields nobody knows how many tokens.
        tokens = float(batch) if method == "none" and not drafts else None
        basis = "assumed" if assumed else "derived"
    return RunFacts(
        target=shown(run.target) if run.target else None,
        drafter=shown(run.drafter) if run.drafter else None,
        draft_method=method,
        draft_tokens=run.draft_tokens,
        draft_head=shown(run.draft_head) if run.draft_head else None,
        batch=batch,
        tokens_per_step=tokens,
        context_tokens=run.context_tokens,
        tokens_basis=None if tokens is None else basis,
        assumed=(*assumed, *traffic.assumed),
        kv_dtype=run.kv_dtype,
        gdn_dtype=run.gdn_dtype,
        replay=traffic.replay if traffic.movements else run.replay,
        tensor_parallel=run.tensor_parallel,
    )


def _step_facts(
    labelled: Labelled, time: StepTime, tokens_per_step: float | None, phases: Groups, owned: Ints
) -> StepFacts:
    wall_ms = summarise_ns(time.wall_ns)
    busy_ns = time.wall_ns - time.idle_ns
    phase_ns = {phase: owned[code] for code, phase in _in_report_order(phases) if owned[code].any()}
    regimes = find_regimes(busy_ns, phase_ns)
    return StepFacts(
        found=labelled.found,
        kept=time.steps,
        dropped=tuple(Dropped(reason, count) for reason, count in labelled.dropped),
        source=labelled.source,
        wall_ms=wall_ms,
        busy_ms=summarise_ns(busy_ns),
        idle_ms=summarise_ns(time.idle_ns),
        kernel_sum_ms=summarise_ns(time.whole.sum(axis=0)),
        tokens_per_s=rounded(tokens_per_step / wall_ms.median * 1e3) if tokens_per_step else None,
        regimes=regimes,
        drift_share=None if regimes else find_drift(busy_ns),
    )


def _phase_rows(
    labelled: Labelled,
    time: StepTime,
    machine: Machine,
    traffic: StepTraffic,
    phases: Groups,
    owned: Ints,
) -> tuple[PhaseRow, ...]:
    whole = per_step(phases, time.whole)
    kernels = per_step(phases, time.kernels)
    evidence = _evidence(time)
    wall_ns = int(time.wall_ns.sum())
    rows = []
    for code, phase in _in_report_order(phases):
        if not owned[code].any() and not kernels[code].any():
            continue
        weight_bytes, basis = _weight_bytes(labelled, phase)
        movements = _movements(phase, weight_bytes, basis, traffic)
        traffic_bytes = sum(m.bytes for m in movements) if movements else None
        summary = summarise_ns(owned[code])
        traffic_gbps = gbps(traffic_bytes, summary.median)
        rows.append(
            PhaseRow(
                phase=phase,
                ms=summary,
                share=rounded(int(owned[code].sum()) / wall_ns),
                kernels=_lower_median(kernels[code]),
                passes=labelled.verdict.passes.get(phase, 1) if labelled.verdict else None,
                weight_bytes=weight_bytes,
                traffic_bytes=traffic_bytes,
                basis=basis,
                weight_gbps=gbps(weight_bytes, summary.median),
                traffic_gbps=traffic_gbps,
                roofline_pct=percent(traffic_gbps, machine.bandwidth_gbps),
                floor_ms=floor_ms(traffic_bytes, machine.bandwidth_gbps),
                evidence=evidence.get(phase, {}),
                traffic_basis=_counted(movements),
                ceiling_pct=percent(traffic_gbps, machine.ceiling_gbps),
                kernel_sum_ms=summarise_ns(whole[code]),
                traffic=movements,
            )
        )
    return tuple(rows)


def _movements(
    phase: str, weight_bytes: int | None, basis: Basis | None, traffic: StepTraffic
) -> tuple[Movement, ...]:
    """Everything that a phase moves, its weights first."""
    note = "matrices that kernels were found for, and small tensors"
    weights = []
    if weight_bytes and basis:
        weights = [Movement(phase, "weights", "read", weight_bytes, basis, note)]
    return together((*weights, *traffic.of(phase)))


def _counted(movements: Sequence[Movement]) -> str | None:
    """What the traffic of a phase counts, in words."""
    names = dict.fromkeys(movement.name.replace("_", " ") for movement in movements)
    return None if not names else "weights only" if [*names] == ["weights"] else ", ".join(names)


def _in_report_order(groups: Groups) -> list[tuple[int, str]]:
    """Codes and names of phases in the order of `Phase`."""
    order = [phase.value for phase in Phase]
    named = [(code, str(key[0])) for code, key in enumerate(groups.keys)]
    return sorted(named, key=lambda item: order.index(item[1]))


def _weight_bytes(labelled: Labelled, phase: str) -> tuple[int | None, Basis | None]:
    """Weight bytes of a phase per step with their basis; None where not to be trusted."""
    if labelled.verdict is None or not labelled.verdict.bytes_trusted:
        return None, None
    reads = labelled.plan.reads if labelled.plan else ()
    bases = [_BASES.index(read.basis) for read in reads if read.phase == phase]
    return labelled.verdict.matched_bytes.get(phase, 0), _BASES[max(bases, default=0)]


def _evidence(time: StepTime) -> dict[str, dict[str, float]]:
    """Per phase, the share of its time that each kind of evidence decided."""
    groups = group(time.labels, ("phase", "evidence"))
    totals = per_step(groups, time.owned).sum(axis=1)
    by_phase: dict[str, dict[str, int]] = {}
    for (phase, kind), total in zip(groups.keys, totals, strict=True):
        by_phase.setdefault(str(phase), {})[str(kind)] = int(total)
    return {
        phase: {kind: rounded(ns / sum(kinds.values())) for kind, ns in kinds.items() if ns}
        for phase, kinds in by_phase.items()
    }


def _total(labelled: Labelled, time: StepTime, machine: Machine, rows: Sequence[PhaseRow]) -> Total:
    trusted = labelled.verdict is not None and labelled.verdict.bytes_trusted
    matched = labelled.verdict.matched_bytes if labelled.verdict and trusted else {}
    weight_bytes = sum(matched.values()) if trusted else None
    traffic_bytes = sum(row.traffic_bytes or 0 for row in rows) if trusted else None
    median_ms = summarise_ns(time.wall_ns).median
    traffic_gbps = gbps(traffic_bytes, median_ms)
    floor = floor_ms(traffic_bytes, machine.bandwidth_gbps)
    return Total(
        weight_bytes=weight_bytes,
        traffic_bytes=traffic_bytes,
        weight_gbps=gbps(weight_bytes, median_ms),
        traffic_gbps=traffic_gbps,
        roofline_pct=percent(traffic_gbps, machine.bandwidth_gbps),
        floor_ms=floor,
        ceiling_steps_per_s=rounded(1e3 / floor) if floor else None,
        ceiling_pct=percent(traffic_gbps, machine.ceiling_gbps),
    )


def _unclassified(time: StepTime, names: pl.DataFrame) -> Unclassified:
    """Time without a phase, and the kernel names that it went to."""
    unknown = time.labels.with_columns(
        pl.when(pl.col("phase") == Phase.UNCLASSIFIED).then("name_id").alias("unknown_name")
    )
    groups = group(unknown, ("unknown_name",))
    owned = per_step(groups, time.owned)
    pieces = per_step(groups, time.pieces[:, None])[:, 0]
    unknown_ns = owned.sum(axis=0)
    by_id = dict(names.select("name_id", "name").iter_rows())
    listed = [
        UnknownName(
            name=str(by_id.get(key[0], f"name {key[0]}")),
            kernels=round(int(pieces[code]) / time.steps),
            ms=ms(int(owned[code].sum()) / time.steps),
        )
        for code, key in enumerate(groups.keys)
        if owned[code].any()
    ]
    return Unclassified(
        ms=summarise_ns(unknown_ns),
        share=rounded(int(unknown_ns.sum()) / int(time.wall_ns.sum())),
        names=tuple(sorted(listed, key=lambda entry: (-entry.ms, entry.name))),
    )


def _part_rows(
    labelled: Labelled, time: StepTime, machine: Machine, columns: Sequence[str]
) -> tuple[PartRow, ...]:
    """Parts of phases by layer or by matrix; what has none is a part too, so they add up."""
    keyed = time.labels.with_columns(
        pl.col("layer").fill_null(_NO_LAYER), pl.col("op", "matrix").fill_null("")
    )
    groups = group(keyed, columns)
    owned = per_step(groups, time.owned)
    kernels = per_step(groups, time.kernels)
    matched = time.labels["weight_bytes"].fill_null(0).to_numpy()
    weights = per_step(groups, time.kernels, matched)
    trusted = labelled.verdict is not None and labelled.verdict.bytes_trusted
    rows = []
    for code, key in enumerate(groups.keys):
        if not owned[code].any():
            continue
        named = dict(zip(columns, key, strict=True))
        summary = summarise_ns(owned[code])
        weight_bytes = _lower_median(weights[code]) if trusted else None
        rate = gbps(weight_bytes, summary.median)
        layer = int(named.get("layer", _NO_LAYER))
        rows.append(
            PartRow(
                phase=str(named["phase"]),
                layer=None if layer == _NO_LAYER else layer,
                op=str(named.get("op", "")) or None,
                matrix=str(named.get("matrix", "")) or None,
                ms=summary,
                kernels=_lower_median(kernels[code]),
                weight_bytes=weight_bytes,
                weight_gbps=rate,
                roofline_pct=percent(rate, machine.bandwidth_gbps),
            )
        )
    return tuple(sorted(rows, key=_part_order))


def _part_order(row: PartRow) -> tuple[int, int, float, str]:
    """By phase, then by layer (none last), then the longest first."""
    phase = [phase.value for phase in Phase].index(row.phase)
    layer = sys.maxsize if row.layer is None else row.layer
    return phase, layer, -row.ms.mean, f"{row.op} {row.matrix}"


def _lower_median(values: Ints) -> int:
    """A median that is one of the values, so that a count stays a count."""
    return int(np.sort(values)[(len(values) - 1) // 2])
