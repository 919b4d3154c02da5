"""Build the plan of a step from ledgers: which matrices are read, in which order.

In: ledgers of target, drafter and draft head, method and number of draft tokens.
Out: a `Plan`. The order of reads within a layer is data (`data/reading_order.toml`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import polars as pl

from tracebook.checkpoint.experts import ExpertUse, expert_use
from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Basis, Block, Plan, Read
from tracebook.errors import CheckpointError, RunDescriptionError
from tracebook.notices import Notice
from tracebook.phases import Phase

#: Methods that draft one token a pass, K passes in a row.
SEQUENTIAL = frozenset({"mtp", "eagle3", "draft_model"})
#: Methods that draft the whole block in one pass.
BLOCK = frozenset({"dflash", "dflash2"})

_FAMILY_NAMES = {"linear_attention": "gdn"}
_BF16_BYTES = 2


@lru_cache(maxsize=1)
def reading_order() -> dict[str, tuple[int, int]]:
    """Return op -> (group, position in it), the order of reads within a layer."""
    text = files("tracebook").joinpath("data/reading_order.toml").read_text(encoding="utf-8")
    groups: list[list[str]] = tomllib.loads(text)["groups"]
    return {op: (g, i) for g, ops in enumerate(groups) for i, op in enumerate(ops)}


def build_plan(
    target: Ledger,
    *,
    drafter: Ledger | None = None,
    draft_head: Ledger | None = None,
    method: str = "none",
    draft_tokens: int | None = None,
    ranks: int = 1,
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

    Returns:
        The plan; for a dense target with one rank its target and output reads plus small
        bytes are exactly what the ledger says is read per step.

    Raises:
        RunDescriptionError: Method, drafter and K contradict each other.
        CheckpointError: The target has no layers that the families know.
    """
    _check_request(method, drafter, draft_tokens, ranks)
    drafts = 0 if method == "none" else draft_tokens or 0
    maker = _ReadMaker(target, drafts + 1, ranks)
    small: dict[str, int] = {}
    blocks = [*maker.target_blocks(small)]
    if method in SEQUENTIAL:
        source = _draft_source(target, drafter, method)
        blocks += _sequential(maker, source, draft_head, method, drafts, small)
    elif method in BLOCK:
        assert drafter is not None
        blocks += _block_drafter(maker, drafter, draft_head, small)
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
            "Give it: --draft-tokens K.",
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


@dataclass(frozen=True)
class _Row:
    """One module with an op, or all experts of a layer that share one."""

    block: str
    layer: int | None
    op: str
    matrix: str
    size: int
    rows: int | None
    cols: int | None
    count: int


def _rows(ledger: Ledger, part: str, *blocks: str) -> list[_Row]:
    """Modules with an op, experts of one layer and op summed."""
    frame = ledger.modules.filter((pl.col("part") == part) & pl.col("op").is_not_null())
    if blocks:
        frame = frame.filter(pl.col("block").is_in(blocks))
    columns = ["block", "layer", "op", "matrix"]
    frame = frame.group_by(columns, maintain_order=True).agg(
        pl.col("bytes").sum(), pl.col("rows").first(), pl.col("cols").first(), pl.len()
    )
    return [_Row(*row) for row in frame.iter_rows()]


def _small(ledger: Ledger, part: str) -> tuple[int, int]:
    """Bytes without a kernel of their own: (within layers, final norm)."""
    frame = ledger.modules.filter(
        (pl.col("part") == part)
        & pl.col("op").is_null()
        & pl.col("read").is_in(["step", "drafting"])
        & (pl.col("block") != "embedding")
    )
    final = int(frame.filter(pl.col("block") == "final_norm")["bytes"].sum())
    return int(frame["bytes"].sum()) - final, final


