"""State between steps, counted by hand from configs of known models."""

from __future__ import annotations

import json

import pytest
from small_headers import ledger_of

from tracebook.checkpoint.plan_builder import build_plan
from tracebook.checkpoint.state import model_state
from tracebook.config import RunDescription
from tracebook.traffic import Models, step_traffic

H = 64
ENDS = {
    "model.embed_tokens.weight": [512, H],
    "model.norm.weight": [H],
    "lm_head.weight": [512, H],
}


def attention(layer, k_rows=32, *, v=True):
    shapes = {
        "self_attn.q_proj.weight": [H, H],
        "self_attn.k_proj.weight": [k_rows, H],
        "self_attn.o_proj.weight": [H, H],
        "mlp.down_proj.weight": [H, 128],
    }
    if v:
        shapes["self_attn.v_proj.weight"] = [k_rows, H]
    return {f"model.layers.{layer}.{name}": shape for name, shape in shapes.items()}


def moved(ledger, run, **options):
    """(phase, name, direction) -> bytes."""
    plan = build_plan(ledger, ranks=run.tensor_parallel or 1)
    found = step_traffic(Models(ledger), plan, run, **options)
    return {(m.phase, m.name, m.direction): m.bytes for m in found.movements}, found


def test_each_layer_is_read_as_far_back_as_it_looks(tmp_path):
    tensors = {**ENDS, **attention(0), **attention(1), **attention(2)}
    ledger = ledger_of(
        tmp_path,
        tensors,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        sliding_window=100,
        dtype="bfloat16",
    )
    run = RunDescription(context_tokens=1000, kv_dtype="bfloat16", batch=2)
    bytes_of, _ = moved(ledger, run)
    per_token = 2 * 32 * 2  # K and V of 32 values in BF16
    assert bytes_of["target_layers", "kv_cache", "read"] == 2 * per_token * (100 + 100 + 1000)
    assert bytes_of["target_layers", "kv_cache", "write"] == 2 * per_token * 3
    fp8, _ = moved(ledger, RunDescription(context_tokens=1000, kv_dtype="fp8", batch=2))
    assert (
        2 * fp8["target_layers", "kv_cache", "read"]
        == (bytes_of["target_layers", "kv_cache", "read"])
    )


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"sliding_window": 8}, [8, 8]),  # Mistral: every layer
        ({"sliding_window": 8, "use_sliding_window": False}, [None, None]),  # Qwen2
        ({"sliding_window": 8, "sliding_window_pattern": 2}, [8, None]),  # Gemma 3
        ({"sliding_window": 8, "model_type": "gemma2"}, [8, None]),
        ({"sliding_window": 8, "model_type": "gemma3"}, [8, 8]),  # the sixth sees all
        ({"sliding_window": None}, [None, None]),
        ({"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": 6,
          "sliding_window": 8}, [6, None]),  # Llama 4
    ],
)  # fmt: skip
def test_windows_by_the_words_of_each_config(tmp_path, config, windows):
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0), **attention(1)}, **config)
    assert [layer.window for layer in model_state(ledger, "target").attention] == windows


def test_a_layer_that_uses_k_as_v_caches_both(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0, v=False)})
    assert model_state(ledger, "target").attention[0].read_values == 64


def test_layers_that_share_a_cache_write_none(tmp_path):
    tensors = {**ENDS, **attention(0), **attention(1), **attention(2)}
    ledger = ledger_of(tmp_path, tensors, num_kv_shared_layers=1)
    layers = model_state(ledger, "target").attention
    assert [layer.write_values for layer in layers] == [64, 64, 0]
    assert [layer.read_values for layer in layers] == [64, 64, 64]


def latent_layer(prefix="model.layers.0", indexer=False):
    shapes = {
        "self_attn.q_a_proj.weight": [48, H],
        "self_attn.q_b_proj.weight": [96, 48],
        "self_attn.kv_a_proj_with_mqa.weight": [36, H],
        "self_attn.kv_b_proj.weight": [128, 32],
        "self_attn.o_proj.weight": [H, 64],
        "mlp.down_proj.weight": [H, 128],
    }
    if indexer:
        shapes |= {
            "self_attn.indexer.wq_b.weight": [64, 48],
            "self_attn.indexer.wk.weight": [8, H],
            "self_attn.indexer.weights_proj.weight": [4, H],
        }
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def test_latents_are_one_for_all_heads_and_on_every_rank(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **latent_layer()}, kv_lora_rank=32, qk_rope_head_dim=4,
                       num_key_value_heads=4)  # fmt: skip
    run = RunDescription(context_tokens=10, kv_dtype="bfloat16", batch=1)
    one, _ = moved(ledger, run)
    assert one["target_layers", "kv_cache", "read"] == 10 * 36 * 2
    two, _ = moved(ledger, RunDescription(**{**run.__dict__, "tensor_parallel": 2}))
    assert two["target_layers", "kv_cache", "read"] == one["target_layers", "kv_cache", "read"]


def test_sparse_attention_reads_an_index_of_all_and_latents_of_some(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **latent_layer(indexer=True)}, index_topk=4)
    bytes_of, _ = moved(ledger, RunDescription(context_tokens=10, kv_dtype="bfloat16", batch=1))
    assert bytes_of["target_layers", "kv_cache", "read"] == (10 * 8 + 4 * 36) * 2
    assert bytes_of["target_layers", "kv_cache", "write"] == (8 + 36) * 2


