"""What a reader must know before believing a report.

In: a report and what it was made from. Out: the same report with its warnings, those of
the earlier stages first. Every figure that is missing is explained here.
"""

from __future__ import annotations

from dataclasses import replace

from tracebook.kernels.labels import Labelled
from tracebook.machine import Machine
from tracebook.notices import Notice
from tracebook.report import Report, RunFacts, StepFacts
from tracebook.stats import FEWEST_FOR_INTERVAL

#: Share of the wall time without a phase above which the account is called incomplete.
UNCLASSIFIED_SHARE = 0.01

#: Difference between summed durations and busy time, as a share, that is worth a line.
OVERLAP_SHARE = 0.001

#: Phases below this share of the step are not held against the roofline: reads that small
#: come from a cache, and their time is mostly that of the launches.
TINY_SHARE = 0.01

#: A phase that reads weights and stays below this share of the ceiling is worth a look.
FAR_BELOW_PCT = 40.0

#: Kernel time outside the kept steps above which the report is about the smaller part.
OUTSIDE_SHARE = 0.5

#: Percent of a measured ceiling that is above it beyond doubt: ceilings are measured to some
#: percent (231 to 234 GB/s in one source), and one large matrix may beat a simple kernel.
CEILING_PCT = 103.0

#: Idle share of the wall time above which the GPU is not what the run waits for.
MOSTLY_IDLE = 0.5

#: Methods that draft one token a pass.
IN_PASSES = ("mtp", "eagle3", "draft_model")

#: A mean step so much longer than the median one: a few steps stalled.
STALLED = 1.1


def cautions(report: Report, labelled: Labelled, machine: Machine) -> Report:
    """Add every warning that the report needs."""
    found = [
        *_about_trace(report),
        *labelled.notices,
        *machine.notices,
        *_about_bytes(labelled),
        *_about_roofline(report),
        *_about_ceiling(report),
        *_about_surroundings(labelled),
        *_about_steps(report),
        *_about_unclassified(report),
        *_about_tokens(report),
        *_about_rows(report, labelled),
        *_about_ranks(report, labelled),
        *_about_yield(report),
    ]
    return replace(report, warnings=tuple(dict.fromkeys(found)))


def _about_trace(report: Report) -> list[Notice]:
    if not report.trace.synthetic:
        return []
    return [
        Notice(
            "synthetic",
            "This trace was synthesised: its times come from a model, not from a GPU.",
        )
    ]


def _about_bytes(labelled: Labelled) -> list[Notice]:
    if labelled.verdict is None:
        return [
            Notice(
                "no_checkpoint",
                "Bytes, GB/s and floors are missing: no checkpoint is known.",
                "Add --checkpoint PATH (a directory, a file or a header bundle).",
            )
        ]
    verdict, found = labelled.verdict, []
    why = f"{100 * verdict.matched_share:.1f} % of the plan's bytes were found in the kernels"
    if not verdict.bytes_trusted:
        found.append(
            Notice(
                "bytes_untrusted",
                "Bytes, GB/s and floors are withheld: the checkpoint does not explain the "
                f"kernels ({why}, {100 * verdict.off_share:.1f} % of them at an odd speed).",
                "Check --checkpoint, --drafter, --draft-method, --draft-tokens, --draft-head "
                "and --bandwidth.",
            )
        )
    if not verdict.phases_trusted:
        found.append(
            Notice(
                "phases_untrusted",
                f"The phases are doubtful: {why}, and {100 * verdict.unmatched_gemm_share:.1f} % "
                "of the busy time is in matrix kernels that it does not know.",
                "Check that target, drafter and draft method are those of the run.",
            )
        )
    return found


def _about_roofline(report: Report) -> list[Notice]:
    peak = report.machine.bandwidth_gbps
    return [
        Notice(
            "above_roofline",
            f"{row.phase} reads {row.traffic_gbps:.1f} GB/s, {row.roofline_pct:.1f} % of the "
            f"peak of {peak:g} GB/s: more than the machine can.",
            "The peak is set too low, weights stay in a cache, or the checkpoint is another one.",
        )
        for row in report.phase_rows
        if row.share >= TINY_SHARE
        and row.roofline_pct is not None
        and row.traffic_gbps is not None
        and row.roofline_pct > 100
    ]


