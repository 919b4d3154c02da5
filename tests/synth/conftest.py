"""Synthetic traces that several tests look at, and a small dense model made up for them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tracebook.synth import Synthetic, synthesize

from .exports import FIXTURES

HIDDEN, LAYERS, VOCABULARY = 1024, 4, 32_000
SHAPES = {
    "self_attn.q_proj": (1024, 1024),
    "self_attn.k_proj": (256, 1024),
    "self_attn.v_proj": (256, 1024),
    "self_attn.o_proj": (1024, 1024),
    "mlp.gate_proj": (4096, 1024),
    "mlp.up_proj": (4096, 1024),
    "mlp.down_proj": (1024, 4096),
}


def write_dense_bundle(path: Path) -> None:
    """Headers of a BF16 transformer with four full-attention layers."""
    tensors = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        for module, shape in SHAPES.items():
            tensors[f"model.layers.{layer}.{module}.weight"] = shape
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = (HIDDEN,)
    tensors |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    length = len(json.dumps(header, separators=(",", ":")).encode())
    file = {"size": 8 + (length + 7) // 8 * 8 + offset, "header": header}
    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }
    bundle = {"files": {"model.safetensors": file}, "config": config, "index": None}
    path.write_bytes(gzip.compress(json.dumps(bundle).encode(), mtime=0))


@pytest.fixture
def dense_run(tmp_path: Path) -> Path:
    """Run description of the small dense model, with the defaults of [synth]."""
    write_dense_bundle(tmp_path / "dense.headers.json.gz")
    run = tmp_path / "run.toml"
    run.write_text('[target]\ncheckpoint = "dense.headers.json.gz"\n')
    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Synthetic]:
    """The fixtures' runs, made anew."""
    folder = tmp_path_factory.mktemp("synthetic")
    return {
        name: synthesize(FIXTURES / name / "run.toml", folder / f"{name}.sqlite")
        for name in ("plain-nvfp4", "plain-fp8", "mtp3", "full-recipe")
    }
