"""The kernel stages in order: classes, launches, steps, alignment, phases.

In: a trace and, where a checkpoint is known, the plan of a step. Out: every kernel of
one device and process with its phase, layer and matrix, the steady steps, and how well
the plan fits. All decisions are made once per template position and broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Ints, is_constant, parts
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.assign import assign_labels
from tracebook.kernels.attempts import Attempt, best_attempt
from tracebook.kernels.broadcast import label_rows, step_frame
from tracebook.kernels.classes import CLASSES, classify_names, load_rules
from tracebook.kernels.cut import Cut, find_cut, may_begin
from tracebook.kernels.doubt import Alternatives, judge_attempt
from tracebook.kernels.ends import find_ends
from tracebook.kernels.joints import layer_joints
from tracebook.kernels.kinds import Choice, describe_kind
from tracebook.kernels.labels import KindInfo, Labelled
from tracebook.kernels.launches import launch_order
from tracebook.kernels.realign import has_breaks, realigned
from tracebook.kernels.recover import Recovered, recover_steps
from tracebook.kernels.segments import place_steps
from tracebook.kernels.sequence import Kernels, build_kernels
from tracebook.kernels.steps import Kind
from tracebook.kernels.verdict import unmatched_products
from tracebook.kernels.zones import Facts, find_zones
from tracebook.notices import Notice
from tracebook.trace import Trace

#: Ranks of one model launch about the same kernels: they differ by less than this share.
ALIKE = 0.1
#: A step that may begin fewer kernels later is as good as certain.
SEVERAL = 2


def label_kernels(
    trace: Trace,
    plan: Plan | None,
    *,
    peak_gbps: float | None,
    device: int | None = None,
    pid: int | None = None,
    rules: Path | None = None,
    alternatives: Alternatives = tuple,
    choice: Choice | None = None,
) -> Labelled:
    """Give every kernel of one device and process its phase, layer and matrix.

    Args:
        trace: The capture.
        plan: What one step must read; None without a checkpoint.
        peak_gbps: Peak bandwidth of the machine, GB/s, None where unknown.
        device: Device to examine; the busiest one if None.
        pid: Process to examine; the busiest one on the device if None.
        rules: User's kernel rules, tried in front of the shipped ones.
        alternatives: Lays out other plans that may have run; asked only in doubt.
        choice: Kind of step to account for, the most frequent one if None.

    Returns:
        Labelled rows, steps and verdict.

    Raises:
        NoDecodeSteps: No steady decode was found; the message says why.
    """
    kernels, chosen_device, chosen_pid, devices, notices = prepare(trace, device, pid, rules)
    trace.scratch.release()
    try:
        attempt = best_attempt(kernels, plan, peak_gbps, choice)
    except NoDecodeSteps as error:
        # Of several processes the busiest was taken, which may be another than the server.
        hints = [error.hint, *(f"{notice.message} {notice.hint}" for notice in notices)]
        raise NoDecodeSteps(error.message, " ".join(hint for hint in hints if hint)) from error
    if has_breaks(attempt.template):
        begin = _cut_of(attempt, _facts(attempt, plan)).position
        attempt = realigned(attempt, begin, plan, peak_gbps, choice)
    attempt, verdict, said = judge_attempt(attempt, alternatives, peak_gbps, devices)
    notices += said
    kernels, steady = attempt.kernels, attempt.template
    facts = _facts(attempt, plan)
    cut = _cut_of(attempt, facts)
    notices += _doubts_of_edge(cut)
    labels = assign_labels(attempt.marks, facts, cut.position)
    trace.scratch.release()
    recovered = recover_steps(
        kernels, steady, cut.position, place_steps(kernels, steady, cut.position)
    )
    placed, kind, others = recovered.placed, attempt.kind, attempt.other_kinds
    if not placed.bounds:
        raise NoDecodeSteps(
            "The repeating part of the trace holds no whole decode step.",
            "Record at least a few dozen decode steps.",
        )
    if recovered.others is not None:
        kind, others = Kind(placed.bounds), recovered.others
    infos = [describe_kind(kernels, other) for other in others]
    rows, steps = label_rows(kernels, placed, labels), step_frame(kernels, placed)
    trace.scratch.release()
    return Labelled(
        kernels=rows,
        steps=steps,
        found=_steps_found(recovered, infos),
        dropped=_dropped(recovered, infos),
        source=attempt.source,
        verdict=verdict,
        plan=attempt.laid_out if attempt.laid_out is not None else plan,
        device=chosen_device,
        pid=chosen_pid,
        devices=devices,
        notices=tuple(notices),
        kinds=(() if kind is None else (describe_kind(kernels, kind),)) + tuple(infos),
    )


def _cut_of(attempt: Attempt, facts: Facts) -> Cut:
    """Where a step begins in the template of an attempt."""
    kernels, template = attempt.kernels, attempt.template
    zones = find_zones(attempt.marks, len(template.symbol))
    marker, gap_ns = kernels.step_marker[template.source], template.gap_ns(kernels)
    may = may_begin(zones, facts, layer_joints(attempt.marks, facts.name))
    ends = find_ends(kernels, template, gap_ns, may)
    return find_cut(zones, facts, gap_ns, marker, ends, may)


def _doubts_of_edge(cut: Cut) -> list[Notice]:
    """What is not known of where a step begins."""
    if cut.certain and cut.unmarked < SEVERAL:
        return []
    message = "Where a step begins is not certain: another place fits about as well."
    if cut.certain:
        message = (
            "Nothing marks where a step begins, no name and no pause: the first "
            f"{cut.unmarked} kernels of each step may belong to the one before."
        )
    hint = "Phase times are not affected, only which step an edge kernel belongs to."
    return [Notice("step_edge_uncertain", message, hint)]


def _facts(attempt: Attempt, plan: Plan | None) -> Facts:
    """Class, launch and duration per template position."""
    kernels, template, marks = attempt.kernels, attempt.template, attempt.marks
    classes = kernels.kernel_class[template.source]
    collective = np.zeros(len(classes), dtype=bool)
    collective[list(attempt.fit.collectives) if attempt.fit is not None else []] = True
    return Facts(
        kernel_class=classes,
        duration_ns=template.duration_ns,
        launch=kernels.launch[template.source],
        in_graph=kernels.in_graph[template.source],
        name=kernels.name_ids[kernels.name[template.source]],
        foreign=(
            unmatched_products(attempt.fit, attempt.column, attempt.plan.reads)
            if attempt.fit is not None and attempt.plan is not None
            else np.zeros(len(classes), dtype=bool)
        ),
        collective=collective,
        speculative=any(block.name.startswith("draft") for block in marks.blocks),
        recurrent=bool((classes == CLASSES.index("gdn")).any())
        or (plan is not None and bool(plan.recurrent_layers)),
    )


def _steps_found(found: Recovered, others: Sequence[KindInfo]) -> int:
    """How many steps of any kind were found, whole or not."""
    whole = len(found.placed.bounds) + found.isolated
    return whole + found.placed.cut_off + sum(info.steps for info in others)


def _dropped(found: Recovered, others: Sequence[KindInfo]) -> tuple[tuple[str, int], ...]:
    """Reasons and counts of what was left out."""
    repeated = [info for info in others if info.steps > 1]
    counts = [
        ("cut at the edge of a chain of steps", found.placed.cut_off),
        ("isolated before the first chain (warm-up)", found.isolated),
        *((f"another kind of step ({info.describe()})", info.steps) for info in repeated),
        ("unlike any other step (mixed with prefill, or a change)", len(others) - len(repeated)),
    ]
    return tuple((reason, count) for reason, count in counts if count)


def prepare(
    trace: Trace, device: int | None, pid: int | None, rules: Path | None
) -> tuple[Kernels, int | None, int | None, int | None, list[Notice]]:
    """Choose device and process, classify names, put kernels in launch order.

    Returns:
        The kernels, their device and process, how many devices and processes run about as
        many (None where the trace may be cut down to the one asked for), and notices.

    Raises:
        NoDecodeSteps: The device or process asked for has no kernels.
    """
    classes = classify_names(trace.names, load_rules(rules))
    busy = _busy(trace.kernels)
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
    rows = None
    asked = device is not None and pid is not None
    alike = int((busy["len"] >= (1 - ALIKE) * wanted["len"][0]).sum())
    devices = None if asked and len(busy) == 1 else alike
    if len(busy) > 1:
        rows = _rows_of(trace, chosen_device, chosen_pid, wanted["len"][0])
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
    launches = launch_order(trace.kernels, rows, trace.scratch)
    kernels = build_kernels(
        trace.kernels, launches, classes, trace.names, rows=rows, scratch=trace.scratch
    )
    return kernels, chosen_device, chosen_pid, devices, notices


def _busy(kernels: pl.DataFrame) -> pl.DataFrame:
    """Devices and processes with their busy time and number of kernels, the busiest first."""
    keys = ("device", "pid")
    counted = (pl.col("end_ns").sum() - pl.col("start_ns").sum()).alias("ns"), pl.len()
    if len(kernels) and all(is_constant(kernels[key]) for key in keys):
        return kernels.select(pl.col(keys).first(), *counted)
    found = [kernels[part].group_by(keys).agg(*counted) for part in parts(len(kernels))]
    return (
        pl.concat([kernels.clear().group_by(keys).agg(*counted), *found])
        .group_by(keys)
        .agg(pl.col("ns", "len").sum())
        .sort("ns", *keys, descending=[True, False, False])
    )


def _rows_of(trace: Trace, device: int | None, pid: int | None, count: int) -> Ints:
    """Rows of the kernels of one device and process."""
    rows = trace.scratch.empty(count, np.int32 if len(trace.kernels) < 2**31 else np.int64)
    found = 0
    for part in parts(len(trace.kernels)):
        mine = trace.kernels[part].select(
            (pl.col("device") == device) & pl.col("pid").eq_missing(pl.lit(pid))
        )
        own = np.flatnonzero(mine.to_series().to_numpy()) + part.start
        rows[found : found + len(own)] = own
        found += len(own)
    return rows
