"""What is said about right and about wrong plans; shares worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.checkpoint.plan import Read
from tracebook.kernels.fit import fit_plan
from tracebook.kernels.verdict import judge, unmatched_products, unmatched_share

from .toy import (
    GBPS,
    HEAD_MB,
    LAYERS,
    MB,
    K,
    column_of,
    drafted_plan,
    drafted_step,
    make_plan,
    plan,
    step,
)

LAYER_MB = 110
PEAK = 273.0


def judged(kernels, of, peak=PEAK):
    column = column_of(kernels)
    fit = fit_plan(column, of, peak_gbps=peak)
    verdict, notices = judge(fit, column, of, peak)
    return verdict, [notice.code for notice in notices]


@pytest.mark.parametrize(
    ("kernels", "of"),
    [(step(), plan()), (drafted_step(2), drafted_plan(2))],
    ids=["plain", "drafted"],
)
def test_a_right_plan_is_not_doubted(kernels, of):
    verdict, codes = judged(kernels, of)
    assert codes == []
    assert verdict.matched_share == 1
    assert verdict.off_share == 0
    assert verdict.unmatched_gemm_share == 0
    assert verdict.fitted_gbps == pytest.approx(GBPS, rel=0.01)
    assert verdict.phases_trusted
    assert verdict.bytes_trusted


def test_bytes_and_passes_per_phase():
    verdict, _ = judged(drafted_step(3), drafted_plan(3))
    assert verdict.matched_bytes == {
        "target_layers": LAYERS * LAYER_MB * MB,
        "output_layer": HEAD_MB * MB,
        "drafter_layers": 3 * (20 + LAYER_MB // 2) * MB,
        "draft_head": 3 * HEAD_MB * MB,
    }
    assert verdict.passes == {
        "target_layers": 1, "output_layer": 1, "drafter_layers": 3, "draft_head": 3,
    }  # fmt: skip


def test_small_bytes_count_and_unfound_optional_ones_do_not():
    optional = Read("target_layers", None, "x", "x", 40 * MB, 9, 999, optional=True)
    base = plan()
    of = make_plan(
        [("target", [*base.blocks[0].reads, optional]), ("output", base.blocks[1].reads)],
        LAYERS, small_bytes={"target_layers": 77, "output_layer": 5})  # fmt: skip
    verdict, _ = judged(step(), of)
    assert verdict.matched_bytes == {
        "target_layers": LAYERS * LAYER_MB * MB + 77,
        "output_layer": HEAD_MB * MB + 5,
    }
    assert verdict.matched_share == 1


def test_missing_layers_are_unmatched_products():
    """Four of six layers are in the plan: two layers' products belong to nothing."""
    verdict, codes = judged(step(), plan(4))
    spare = 2 * (LAYER_MB * MB / GBPS + 4 * 1500)
    busy = sum(k.ns for k in step())
    assert verdict.unmatched_gemm_share == pytest.approx(spare / busy, rel=0.05)
    assert "products_without_plan" in codes
    assert not verdict.phases_trusted


def test_invented_layers_are_not_found():
    """Eight layers said, six ran: (6 x 110 + 100) of (8 x 110 + 100) MB."""
    verdict, codes = judged(step(), plan(8))
    assert verdict.matched_share == pytest.approx(760 / 980, abs=0.02)
    assert "plan_not_found" in codes
    assert not verdict.bytes_trusted
    assert not verdict.phases_trusted


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_wrong_head_runs_at_another_bandwidth_than_the_rest(factor):
    verdict, codes = judged(step(), plan(head_mb=HEAD_MB * factor))
    assert "phase_unlike_rest" in codes or "plan_not_found" in codes
    assert verdict.phases_trusted


def test_twice_the_bytes_are_more_than_the_machine_can_read():
    verdict, codes = judged(step(), plan(scale=2, head_mb=2 * HEAD_MB))
    assert "above_peak" in codes
    assert not verdict.bytes_trusted


def test_without_a_peak_a_uniform_factor_cannot_be_known():
    """A real ambiguity: all bytes doubled look like twice the bandwidth."""
    verdict, codes = judged(step(), plan(scale=2, head_mb=2 * HEAD_MB), peak=None)
    assert codes == []
    assert verdict.fitted_gbps == pytest.approx(2 * GBPS, rel=0.02)