def _about_ceiling(report: Report) -> list[Notice]:
    """Phases above the measured ceiling, and those far below what bounds them."""
    found = []
    for row in report.phase_rows:
        if row.share < TINY_SHARE or row.traffic_gbps is None or row.roofline_pct is None:
            continue
        ceiling, pct = report.machine.ceiling_gbps, row.ceiling_pct
        called = f"the measured ceiling of {ceiling:g} GB/s" if ceiling else "the peak"
        pct = row.roofline_pct if pct is None else pct
        if ceiling and pct > CEILING_PCT and row.roofline_pct <= 100:
            found.append(
                Notice(
                    "above_ceiling",
                    f"{row.phase} reads {row.traffic_gbps:.1f} GB/s, {pct:.1f} % of {called}.",
                    "The ceiling was measured too low, weights stay in a cache, or the checkpoint "
                    "is larger than what ran.",
                )
            )
        elif row.weight_bytes and pct < FAR_BELOW_PCT:
            found.append(
                Notice(
                    "far_below_ceiling",
                    f"{row.phase} reads {row.traffic_gbps:.1f} GB/s, {pct:.1f} % of {called}.",
                    "Small matrices, lowered clocks, a large batch, or a checkpoint that is "
                    "smaller than what ran.",
                )
            )
    return found


def _about_surroundings(labelled: Labelled) -> list[Notice]:
    """Whether the steps are the smaller part of what ran; asked for, that is no surprise."""
    if any(notice.code == "first_steps" for notice in labelled.notices):
        return []
    total, inside = labelled.kernels.busy_ns()
    if total - inside <= OUTSIDE_SHARE * total:
        return []
    return [
        Notice(
            "outside_steps",
            f"{100 * (total - inside) / total:.0f} % of the kernel time lies outside the kept "
            "steps: loading, warm-up, prefill or other batches.",
            "See what was left out, and record with a capture range around decoding "
            "(`tracebook record`).",
        )
    ]


def _about_steps(report: Report) -> list[Notice]:
    steps = report.steps
    found = []
    if steps.kept < FEWEST_FOR_INTERVAL:
        found.append(
            Notice(
                "few_steps",
                f"Only {steps.kept} steady steps: too few for a 95 % interval of the median.",
                f"Record {FEWEST_FOR_INTERVAL} steps or more, better 30.",
            )
        )
    if steps.regimes:
        fast, slow = steps.regimes
        found.append(
            Notice(
                "two_regimes",
                f"The steps fall into two groups: {fast.steps} are busy for {fast.busy_ms:.2f} ms "
                f"(steps {fast.first_step} to {fast.last_step}), {slow.steps} for "
                f"{slow.busy_ms:.2f} ms (steps {slow.first_step} to {slow.last_step}).",
                "A clock, power or thermal change? Medians mix both: look at a part of the "
                "capture with --from and --to.",
            )
        )
    found += _about_pace(steps)
    surplus = steps.kernel_sum_ms.mean - steps.busy_ms.mean
    if surplus > OVERLAP_SHARE * steps.busy_ms.mean:
        found.append(
            Notice(
                "overlap",
                f"Kernels overlap: their durations add up to {steps.kernel_sum_ms.mean:.2f} ms "
                f"per step, the GPU is busy for {steps.busy_ms.mean:.2f} ms.",
                "Times above are exclusive; kernel_sum_ms in the JSON holds the plain sums.",
            )
        )
    return found


def _about_pace(steps: StepFacts) -> list[Notice]:
    """Steps that one median does not describe, or that wait for something else."""
    found = []
    if steps.drift_share is not None:
        found.append(
            Notice(
                "drift",
                f"The steps drift: the last quarter is busy for {100 * steps.drift_share:+.1f} % "
                "against the first.",
                "A clock that falls with heat, or a context that grows: look at the parts with "
                "--from and --to.",
            )
        )
    if not steps.regimes and steps.wall_ms.mean > STALLED * steps.wall_ms.median:
        found.append(
            Notice(
                "stalled_steps",
                f"A few steps are much longer than the rest: the mean is {steps.wall_ms.mean:.2f} "
                f"ms, the median {steps.wall_ms.median:.2f} ms.",
                "Shares go by all steps, tokens per second by the median. "
                "`tracebook plot RUN --kind steps` draws each step.",
            )
        )
    if steps.idle_share > MOSTLY_IDLE:
        found.append(
            Notice(
                "mostly_idle",
                f"The GPU is idle for {100 * steps.idle_share:.0f} % of the step: the run waits "
                "for the host, not for memory.",
                "Faster kernels change little here. Look for CUDA graphs that are off, "
                "synchronisation, or a busy host.",
            )
        )
    return found


