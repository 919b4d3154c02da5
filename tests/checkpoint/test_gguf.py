"""GGUF headers, written here byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tracebook.checkpoint.gguf import ggml_types, read_gguf_header
from tracebook.checkpoint.header import read_checkpoint, save_bundle
from tracebook.checkpoint.ledger import build_ledger
from tracebook.checkpoint.plan_builder import build_plan
from tracebook.errors import BadHeader, CheckpointError

F32, Q4_K, Q6_K, NVFP4 = 0, 12, 14, 40


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    inner = b"".join(text(item) for item in value)
    return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + inner


def gguf(
    path: Path, tensors: dict[str, tuple[int, list[int]]], pairs: dict[str, Any], size: int = 0
) -> Path:
    """Write a header; sizes innermost first, offsets 0, `size` more bytes as a hole."""
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    raw += b"".join(pair(key, value) for key, value in pairs.items())
    for name, (kind, sizes) in tensors.items():
        raw += text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        raw += struct.pack("<IQ", kind, 0)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + size)
    return path


TENSORS = {
    "token_embd.weight": (Q4_K, [256, 1000]),
    "output_norm.weight": (F32, [256]),
    "output.weight": (Q6_K, [256, 1000]),
    "blk.0.attn_norm.weight": (F32, [256]),
    "blk.0.attn_q.weight": (Q4_K, [256, 512]),
    "blk.0.attn_k.weight": (Q4_K, [256, 128]),
    "blk.0.attn_v.weight": (Q6_K, [256, 128]),
    "blk.0.attn_output.weight": (Q4_K, [512, 256]),
    "blk.0.ffn_norm.weight": (F32, [256]),
    "blk.0.ffn_gate.weight": (NVFP4, [256, 768]),
    "blk.0.ffn_up.weight": (NVFP4, [256, 768]),
    "blk.0.ffn_down.weight": (NVFP4, [768, 256]),
}
PAIRS = {"general.architecture": "llama", "llama.block_count": 1}


def test_bytes_shapes_and_roles(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", TENSORS, PAIRS, size=1_000_000)
    checkpoint = read_checkpoint(path)
    assert (checkpoint.source, checkpoint.warnings) == ("gguf", ())
    sizes = dict(zip(checkpoint.tensors["name"], checkpoint.tensors["bytes"], strict=True))
    assert sizes["blk.0.attn_q.weight"] == 512 * 144  # one block of 256 in 144 bytes
    assert sizes["blk.0.ffn_gate.weight"] == 768 * 4 * 36
    ledger = build_ledger(checkpoint)
    assert (ledger.family, ledger.notices) == ("gguf", ())
    row = ledger.modules.row(by_predicate=pl.col("op") == "q", named=True)
    assert (row["rows"], row["cols"], row["params"], row["format"]) == (
        512,
        256,
        512 * 256,
        "Q4_K",
    )
    plan = build_plan(ledger)
    ops = [read.op for read in plan.blocks[0].reads]
    assert ops == ["q", "k", "v", "o", "gate", "up", "down"]
    assert plan.blocks[1].reads[0].weight_bytes == 1000 * 210
    total = sum(read.weight_bytes for read in plan.reads) + sum(plan.small_bytes.values())
    assert total == ledger.read_per_step


def test_gated_deltanet_layers_and_the_mtp_layer(tmp_path: Path) -> None:
    tensors = {
        **{name: value for name, value in TENSORS.items() if not name.startswith("blk")},
        "blk.0.attn_norm.weight": (F32, [256]),
        "blk.0.attn_qkv.weight": (Q4_K, [256, 512]),
        "blk.0.attn_gate.weight": (Q4_K, [256, 256]),
        "blk.0.ssm_alpha.weight": (F32, [256, 8]),
        "blk.0.ssm_beta.weight": (F32, [256, 8]),
        "blk.0.ssm_a": (F32, [8]),
        "blk.0.ssm_dt.bias": (F32, [8]),
        "blk.0.ssm_out.weight": (Q4_K, [256, 256]),
        "blk.1.attn_q.weight": (Q4_K, [256, 256]),
        "blk.1.attn_output.weight": (Q4_K, [256, 256]),
        "blk.2.attn_q.weight": (Q4_K, [256, 256]),
        "blk.2.nextn.eh_proj.weight": (Q4_K, [512, 256]),
        "blk.2.nextn.shared_head_norm.weight": (F32, [256]),
    }
    ledger = build_ledger(read_checkpoint(gguf(tmp_path / "m.gguf", tensors, PAIRS, 10**6)))
    assert (ledger.family, ledger.notices) == ("gguf_gdn", ())
    plan = build_plan(ledger, method="mtp", draft_tokens=1)
    assert (plan.recurrent_layers, plan.attention_layers) == ((0,), (1,))
    assert [r.op for r in plan.reads if r.layer == 0][:5] == ["qkv", "z", "b", "a", "out"]
    assert [r.op for r in plan.blocks[2].reads] == ["fc", "q"]


def test_experts(tmp_path: Path) -> None:
    tensors = {
        **TENSORS,
        "blk.0.ffn_gate_inp.weight": (F32, [256, 8]),
        "blk.0.ffn_gate_exps.weight": (Q4_K, [256, 256, 8]),
        "blk.0.ffn_up_exps.weight": (Q4_K, [256, 256, 8]),
        "blk.0.ffn_down_exps.weight": (Q4_K, [256, 256, 8]),
    }
    pairs = {**PAIRS, "llama.expert_count": 8, "llama.expert_used_count": 2}
    ledger = build_ledger(read_checkpoint(gguf(tmp_path / "m.gguf", tensors, pairs, 10**6)))
    plan = build_plan(ledger)
    experts = [read.weight_bytes for read in plan.reads if read.op.startswith("experts")]
    assert experts == [2 * 256 * 144] * 3


def test_header_only_file_is_accepted_with_both_sizes(tmp_path: Path) -> None:
    (notice,) = read_checkpoint(gguf(tmp_path / "m.gguf", TENSORS, PAIRS)).warnings
    assert notice.code == "truncated"


def test_vocabularies_are_stepped_over(tmp_path: Path) -> None:
    pairs = {**PAIRS, "tokenizer.ggml.tokens": [f"t{n}" for n in range(20_000)], "z": 7}
    header = read_gguf_header(gguf(tmp_path / "m.gguf", TENSORS, pairs, 10**6))
    assert header.pairs["tokenizer.ggml.tokens"] is None
    assert header.pairs["z"] == 7
    assert len(header.columns.names) == len(TENSORS)


def test_parts_are_read_together(tmp_path: Path) -> None:
    names = list(TENSORS)
    first = gguf(
        tmp_path / "m-00001-of-00002.gguf", {n: TENSORS[n] for n in names[:6]}, PAIRS, 10**6
    )
    with pytest.raises(CheckpointError, match="1 of 2 parts are missing"):
        read_checkpoint(first)
    gguf(tmp_path / "m-00002-of-00002.gguf", {n: TENSORS[n] for n in names[6:]}, {}, 10**6)
    assert read_checkpoint(first).tensors["name"].to_list() == names
    assert read_checkpoint(tmp_path).tensors.height == len(names)


def test_two_models_in_one_directory(tmp_path: Path) -> None:
    gguf(tmp_path / "a.gguf", TENSORS, PAIRS)
    gguf(tmp_path / "b.gguf", TENSORS, PAIRS)
    with pytest.raises(CheckpointError, match="2 GGUF models"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"GGML\x00\x00\x00\x00", "not a GGUF"),
        (b"version https://git-lfs", "git-lfs pointer"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0), "cut off"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "more entries than bytes"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62), "cut off"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77), "value type"),
    ],
)
def test_broken_files(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(BadHeader, match=words):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("kind", "sizes", "words"), [(99, [256], "unknown ggml type 99"), (Q4_K, [100], "whole Q4_K")]
)
def test_tensors_that_cannot_be(tmp_path: Path, kind: int, sizes: list[int], words: str) -> None:
    with pytest.raises(BadHeader, match=words):
        read_checkpoint(gguf(tmp_path / "m.gguf", {"a.weight": (kind, sizes)}, PAIRS))


def test_no_bundle_of_gguf(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not GGUF"):
        save_bundle(gguf(tmp_path / "m.gguf", TENSORS, PAIRS), tmp_path / "x.json.gz")


def test_type_table_against_the_gguf_package() -> None:
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in package.GGML_QUANT_SIZES.items()}
    ours = {number: (kind.name, kind.block, kind.size) for number, kind in ggml_types().items()}
    assert {number: theirs[number] for number in ours if number in theirs} == ours


def test_state_of_gated_deltanet_follows_from_the_ssm_keys(tmp_path: Path) -> None:
    """Qwen3-Next in GGUF: 4 value heads of 32 on 2 key heads of 16."""
    from tracebook.checkpoint.state import model_state

    tensors = {
        "token_embd.weight": (F32, [64, 100]),
        "output_norm.weight": (F32, [64]),
        "output.weight": (F32, [64, 100]),
        "blk.0.attn_norm.weight": (F32, [64]),
        "blk.0.attn_qkv.weight": (F32, [64, 192]),
        "blk.0.attn_gate.weight": (F32, [64, 128]),
        "blk.0.ssm_ba.weight": (F32, [64, 8]),
        "blk.0.ssm_conv1d.weight": (F32, [4, 192]),
        "blk.0.ssm_a": (F32, [4]),
        "blk.0.ssm_out.weight": (F32, [128, 64]),
        "blk.0.ffn_down.weight": (F32, [64, 64]),
    }
    sizes = {"state_size": 16, "group_count": 2, "time_step_rank": 4, "inner_size": 128}
    pairs: dict[str, Any] = {"general.architecture": "qwen3next", "qwen3next.block_count": 1}
    pairs |= {f"qwen3next.ssm.{key}": value for key, value in sizes.items()}
    ledger = build_ledger(read_checkpoint(gguf(tmp_path / "m.gguf", tensors, pairs)))
    state = model_state(ledger, "target")
    (layer,) = state.recurrent
    assert (layer.kind, layer.state_values) == ("gdn", 4 * 16 * 32)
    assert (layer.conv_channels, layer.conv_taps) == (192, 4)
    assert state.notices == ()
