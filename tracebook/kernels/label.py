"""The kernel stages in order: classes, launches, steps, alignment, phases.

In: a trace and, where a checkpoint is known, the plan of a step. Out: every kernel of
one device and process with its phase, layer and matrix, the steady steps, and how well
the plan fits. All decisions are made once per template position and broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tracebook.checkpoint.plan import Plan
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.align import Column
from tracebook.kernels.assign import Facts, Label, assign_labels, find_zones
from tracebook.kernels.classes import CLASSES, classify_names, load_rules
from tracebook.kernels.cut import find_cut
from tracebook.kernels.fit import Fit, fit_plan
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA, Labelled
from tracebook.kernels.launches import launch_order
from tracebook.kernels.marks import Marks, marks_of_fit
from tracebook.kernels.period import find_anchors, find_periods
from tracebook.kernels.segments import Placed, place_steps
from tracebook.kernels.sequence import Kernels, build_kernels
from tracebook.kernels.steps import (
    Kind,
    Template,
    build_template,
    cut_slices,
    sort_kinds,
    unify_tactics,
)
from tracebook.kernels.structure import marks_of_structure
from tracebook.kernels.verdict import judge, unmatched_share
from tracebook.notices import Notice
from tracebook.phases import Phase
from tracebook.trace import Trace

#: Classes that certainly read no weights; matching one costs extra.
NOT_WEIGHTS = 3.0
#: A kernel that says it is a product hardly reads no weights.
PRODUCT_SKIP = 2.0
PRODUCT_SHARE = 0.3
LEAST_STEPS = 3
#: Step kinds and periods that are tried before giving up.
TRIES = 4


def label_kernels(
    trace: Trace,
    plan: Plan | None,
    *,
    peak_gbps: float | None,
    device: int | None = None,
    pid: int | None = None,
    rules: Path | None = None,
) -> Labelled:
    """Give every kernel of one device and process its phase, layer and matrix.

    Args:
        trace: The capture.
        plan: What one step must read; None without a checkpoint.
        peak_gbps: Peak bandwidth of the machine, GB/s, None where unknown.
        device: Device to examine; the busiest one if None.
        pid: Process to examine; the busiest one on the device if None.
        rules: User's kernel rules, tried in front of the shipped ones.

    Returns:
        Labelled rows, steps and verdict.

    Raises:
        NoDecodeSteps: No steady decode was found; the message says why.
    """
    kernels, chosen_device, chosen_pid, notices = prepare(trace, device, pid, rules)
    attempt = _best_attempt(kernels, plan, peak_gbps)
    kernels = attempt.kernels
    steady = attempt.template
    facts = _facts(kernels, steady, attempt.marks, plan)
    cut = find_cut(
        find_zones(attempt.marks, len(steady.symbol)),
        facts,
        steady.gap_ns,
        kernels.step_marker[steady.source],
    )
    labels = assign_labels(attempt.marks, facts, cut.position)
    placed = place_steps(kernels, steady, cut.position)
    if not placed.bounds:
        raise NoDecodeSteps(
            "The repeating part of the trace holds no whole decode step.",
            "Record at least a few dozen decode steps.",
        )
    if not cut.certain:
        notices.append(
            Notice(
                "step_edge_uncertain",
                "Where a step begins is not certain: two places fit about equally well.",
                "Phase times are not affected, only which step an edge kernel belongs to.",
            )
        )
    verdict = None
    if plan is not None and attempt.fit is not None:
        verdict, more = judge(attempt.fit, attempt.column, plan, labels, peak_gbps)
        notices += more
    rows = _rows(kernels, placed, labels)
    return Labelled(
        rows=rows,
        steps=_step_frame(kernels, placed),
        found=len(placed.bounds) + placed.cut_off + placed.isolated + attempt.other_slices,
        dropped=_dropped(placed, attempt),
        source=attempt.source,
        verdict=verdict,
        plan=plan,
        device=chosen_device,
        pid=chosen_pid,
        notices=tuple(notices),
    )


def classify_only(trace: Trace, rules: Path | None = None) -> pl.DataFrame:
    """ROW_SCHEMA for all kernels with nothing but their class: no steps, no phases."""
    classes = classify_names(trace.names, load_rules(rules))
    rows = trace.kernels.join(
        classes.select("name_id", "kernel_class"), on="name_id", how="left", maintain_order="left"
    )
    known = {"phase": Phase.UNCLASSIFIED.value, "evidence": "none"}
    missing = [
        pl.lit(known.get(name)).cast(dtype).alias(name)
        for name, dtype in ROW_SCHEMA.items()
        if name not in rows.columns
    ]
    return rows.with_columns(missing).select(list(ROW_SCHEMA)).cast(pl.Schema(ROW_SCHEMA))


def prepare(
    trace: Trace, device: int | None, pid: int | None, rules: Path | None
) -> tuple[Kernels, int | None, int | None, list[Notice]]:
    """Choose device and process, classify names, put kernels in launch order.

    Raises:
        NoDecodeSteps: The device or process asked for has no kernels.
    """
    classes = classify_names(trace.names, load_rules(rules))
    busy = (
        trace.kernels.group_by("device", "pid")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), kernels=pl.len())
        .sort("ns", "device", "pid", descending=[True, False, False])
    )
    wanted = busy
    if device is not None:
        wanted = wanted.filter(pl.col("device") == device)
    if pid is not None:
        wanted = wanted.filter(pl.col("pid") == pid)
    if wanted.is_empty():
        present = ", ".join(f"device {d} pid {p}" for d, p, *_ in busy.rows())
        raise NoDecodeSteps(
            f"No kernel ran on device {device if device is not None else 'any'}, "
            f"pid {pid if pid is not None else 'any'}.",
            f"The capture has {present}.",
        )
    chosen_device, chosen_pid = wanted["device"][0], wanted["pid"][0]
    mine = trace.kernels.filter(
        (pl.col("device") == chosen_device) & pl.col("pid").eq_missing(pl.lit(chosen_pid))
    )
    notices = []
    if len(busy) > 1 and (device is None or pid is None):
        others = len(busy) - 1
        notices.append(
            Notice(
                "several_processes",
                f"Kernels of {others} other device/process pair{'s' * (others > 1)} are left out; "
                f"this is device {chosen_device}, pid {chosen_pid}.",
                "Choose with --device and --pid.",
            )
        )
    return (
        build_kernels(launch_order(mine), classes, trace.names),
        chosen_device,
        chosen_pid,
        notices,
    )


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

    @property
    def other_slices(self) -> int:
        """Slices that are of another kind or did not fit the template."""
        return sum(len(kind.slices) for kind in self.other_kinds)


def _best_attempt(kernels: Kernels, plan: Plan | None, peak_gbps: float | None) -> Attempt:
    """Try periods and step kinds in order of likelihood until one explains the plan."""
    if len(kernels) < 2 * 8:
        raise NoDecodeSteps(
            f"Only {len(kernels)} kernels: too few for a decode step to repeat.",
            "Record at least a few dozen decode steps.",
        )
    least_ns, most_ns = _step_bounds(plan, peak_gbps)
    total = np.concatenate([[0.0], np.cumsum(kernels.duration_ns)])

    def can_be_a_step(lag: int) -> bool:
        """Whether so many kernels usually last as long as a step of the plan can."""
        stride = max(1, (len(total) - lag) // 2000)
        busy = float(np.median((total[lag:] - total[:-lag])[::stride]))
        return least_ns <= busy <= most_ns

    periods = find_periods(kernels.symbol, can_be_a_step)
    best: Attempt | None = None
    for period in periods[:TRIES]:
        anchors = find_anchors(kernels.symbol, kernels.duration_ns, period.kernels)
        if not anchors:
            continue
        slices = cut_slices(kernels, anchors, period.kernels)
        kinds = sort_kinds(kernels, slices)
        unified = unify_tactics(kernels, kinds)
        if unified is not None:
            kernels = replace(kernels, symbol=unified)
            kinds = sort_kinds(kernels, slices)
        for kind in kinds[:2]:
            if len(kind.slices) < min(LEAST_STEPS, len(kinds[0].slices)) or len(kind.slices) < 2:
                continue
            attempt = _attempt(kernels, plan, peak_gbps, kind, kinds)
            if attempt is not None and (best is None or attempt.goodness > best.goodness + 0.02):
                best = attempt
        if best is not None and best.goodness > 0.93:
            break
    if best is None:
        raise NoDecodeSteps(*_why_not(kernels, plan, bool(periods)))
    return best


def _step_bounds(plan: Plan | None, peak_gbps: float | None) -> tuple[float, float]:
    """Shortest and longest busy time that one step of the plan can take, ns."""
    if plan is None or peak_gbps is None:
        return 0.0, float("inf")
    least = sum(read.weight_bytes for read in plan.reads if not read.optional)
    return 0.85 * least / peak_gbps, 8.0 * least / peak_gbps


def _attempt(
    kernels: Kernels, plan: Plan | None, peak_gbps: float | None, kind: Kind, kinds: list[Kind]
) -> Attempt | None:
    """Template and marks of one kind of step; None where it cannot be decode."""
    template = build_template(kernels, kind)
    if len(template.slices) < 2:
        return None
    column = template_column(kernels, template)
    others = tuple(k for k in kinds if k is not kind)
    source = "repetition of the launch sequence"
    if plan is None:
        return _attempt_without_plan(kernels, template, column, source, others)
    fit = fit_plan(column, plan, peak_gbps=peak_gbps)
    if fit is None:
        return None
    found = sum(r.weight_bytes for f in fit.found for r in plan.reads[f.first : f.end])
    wanted = sum(r.weight_bytes for r in plan.reads if not r.optional)
    goodness = min(1.0, found / max(wanted, 1)) * (1 - unmatched_share(fit, column))
    return Attempt(
        kernels, template, marks_of_fit(fit, plan), fit, column, source, others, goodness
    )


def _attempt_without_plan(
    kernels: Kernels, template: Template, column: Column, source: str, others: tuple[Kind, ...]
) -> Attempt | None:
    """Phases from structure; None where what repeats is training, prefill or no model."""
    if kernels.train[template.source].any() or kernels.prefill[template.source].any():
        return None
    classes = kernels.kernel_class[template.source]
    symbols = kernels.shape_symbol[template.source]
    marks = marks_of_structure(classes, symbols, template.duration_ns)
    if marks is None:
        return None
    used = np.zeros(len(classes), dtype=bool)
    used[[mark.position for mark in marks.marks]] = True
    products = column.duration_ns[column.named]
    share = float(column.duration_ns[used].sum() / max(float(products.sum()), 1.0))
    return Attempt(kernels, template, marks, None, column, source, others, share)


def template_column(kernels: Kernels, template: Template) -> Column:
    """The template as the alignment sees it."""
    source = template.source
    names = np.array(CLASSES)[kernels.kernel_class[source]]
    reads_weights = np.isin(names, ["gemm", "unknown"])
    product = (names == "gemm") | _product_names(kernels, template, names)
    return Column(
        duration_ns=template.duration_ns,
        symbol=kernels.shape_symbol[source],
        match_penalty=np.where(reads_weights, 0.0, NOT_WEIGHTS),
        skip_factor=np.where(product, PRODUCT_SKIP, np.where(reads_weights, 1.0, 0.1)),
        grid=kernels.grid[source],
        named=names == "gemm",
    )


def _product_names(kernels: Kernels, template: Template, names: np.ndarray) -> np.ndarray:
    """True where an unknown base name takes so much of the step that it must read weights."""
    base = kernels.base_name[template.source]
    unknown = names == "unknown"
    spent = np.bincount(
        base[unknown], weights=template.duration_ns[unknown], minlength=base.max() + 1
    )
    return np.asarray(unknown & (spent[base] > PRODUCT_SHARE * template.duration_ns.sum()))


def _facts(kernels: Kernels, template: Template, marks: Marks, plan: Plan | None) -> Facts:
    """Class, launch and duration per template position."""
    classes = kernels.kernel_class[template.source]
    return Facts(
        kernel_class=classes,
        duration_ns=template.duration_ns,
        launch=kernels.launch[template.source],
        in_graph=kernels.in_graph[template.source],
        name=kernels.frame["name_id"].to_numpy()[template.source].astype(np.int64),
        speculative=any(block.name.startswith("draft") for block in marks.blocks),
        recurrent=bool((classes == CLASSES.index("gdn")).any())
        or (plan is not None and bool(plan.recurrent_layers)),
    )


def _why_not(kernels: Kernels, plan: Plan | None, periodic: bool) -> tuple[str, str]:
    """Reason and hint where no steady decode was found."""
    if kernels.train.any():
        return (
            "No decode found: the trace holds optimizer or backward kernels, so it is training.",
            "Record an inference server while it decodes.",
        )
    if kernels.prefill.any() and not periodic:
        return (
            "No steady decode found: prefill kernels, but nothing that repeats like decode steps.",
            "Let the capture run on while tokens are generated.",
        )
    if not periodic:
        return (
            "No steady decode found: no sequence of kernels repeats.",
            "Record at least a few dozen decode steps of one batch size.",
        )
    if plan is None:
        return (
            "No steady decode found: what repeats does not look like the layers of a model.",
            "Name the checkpoint with --checkpoint, so that bytes can be used as evidence.",
        )
    return (
        "No steady decode found: what repeats does not read the matrices of the checkpoint.",
        "Check --checkpoint, --drafter and --draft-tokens against the run.",
    )


def _rows(kernels: Kernels, placed: Placed, labels: list[Label]) -> pl.DataFrame:
    """Broadcast the labels of the template to every kernel."""
    step = np.full(len(kernels), -1, dtype=np.int64)
    for number, bound in enumerate(placed.bounds):
        step[bound.first : bound.end] = number
    place = np.where(step >= 0, placed.place, -1)
    place = _inherit(place, step)
    outside = _outside_phase(kernels, step)
    table = pl.DataFrame(
        {
            "phase": [x.phase for x in labels] + outside[1],
            "layer": [x.layer for x in labels] + [None] * len(outside[1]),
            "op": [x.op for x in labels] + [None] * len(outside[1]),
            "matrix": [x.matrix for x in labels] + [None] * len(outside[1]),
            "weight_bytes": [x.weight_bytes for x in labels] + [None] * len(outside[1]),
            "evidence": [x.evidence for x in labels] + ["none"] * len(outside[1]),
            "pass_index": [x.pass_index for x in labels] + [None] * len(outside[1]),
        },
        schema_overrides={
            k: ROW_SCHEMA[k] for k in ("layer", "op", "matrix", "weight_bytes", "pass_index")
        },
    )
    index = np.where(step >= 0, place, len(labels) + outside[0])
    inserted = (step >= 0) & (np.where(step >= 0, placed.place, 0) < 0)
    frame = kernels.frame.select(
        "kernel_id", "kernel_class", "start_ns", "end_ns", "stream", "name_id"
    ).with_columns(
        step_id=pl.Series(step, dtype=pl.Int64),
        _inserted=pl.Series(inserted),
    )
    rows = pl.concat([frame, table[index]], how="horizontal").with_columns(
        step_id=pl.when(pl.col("step_id") >= 0).then("step_id"),
        op=pl.when("_inserted").then("kernel_class").otherwise("op"),
        matrix=pl.when(~pl.col("_inserted")).then("matrix"),
        weight_bytes=pl.when(~pl.col("_inserted")).then("weight_bytes"),
        evidence=pl.when("_inserted").then(pl.lit("neighbour")).otherwise("evidence"),
    )
    return (
        rows.select(list(ROW_SCHEMA))
        .cast(pl.Schema(ROW_SCHEMA))
        .sort(["start_ns", "end_ns", "kernel_id"])
    )


def _inherit(place: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Kernels of a step that the template does not know take the place before them."""
    index = np.where(place >= 0, np.arange(len(place)), -1)
    before = np.maximum.accumulate(index)
    same_step = (before >= 0) & (step[np.maximum(before, 0)] == step)
    following = np.minimum.accumulate(
        np.where(place >= 0, np.arange(len(place)), len(place))[::-1]
    )[::-1]
    source = np.where(same_step, before, np.minimum(following, len(place) - 1))
    return np.where(place >= 0, place, place[source])


