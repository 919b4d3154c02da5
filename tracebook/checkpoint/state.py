"""What a model keeps between steps, layer by layer: KV cache, recurrent state, convolution.

In: a ledger (shapes from the headers, the rest from config.json). Out: a `ModelState`,
in values and not in bytes: the width of a value is a setting of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.roles import text_config
from tracebook.notices import Notice

#: Families whose attention reads a compressed or chosen part of the cache in a way that
#: no config key used here tells.
_COMPRESSED_FAMILIES = frozenset({"deepseek_v4"})

#: Names that configs give to the sizes of a Mamba layer, first found counts.
_MAMBA_HEADS = ("mamba_num_heads", "mamba_n_heads", "num_heads")
_MAMBA_HEAD_DIM = ("mamba_head_dim", "mamba_d_head", "head_dim")
_MAMBA_STATE = ("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_dim")
_MAMBA_GROUPS = ("n_groups", "mamba_n_groups", "mamba_num_groups")

#: Names that configs give to heads and widths of attention, first found counts: today's, and
#: those of GPT-2, Falcon, MPT and ChatGLM.
_QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HEAD_SIZES = ("head_dim", "kv_channels")
_WIDTHS = ("hidden_size", "n_embd", "d_model")

#: Every how manyth layer sees all of the context, for models whose config leaves it to the code
#: (transformers' models before `layer_types`, llama.cpp's `n_swa_pattern`).
_WINDOW_PATTERN = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gemma3n": 5,
    "cohere2": 4,
    "gpt_oss": 2,
    "gpt-oss": 2,
    "olmo3": 4,
    "exaone4": 4,
}


@dataclass(frozen=True)
class AttentionLayer:
    """The cache of one attention layer.

    Attributes:
        layer: Index within its model.
        read_values: Values read per cached token, all heads (K and V, or one latent).
        write_values: Values written per new token; 0 where the layer shares another's.
        heads: Heads that ranks divide; None where each rank holds all (latents).
        window: Tokens that the layer looks back at most; None: all of the context.
        index_values: Values read for each token of the whole context to choose from
            (sparse attention), 0 elsewhere.
    """

    layer: int
    read_values: int
    write_values: int
    heads: int | None
    window: int | None = None
    index_values: int = 0


@dataclass(frozen=True)
class RecurrentLayer:
    """The state of one recurrent layer (Gated DeltaNet or Mamba) for one sequence.

    Attributes:
        layer: Index within its model.
        kind: `gdn` or `mamba`.
        state_values: Values of one snapshot.
        input_values: Values per token from which the state can be replayed.
        conv_channels: Channels of the short convolution in front, 0 where it has none.
        conv_taps: Its length.
    """

    layer: int
    kind: str
    state_values: int
    input_values: int
    conv_channels: int
    conv_taps: int


@dataclass(frozen=True)
class ModelState:
    """State of all layers of one part of a checkpoint.

    Attributes:
        attention: Layers with a KV cache.
        recurrent: Layers with a recurrent state.
        dtype: The model's dtype by its config, None where it does not say.
        state_dtype: Dtype that the config asks for the recurrent state, or None.
        quantised_cache: Whether the checkpoint carries a scheme for a quantised KV cache.
        notices: What could not be told.
    """

    attention: tuple[AttentionLayer, ...] = ()
    recurrent: tuple[RecurrentLayer, ...] = ()
    dtype: str | None = None
    state_dtype: str | None = None
    quantised_cache: bool = False
    notices: tuple[Notice, ...] = ()


def model_state(ledger: Ledger, part: str) -> ModelState:
    """Tell what the layers of a part keep between steps.

    Args:
        ledger: A ledger.
        part: `target`, `mtp` or `drafter`.

    Returns:
        The state; layers whose sizes cannot be told are left out and a notice says so.
    """
    config = text_config(ledger.checkpoint.config)
    layers = ledger.modules.filter((pl.col("part") == part) & pl.col("layer").is_not_null())
    notices: list[Notice] = []
    attention = _attention(ledger, layers, part, config, notices)
    recurrent = _recurrent(ledger, layers, config, notices)
    return ModelState(
        attention=attention,
        recurrent=recurrent,
        dtype=_text(config, "dtype", "torch_dtype"),
        state_dtype=_text(config, "mamba_ssm_dtype"),
        quantised_cache=bool(_quantisation(ledger.checkpoint.config).get("kv_cache_scheme")),
        notices=tuple(notices),
    )


def _attention(
    ledger: Ledger,
    layers: pl.DataFrame,
    part: str,
    config: Mapping[str, Any],
    notices: list[Notice],
) -> tuple[AttentionLayer, ...]:
    rows = layers.filter(pl.col("block") == "attention")
    if rows.is_empty():
        return ()
    if ledger.family in _COMPRESSED_FAMILIES:
        notices.append(_missing_cache(ledger, "its attention compresses the cache"))
        return ()
    shapes: dict[int, dict[str, int | None]] = {}
    for layer, op, n in rows.select("layer", "op", "rows").iter_rows():
        shapes.setdefault(layer, {})[op or ""] = n
    found, unknown = [], []
    shared_from = len(shapes) - int(config.get("num_kv_shared_layers") or 0)
    last: dict[str, int] = {}
    for place, (layer, ops) in enumerate(sorted(shapes.items())):
        kind = _layer_type(config, layer) if part != "mtp" else "full_attention"
        window = _window(config, layer, kind) if part != "mtp" else None
        latent = _latent_values(ops, config)
        values = latent or _kv_values(ops, config) or last.get(kind)
        if values is None:
            unknown.append(layer)
            continue
        last[kind] = values
        writes = part != "target" or place < shared_from
        chosen, index = _sparse(ops, config)
        found.append(
            AttentionLayer(
                layer=layer,
                read_values=values,
                write_values=values + index if writes else 0,
                heads=None if latent else _count(config, "num_key_value_heads"),
                window=chosen if window is None else window,
                index_values=index,
            )
        )
    if unknown:
        notices.append(_missing_cache(ledger, f"layer {unknown[0]} does not tell its K and V"))
    return tuple(found)


def _missing_cache(ledger: Ledger, why: str) -> Notice:
    return Notice(
        "kv_cache_unknown",
        f"KV cache traffic of {ledger.checkpoint.name} is not counted: {why}.",
        "Put config.json beside the weights.",
    )


def _kv_values(ops: Mapping[str, int | None], config: Mapping[str, Any]) -> int | None:
    """K and V values of a token: rows of the two matrices, else from the config."""
    if (k := ops.get("k")) is not None:
        # Models that use K as V (Gemma's global layers) have no v_proj, yet cache both.
        return k + (ops.get("v") or k)
    queries = _count(config, *_QUERY_HEADS)
    # Configs that name no K and V heads mean as many as there are query heads.
    heads = 1 if config.get("multi_query") is True else _count(config, *_KV_HEADS) or queries
    size, hidden = _count(config, *_HEAD_SIZES), _count(config, *_WIDTHS)
    if size is None:
        size = hidden // queries if hidden and queries else None
    fused = {"k", "qkv"} & ops.keys()
    return 2 * heads * size if fused and heads and size else None


def _latent_values(ops: Mapping[str, int | None], config: Mapping[str, Any]) -> int | None:
    """The latent and rotary key of multi-head latent attention, one for all heads."""
    if not {"kv_a", "qkv_a"} & ops.keys():
        return None
    rank, rope = _count(config, "kv_lora_rank"), _count(config, "qk_rope_head_dim")
    return ops.get("kv_a") or (rank + rope if rank and rope else None)


def _sparse(ops: Mapping[str, int | None], config: Mapping[str, Any]) -> tuple[int | None, int]:
    """Tokens that a sparse layer chooses, and the index values that it reads of each token.

    Source: DeepSeek-V3.2 (`index_topk`, `index_head_dim`), vLLM deepseek_v2.py.
    """
    if "indexer_k" not in ops:
        return None, 0
    return _count(config, "index_topk"), ops["indexer_k"] or _count(config, "index_head_dim") or 0


def _layer_type(config: Mapping[str, Any], layer: int) -> str:
    types = config.get("layer_types")
    if isinstance(types, list) and layer < len(types):
        return str(types[layer])
    return "attention"


def _window(config: Mapping[str, Any], layer: int, kind: str) -> int | None:
    """How far a layer looks back, by the config's own words for it."""
    if kind == "chunked_attention":
        return _count(config, "attention_chunk_size")
    window = _count(config, "sliding_window")
    if kind == "sliding_attention":
        return window
    if kind != "attention" or window is None or config.get("use_sliding_window") is False:
        return None
    pattern = _count(config, "sliding_window_pattern")
    if pattern is None:
        pattern = _WINDOW_PATTERN.get(str(config.get("model_type")))
    return None if pattern is not None and (layer + 1) % pattern == 0 else window


