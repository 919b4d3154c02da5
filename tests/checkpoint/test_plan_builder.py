"""The plan of a step against numbers counted by hand from the article's checkpoints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import Ledger, build_ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_builder import build_plan
from tracebook.errors import RunDescriptionError

HEADERS = Path(__file__).parents[2] / "fixtures" / "headers"


def ledger(name: str) -> Ledger:
    return build_ledger(read_checkpoint(HEADERS / f"{name}.headers.json.gz"))


@pytest.fixture(scope="module")
def target() -> Ledger:
    return ledger("target-nvfp4")


def phase_bytes(plan: Plan, *, with_optional: bool = False) -> dict[str, int]:
    total: Counter[str] = Counter(plan.small_bytes)
    for read in plan.reads:
        if with_optional or not read.optional:
            total[read.phase] += read.weight_bytes
    return dict(total)


def test_plain_step_reads_exactly_m(target: Ledger) -> None:
    phases = phase_bytes(build_plan(target))
    assert phases == {"target_layers": 17_831_788_928, "output_layer": 1_271_895_040}
    assert sum(phases.values()) == 19_103_683_968 == target.read_per_step


def test_layers_by_kind(target: Ledger) -> None:
    plan = build_plan(target)
    assert plan.attention_layers == tuple(range(3, 64, 4))
    assert len(plan.recurrent_layers) == 48


def test_fused_weight_kernels_are_305(target: Ledger) -> None:
    """2 MLP + 2 per mixing block in each layer, ba apart from qkvz in 48, one output layer.

    The plan lets qkv, z, b and a share one kernel, so its groups are 305 - 48.
    """
    assert len({read.group for read in build_plan(target).reads}) == 305 - 48


def test_order_of_a_recurrent_and_an_attention_layer(target: Ledger) -> None:
    reads = build_plan(target).blocks[0].reads
    first = [read.op for read in reads if read.layer == 0]
    fourth = [read.op for read in reads if read.layer == 3]
    assert first == ["qkv", "z", "b", "a", "out", "gate", "up", "down"]
    assert fourth == ["q", "k", "v", "o", "gate", "up", "down"]


def test_three_mtp_passes(target: Ledger) -> None:
    plan = build_plan(target, method="mtp", draft_tokens=3)
    assert sum(phase_bytes(plan).values()) == 25_467_565_440
    names = [(block.name, block.pass_index) for block in plan.blocks[2:]]
    assert names == [(name, i) for i in range(3) for name in ("draft", "draft_head")]


@pytest.mark.parametrize(
    ("drafter", "drafting", "with_copy"),
    [
        ("drafter-bf16", 3_594_529_280, 3_699_386_880),
        ("drafter-nvfp4", 1_107_438_368, 1_212_295_968),
    ],
)
def test_block_drafter_without_codebooks(
    target: Ledger, drafter: str, drafting: int, with_copy: int
) -> None:
    plan = build_plan(target, drafter=ledger(drafter), method="dflash2", draft_tokens=10)
    head = 1_271_895_040  # the target's output layer, read a second time
    phases = phase_bytes(plan)
    assert phases["drafter_layers"] + phases["draft_head"] - head == drafting
    phases = phase_bytes(plan, with_optional=True)
    assert phases["drafter_layers"] + phases["draft_head"] - head == with_copy


def test_reduced_draft_head_leaves_out_its_id_map(target: Ledger) -> None:
    plan = build_plan(
        target,
        drafter=ledger("drafter-nvfp4"),
        draft_head=ledger("drafthead-fp8"),
        method="dflash2",
        draft_tokens=10,
    )
    head, selector = plan.blocks[-1].reads
    assert (head.weight_bytes, head.rows) == (512_363_904, 100_032)
    assert (selector.op, selector.weight_bytes) == ("selector", 256 * 5120 * 2)


@pytest.mark.parametrize("method", ["dflash2", "eagle3", "draft_model"])
def test_a_forgotten_drafter_is_said(target: Ledger, method: str) -> None:
    with pytest.raises(RunDescriptionError, match="drafter of its own"):
        build_plan(target, method=method, draft_tokens=3)


def test_sequential_drafting_needs_k(target: Ledger) -> None:
    with pytest.raises(RunDescriptionError, match="pass of its own"):
        build_plan(target, method="mtp")


def test_two_ranks_halve_each_read(target: Ledger) -> None:
    one, two = build_plan(target).reads, build_plan(target, ranks=2).reads
    assert all(2 * b.weight_bytes - a.weight_bytes in (0, 1) for a, b in zip(one, two, strict=True))
    assert {read.basis for read in two} == {"derived"}
