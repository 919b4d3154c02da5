"""The reads of drafting: passes of one token each, or one pass for a whole block.

In: ledgers of drafter and draft head. Out: blocks of the plan, in the order of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from tracebook.checkpoint.experts import expert_use
from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Block, Read
from tracebook.checkpoint.plan_reads import ReadMaker, Row, add_small, module_rows, small_parts
from tracebook.errors import CheckpointError
from tracebook.phases import Phase

_BF16_BYTES = 2


def sequential_blocks(
    maker: ReadMaker,
    source: Ledger,
    draft_head: Ledger | None,
    method: str,
    passes: int,
    small: dict[str, int],
) -> Iterator[Block]:
    """K passes of a drafter that proposes one token each."""
    part = {"mtp": "mtp", "eagle3": "drafter", "draft_model": "target"}[method]
    rows = [row for row in module_rows(source, part) if row.block != "output_layer"]
    if not any(row.layer is not None for row in rows):
        raise CheckpointError(
            f"{source.checkpoint.name}: no drafter layers for {method} among its tensors.",
            "See `tracebook bytes` for what they were taken for.",
        )
    within, final = small_parts(source, part)
    add_small(small, Phase.DRAFTER_LAYERS, within * passes)
    add_small(small, Phase.DRAFT_HEAD, final * passes)
    # The first pass also takes in all positions that were just verified, later ones one each.
    first_use, use = expert_use(source, maker.positions), expert_use(source, maker.batch)
    fc = [row for row in rows if row.op == "fc"]
    if method == "eagle3" and fc:
        # It joins the target's hidden states once; later passes feed on the drafter's own.
        yield Block("draft_context", tuple(_model_reads(maker, fc)))
        rows, fc = [row for row in rows if row.op != "fc"], []
    # One MTP layer a pass in turn where each has its own fc (DeepSeek, MiMo), else all of them.
    layers = sorted({row.layer for row in rows if row.layer is not None})
    own_fc = len(layers) > 1 and {row.layer for row in fc} >= set(layers)
    for index in range(passes):
        chosen = [layers[index % len(layers)]] if own_fc else layers
        first = [row for row in fc if row.layer is None or row.layer in chosen]
        rest = [row for row in rows if row.layer in chosen and row.op != "fc"]
        reads = [
            *_model_reads(maker, first),
            *maker.layer_reads(rest, Phase.DRAFTER_LAYERS, use if index else first_use),
        ]
        yield Block("draft", tuple(reads), index)
        head = _head(maker, source, part, draft_head)
        yield Block("draft_head", (head,), index)


def _model_reads(maker: ReadMaker, rows: Sequence[Row]) -> Iterator[Read]:
    for row in rows:
        yield maker.read(row, Phase.DRAFTER_LAYERS, maker.next_group())


def _head(maker: ReadMaker, source: Ledger, part: str, draft_head: Ledger | None) -> Read:
    """A separate draft head, else the drafter's own, else the target's output layer."""
    if draft_head is not None:
        for head_part in ("draft_head", "drafter", "target"):
            owned = draft_head.modules.filter(
                (pl.col("part") == head_part) & (pl.col("block") == "output_layer")
            )
            if not owned.is_empty():
                return maker.head_read(draft_head, head_part, Phase.DRAFT_HEAD)
        raise CheckpointError(
            f"{draft_head.checkpoint.name}: no output layer in the draft head's checkpoint.",
            "Expected a tensor like lm_head.weight.",
        )
    own = source.modules.filter(
        (pl.col("part") == part)
        & ((pl.col("block") == "output_layer") | (pl.col("read") == "step"))
    )
    if part == "target" or not own.filter(pl.col("block") == "output_layer").is_empty():
        return maker.head_read(source, part, Phase.DRAFT_HEAD)
    return maker.output_read(Phase.DRAFT_HEAD)


def block_drafter_blocks(
    maker: ReadMaker, drafter: Ledger, draft_head: Ledger | None, small: dict[str, int]
) -> Iterator[Block]:
    """One pass that drafts the whole block: context, layers, head and selector."""
    rows = module_rows(drafter, "drafter")
    layers = [row for row in rows if row.layer is not None]
    if not layers:
        raise CheckpointError(
            f"{drafter.checkpoint.name}: no layers of a block drafter among its tensors.",
            "See `tracebook bytes` for what they were taken for.",
        )
    within, final = small_parts(drafter, "drafter")
    add_small(small, Phase.DRAFTER_LAYERS, within)
    add_small(small, Phase.DRAFT_HEAD, final)
    context = [*_model_reads(maker, [row for row in rows if row.op == "fc"])]
    copy = _kv_copy(layers)
    if copy is not None:
        context.append(
            maker.read(
                copy, Phase.DRAFTER_LAYERS, maker.next_group(), optional=True, basis="derived"
            )
        )
    if context:
        yield Block("draft_context", tuple(context))
    yield Block("draft", tuple(maker.layer_reads(layers, Phase.DRAFTER_LAYERS)))
    head = [_head(maker, drafter, "drafter", draft_head)]
    head += [
        maker.read(row, Phase.DRAFT_HEAD, maker.next_group())
        for row in rows
        if row.block == "selector"
    ]
    yield Block("draft_head", tuple(head))


def _kv_copy(layers: Sequence[Row]) -> Row | None:
    """All K and V rows of the drafter as one BF16 matrix, which vLLM keeps beside them.

    Source: `_fused_kv_weight` in vLLM's DFlash models, for the context's K and V.
    """
    parts = [row for row in layers if row.op in {"k", "v"}]
    if not parts or any(row.rows is None or row.cols is None for row in parts):
        return None
    rows = sum(row.rows or 0 for row in parts)
    size = sum((row.rows or 0) * (row.cols or 0) for row in parts) * _BF16_BYTES
    matrix = "self_attn.k_proj+self_attn.v_proj"
    return Row("attention", None, "kv_copy", matrix, size, rows, parts[0].cols, 1)