def _recurrent(
    ledger: Ledger, layers: pl.DataFrame, config: Mapping[str, Any], notices: list[Notice]
) -> tuple[RecurrentLayer, ...]:
    found, unknown = [], []
    blocks = pl.col("block").is_in(["linear_attention", "mamba"])
    for (layer, block), rows in layers.filter(blocks).group_by(
        ["layer", "block"], maintain_order=True
    ):
        shapes = {m.rsplit(".", 1)[-1]: (n, k) for m, n, k in rows.select(
            "matrix", "rows", "cols").iter_rows()}  # fmt: skip
        vectors = dict(rows.select("matrix", "params").iter_rows())
        sizes = _gdn_sizes(config) if block == "linear_attention" else _mamba_sizes(config, vectors)
        if sizes is None:
            unknown.append(layer)
            continue
        channels, taps = next((s for m, s in shapes.items() if m.endswith("conv1d")), (0, 0))
        found.append(
            RecurrentLayer(
                layer=int(str(layer)),
                kind="gdn" if block == "linear_attention" else "mamba",
                state_values=sizes[0],
                input_values=sizes[1],
                conv_channels=channels or 0,
                conv_taps=taps or 0,
            )
        )
    if unknown:
        notices.append(
            Notice(
                "recurrent_state_unknown",
                f"Recurrent state of {len(unknown)} layers of {ledger.checkpoint.name} is not "
                "counted: the config does not tell its size.",
                "Put config.json beside the weights.",
            )
        )
    return tuple(found)


