"""Why a trace holds no steady decode, in one sentence, and what to do about it."""

from __future__ import annotations

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Ints
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.period import Period, find_periods
from tracebook.kernels.sequence import Kernels

RECORD = "Record at least a few dozen decode steps of one batch size."


def busy_ns(total_ns: Ints, lag: int) -> float:
    """Median busy time of `lag` kernels in a row; `total_ns` is the running sum from 0."""
    stride = max(1, (len(total_ns) - lag) // 2000)
    starts = np.arange(0, len(total_ns) - lag, stride)
    return float(np.median(total_ns[starts + lag] - total_ns[starts]))


def floor_ns(plan: Plan, peak_gbps: float) -> float:
    """Time that the required reads of a plan take at the peak, ns."""
    return sum(read.weight_bytes for read in plan.reads if not read.optional) / peak_gbps


def no_decode(kernels: Kernels, plan: Plan | None, peak_gbps: float | None) -> NoDecodeSteps:
    """Say what the trace is instead of steady decode."""
    if kernels.train.any():
        return NoDecodeSteps(
            "No decode found: the trace holds optimizer or backward kernels, so it is training.",
            "Record an inference server while it decodes.",
        )
    if kernels.autotune.any() and kernels.autotune.mean() > 0.01:
        return NoDecodeSteps(
            "No steady decode found: the trace holds the autotuning of kernels, not their use.",
            "Let the capture run on, or begin it after the warm-up.",
        )
    periods = find_periods(kernels.symbol, lambda lag: True)
    if not periods:
        if kernels.prefill.any():
            return NoDecodeSteps(
                "No steady decode found: there is prefill, but nothing repeats like decode steps.",
                "Let the capture run on while tokens are generated.",
            )
        return NoDecodeSteps("No steady decode found: no sequence of kernels repeats.", RECORD)
    if plan is None:
        return NoDecodeSteps(
            "No steady decode found: what repeats does not look like the layers of a model.",
            "Name the checkpoint with --checkpoint, so that bytes can be used as evidence.",
        )
    return _unlike_plan(kernels, plan, peak_gbps, periods)


def _longest_of_its_own(periods: list[Period]) -> Period:
    """The longest period that is more than several of the best ones (layers in a row)."""
    best = max(periods, key=lambda period: period.score)
    bases = [p.kernels for p in periods if p.score >= 0.9 * best.score and p.kernels < 40]

    def several(kernels: int) -> bool:
        return any(abs(kernels / base - round(kernels / base)) <= 0.1 for base in bases)

    own = [p for p in periods if p.kernels > best.kernels and not several(p.kernels)]
    return max(own, key=lambda period: period.kernels, default=best)


def _unlike_plan(
    kernels: Kernels, plan: Plan, peak_gbps: float | None, periods: list[Period]
) -> NoDecodeSteps:
    """What repeats is not a step of the plan: too long, too short, or something else."""
    if kernels.prefill.any() and kernels.prefill.mean() > 0.05:
        return NoDecodeSteps(
            "No steady decode found: what repeats is prefill.",
            "Let the capture run on while tokens are generated.",
        )
    hint = ""
    if peak_gbps is not None:
        hint = f" Is {peak_gbps:.0f} GB/s the peak of the machine that was recorded?"
        longest = busy_ns(kernels.before_ns, _longest_of_its_own(periods).kernels)
        floor = floor_ns(plan, peak_gbps)
        told = (
            f"what repeats is busy for {longest / 1e6:.2f} ms, while one step of "
            f"{plan.description} reads for {floor / 1e6:.2f} ms at {peak_gbps:.0f} GB/s"
        )
        if longest > 8 * floor:
            return NoDecodeSteps(
                f"No steady decode found: {told}, so it is not bound by reading weights "
                "(prefill or training?).",
                "Record a server while it decodes a few sequences." + hint,
            )
        if longest < 0.85 * floor:
            return NoDecodeSteps(
                f"No steady decode found: no whole step repeats; {told}.",
                "Is it the checkpoint that ran? " + RECORD + hint,
            )
        if longest > 2.5 * floor:
            return NoDecodeSteps(
                f"No steady decode found: {told}, and its kernels do not last as long as the "
                "matrices take to read (prefill, or a large batch?).",
                "Record a server while it decodes a few sequences." + hint,
            )
    return NoDecodeSteps(
        f"No steady decode found: what repeats does not read the matrices of {plan.description}.",
        "Check --checkpoint, --drafter and --draft-tokens against the run. " + RECORD + hint,
    )