def _outside_phase(kernels: Kernels, step: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """What kernels outside steps are: index into the returned phases, per kernel."""
    phases = [Phase.WARMUP.value, Phase.PREFILL.value, Phase.UNCLASSIFIED.value]
    inside = step >= 0
    stretch = np.cumsum(np.diff(inside.astype(np.int8), prepend=0) != 0)
    prefill = np.isin(stretch, np.unique(stretch[kernels.prefill & ~inside]))
    first = int(np.flatnonzero(inside)[0])
    early = np.arange(len(step)) < first
    kind = np.where(prefill, 1, np.where(early, 0, 2))
    if early.any() and kernels.prefill[:first].any():
        # Before the first step both occur: prefill from its first marker on.
        begin = int(np.flatnonzero(kernels.prefill[:first])[0])
        kind[:begin] = 0
    return kind, phases


def _step_frame(kernels: Kernels, placed: Placed) -> pl.DataFrame:
    """STEP_SCHEMA of the whole steps, in time order."""
    records = []
    for number, bound in enumerate(placed.bounds):
        start = int(kernels.start_ns[bound.first : bound.end].min())
        end = int(kernels.end_ns[bound.first : bound.end].max())
        if number + 1 < len(placed.bounds) and placed.bounds[number + 1].first == bound.end:
            following = placed.bounds[number + 1]
            end = int(kernels.start_ns[following.first : following.end].min())
        records.append((number, start, end, bound.end - bound.first))
    return pl.DataFrame(records, schema=pl.Schema(STEP_SCHEMA), orient="row")


def _dropped(placed: Placed, attempt: Attempt) -> tuple[tuple[str, int], ...]:
    """Reasons and counts of what was left out."""
    counts = [
        ("cut at the edge of a chain of steps", placed.cut_off),
        ("isolated before the first chain (warm-up)", placed.isolated),
        ("another kind of step (batch, sequence or length differs)", attempt.other_slices),
    ]
    return tuple((reason, count) for reason, count in counts if count)