def test_another_format_of_a_third_of_the_bytes_is_seen():
    """Gates and ups are half as large as the plan says: 48 of 110 MB a layer are off."""
    kernels = [
        replace(k, ns=1500 + (k.ns - 1500) // 2) if "gate" in k.matrix else k for k in step()
    ]
    verdict, codes = judged(kernels, plan())
    assert verdict.off_share == pytest.approx(6 * 48 / 760, abs=0.02)
    assert "bytes_unlike_times" in codes
    assert not verdict.bytes_trusted
    assert verdict.phases_trusted


def test_a_regression_of_one_phase_is_told_and_not_refused():
    """The output layer suddenly takes twice as long: bytes are right, so they are kept."""
    kernels = [replace(k, ns=2 * k.ns) if k.matrix == "lm_head" else k for k in step()]
    verdict, codes = judged(kernels, plan())
    assert "phase_unlike_rest" in codes
    assert verdict.phases_trusted
    assert verdict.bytes_trusted


@pytest.mark.parametrize("said", [1, 3, 4])
def test_a_wrong_number_of_draft_tokens_is_noticed(said):
    _, codes = judged(drafted_step(2), drafted_plan(said))
    assert codes


def test_glue_and_attention_are_no_unmatched_products():
    kernels = [replace(k, ns=500_000) if "flash" in k.name else k for k in step()]
    column = column_of(kernels)
    fit = fit_plan(column, plan(), peak_gbps=PEAK)
    assert not unmatched_products(fit, column, plan().reads).any()
    assert unmatched_share(fit, column, plan().reads) == 0


@pytest.mark.parametrize("launch_ns", [600, 2250, 2900, 4500])
def test_a_model_of_few_weights_takes_the_time_of_its_launches(launch_ns):
    """Matrices of 0.4 to 1.4 MB on a machine of 3,000 GB/s are read in 0.1 to 0.5 us."""
    scale, gbps = 0.03, 3000.0
    kernels = [
        replace(
            k, ns=round(launch_ns + k.weight_bytes * (scale if k.layer is not None else 1) / gbps)
        )
        if k.matrix
        else replace(k, ns=min(k.ns, launch_ns))
        for k in step()
    ]
    verdict, codes = judged(kernels, plan(scale=scale), peak=3352.0)
    assert codes == []
    assert verdict.bytes_trusted
    assert verdict.fitted_gbps == pytest.approx(gbps, rel=0.1)


def with_experts(of):
    """The plan with its gates and ups made by experts."""

    def expert(read):
        change = {"op": f"experts_{read.op}", "basis": "derived"}
        return replace(read, **change) if read.op in ("gate", "up") else read

    blocks = (replace(b, reads=tuple(expert(r) for r in b.reads)) for b in of.blocks)
    return replace(of, blocks=tuple(blocks))


def timed(*factors):
    """A step whose layers take these multiples of the usual time for gate and up."""
    return [
        replace(k, ns=round(k.ns * factors[k.layer % len(factors)])) if "gate" in k.matrix else k
        for k in step()
    ]


def test_experts_may_take_another_time_in_each_layer_and_matrices_may_not():
    uneven = timed(0.7, 1.35)
    verdict, codes = judged(uneven, with_experts(plan()))
    assert codes == []
    assert verdict.off_share == 0
    verdict, codes = judged(uneven, plan())
    assert verdict.off_share == pytest.approx(6 * 48 / 760, abs=0.02)
    assert "bytes_unlike_times" in codes


def test_experts_of_another_format_are_seen_all_the_same():
    verdict, codes = judged(timed(0.5), with_experts(plan()))
    assert verdict.off_share == pytest.approx(6 * 48 / 760, abs=0.02)
    assert "bytes_unlike_times" in codes
    assert not verdict.bytes_trusted


def test_a_sampler_that_no_rule_knows_is_no_product():
    """All products say that they are; a long kernel of a name of its own is none of them."""
    sampler = K("void invokeTopKStage1<float>(T1)", 400_000, "sampling")
    kernels = [*step(), sampler]
    column = replace(
        column_of(kernels),
        match_penalty=np.array([0.0 if "Gemm" in k.name or k is sampler else 3.0 for k in kernels]),
    )
    fit = fit_plan(column, plan(), peak_gbps=PEAK)
    assert not unmatched_products(fit, column, plan().reads).any()
    silent = replace(column, telling=np.array([k is not sampler for k in kernels]))
    assert unmatched_products(fit, silent, plan().reads).tolist() == [k is sampler for k in kernels]


@pytest.mark.parametrize(("count", "products"), [(3, 0), (12, 12)])
def test_a_layer_mixes_tokens_in_a_few_kernels_and_no_more(count, products):
    """Nameless kernels of half a millisecond between q, k, v and o: attention, or other steps."""
    kernels = step()
    attention = next(i for i, k in enumerate(kernels) if "flash" in k.name and k.layer == 3)
    kernels[attention:attention] = [K("kernel", 500_000, "")] * count
    column = column_of(kernels, named=False)
    fit = fit_plan(column, plan(), peak_gbps=273.0)
    assert unmatched_products(fit, column, plan().reads).sum() == products