def test_heads_are_divided_whole(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0)}, num_key_value_heads=2)
    read = {}
    for ranks in (1, 2, 4):
        run = RunDescription(context_tokens=8, kv_dtype="fp8", batch=1, tensor_parallel=ranks)
        read[ranks] = moved(ledger, run)[0]["target_layers", "kv_cache", "read"]
    assert read == {1: 512, 2: 256, 4: 256}  # two heads: four ranks hold each twice


GDN = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "dtype": "bfloat16",
}


def gdn_layer(layer):
    shapes = {
        "linear_attn.in_proj_qkv.weight": [96, H],
        "linear_attn.in_proj_z.weight": [64, H],
        "linear_attn.in_proj_a.weight": [4, H],
        "linear_attn.in_proj_b.weight": [4, H],
        "linear_attn.out_proj.weight": [H, 64],
        "linear_attn.conv1d.weight": [96, 1, 4],
        "linear_attn.A_log": [4],
        "mlp.down_proj.weight": [H, 128],
    }
    return {f"model.layers.{layer}.{name}": shape for name, shape in shapes.items()}


def test_state_dtype_follows_the_config_and_both_settings_are_named(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **gdn_layer(0)}, **GDN, mamba_ssm_dtype="float32")
    values = 4 * 8 * 16
    bytes_of, found = moved(ledger, RunDescription(batch=1))
    assert bytes_of["target_layers", "recurrent_state", "read"] == values * 4
    assert bytes_of["target_layers", "recurrent_state", "write"] == values * 4
    assert bytes_of["target_layers", "conv_state", "read"] == 96 * 3 * 2
    (notice,) = [n for n in found.notices if n.code == "state_dtype_unsure"]
    assert "--gdn-dtype float32 or --gdn-dtype bfloat16" in notice.hint
    said, found = moved(ledger, RunDescription(batch=1, gdn_dtype="bfloat16"))
    assert said["target_layers", "recurrent_state", "read"] == values * 2
    assert not [n for n in found.notices if n.code == "state_dtype_unsure"]


def test_state_dtype_that_nobody_tells_is_assumed_and_named(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **gdn_layer(0)}, **GDN)
    _, found = moved(ledger, RunDescription(batch=1))
    assert "recurrent state in bfloat16" in found.assumed
    state = [m for m in found.movements if m.name == "recurrent_state"]
    assert {m.basis for m in state} == {"assumed"}


def test_state_without_sizes_is_left_out_and_said(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **gdn_layer(0)}, dtype="bfloat16")
    bytes_of, found = moved(ledger, RunDescription(batch=1))
    assert not [key for key in bytes_of if key[1] == "recurrent_state"]
    assert "recurrent_state_unknown" in [n.code for n in found.notices]


def mamba_layer(a_log):
    shapes = {
        "mixer.in_proj.weight": [400, H],
        "mixer.conv1d.weight": [160, 1, 4],
        "mixer.A_log": a_log,
        "mixer.out_proj.weight": [H, 128],
        "norm.weight": [H],
    }
    return {f"backbone.layers.0.{name}": shape for name, shape in shapes.items()} | {
        "backbone.embeddings.weight": [512, H],
        "backbone.norm_f.weight": [H],
        "lm_head.weight": [512, H],
    }


@pytest.mark.parametrize(
    ("a_log", "config", "state"),
    [
        # Nemotron-H: 8 heads of 16, state 32
        ([8], {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 32}, 8 * 16 * 32),
        # Mamba 1: A_log is [channels, state]
        ([128, 16], {"state_size": 16}, 128 * 16),
    ],
)
def test_state_of_mamba_layers(tmp_path, a_log, config, state):
    ledger = ledger_of(tmp_path, mamba_layer(a_log), dtype="bfloat16", **config)
    (layer,) = model_state(ledger, "target").recurrent
    assert (layer.kind, layer.state_values, layer.conv_channels) == ("mamba", state, 160)


def test_no_context_no_cache_and_a_notice(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0)})
    bytes_of, found = moved(ledger, RunDescription(batch=1))
    assert not [key for key in bytes_of if key[1] == "kv_cache"]
    assert "context_unknown" in [n.code for n in found.notices]


def test_cache_dtype_that_the_checkpoint_leaves_open_is_said(tmp_path):
    quantisation = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0)}, dtype="bfloat16", **quantisation)
    _, found = moved(ledger, RunDescription(batch=1, context_tokens=5))
    assert "kv_dtype_unsure" in [n.code for n in found.notices]
    assert "KV cache in bfloat16" in found.assumed
    assert {m.basis for m in found.movements if m.name == "kv_cache"} == {"assumed"}


def test_wide_batches_say_that_activations_are_missing(tmp_path):
    ledger = ledger_of(tmp_path, {**ENDS, **attention(0)}, dtype="bfloat16")
    _, few = moved(ledger, RunDescription(batch=1))
    _, many = moved(ledger, RunDescription(batch=200_000))
    assert "activations_not_counted" not in [n.code for n in few.notices]
    assert "activations_not_counted" in [n.code for n in many.notices]


def test_the_headers_helper_writes_what_it_says(tmp_path):
    ledger = ledger_of(tmp_path, ENDS, dtype="bfloat16")
    assert json.loads((tmp_path / "config.json").read_text()) == {"dtype": "bfloat16"}
    assert ledger.payload_bytes == 2 * (512 * H * 2 + H)
