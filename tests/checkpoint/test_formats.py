"""Every storage format by a small header: name, logical shape, weights and bits per weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import BITS, Tensors, header_of, write_header

from tracebook.checkpoint.formats import parse_formats
from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import build_ledger
from tracebook.errors import RuleError
from tracebook.printable import printable

N, K = 256, 512
M = "model.layers.0.mlp.down_proj"
EXPERTS = "model.layers.0.mlp.experts.gate_up_proj"
CT_INT4 = {"config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}
CT_INT8 = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": None}}}}

Case = tuple[str, Tensors, dict[str, Any], tuple[int | None, int | None], int | None]

CASES: list[Case] = [
    (
        "nvfp4",
        {
            f"{M}.weight_packed": ("U8", [N, K // 2]),
            f"{M}.weight_scale": ("F8_E4M3", [N, K // 16]),
            f"{M}.weight_global_scale": ("F32", [1]),
            f"{M}.input_global_scale": ("F32", [1]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "mxfp4",
        {
            f"{M}.weight_packed": ("U8", [N, K // 2]),
            f"{M}.weight_scale": ("U8", [N, K // 32]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "mxfp8",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.weight_scale": ("U8", [N, K // 32])},
        {},
        (N, K),
        N * K,
    ),
    (
        "int-packed",
        {
            f"{M}.weight_packed": ("I32", [N, K // 8]),
            f"{M}.weight_scale": ("BF16", [N, K // 128]),
            f"{M}.weight_shape": ("I64", [2]),
        },
        {"quantization_config": CT_INT4},
        (N, K),
        N * K,
    ),
    (
        "int-packed",
        {
            f"{M}.weight_packed": ("I32", [N, K // 4]),
            f"{M}.weight_scale": ("BF16", [N, 1]),
            f"{M}.weight_shape": ("I64", [2]),
        },
        {"quantization_config": CT_INT8},
        (N, K),
        N * K,
    ),
    (
        "int-packed",  # 3 bits: the group index tells k, no config needed
        {
            f"{M}.weight_packed": ("I32", [N, K * 3 // 32]),
            f"{M}.weight_scale": ("F16", [N, K // 128]),
            f"{M}.weight_shape": ("I64", [2]),
            f"{M}.weight_zero_point": ("I32", [N // 8, K // 128]),
            f"{M}.weight_g_idx": ("I32", [K]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "int-packed",  # neither config nor index: format known, size not
        {
            f"{M}.weight_packed": ("I32", [N, K // 8]),
            f"{M}.weight_scale": ("BF16", [N, K // 128]),
            f"{M}.weight_shape": ("I64", [2]),
        },
        {},
        (N, None),
        None,
    ),
    (
        "marlin-24",
        {
            f"{M}.weight_packed": ("I32", [K // 32, N * 2]),
            f"{M}.scale_packed": ("F16", [K // 128, N]),
            f"{M}.meta": ("I16", [K, N // 8]),
        },
        {},
        (None, None),
        None,
    ),
    (
        "sparse-bitmask",
        {
            f"{M}.compressed": ("BF16", [N * K // 2]),
            f"{M}.bitmask": ("U8", [N, K // 8]),
            f"{M}.shape": ("I64", [2]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "nvfp4-modelopt",
        {
            f"{M}.weight": ("U8", [N, K // 2]),
            f"{M}.weight_scale": ("F8_E4M3", [N, K // 16]),
            f"{M}.weight_scale_2": ("F32", []),
            f"{M}.input_scale": ("F32", []),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "fp8-tensor",
        {
            f"{M}.weight": ("F8_E4M3", [N, K]),
            f"{M}.weight_scale": ("F32", []),
            f"{M}.input_scale": ("F32", []),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "fp8-channel",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.weight_scale": ("BF16", [N, 1])},
        {},
        (N, K),
        N * K,
    ),
    (
        "fp8-group",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.weight_scale": ("BF16", [2, 4])},
        {},
        (N, K),
        N * K,
    ),
    (
        "fp8-block",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.weight_scale_inv": ("F32", [2, 4])},
        {},
        (N, K),
        N * K,
    ),
    (
        "mxfp4-i8",
        {f"{M}.weight": ("I8", [N, K // 2]), f"{M}.scale": ("F8_E8M0", [N, K // 32])},
        {},
        (N, K),
        N * K,
    ),
    (
        "fp8-block-e8m0",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.scale": ("F8_E8M0", [2, 4])},
        {},
        (N, K),
        N * K,
    ),
    (
        "mxfp4-blocks",
        {
            f"{EXPERTS}_blocks": ("U8", [4, N, K // 32, 16]),
            f"{EXPERTS}_scales": ("U8", [4, N, K // 32]),
            f"{EXPERTS}_bias": ("BF16", [4, N]),
        },
        {},
        (N, K),
        4 * N * K + 4 * N,
    ),
    (
        "int8",
        {f"{M}.weight": ("I8", [N, K]), f"{M}.weight_scale": ("BF16", [N, 1])},
        {},
        (N, K),
        N * K,
    ),
    (
        "int8-bitsandbytes",
        {
            f"{M}.weight": ("I8", [N, K]),
            f"{M}.SCB": ("F32", [N]),
            f"{M}.weight_format": ("U8", []),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "nf4-bitsandbytes",
        {
            f"{M}.weight": ("U8", [N * K // 2, 1]),
            f"{M}.weight.absmax": ("U8", [N * K // 64]),
            f"{M}.weight.quant_map": ("F32", [16]),
            f"{M}.weight.nested_absmax": ("F32", [N * K // 64 // 256]),
            f"{M}.weight.nested_quant_map": ("F32", [256]),
            f"{M}.weight.quant_state.bitsandbytes__nf4": ("U8", [100]),
        },
        {},
        (None, None),
        N * K,
    ),
    (
        "gptq",  # 4 bits, k from the group index
        {
            f"{M}.qweight": ("I32", [K // 8, N]),
            f"{M}.qzeros": ("I32", [K // 128, N // 8]),
            f"{M}.scales": ("F16", [K // 128, N]),
            f"{M}.g_idx": ("I32", [K]),
            f"{M}.bias": ("F16", [N]),
        },
        {},
        (N, K),
        N * K + N,
    ),
    (
        "gptq",  # 3 bits without index, from the config
        {
            f"{M}.qweight": ("I32", [K * 3 // 32, N]),
            f"{M}.qzeros": ("I32", [K // 128, N * 3 // 32]),
            f"{M}.scales": ("F16", [K // 128, N]),
        },
        {"quantization_config": {"bits": 3}},
        (N, K),
        N * K,
    ),
    (
        "awq",
        {
            f"{M}.qweight": ("I32", [K, N // 8]),
            f"{M}.qzeros": ("I32", [K // 128, N // 8]),
            f"{M}.scales": ("F16", [K // 128, N]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "torchao",
        {
            f"{M}._weight_qdata": ("F8_E4M3", [N, K]),
            f"{M}._weight_scale": ("F32", [N, 1]),
        },
        {},
        (N, K),
        N * K,
    ),
    (
        "torchao",  # packed: the headers leave the size open
        {
            f"{M}._weight_qdata": ("U8", [N, K // 2]),
            f"{M}._weight_scale": ("BF16", [K // 128, N]),
            f"{M}._weight_zero_point": ("BF16", [K // 128, N]),
        },
        {},
        (None, None),
        None,
    ),
    (
        "hqq",
        {
            f"{M}.W_q": ("U8", [N * K // 64 // 2, 64]),
            f"{M}.scale": ("F16", [N * K // 64, 1]),
            f"{M}.zero": ("F16", [N * K // 64, 1]),
            f"{M}.nbits": ("I32", []),
        },
        {
            "quantization_config": {
                "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}
            }
        },
        (None, None),
        N * K,
    ),
    (
        "mlx",
        {
            f"{M}.weight": ("U32", [N, K * 4 // 32]),
            f"{M}.scales": ("BF16", [N, K // 64]),
            f"{M}.biases": ("BF16", [N, K // 64]),
        },
        {"quantization": {"group_size": 64, "bits": 4}},
        (N, K),
        N * K,
    ),
    (
        "mlx-fp",
        {f"{M}.weight": ("U32", [N, K * 4 // 32]), f"{M}.scales": ("U8", [N, K // 16])},
        {"quantization": {"mode": "nvfp4"}},
        (N, K),
        N * K,
    ),
    (
        "exl3",  # 3 bits
        {
            f"{M}.trellis": ("I16", [K // 16, N // 16, 48]),
            f"{M}.suh": ("F16", [K]),
            f"{M}.svh": ("F16", [N]),
            f"{M}.mcg": ("I32", []),
        },
        {},
        (N, K),
        N * K,
    ),
    ("BF16", {f"{M}.weight": ("BF16", [N, K]), f"{M}.bias": ("BF16", [N])}, {}, (N, K), N * K + N),
    ("F16", {f"{M}.weight": ("F16", [N, K])}, {}, (N, K), N * K),
    ("F32", {f"{M}.weight": ("F32", [N, K])}, {}, (N, K), N * K),
    ("F4", {f"{M}.weight": ("F4", [N, K])}, {}, (N, K), N * K),
    ("F6_E2M3", {f"{M}.weight": ("F6_E2M3", [N, K])}, {}, (N, K), N * K),
    ("F8_E4M3FNUZ", {f"{M}.weight": ("F8_E4M3FNUZ", [N, K])}, {}, (N, K), N * K),
    ("unknown", {f"{M}.weight": ("U8", [N, K])}, {}, (None, None), None),
    (
        "unknown",
        {f"{M}.weight": ("F8_E4M3", [N, K]), f"{M}.weight_scale": ("F32", [3, 5])},
        {},
        (None, None),
        None,
    ),
    (
        "unknown",
        {
            f"{M}.weight_packed": ("U8", [N, K // 2]),
            f"{M}.weight_scale": ("F8_E4M3", [N, K // 8]),
            f"{M}.weight_global_scale": ("F32", [1]),
        },
        {},
        (None, None),
        None,
    ),
]


@pytest.mark.parametrize(
    ("name", "tensors", "config", "shape", "params"), CASES, ids=lambda v: v if v is str else None
)
def test_format(
    write: Callable[..., Path],
    name: str,
    tensors: Tensors,
    config: dict[str, Any],
    shape: tuple[int | None, int | None],
    params: int | None,
) -> None:
    ledger = build_ledger(read_checkpoint(write(tensors, **config)))
    assert ledger.modules.height == 1
    row = ledger.modules.row(0, named=True)
    assert (row["format"], (row["rows"], row["cols"]), row["params"]) == (name, shape, params)
    stored = sum(_size(dtype, shape) for dtype, shape in tensors.values())
    assert row["bytes"] == stored == ledger.payload_bytes
    assert row["tensors"] == len(tensors)


def _size(dtype: str, shape: list[int]) -> int:
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    return bits // 8


def test_unknown_sets_are_named_not_guessed(write: Callable[..., Path]) -> None:
    tensors: Tensors = {f"{M}.weight": ("U8", [4, 4]), f"{M}.weight_scale_2": ("F32", [])}
    ledger = build_ledger(read_checkpoint(write(tensors)))
    (notice,) = ledger.notices
    assert notice.code == "unknown_format"
    assert M in notice.message


def test_stacks_of_experts_keep_the_shape_of_one(write: Callable[..., Path]) -> None:
    tensors: Tensors = {
        f"{EXPERTS}.weight_packed": ("U8", [8, N, K // 2]),
        f"{EXPERTS}.weight_scale": ("F8_E4M3", [8, N, K // 16]),
        f"{EXPERTS}.weight_global_scale": ("F32", [8]),
    }
    row = build_ledger(read_checkpoint(write(tensors))).modules.row(0, named=True)
    assert (row["format"], row["rows"], row["cols"], row["params"]) == ("nvfp4", N, K, 8 * N * K)


def test_tensors_that_only_look_like_scales_stand_alone(write: Callable[..., Path]) -> None:
    tensors: Tensors = {
        "model.layers.0.self_attn.k_scale": ("BF16", [1]),
        "model.layers.0.linear_attn.dt_bias": ("BF16", [48]),
        "model.layers.0.linear_attn.A_log": ("BF16", [48]),
    }
    ledger = build_ledger(read_checkpoint(write(tensors)))
    assert set(ledger.modules["module"]) == set(tensors)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[format]]\nkey = 'x'", "lacks 'layout'"),
        ("[[format]]\nkey = 'x'\nsurprise = 1", "unknown keys"),
        (
            "[[format]]\nkey='x'\ntitle='x'\nlayout={rule='no',main='weight'}\n"
            "require={weight=['F32']}",
            "unknown layout",
        ),
        (
            "[[format]]\nkey='x'\ntitle='x'\nlayout={rule='stack',main='w'}\n"
            "require={weight=['F32']}",
            "not required",
        ),
        ("[[format]", "formats.toml"),
    ],
)
def test_broken_rules_are_named(text: str, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        parse_formats(text)


modules = st.sampled_from(
    [
        "lm_head",
        "model.norm",
        "model.embed_tokens",
        "model.layers.0.self_attn.q_proj",
        "model.layers.11.mlp.down_proj",
        "model.layers.3.linear_attn.in_proj_qkv",
        "mtp.fc",
        "strange.0.thing",
        "1.2.3",
        "scale",
    ]
)
suffixes = st.sampled_from(
    ["weight", "bias", "weight_scale", "weight_packed", "scales", "qweight", "W_q", "zzz", "scale"]
)
names = st.one_of(
    st.tuples(modules, suffixes).map(".".join),
    st.text(min_size=1, max_size=20).filter(lambda name: printable(name) == name),
).filter(lambda name: name != "__metadata__")
anything = st.dictionaries(
    names,
    st.tuples(
        st.sampled_from(sorted(BITS)),
        st.lists(st.integers(0, 4).map(lambda n: 8 * n), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=25,
)


@given(anything)
def test_bytes_are_conserved_whatever_the_tensors(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, tuple[str, list[int]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    ledger = build_ledger(read_checkpoint(write_header(path, header_of(tensors))))
    expected = sum(_size(dtype, shape) for dtype, shape in tensors.values())
    assert ledger.modules["bytes"].sum() == expected
    assert ledger.modules["tensors"].sum() == len(tensors)