def _about_unclassified(report: Report) -> list[Notice]:
    if report.unclassified.share <= UNCLASSIFIED_SHARE:
        return []
    return [
        Notice(
            "unclassified",
            f"{100 * report.unclassified.share:.1f} % of the step has no phase.",
            "`tracebook kernels RUN --unclassified` prints the names as rules for --rules.",
        )
    ]


def _about_tokens(report: Report) -> list[Notice]:
    if report.steps.tokens_per_s is not None:
        return []
    reason = (
        "a drafter runs that was not named"
        if report.run.draft_method == "none"
        else "the draft method is not known"
        if report.run.draft_method is None
        else "how many drafts are accepted is not in the trace"
    )
    return [
        Notice(
            "tokens_unknown",
            f"Tokens per second are missing: {reason}.",
            "Add --tokens-per-step from your benchmark"
            + (" or --draft-method none." if report.run.draft_method is None else "."),
        )
    ]


def _most_tokens(run: RunFacts) -> int | None:
    """Tokens that go through the target in a step: the most it can yield; None if unknown."""
    if run.draft_method is None or (run.draft_method != "none" and run.draft_tokens is None):
        return None
    return (run.batch or 1) * (_drafts(run) + 1)


def _drafts(run: RunFacts) -> int:
    return (run.draft_tokens or 0) if run.draft_method != "none" else 0


def _about_rows(report: Report, labelled: Labelled) -> list[Notice]:
    """Whether batch and draft tokens agree with the grids of row-wise kernels.

    Engines pad a batch to the next size that they captured a graph for: 1, 2, 4, and
    multiples of 8 (vLLM, SGLang). Where drafts come in one pass or not at all, most norms are
    the target's. Passes one after the other may outnumber them, and may grow a tree, which the
    target verifies with more tokens than there were passes; but they are counted elsewhere.
    """
    run, said = report.run, _most_tokens(report.run)
    kind = labelled.kinds[0] if labelled.kinds else None
    grids = () if kind is None else kind.row_grids
    if kind is not None and kind.norm_grids and run.draft_method not in IN_PASSES:
        grids = kind.norm_grids[:1]
    if not grids or said is None:
        return []
    padded = said if said <= 2 else 4 if said <= 4 else -(-said // 8) * 8
    if said in grids or padded in grids:
        return []
    words = f"batch {run.batch or 1}"
    if run.draft_method != "none":
        words += f" with {_drafts(run)} draft tokens"
    return [
        Notice(
            "rows_unlike",
            f"The norms of a step work on {grids[0]} tokens at once; {words} makes {said}.",
            "Give --batch and --draft-tokens as they were in the run, unless the engine fills "
            "up its batches. State, caches and tokens/s go by them.",
        )
    ]


def _about_ranks(report: Report, labelled: Labelled) -> list[Notice]:
    """Ranks that nothing confirms, where one rank alone could have read all bytes in this time.

    Without names a collective cannot be told from other kernels, and times only tell ratios.
    """
    plan, verdict, peak = labelled.plan, labelled.verdict, report.machine.bandwidth_gbps
    if plan is None or verdict is None or plan.ranks == 1 or peak is None:
        return []
    named = labelled.kernels.labels["kernel_class"].is_in(["comm", "gemm"]).any()
    if named or labelled.devices != 1 or verdict.fitted_gbps * plan.ranks > peak:
        return []
    return [
        Notice(
            "ranks_unconfirmed",
            f"{plan.ranks} tensor-parallel ranks were said, but one device runs in this capture "
            "and its kernels have no names that tell of collectives. At these times one rank "
            f"alone could have read all bytes, at {verdict.fitted_gbps * plan.ranks:,.0f} GB/s.",
            "Leave out --tensor-parallel if the model was not shared.",
        )
    ]


def _about_yield(report: Report) -> list[Notice]:
    """More tokens per step than a verify pass can accept."""
    run, most = report.run, _most_tokens(report.run)
    if run.tokens_per_step is None or most is None or run.tokens_per_step <= most:
        return []
    return [
        Notice(
            "yield_too_high",
            f"{run.tokens_per_step:g} tokens per step were said, but batch {run.batch or 1} with "
            f"{_drafts(run)} draft tokens yields {most} at most.",
            "Correct --tokens-per-step (tokens of all sequences, for each step), or give --batch.",
        )
    ]
