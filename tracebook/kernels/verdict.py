"""Two verdicts about an alignment: can its phases be believed, and its bytes?

Labels can be right while the checkpoint is the wrong one, so the two are kept apart.
The thresholds come from a study of right and wrong plans on synthetic traces; see
docs/method.md ("Knowing when it is wrong").
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracebook.checkpoint.plan import Plan, Read
from tracebook.columns import Bools, Ints
from tracebook.kernels.align import LAUNCH_NS, Column, expected_ns
from tracebook.kernels.fit import Fit, ratio_of
from tracebook.kernels.labels import Verdict
from tracebook.kernels.marks import PHASE_OF_BLOCK
from tracebook.kernels.runs import mixes_between
from tracebook.notices import Notice

MATCHED_FLOOR = 0.97
PHASES_FLOOR = 0.96
OFF_RATIO = 1.25
OFF_WARN, OFF_REFUSE = 0.09, 0.15
UNMATCHED_WARN, UNMATCHED_REFUSE = 0.01, 0.04
PHASE_RATIO = (0.7, 1.3)
ABOVE_PEAK = 1.05
#: Names tell the products where so much of the matched time is in kernels named as such.
NAMED_SHARE = 0.97
#: Attention and its reduction, or the few kernels of a recurrence, are no more long kernels.
MOST_MIXING = 4
#: A way of splitting groups that at most this share of them has is an odd one.
ODD_GROUPS, ODD_WARN = 0.2, 0.01


def judge(
    fit: Fit, column: Column, plan: Plan, peak_gbps: float | None
) -> tuple[Verdict, list[Notice]]:
    """Judge how well a plan fits the kernels of the steady step.

    Args:
        fit: The alignment.
        column: The kernels of the template.
        plan: What the step must read.
        peak_gbps: Peak bandwidth, None where unknown.

    Returns:
        The verdict and its warnings.
    """
    reads = plan.reads
    wanted = sum(read.weight_bytes for read in reads if not read.optional)
    required = sum(
        r.weight_bytes for f in fit.found for r in reads[f.first : f.end] if not r.optional
    )
    matched = required / wanted
    off = off_share(fit, column, reads)
    unmatched = unmatched_share(fit, column, reads)
    notices = _phase_notices(fit, column, plan)
    if matched < MATCHED_FLOOR:
        notices.append(
            Notice(
                "plan_not_found",
                f"Only {100 * matched:.1f} % of the bytes that the checkpoint says a step reads "
                f"were found in the kernels ({plan.description}).",
                "Is it the checkpoint, drafter and number of draft tokens of this run? "
                "Byte figures are withheld.",
            )
        )
    if off > OFF_WARN:
        notices.append(
            Notice(
                "bytes_unlike_times",
                f"{100 * off:.0f} % of the matched bytes were read in a time more than 25 % off "
                "what the rest would take.",
                "The matrices may be stored in another format in the run than in this checkpoint.",
            )
        )
    if unmatched > UNMATCHED_WARN:
        notices.append(
            Notice(
                "products_without_plan",
                f"{100 * unmatched:.1f} % of the step is spent in matrix products that the plan "
                f"does not know ({plan.description}).",
                "Is there a drafter, or are there more draft tokens, that were not named?",
            )
        )
    odd = odd_share(fit, reads)
    if odd > ODD_WARN:
        notices.append(
            Notice(
                "plan_irregular",
                f"{100 * odd:.1f} % of the bytes had to be laid on kernels in another way than in "
                f"the other layers ({plan.description}).",
                "Kernels that the plan does not know may have been taken for these matrices: is "
                "there a drafter, or another model, that was not named?",
            )
        )
    above = peak_gbps is not None and fit.bandwidth_gbps > ABOVE_PEAK * peak_gbps
    if above:
        notices.append(
            Notice(
                "above_peak",
                f"The kernels would have to read {fit.bandwidth_gbps:.0f} GB/s, more than the "
                f"machine's peak of {peak_gbps:.0f} GB/s.",
                "The checkpoint is larger than what ran, or the peak is wrong.",
            )
        )
    verdict = Verdict(
        matched_share=matched,
        off_share=off,
        unmatched_gemm_share=unmatched,
        fitted_gbps=fit.bandwidth_gbps,
        phases_trusted=matched >= PHASES_FLOOR
        and unmatched <= UNMATCHED_REFUSE
        and not (above and off > OFF_REFUSE),
        # A peak that is set too low is said, not acted on: no fit goes far above the peak,
        # so bytes that are too many show in the times.
        bytes_trusted=matched >= MATCHED_FLOOR
        and off <= (OFF_REFUSE if unmatched <= UNMATCHED_WARN else OFF_WARN),
        matched_bytes=_matched_bytes(fit, plan),
        passes=_passes(plan),
    )
    return verdict, notices


def off_share(fit: Fit, column: Column, reads: Sequence[Read]) -> float:
    """Share of the matched bytes whose kernel is more than 25 % off the expected time.

    How many experts a step reads depends on its tokens, and an engine may read them in a
    number of launches that changes from step to step, so that a layer's time is a matter of
    chance. Experts stored in another format would be off in all layers: they count together.
    """
    sizes = np.array([sum(r.weight_bytes for r in reads[f.first : f.end]) for f in fit.found])
    ratio = ratio_of(fit, column, reads)
    expected = np.array([expected_ns(float(s), fit.bandwidth_gbps, fit.launch_ns) for s in sizes])
    for family in {
        reads[f.first].family for f in fit.found if reads[f.first].op.startswith("experts")
    }:
        alike = np.array([reads[f.first].family == family for f in fit.found])
        ratio[alike] = (ratio * expected)[alike].sum() / expected[alike].sum()
    off = (ratio > OFF_RATIO) | (ratio < 1 / OFF_RATIO)
    return float(sizes[off].sum() / max(int(sizes.sum()), 1))


def odd_share(fit: Fit, reads: Sequence[Read]) -> float:
    """Share of the bytes in fusion groups that are split up unlike most of their kind.

    An engine launches the projections of all layers of a kind in the same pieces; a group
    in other pieces has taken in kernels of something else.
    """
    pieces: dict[int, list[tuple[str, ...]]] = {}
    for found in fit.found:
        part = reads[found.first : found.end]
        pieces.setdefault(part[0].group, []).append(tuple(read.family for read in part))
    members: dict[int, list[Read]] = {}
    for read in reads:
        members.setdefault(read.group, []).append(read)
    ways: dict[tuple[str, ...], Counter[tuple[tuple[str, ...], ...]]] = {}
    sizes: dict[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], int] = {}
    for group, found_pieces in pieces.items():
        kind = tuple(read.family for read in members[group])
        way = tuple(sorted(found_pieces))
        ways.setdefault(kind, Counter())[way] += 1
        size = sum(read.weight_bytes for read in members[group])
        sizes[kind, way] = sizes.get((kind, way), 0) + size
    odd = sum(
        size
        for (kind, way), size in sizes.items()
        if ways[kind][way] <= ODD_GROUPS * ways[kind].total()
    )
    return odd / max(sum(read.weight_bytes for read in reads if not read.optional), 1)


def unmatched_products(fit: Fit, column: Column, reads: Sequence[Read]) -> Bools:
    """Kernels that look like weight readers but match nothing, shape (kernels,).

    A kernel looks like one when its name says so, when most of its name were matched, or
    when its name says nothing and it is longer than most kernels that were matched. Where all
    products have names that say so, a name that no rule knows is rather that of a sampler.
    """
    used = np.zeros(fit.length, dtype=bool)
    used[[k for found in fit.found for k in found.kernels]] = True
    used[list(fit.collectives)] = True
    taken = [float(column.duration_ns[list(found.kernels)].sum()) for found in fit.found]
    counts = np.bincount(column.symbol)
    matched = np.bincount(column.symbol[used], minlength=len(counts))
    same_name = column.telling & (matched >= 0.5 * np.maximum(counts, 1))[column.symbol]
    by_name = column.duration_ns[used & column.named].sum() >= NAMED_SHARE * sum(taken)
    silent = ~column.telling if by_name else np.ones_like(used)
    long = silent & (column.duration_ns > 2 * float(np.median(taken)))
    suspect = column.named | same_name | long
    floor_ns = max(0.2 * float(np.quantile(taken, 0.1)), 2 * LAUNCH_NS)
    heavy = ~used & (column.named | column.may_mix) & suspect & (column.duration_ns > floor_ns)
    for stretch in _where_layers_mix(fit, reads):
        mixing = stretch[heavy[stretch] & column.may_mix[stretch]]
        if len(mixing) <= MOST_MIXING:
            heavy[mixing] = False
    return np.asarray(heavy)


def _where_layers_mix(fit: Fit, reads: Sequence[Read]) -> list[Ints]:
    """Kernels between the input and the output projection of each layer: attention, a recurrence.

    How long it takes depends on the context. What a plan does not know stands elsewhere.
    """
    return [
        np.arange(found.kernels[-1] + 1, following.kernels[0])
        for found, following in itertools.pairwise(fit.found)
        if mixes_between(reads[found.end - 1], reads[following.first])
    ]


def unmatched_share(fit: Fit, column: Column, reads: Sequence[Read]) -> float:
    """Share of the busy time in weight-reading kernels that match nothing."""
    heavy = unmatched_products(fit, column, reads)
    return float(column.duration_ns[heavy].sum() / max(float(column.duration_ns.sum()), 1.0))


def _phase_notices(fit: Fit, column: Column, plan: Plan) -> list[Notice]:
    """A phase whose kernels run at another bandwidth than the rest may have wrong bytes."""
    phase_of = [PHASE_OF_BLOCK[b.name].value for b in plan.blocks for _ in b.reads]
    expected: dict[str, float] = {}
    taken: dict[str, float] = {}
    for found in fit.found:
        phase = phase_of[found.first]
        size = float(sum(read.weight_bytes for read in plan.reads[found.first : found.end]))
        expected[phase] = expected.get(phase, 0.0) + expected_ns(
            size, fit.bandwidth_gbps, fit.launch_ns
        )
        taken[phase] = taken.get(phase, 0.0) + float(column.duration_ns[list(found.kernels)].sum())
    notices = []
    for phase in expected:
        rest_expected = sum(v for p, v in expected.items() if p != phase)
        rest_taken = sum(v for p, v in taken.items() if p != phase)
        if not rest_taken or not taken[phase]:
            continue
        # Of two phases that differ the smaller one is the odd one.
        if expected[phase] > rest_expected:
            continue
        ratio = (expected[phase] / taken[phase]) / (rest_expected / rest_taken)
        if not PHASE_RATIO[0] <= ratio <= PHASE_RATIO[1]:
            notices.append(
                Notice(
                    "phase_unlike_rest",
                    f"{phase} reads at {ratio:.2f} times the bandwidth of the other phases.",
                    "Its checkpoint may not be the one that ran, or the others do more than read "
                    "weights (a large batch, prefill), or it really is as fast or slow.",
                )
            )
    return notices


def target_over_output(fit: Fit, column: Column, plan: Plan) -> float | None:
    """Bandwidth of the target's layers over that of the output layer; None where one is missing."""
    rates = []
    for name in ("target", "output"):
        size, taken = 0.0, 0.0
        blocks = [b.name for b in plan.blocks for _ in b.reads]
        for found in fit.found:
            if blocks[found.first] == name:
                part = plan.reads[found.first : found.end]
                whole = float(sum(r.weight_bytes for r in part))
                size += expected_ns(whole, fit.bandwidth_gbps, fit.launch_ns)
                taken += float(column.duration_ns[list(found.kernels)].sum())
        rates.append(size / taken if taken else None)
    target, output = rates
    return target / output if target and output else None


def _matched_bytes(fit: Fit, plan: Plan) -> dict[str, int]:
    """Bytes per phase: required reads of the plan, optional ones that were found, small ones."""
    found = {i for f in fit.found for i in range(f.first, f.end)}
    total = dict(plan.small_bytes)
    for index, read in enumerate(plan.reads):
        if index in found or not read.optional:
            total[read.phase] = total.get(read.phase, 0) + read.weight_bytes
    return total


def _passes(plan: Plan) -> dict[str, int]:
    """Number of passes per phase."""
    passes: dict[str, int] = {}
    for block in plan.blocks:
        phase = PHASE_OF_BLOCK[block.name].value
        passes[phase] = max(passes.get(phase, 0), block.pass_index + 1)
    return passes
