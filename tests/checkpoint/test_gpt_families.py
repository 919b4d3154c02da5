"""Decoders that name their matrices in their own way: each read in its place, none left over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import build_ledger
from tracebook.checkpoint.plan_builder import build_plan
from tracebook.checkpoint.state import model_state

H, F, V = 64, 256, 512
#: Model -> prefix of a layer, its matrices with rows and columns, its vectors, and what stands
#: outside the layers. Names as the models' own code has them.
MODELS: dict[str, tuple[str, dict[str, list[int]], list[str], dict[str, list[int]]]] = {
    "gpt2": (
        "transformer.h.#.",
        {"attn.c_attn": [H, 3 * H], "attn.c_proj": [H, H], "mlp.c_fc": [H, F],
         "mlp.c_proj": [F, H]},
        ["ln_1", "ln_2"],
        {"transformer.wte": [V, H], "transformer.wpe": [1024, H], "transformer.ln_f": [H]},
    ),
    "gptj": (
        "transformer.h.#.",
        {"attn.q_proj": [H, H], "attn.k_proj": [H, H], "attn.v_proj": [H, H],
         "attn.out_proj": [H, H], "mlp.fc_in": [F, H], "mlp.fc_out": [H, F]},
        ["ln_1"],
        {"transformer.wte": [V, H], "transformer.ln_f": [H], "lm_head": [V, H]},
    ),
    "starcoder2": (
        "model.layers.#.",
        {"self_attn.q_proj": [H, H], "self_attn.k_proj": [H // 4, H],
         "self_attn.v_proj": [H // 4, H], "self_attn.o_proj": [H, H], "mlp.c_fc": [F, H],
         "mlp.c_proj": [H, F]},
        ["input_layernorm", "post_attention_layernorm"],
        {"model.embed_tokens": [V, H], "model.norm": [H]},
    ),
    "gpt_neox": (
        "gpt_neox.layers.#.",
        {"attention.query_key_value": [3 * H, H], "attention.dense": [H, H],
         "mlp.dense_h_to_4h": [F, H], "mlp.dense_4h_to_h": [H, F]},
        ["input_layernorm", "post_attention_layernorm"],
        {"gpt_neox.embed_in": [V, H], "gpt_neox.final_layer_norm": [H], "embed_out": [V, H]},
    ),
    "falcon": (
        "transformer.h.#.",
        {"self_attention.query_key_value": [3 * H, H], "self_attention.dense": [H, H],
         "mlp.dense_h_to_4h": [F, H], "mlp.dense_4h_to_h": [H, F]},
        ["ln_attn", "ln_mlp"],
        {"transformer.word_embeddings": [V, H], "transformer.ln_f": [H], "lm_head": [V, H]},
    ),
    "mpt": (
        "transformer.blocks.#.",
        {"attn.Wqkv": [3 * H, H], "attn.out_proj": [H, H], "ffn.up_proj": [F, H],
         "ffn.down_proj": [H, F]},
        ["norm_1", "norm_2"],
        {"transformer.wte": [V, H], "transformer.norm_f": [H]},
    ),
    "opt": (
        "model.decoder.layers.#.",
        {"self_attn.q_proj": [H, H], "self_attn.k_proj": [H, H], "self_attn.v_proj": [H, H],
         "self_attn.out_proj": [H, H], "fc1": [F, H], "fc2": [H, F]},
        ["self_attn_layer_norm", "final_layer_norm"],
        {"model.decoder.embed_tokens": [V, H], "model.decoder.embed_positions": [1026, H],
         "model.decoder.final_layer_norm": [H]},
    ),
    "phi": (
        "model.layers.#.",
        {"self_attn.q_proj": [H, H], "self_attn.k_proj": [H, H], "self_attn.v_proj": [H, H],
         "self_attn.dense": [H, H], "mlp.fc1": [F, H], "mlp.fc2": [H, F]},
        ["input_layernorm"],
        {"model.embed_tokens": [V, H], "model.final_layernorm": [H], "lm_head": [V, H]},
    ),
    "chatglm": (
        "transformer.encoder.layers.#.",
        {"self_attention.query_key_value": [H + 32, H], "self_attention.dense": [H, H],
         "mlp.dense_h_to_4h": [2 * F, H], "mlp.dense_4h_to_h": [H, F]},
        ["input_layernorm", "post_attention_layernorm"],
        {"transformer.embedding.word_embeddings": [V, H],
         "transformer.encoder.final_layernorm": [H], "transformer.output_layer": [V, H]},
    ),
    "internlm2": (
        "model.layers.#.",
        {"attention.wqkv": [H + 32, H], "attention.wo": [H, H], "feed_forward.w1": [F, H],
         "feed_forward.w3": [F, H], "feed_forward.w2": [H, F]},
        ["attention_norm", "ffn_norm"],
        {"model.tok_embeddings": [V, H], "model.norm": [H], "output": [V, H]},
    ),
    "qwen": (
        "transformer.h.#.",
        {"attn.c_attn": [3 * H, H], "attn.c_proj": [H, H], "mlp.w1": [F, H], "mlp.w2": [F, H],
         "mlp.c_proj": [H, F]},
        ["ln_1", "ln_2"],
        {"transformer.wte": [V, H], "transformer.ln_f": [H], "lm_head": [V, H]},
    ),
    "baichuan": (
        "model.layers.#.",
        {"self_attn.W_pack": [3 * H, H], "self_attn.o_proj": [H, H], "mlp.gate_proj": [F, H],
         "mlp.up_proj": [F, H], "mlp.down_proj": [H, F]},
        ["input_layernorm", "post_attention_layernorm"],
        {"model.embed_tokens": [V, H], "model.norm": [H], "lm_head": [V, H]},
    ),
}  # fmt: skip
HEADS = ("lm_head", "embed_out", "transformer.output_layer", "output")
LOOKED_UP = ("wpe", "embed_positions")


def tensors(model: str, layers: int = 2) -> dict[str, tuple[str, list[int]]]:
    prefix, matrices, vectors, ends = MODELS[model]
    found = {f"{name}.weight": shape for name, shape in ends.items()}
    for i in range(layers):
        layer = {f"{name}.weight": shape for name, shape in matrices.items()}
        layer |= {f"{name}.bias": [H] for name in [*matrices, *vectors]}
        layer |= {f"{name}.weight": [H] for name in vectors}
        found |= {prefix.replace("#", str(i)) + name: shape for name, shape in layer.items()}
    return {name: ("BF16", shape) for name, shape in found.items()}


@pytest.mark.parametrize("model", MODELS)
def test_every_matrix_is_read_once_a_step(write: Callable[..., Path], model: str) -> None:
    _, matrices, _, ends = MODELS[model]
    tied = not any(name in ends for name in HEADS)
    ledger = build_ledger(
        read_checkpoint(write(tensors(model), model_type=model, tie_word_embeddings=tied))
    )
    assert ledger.family == "gpt"
    assert [n.message for n in ledger.notices] == []
    plan = build_plan(ledger)
    read = [r for r in plan.reads if r.layer is not None]
    size = {name: 2 * shape[0] * shape[1] for name, shape in matrices.items()}
    assert len(read) == 2 * len(matrices)
    assert all(abs(r.weight_bytes - size[r.matrix]) <= 2 * H for r in read)
    (head,) = [r for r in plan.reads if r.op == "head"]
    assert head.weight_bytes == 2 * V * H
    assert plan.attention_layers == (0, 1)
    assert read[len(matrices) - 1].op == "down"


@pytest.mark.parametrize("model", ["gpt2", "opt"])
def test_positions_are_looked_up(write: Callable[..., Path], model: str) -> None:
    ledger = build_ledger(
        read_checkpoint(write(tensors(model), model_type=model, tie_word_embeddings=True))
    )
    tables = ledger.modules.filter(ledger.modules["module"].str.contains("|".join(LOOKED_UP)))
    assert tables["block"].to_list() == ["gather_table"]


@pytest.mark.parametrize(
    ("model", "config", "values"),
    [
        ("gpt2", {"n_head": 4, "n_embd": H}, 2 * H),
        ("gpt_neox", {"num_attention_heads": 4, "hidden_size": H}, 2 * H),
        ("falcon", {"num_attention_heads": 4, "hidden_size": H, "multi_query": True}, 2 * H // 4),
        ("falcon", {"num_attention_heads": 8, "num_kv_heads": 2, "hidden_size": H}, 2 * H // 4),
        ("chatglm", {"kv_channels": 16, "multi_query_group_num": 2}, 64),
        ("gpt2", {}, None),
    ],
)
def test_the_cache_of_fused_projections(
    write: Callable[..., Path], model: str, config: dict[str, object], values: int | None
) -> None:
    ledger = build_ledger(read_checkpoint(write(tensors(model), model_type=model, **config)))
    state = model_state(ledger, "target")
    assert [layer.write_values for layer in state.attention] == ([values] * 2 if values else [])
