"""Build the plan of a step from ledgers: which matrices are read, in which order.

In: ledgers of target, drafter and draft head, method and number of draft tokens.
Out: a `Plan`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from tracebook.checkpoint.draft_blocks import block_drafter_blocks, sequential_blocks
from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_reads import ReadMaker
from tracebook.errors import RunDescriptionError

#: Methods that draft one token a pass, K passes in a row.
SEQUENTIAL = frozenset({"mtp", "eagle3", "draft_model"})
#: Methods that draft the whole block in one pass.
BLOCK = frozenset({"dflash", "dflash2"})


def build_plan(
    target: Ledger,
    *,
    drafter: Ledger | None = None,
    draft_head: Ledger | None = None,
    method: str = "none",
    draft_tokens: int | None = None,
    ranks: int = 1,
    batch: int = 1,
) -> Plan:
    """Lay out the reads of one decode step in the order in which they happen.

    Args:
        target: Ledger of the target model.
        drafter: Ledger of the drafter; not for MTP, whose head is in the target.
        draft_head: Ledger of a separate draft head; absent, the drafter's own head is
            read, else the target's output layer.
        method: One of `none`, `mtp`, `eagle3`, `dflash`, `dflash2`, `draft_model`.
        draft_tokens: K; needed by methods that draft one token a pass.
        ranks: Tensor-parallel ranks; bytes are those of one rank.
        batch: Sequences decoded at once; more of them are routed to more experts.

    Returns:
        The plan; for a dense target with one rank its target and output reads plus small
        bytes are exactly what the ledger says is read per step.

    Raises:
        RunDescriptionError: Method, drafter and K contradict each other.
        CheckpointError: The target has no layers that the families know.
    """
    _check_request(method, drafter, draft_tokens, ranks)
    drafts = 0 if method == "none" else draft_tokens or 0
    maker = ReadMaker(target, (drafts + 1) * batch, ranks, batch)
    small: dict[str, int] = {}
    blocks = [*maker.target_blocks(small)]
    if method in SEQUENTIAL:
        source = _draft_source(target, drafter, method)
        blocks += sequential_blocks(maker, source, draft_head, method, drafts, small)
    elif method in BLOCK:
        assert drafter is not None
        blocks += block_drafter_blocks(maker, drafter, draft_head, small)
    kinds = target.modules.filter((pl.col("part") == "target") & pl.col("layer").is_not_null())
    return Plan(
        blocks=tuple(blocks),
        small_bytes={phase: size for phase, size in small.items() if size},
        attention_layers=_layers_of(kinds, "attention"),
        recurrent_layers=_layers_of(kinds, "recurrent"),
        draft_tokens=draft_tokens if method != "none" else None,
        draft_method=method,
        description=_describe(target, drafter, draft_head, method, draft_tokens, ranks),
        notices=tuple(maker.notices.values()),
        ranks=ranks,
    )


def _check_request(
    method: str, drafter: Ledger | None, draft_tokens: int | None, ranks: int
) -> None:
    if method not in {"none"} | SEQUENTIAL | BLOCK:
        known = ", ".join(sorted({"none"} | SEQUENTIAL | BLOCK))
        raise RunDescriptionError(f"The draft method {method!r} is unknown.", f"Use: {known}.")
    if ranks < 1:
        raise RunDescriptionError(f"{ranks} tensor-parallel ranks cannot be.")
    if draft_tokens is not None and draft_tokens < 1 and method != "none":
        raise RunDescriptionError(f"{draft_tokens} draft tokens cannot be drafted.")
    if method in SEQUENTIAL and draft_tokens is None:
        raise RunDescriptionError(
            f"With {method} each draft token is a pass of its own, and their number is not known.",
            "Give it: --draft-tokens K (in Python: draft_tokens=K).",
        )
    if method in BLOCK | {"eagle3", "draft_model"} and drafter is None:
        raise RunDescriptionError(
            f"The draft method {method} has a drafter of its own, but none was given.",
            "Add --drafter PATH.",
        )


def _draft_source(target: Ledger, drafter: Ledger | None, method: str) -> Ledger:
    if method != "mtp":
        assert drafter is not None
        return drafter
    source = drafter or target
    if source.modules.filter(pl.col("part") == "mtp").is_empty():
        raise RunDescriptionError(
            f"{source.checkpoint.name} holds no MTP head.",
            "Give a checkpoint with its MTP tensors (often a file of their own), "
            "or another --draft-method.",
        )
    return source


def _layers_of(frame: pl.DataFrame, kind: str) -> tuple[int, ...]:
    return tuple(frame.filter(pl.col("layer_kind") == kind)["layer"].unique().sort().to_list())


def _describe(
    target: Ledger,
    drafter: Ledger | None,
    draft_head: Ledger | None,
    method: str,
    draft_tokens: int | None,
    ranks: int,
) -> str:
    words: list[Any] = [target.checkpoint.name]
    if method == "none":
        words.append("without drafting")
    else:
        words.append(f"with {method}")
        if drafter is not None:
            words.append(f"({drafter.checkpoint.name})")
        if draft_tokens is not None:
            words.append(f"drafting {draft_tokens}")
        if draft_head is not None:
            words.append(f"through the head {draft_head.checkpoint.name}")
    if ranks > 1:
        words.append(f"on {ranks} ranks")
    return " ".join(words)