def _gdn_sizes(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """State and inputs of a Gated DeltaNet layer: heads of d_k x d_v; k, v, decay and beta."""
    heads = _count(config, "linear_num_value_heads")
    keys = _count(config, "linear_num_key_heads")
    d_k, d_v = _count(config, "linear_key_head_dim"), _count(config, "linear_value_head_dim")
    if None in (heads, keys, d_k, d_v):
        return None
    assert heads and keys and d_k and d_v
    return heads * d_k * d_v, keys * d_k + heads * d_v + 2 * heads


def _mamba_sizes(
    config: Mapping[str, Any], vectors: Mapping[str, int | None]
) -> tuple[int, int] | None:
    """State and inputs of a Mamba layer.

    Mamba 2: heads of head_dim x state; x, B and dt. Mamba 1: its `A_log` [channels, state]
    has the shape of the state; x, B and dt of each channel.
    """
    state = _count(config, *_MAMBA_STATE)
    a_log = next((v for m, v in vectors.items() if m.endswith(("A_log", "ssm_a")) and v), None)
    if state is None or a_log is None:
        return None
    head_dim = _count(config, *_MAMBA_HEAD_DIM)
    heads = _count(config, *_MAMBA_HEADS)
    if heads is not None and head_dim is not None and a_log == heads:
        groups = _count(config, *_MAMBA_GROUPS) or 1
        return heads * head_dim * state, heads * head_dim + groups * state + heads
    return (a_log, 2 * (a_log // state) + state) if a_log % state == 0 else None


def _quantisation(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (config or {}).get("quantization_config") or text_config(config).get(
        "quantization_config"
    )
    return found if isinstance(found, Mapping) else {}


def _count(config: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these keys that holds a positive integer."""
    for key in keys:
        value = config.get(key)
        if type(value) is int and value > 0:
            return value
    return None


def _text(config: Mapping[str, Any], *keys: str) -> str | None:
    values = (config.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str)), None)
