"""Sizes and weight formats of the models of a run, from their configs and headers.

In: ledgers. Out: `Models`: what durations and grids of kernels depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Read
from tracebook.checkpoint.roles import text_config
from tracebook.errors import CheckpointError

#: Streaming multiprocessors of a GB10, from TARGET_INFO_GPU of a real export.
SM_COUNT = 48

_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "float8_e4m3": 1, "int8": 1}


@dataclass(frozen=True)
class Shape:
    """Sizes of one model that kernels depend on; bytes are per layer.

    `state_bytes` is one recurrent state of one layer, `kv_token_bytes` keys and values
    of one token. `gated` says whether attention has an output gate.
    """

    vocabulary: int
    heads: int
    kv_heads: int
    value_heads: int
    recurrent_layers: int
    state_bytes: int
    kv_token_bytes: int
    gated: bool = False


@dataclass(frozen=True)
class Models:
    """The models of a run.

    Attributes:
        target: Shape of the target.
        drafter: Shape of the drafter; the target's own where it drafts with MTP.
        formats: (part, layer, matrix) to weight format; layer None for heads.
        head_part: Part that holds the draft head.
        context_tokens: Tokens in the cache.
        sm_count: Multiprocessors.
    """

    target: Shape
    drafter: Shape
    formats: Mapping[tuple[str, int | None, str], str]
    head_part: str
    context_tokens: int
    sm_count: int = SM_COUNT

    def format_of(self, read: Read, component: str) -> str:
        """Weight format that a matrix is stored in: nvfp4, fp8, fp8_block or bf16.

        Raises:
            CheckpointError: The ledger does not know the matrix.
        """
        if read.op == "kv_copy":
            return "bf16"  # vLLM keeps the fused K/V rows as a BF16 copy
        part = {
            "output": "target",
            "mtp_head": "target",
            "draft_head": self.head_part if read.op == "head" else "drafter",
        }.get(component, component)
        try:
            return self.formats[part, read.layer, read.matrix]
        except KeyError as error:
            raise CheckpointError(
                f"No module {read.matrix!r} of layer {read.layer} in the {part} checkpoint.",
                "The plan and the ledger disagree; this is a fault of tracebook.",
            ) from error


def shape_of(ledger: Ledger, *, recurrent_layers: int, gdn_dtype: str, kv_dtype: str) -> Shape:
    """Read the sizes of a model from its config.

    Raises:
        CheckpointError: The config is absent or lacks a size.
    """
    config = text_config(ledger.checkpoint.config or {})
    if not config:
        raise CheckpointError(
            f"{ledger.checkpoint.name}: no config, so the sizes of its kernels are unknown.",
            "Put config.json beside the weights.",
        )
    heads = _size(ledger, config, "num_attention_heads")
    head_dim = config.get("head_dim") or _size(ledger, config, "hidden_size") // heads
    kv_heads = _size(ledger, config, "num_key_value_heads")
    value_heads = int(config.get("linear_num_value_heads", 0))
    state_values = (
        value_heads
        * int(config.get("linear_key_head_dim", 0))
        * int(config.get("linear_value_head_dim", 0))
    )
    return Shape(
        vocabulary=_size(ledger, config, "vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        value_heads=value_heads,
        recurrent_layers=recurrent_layers,
        state_bytes=state_values * _DTYPE_BYTES[gdn_dtype],
        kv_token_bytes=2 * kv_heads * int(head_dim) * _DTYPE_BYTES[kv_dtype],
        gated=bool(config.get("attn_output_gate", False)),
    )


def module_formats(*ledgers: Ledger) -> dict[tuple[str, int | None, str], str]:
    """Collect the weight format of every module of these ledgers."""
    formats = {}
    for ledger in ledgers:
        for row in ledger.modules.select("part", "layer", "matrix", "format").iter_rows():
            part, layer, matrix, stored = row
            formats[part, layer, matrix] = _weight_format(stored)
    return formats


def _weight_format(stored: str) -> str:
    if stored.startswith("nvfp4"):
        return "nvfp4"
    if stored == "fp8-block":
        return "fp8_block"
    return "fp8" if stored.startswith("fp8") else "bf16"


def _size(ledger: Ledger, config: Mapping[str, Any], key: str) -> int:
    if not isinstance(config.get(key), int):
        raise CheckpointError(
            f"{ledger.checkpoint.name}: config.json gives no {key}.",
            "Use a checkpoint whose config has it.",
        )
    return int(config[key])
