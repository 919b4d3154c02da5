"""Architectures by small headers: every tensor has its role, the plan reads what it must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_files import Tensors

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import Ledger, build_ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_builder import build_plan

H, F, V = 64, 128, 512
BF16 = 2


def dense_layer(prefix: str, *, mlp: bool = True) -> dict[str, tuple[str, list[int]]]:
    shapes = {
        "self_attn.q_proj.weight": [H, H],
        "self_attn.k_proj.weight": [H // 4, H],
        "self_attn.v_proj.weight": [H // 4, H],
        "self_attn.o_proj.weight": [H, H],
        "input_layernorm.weight": [H],
        "post_attention_layernorm.weight": [H],
    }
    if mlp:
        shapes |= {
            "mlp.gate_proj.weight": [F, H],
            "mlp.up_proj.weight": [F, H],
            "mlp.down_proj.weight": [H, F],
        }
    return {f"{prefix}.{name}": ("BF16", shape) for name, shape in shapes.items()}


def bf16(names: dict[str, list[int]]) -> dict[str, tuple[str, list[int]]]:
    return {name: ("BF16", shape) for name, shape in names.items()}


ENDS = bf16(
    {"model.embed_tokens.weight": [V, H], "model.norm.weight": [H], "lm_head.weight": [V, H]}
)
DENSE = (H * H * 2 + H // 4 * H * 2 + 3 * F * H + 2 * H) * BF16  # bytes of one dense layer


@pytest.fixture
def ledger(write: Callable[..., Path]) -> Callable[..., Ledger]:
    def _ledger(tensors: Tensors, name: str = "model.safetensors", **config: Any) -> Ledger:
        return build_ledger(read_checkpoint(write(tensors, name, **config)))

    return _ledger


def assert_known(ledger: Ledger, family: str) -> None:
    assert ledger.family == family
    assert [n.message for n in ledger.notices] == []
    assert ledger.modules["bytes"].sum() == ledger.payload_bytes


def total(plan: Plan) -> int:
    reads = sum(read.weight_bytes for read in plan.reads if not read.optional)
    return reads + sum(plan.small_bytes.values())


def ops(plan: Plan, layer: int) -> list[str]:
    return [read.op for read in plan.blocks[0].reads if read.layer == layer]


def test_dense(ledger: Callable[..., Ledger]) -> None:
    found = ledger({**dense_layer("model.layers.0"), **dense_layer("model.layers.1"), **ENDS})
    assert_known(found, "dense")
    plan = build_plan(found)
    assert total(plan) == 2 * DENSE + H * BF16 + V * H * BF16 == found.read_per_step
    assert plan.attention_layers == (0, 1)


def test_tied_embedding_is_read_as_the_output_layer(ledger: Callable[..., Ledger]) -> None:
    ends = {name: value for name, value in ENDS.items() if name != "lm_head.weight"}
    found = ledger({**dense_layer("model.layers.0"), **ends}, tie_word_embeddings=True)
    assert_known(found, "dense")
    (head,) = build_plan(found).blocks[1].reads
    assert (head.matrix, head.weight_bytes) == ("embed_tokens", V * H * BF16)


def test_config_that_denies_a_missing_head_is_not_overruled(ledger: Callable[..., Ledger]) -> None:
    ends = {name: value for name, value in ENDS.items() if name != "lm_head.weight"}
    found = ledger({**dense_layer("model.layers.0"), **ends}, tie_word_embeddings=False)
    assert [notice.code for notice in found.notices] == ["no_output_layer"]
    assert not found.is_target


def test_config_that_says_tied_beside_two_tables(ledger: Callable[..., Ledger]) -> None:
    found = ledger({**dense_layer("model.layers.0"), **ENDS}, tie_word_embeddings=True)
    assert [notice.code for notice in found.notices] == ["tied_but_both"]
    assert total(build_plan(found)) == DENSE + H * BF16 + V * H * BF16


def test_fused_projections(ledger: Callable[..., Ledger]) -> None:
    layer = {
        "self_attn.qkv_proj.weight": [H + H // 2, H],
        "self_attn.o_proj.weight": [H, H],
        "mlp.gate_up_proj.weight": [2 * F, H],
        "mlp.down_proj.weight": [H, F],
    }
    found = ledger({**bf16({f"model.layers.0.{k}": v for k, v in layer.items()}), **ENDS})
    assert_known(found, "dense")
    assert ops(build_plan(found), 0) == ["qkv", "o", "gate_up", "down"]


EXPERT = 3 * F * H * BF16


def moe_layer(prefix: str, experts: int) -> dict[str, tuple[str, list[int]]]:
    tensors = dense_layer(prefix, mlp=False)
    for expert in range(experts):
        tensors |= bf16(
            {
                f"{prefix}.mlp.experts.{expert}.gate_proj.weight": [F, H],
                f"{prefix}.mlp.experts.{expert}.up_proj.weight": [F, H],
                f"{prefix}.mlp.experts.{expert}.down_proj.weight": [H, F],
            }
        )
    return tensors | bf16(
        {
            f"{prefix}.mlp.gate.weight": [experts, H],
            f"{prefix}.mlp.shared_expert.gate_proj.weight": [F, H],
            f"{prefix}.mlp.shared_expert.up_proj.weight": [F, H],
            f"{prefix}.mlp.shared_expert.down_proj.weight": [H, F],
            f"{prefix}.mlp.shared_expert_gate.weight": [1, H],
        }
    )


def expert_bytes(plan: Plan) -> int:
    return sum(read.weight_bytes for read in plan.reads if read.op.startswith("experts"))


def test_experts_one_by_one(ledger: Callable[..., Ledger]) -> None:
    found = ledger({**moe_layer("model.layers.0", 8), **ENDS}, num_experts=8, num_experts_per_tok=2)
    assert_known(found, "moe")
    plan = build_plan(found)
    assert expert_bytes(plan) == 2 * EXPERT
    assert ops(plan, 0) == [
        "q", "k", "v", "o", "router", "shared_gate", "shared_up", "shared_down",
        "experts_gate", "experts_up", "experts_down",
    ]  # fmt: skip
    assert total(plan) == found.read_per_step - 6 * EXPERT
    assert {r.basis for r in plan.reads if r.op.startswith("experts")} == {"derived"}


def test_verifying_more_positions_reads_more_experts(ledger: Callable[..., Ledger]) -> None:
    tensors = {**moe_layer("model.layers.0", 8), **ENDS, **dense_layer("mtp.layers.0")}
    found = ledger(tensors, num_experts=8, num_experts_per_tok=2)
    plan = build_plan(found, method="mtp", draft_tokens=2)
    # 8 (1 - (1 - 2/8)^3) = 4.625 distinct experts for three positions
    assert expert_bytes(plan) == pytest.approx(4.625 * EXPERT, abs=3)


def test_experts_without_config_are_all_counted_and_said(ledger: Callable[..., Ledger]) -> None:
    plan = build_plan(ledger({**moe_layer("model.layers.0", 4), **ENDS}))
    assert expert_bytes(plan) == 4 * EXPERT
    assert [notice.code for notice in plan.notices] == ["experts_unknown"]


def test_fused_experts(ledger: Callable[..., Ledger]) -> None:
    tensors = dense_layer("model.layers.0", mlp=False) | bf16(
        {
            "model.layers.0.mlp.experts.gate_up_proj": [8, 2 * F, H],
            "model.layers.0.mlp.experts.down_proj": [8, H, F],
            "model.layers.0.mlp.gate.weight": [8, H],
        }
    )
    found = ledger({**tensors, **ENDS}, num_experts=8, num_experts_per_tok=1)
    assert_known(found, "moe")
    assert expert_bytes(build_plan(found)) == EXPERT


def test_gpt_oss(ledger: Callable[..., Ledger]) -> None:
    layer = "model.layers.0"
    tensors: Tensors = {
        **dense_layer(layer, mlp=False),
        f"{layer}.self_attn.sinks": ("BF16", [8]),
        f"{layer}.mlp.router.weight": ("BF16", [4, H]),
        f"{layer}.mlp.router.bias": ("BF16", [4]),
        f"{layer}.mlp.experts.gate_up_proj_blocks": ("U8", [4, 2 * F, H // 32, 16]),
        f"{layer}.mlp.experts.gate_up_proj_scales": ("U8", [4, 2 * F, H // 32]),
        f"{layer}.mlp.experts.gate_up_proj_bias": ("BF16", [4, 2 * F]),
        f"{layer}.mlp.experts.down_proj_blocks": ("U8", [4, H, F // 32, 16]),
        f"{layer}.mlp.experts.down_proj_scales": ("U8", [4, H, F // 32]),
        f"{layer}.mlp.experts.down_proj_bias": ("BF16", [4, H]),
        **ENDS,
    }
    found = ledger(tensors, num_local_experts=4, num_experts_per_tok=4)
    assert_known(found, "moe")
    weights = 3 * 4 * F * H * 17 // 32 + 4 * (2 * F + H) * BF16
    assert expert_bytes(build_plan(found)) == weights


def test_latent_attention_and_the_mtp_layer_behind_the_last(ledger: Callable[..., Ledger]) -> None:
    def layer(index: int) -> dict[str, tuple[str, list[int]]]:
        names = {
            "self_attn.q_a_proj.weight": [32, H],
            "self_attn.q_a_layernorm.weight": [32],
            "self_attn.q_b_proj.weight": [H, 32],
            "self_attn.kv_a_proj_with_mqa.weight": [40, H],
            "self_attn.kv_a_layernorm.weight": [32],
            "self_attn.kv_b_proj.weight": [H, 32],
            "self_attn.o_proj.weight": [H, H],
            "mlp.gate_proj.weight": [F, H],
            "mlp.up_proj.weight": [F, H],
            "mlp.down_proj.weight": [H, F],
        }
        return bf16({f"model.layers.{index}.{name}": shape for name, shape in names.items()})

    behind = {
        "eh_proj.weight": [H, 2 * H],
        "enorm.weight": [H],
        "hnorm.weight": [H],
        "shared_head.head.weight": [V, H],
        "shared_head.norm.weight": [H],
        "embed_tokens.weight": [V, H],
    }
    extra = bf16({f"model.layers.2.{name}": shape for name, shape in behind.items()})
    found = ledger({**layer(0), **layer(1), **layer(2), **extra, **ENDS}, num_hidden_layers=2)
    assert_known(found, "deepseek")
    plan = build_plan(found)
    assert plan.attention_layers == (0, 1)
    assert total(plan) == found.read_per_step
    assert ops(plan, 1) == ["q_a", "kv_a", "q_b", "kv_b", "o", "gate", "up", "down"]
    drafting = build_plan(found, method="mtp", draft_tokens=1)
    draft, head = drafting.blocks[2:]
    assert [read.op for read in draft.reads][:2] == ["fc", "q_a"]
    assert {read.layer for read in draft.reads} == {0}
    assert head.reads[0].matrix == "shared_head.head"


@pytest.mark.parametrize(
    ("prefix", "outside", "family"),
    [
        ("mtp.layers.0", {"mtp.fc.weight": [H, 2 * H], "mtp.norm.weight": [H]}, "mtp_dense"),
        ("model.mtp.layers.0", {"model.mtp.layers.0.input_proj.weight": [H, 2 * H]}, "mtp_dense"),
        ("model.mtp_layers.0", {"model.mtp_layers.0.input_proj.weight": [H, 2 * H]}, "mtp_dense"),
    ],
)
def test_names_of_mtp_heads(
    ledger: Callable[..., Ledger], prefix: str, outside: dict[str, list[int]], family: str
) -> None:
    found = ledger(
        {**dense_layer("model.layers.0"), **dense_layer(prefix), **bf16(outside), **ENDS}
    )
    assert_known(found, family)
    plain = total(build_plan(found))
    assert plain == DENSE + H * BF16 + V * H * BF16
    two = total(build_plan(found, method="mtp", draft_tokens=2))
    assert two == plain + 2 * (found.bytes_of("mtp") + V * H * BF16)


def test_hybrid_with_mamba(ledger: Callable[..., Ledger]) -> None:
    def at(index: int, names: dict[str, list[int]]) -> dict[str, tuple[str, list[int]]]:
        return bf16({f"backbone.layers.{index}.{name}": shape for name, shape in names.items()})

    tensors = {
        **at(0, {"norm.weight": [H], "mixer.in_proj.weight": [200, H], "mixer.A_log": [4]}),
        **at(0, {"mixer.conv1d.weight": [80, 1, 4], "mixer.out_proj.weight": [H, H]}),
        **at(1, {"norm.weight": [H], "mixer.up_proj.weight": [F, H]}),
        **at(1, {"mixer.down_proj.weight": [H, F]}),
        **at(2, {"norm.weight": [H], "mixer.q_proj.weight": [H, H], "mixer.k_proj.weight": [8, H]}),
        **at(2, {"mixer.v_proj.weight": [8, H], "mixer.o_proj.weight": [H, H]}),
        **bf16({"backbone.embeddings.weight": [V, H], "backbone.norm_f.weight": [H]}),
        **bf16({"lm_head.weight": [V, H]}),
    }
    found = ledger(tensors)
    assert_known(found, "mamba")
    plan = build_plan(found)
    assert (plan.recurrent_layers, plan.attention_layers) == ((0,), (2,))
    assert [ops(plan, i) for i in range(3)] == [
        ["in", "out"],
        ["up", "down"],
        ["q", "k", "v", "o"],
    ]
    assert total(plan) == found.read_per_step


def test_fused_gated_deltanet(ledger: Callable[..., Ledger]) -> None:
    names = {
        "linear_attn.in_proj_qkvz.weight": [96, H],
        "linear_attn.in_proj_ba.weight": [8, H],
        "linear_attn.out_proj.weight": [H, H],
        "linear_attn.conv1d.weight": [64, 1, 4],
    }
    layer = bf16({f"model.layers.0.{name}": shape for name, shape in names.items()})
    found = ledger({**layer, **moe_layer("model.layers.1", 2), **ENDS})
    assert_known(found, "qwen3_5")
    plan = build_plan(found)
    assert ops(plan, 0) == ["qkvz", "ba", "out"]
    assert (plan.recurrent_layers, plan.attention_layers) == ((0,), (1,))


def test_eagle3_with_a_vocabulary_of_its_own(ledger: Callable[..., Ledger]) -> None:
    target = ledger({**dense_layer("model.layers.0"), **ENDS}, "target.safetensors")
    tensors: Tensors = {
        **dense_layer("midlayer"),
        "midlayer.hidden_norm.weight": ("BF16", [H]),
        "fc.weight": ("BF16", [H, 3 * H]),
        "norm.weight": ("BF16", [H]),
        "lm_head.weight": ("BF16", [V // 4, H]),
        "d2t": ("I64", [V // 4]),
        "t2d": ("BOOL", [V]),
    }
    drafter = ledger(tensors, "drafter.safetensors")
    assert_known(drafter, "eagle3")
    assert drafter.bytes_of("never_read") == V // 4 * 8 + V
    plan = build_plan(target, drafter=drafter, method="eagle3", draft_tokens=2)
    names = [(block.name, block.pass_index) for block in plan.blocks[2:]]
    assert names == [
        ("draft_context", 0),
        ("draft", 0),
        ("draft_head", 0),
        ("draft", 1),
        ("draft_head", 1),
    ]
    assert plan.blocks[-1].reads[0].weight_bytes == V // 4 * H * BF16


def test_drafter_that_is_a_model(ledger: Callable[..., Ledger]) -> None:
    target = ledger({**dense_layer("model.layers.0"), **ENDS}, "target.safetensors")
    plan = build_plan(target, drafter=target, method="draft_model", draft_tokens=3)
    assert total(plan) == 4 * target.read_per_step


def test_vision_audio_and_projector_are_never_read(ledger: Callable[..., Ledger]) -> None:
    towers = bf16(
        {
            "vision_tower.blocks.0.attn.qkv.weight": [H, H],
            "audio_tower.layers.0.fc1.weight": [H, H],
            "multi_modal_projector.linear_1.weight": [H, H],
        }
    )
    layers = {f"language_{k}": v for k, v in dense_layer("model.model.layers.0").items()}
    ends = bf16(
        {
            "language_model.model.embed_tokens.weight": [V, H],
            "language_model.model.norm.weight": [H],
            "language_model.lm_head.weight": [V, H],
        }
    )
    found = ledger({**towers, **layers, **ends})
    assert_known(found, "dense")
    assert found.bytes_of("vision") == 2 * H * H * BF16
    assert found.bytes_of("audio") == H * H * BF16
    assert total(build_plan(found)) == DENSE + H * BF16 + V * H * BF16


def test_lora_adapter(ledger: Callable[..., Ledger]) -> None:
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    found = ledger(bf16({f"{name}.lora_A.weight": [8, H], f"{name}.lora_B.weight": [H, 8]}))
    assert_known(found, "lora")
    assert found.bytes_of("adapter") == 2 * 8 * H * BF16
    assert not found.is_target


def test_unknown_tensors_are_named_and_still_counted(ledger: Callable[..., Ledger]) -> None:
    odd = bf16({"model.layers.0.hyper_connection.alpha": [H], "oddity.weight": [H, H]})
    found = ledger({**dense_layer("model.layers.0"), **ENDS, **odd})
    (notice,) = found.notices
    assert notice.code == "unassigned"
    assert "hyper_connection.alpha" in notice.message
    assert found.bytes_of("unassigned") == (H + H * H) * BF16
    assert total(build_plan(found)) == DENSE + H * BF16 + V * H * BF16


def test_nothing_known(ledger: Callable[..., Ledger]) -> None:
    found = ledger(bf16({"a.b.c": [H], "x": [H]}))
    assert found.family == "unknown"
    assert found.bytes_of("unassigned") == 2 * H * BF16


def test_more_sequences_are_routed_to_more_experts(ledger: Callable[..., Ledger]) -> None:
    found = ledger({**moe_layer("model.layers.0", 8), **ENDS}, num_experts=8, num_experts_per_tok=2)
    # 8 (1 - (1 - 2/8)^4) = 5.46875 distinct experts for four sequences
    assert expert_bytes(build_plan(found, batch=4)) == pytest.approx(5.46875 * EXPERT, abs=3)


def test_the_first_draft_pass_takes_in_all_verified_positions(
    ledger: Callable[..., Ledger],
) -> None:
    tensors = {
        **dense_layer("model.layers.0"),
        **ENDS,
        **moe_layer("mtp.layers.0", 8),
        **bf16({"mtp.fc.weight": [H, 2 * H], "mtp.norm.weight": [H]}),
    }
    found = ledger(tensors, num_experts=8, num_experts_per_tok=2)
    plan = build_plan(found, method="mtp", draft_tokens=2)
    per_pass = [
        sum(read.weight_bytes for read in block.reads if read.op.startswith("experts"))
        for block in plan.blocks
        if block.name == "draft"
    ]
    assert per_pass == pytest.approx([4.625 * EXPERT, 2 * EXPERT], abs=3)


def test_ranks_divide_matrices_but_not_what_each_holds_whole(
    ledger: Callable[..., Ledger],
) -> None:
    tensors = {**moe_layer("model.layers.0", 8), **ENDS}
    found = ledger(tensors, num_experts=8, num_experts_per_tok=2, num_key_value_heads=2)
    one, four = build_plan(found), build_plan(found, ranks=4)
    share = {
        b.op: a.weight_bytes / b.weight_bytes for a, b in zip(one.reads, four.reads, strict=True)
    }
    assert share["router"] == 1
    assert share["q"] == share["o"] == share["shared_up"] == share["head"] == 4
    assert share["k"] == share["v"] == 2  # two heads for four ranks: two ranks hold each
    assert share["experts_down"] == pytest.approx(4, rel=1e-3)


def test_gemma_with_embeddings_of_each_layer(ledger: Callable[..., Ledger]) -> None:
    """Gemma 3n: a table of per-layer embeddings is gathered by rows, LAuReL and gates are read."""
    small, layers = 16, 2
    tensors = dict(ENDS) | bf16(
        {
            "model.embed_tokens_per_layer.weight": [V, small * layers],
            "model.per_layer_model_projection.weight": [small * layers, H],
            "model.per_layer_projection_norm.weight": [small],
            "model.altup_projections.0.weight": [H, H],
            "model.altup_unembed_projections.0.weight": [H, H],
        }
    )
    del tensors["lm_head.weight"]
    for layer in range(layers):
        tensors |= dense_layer(f"model.layers.{layer}")
        tensors |= bf16(
            {
                f"model.layers.{layer}.per_layer_input_gate.weight": [small, H],
                f"model.layers.{layer}.per_layer_projection.weight": [H, small],
                f"model.layers.{layer}.post_per_layer_input_norm.weight": [H],
                f"model.layers.{layer}.laurel.linear_left.weight": [small, H],
                f"model.layers.{layer}.laurel.linear_right.weight": [H, small],
                f"model.layers.{layer}.laurel.post_laurel_norm.weight": [H],
                f"model.layers.{layer}.altup.modality_router.weight": [2, H],
                f"model.layers.{layer}.altup.router_norm.weight": [H],
            }
        )
    found = ledger(tensors, tie_word_embeddings=True)
    assert_known(found, "gemma")
    gathered = found.modules.filter(pl.col("read") == "rows")
    assert gathered["module"].to_list() == ["model.embed_tokens_per_layer"]
    plan = build_plan(found)
    assert total(plan) == found.read_per_step == found.payload_bytes - V * small * layers * BF16
    assert {"laurel_left", "laurel_right", "per_layer_gate", "per_layer_projection"} <= set(
        ops(plan, 1)
    )


def test_deepseek_v4_in_its_own_naming(ledger: Callable[..., Ledger]) -> None:
    """I8 pairs of FP4 with E8M0 scales, `attn`, `ffn`, `embed`, `head`, MTP as `mtp.0.`."""

    def layer(prefix: str) -> dict[str, tuple[str, list[int]]]:
        tensors = {
            f"{prefix}.attn.wq_a.weight": ("F8_E4M3", [32, H]),
            f"{prefix}.attn.wq_a.scale": ("F8_E8M0", [1, 1]),
            f"{prefix}.attn.wkv.weight": ("F8_E4M3", [16, H]),
            f"{prefix}.attn.wkv.scale": ("F8_E8M0", [1, 1]),
            f"{prefix}.attn.wo_b.weight": ("F8_E4M3", [H, 32]),
            f"{prefix}.attn.wo_b.scale": ("F8_E8M0", [1, 1]),
            f"{prefix}.attn_norm.weight": ("BF16", [H]),
            f"{prefix}.ffn_norm.weight": ("BF16", [H]),
            f"{prefix}.ffn.gate.weight": ("BF16", [4, H]),
        }
        for expert in range(4):
            for name, (n, k) in {"w1": (F, H), "w2": (H, F), "w3": (F, H)}.items():
                tensors[f"{prefix}.ffn.experts.{expert}.{name}.weight"] = ("I8", [n, k // 2])
                tensors[f"{prefix}.ffn.experts.{expert}.{name}.scale"] = ("F8_E8M0", [n, k // 32])
        return tensors

    tensors = {
        **layer("layers.0"),
        **layer("mtp.0"),
        "mtp.0.e_proj.weight": ("BF16", [H, H]),
        "mtp.0.h_proj.weight": ("BF16", [H, H]),
        "embed.weight": ("BF16", [V, H]),
        "norm.weight": ("BF16", [H]),
        "head.weight": ("BF16", [V, H]),
    }
    found = ledger(tensors, n_routed_experts=4, num_experts_per_tok=2)
    assert found.family == "deepseek_v4"
    experts = found.modules.filter((pl.col("block") == "experts") & (pl.col("part") == "target"))
    assert experts["params"].sum() == 4 * 3 * F * H  # two values in each stored byte
    assert experts["bytes"].sum() == 4 * 3 * (F * H // 2 + F * H // 32)
    assert found.modules.filter(pl.col("part") == "mtp")["bytes"].sum() > 0
    assert found.modules["bytes"].sum() == found.payload_bytes
    plan = build_plan(found, method="mtp", draft_tokens=1)
    assert [block.name for block in plan.blocks] == ["target", "output", "draft", "draft_head"]
    half = sum(r.weight_bytes for r in build_plan(found).reads if r.op.startswith("experts"))
    assert half == experts["bytes"].sum() // 2