class _ReadMaker:
    """Turns ledger rows into reads; numbers fusion groups as it goes."""

    def __init__(self, target: Ledger, positions: int, ranks: int) -> None:
        self.target = target
        self.positions = positions
        self.ranks = ranks
        self.notices: dict[str, Notice] = {}
        self._group = 0

    def target_blocks(self, small: dict[str, int]) -> Iterator[Block]:
        """Target layers, then the output layer."""
        rows = _rows(self.target, "target")
        layers = [row for row in rows if row.block != "output_layer"]
        if not layers:
            raise CheckpointError(
                f"{self.target.checkpoint.name}: no layer of a known model family.",
                "See `tracebook bytes` for what the tensors were taken for.",
            )
        within, final = _small(self.target, "target")
        _add(small, Phase.TARGET_LAYERS, within + final)
        use = expert_use(self.target, self.positions)
        outside = [row for row in layers if row.layer is None]
        reads = [self.read(row, Phase.TARGET_LAYERS, self.next_group()) for row in outside]
        reads += self.layer_reads(layers, Phase.TARGET_LAYERS, use)
        yield Block("target", tuple(reads))
        yield Block("output", (self.output_read(Phase.OUTPUT_LAYER),))

    def output_read(self, phase: Phase) -> Read:
        """The target's output layer, or its embedding table where they are tied."""
        return self.head_read(self.target, "target", phase)

    def head_read(self, ledger: Ledger, part: str, phase: Phase) -> Read:
        """The one output layer of a part."""
        head = ledger.modules.filter(
            (pl.col("part") == part)
            & (
                (pl.col("block") == "output_layer")
                | ((pl.col("block") == "embedding") & (pl.col("read") == "step"))
            )
        )
        if head.is_empty():
            raise CheckpointError(
                f"{ledger.checkpoint.name}: no output layer among its tensors.",
                "Give all files of the checkpoint.",
            )
        row = head.row(0, named=True)
        named = _Row(
            "output", None, "head", row["matrix"], row["bytes"], row["rows"], row["cols"], 1
        )
        return self.read(named, phase, self.next_group())

    def next_group(self) -> int:
        """A number that no other fusion group has."""
        self._group += 1
        return self._group

    def layer_reads(
        self, rows: Sequence[_Row], phase: Phase, use: ExpertUse | None = None
    ) -> Iterator[Read]:
        """Reads of layers in reading order, fusion groups numbered."""
        order = reading_order()
        ordered = sorted(
            (row for row in rows if row.layer is not None),
            key=lambda row: (row.layer, order[row.op]),
        )
        last: tuple[int | None, int] | None = None
        group = 0
        for row in ordered:
            place = (row.layer, order[row.op][0])
            if place != last:
                group, last = self.next_group(), place
            yield self.read(row, phase, group, use if row.block == "experts" else None)

    def read(
        self,
        row: _Row,
        phase: Phase,
        group: int,
        use: ExpertUse | None = None,
        *,
        optional: bool = False,
        basis: Basis = "exact",
    ) -> Read:
        """One read; bytes of one rank, experts by the number expected."""
        size = row.size
        if use is not None:
            size = round(row.size * use.share)
            basis = use.basis
            if use.notice is not None:
                self.notices[use.notice.code] = use.notice
        if self.ranks > 1:
            size, basis = -(-size // self.ranks), "derived" if basis == "exact" else basis
        kind = _FAMILY_NAMES.get(row.block, row.block)
        if phase in (Phase.DRAFTER_LAYERS, Phase.DRAFT_HEAD):
            kind = f"draft.{kind}"
        return Read(
            phase=phase.value,
            layer=row.layer,
            op=row.op,
            matrix=row.matrix,
            weight_bytes=size,
            rows=row.rows,
            group=group,
            optional=optional,
            basis=basis,
            family=f"{kind}.{row.op}/{size}",
        )


def _add(small: dict[str, int], phase: Phase, size: int) -> None:
    small[phase.value] = small.get(phase.value, 0) + size


def _sequential(
    maker: _ReadMaker,
    source: Ledger,
    draft_head: Ledger | None,
    method: str,
    passes: int,
    small: dict[str, int],
) -> Iterator[Block]:
    """K passes of a drafter that proposes one token each."""
    part = {"mtp": "mtp", "eagle3": "drafter", "draft_model": "target"}[method]
    rows = [row for row in _rows(source, part) if row.block != "output_layer"]
    if not any(row.layer is not None for row in rows):
        raise CheckpointError(
            f"{source.checkpoint.name}: no drafter layers for {method} among its tensors.",
            "See `tracebook bytes` for what they were taken for.",
        )
    within, final = _small(source, part)
    _add(small, Phase.DRAFTER_LAYERS, within * passes)
    _add(small, Phase.DRAFT_HEAD, final * passes)
    use = expert_use(source, 1)
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
            *maker.layer_reads(rest, Phase.DRAFTER_LAYERS, use),
        ]
        yield Block("draft", tuple(reads), index)
        head = _head(maker, source, part, draft_head)
        yield Block("draft_head", (head,), index)


def _model_reads(maker: _ReadMaker, rows: Sequence[_Row]) -> Iterator[Read]:
    for row in rows:
        yield maker.read(row, Phase.DRAFTER_LAYERS, maker.next_group())


def _head(maker: _ReadMaker, source: Ledger, part: str, draft_head: Ledger | None) -> Read:
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


def _block_drafter(
    maker: _ReadMaker, drafter: Ledger, draft_head: Ledger | None, small: dict[str, int]
) -> Iterator[Block]:
    """One pass that drafts the whole block: context, layers, head and selector."""
    rows = _rows(drafter, "drafter")
    layers = [row for row in rows if row.layer is not None]
    if not layers:
        raise CheckpointError(
            f"{drafter.checkpoint.name}: no layers of a block drafter among its tensors.",
            "See `tracebook bytes` for what they were taken for.",
        )
    within, final = _small(drafter, "drafter")
    _add(small, Phase.DRAFTER_LAYERS, within)
    _add(small, Phase.DRAFT_HEAD, final)
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


def _kv_copy(layers: Sequence[_Row]) -> _Row | None:
    """All K and V rows of the drafter as one BF16 matrix, which vLLM keeps beside them.

    Source: `_fused_kv_weight` in vLLM's DFlash models, for the context's K and V.
    """
    parts = [row for row in layers if row.op in {"k", "v"}]
    if not parts or any(row.rows is None or row.cols is None for row in parts):
        return None
    rows = sum(row.rows or 0 for row in parts)
    size = sum((row.rows or 0) * (row.cols or 0) for row in parts) * _BF16_BYTES
    matrix = "self_attn.k_proj+self_attn.v_proj"
    return _Row("attention", None, "kv_copy", matrix, size, rows, parts[0].cols, 1)


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
