"""From ledger rows to reads: order within a layer, fusion groups, heads.

In: modules of a ledger. Out: `Read`s. The order is data (`data/reading_order.toml`).
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
from tracebook.checkpoint.plan import Basis, Block, Read
from tracebook.checkpoint.roles import text_config
from tracebook.errors import CheckpointError
from tracebook.notices import Notice
from tracebook.phases import Phase

_FAMILY_NAMES = {"linear_attention": "gdn"}


@lru_cache(maxsize=1)
def reading_order() -> dict[str, tuple[int, int]]:
    """Return op -> (group, position in it), the order of reads within a layer."""
    groups: list[list[str]] = _order_file()["groups"]
    return {op: (g, i) for g, ops in enumerate(groups) for i, op in enumerate(ops)}


@lru_cache(maxsize=1)
def _order_file() -> dict[str, Any]:
    text = files("tracebook").joinpath("data/reading_order.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def add_small(small: dict[str, int], phase: Phase, size: int) -> None:
    """Add to the small bytes of a phase."""
    small[phase.value] = small.get(phase.value, 0) + size


@dataclass(frozen=True)
class Row:
    """One module with an op, or all experts of a layer that share one."""

    block: str
    layer: int | None
    op: str
    matrix: str
    size: int
    rows: int | None
    cols: int | None
    count: int


def module_rows(ledger: Ledger, part: str, *blocks: str) -> list[Row]:
    """Modules with an op, experts of one layer and op summed."""
    frame = ledger.modules.filter((pl.col("part") == part) & pl.col("op").is_not_null())
    if blocks:
        frame = frame.filter(pl.col("block").is_in(blocks))
    columns = ["block", "layer", "op", "matrix"]
    frame = frame.group_by(columns, maintain_order=True).agg(
        pl.col("bytes").sum(), pl.col("rows").first(), pl.col("cols").first(), pl.len()
    )
    return [Row(*row) for row in frame.iter_rows()]


def small_parts(ledger: Ledger, part: str) -> tuple[int, int]:
    """Bytes without a kernel of their own: (within layers, final norm)."""
    frame = ledger.modules.filter(
        (pl.col("part") == part)
        & pl.col("op").is_null()
        & pl.col("read").is_in(["step", "drafting"])
        & (pl.col("block") != "embedding")
    )
    final = int(frame.filter(pl.col("block") == "final_norm")["bytes"].sum())
    return int(frame["bytes"].sum()) - final, final


class ReadMaker:
    """Turns ledger rows into reads; numbers fusion groups as it goes."""

    def __init__(self, target: Ledger, positions: int, ranks: int, batch: int = 1) -> None:
        self.target = target
        self.positions = positions
        self.ranks = ranks
        self.batch = batch
        config = text_config(target.checkpoint.config)
        heads = config.get("num_key_value_heads")
        self._kv_heads = heads if type(heads) is int and heads > 0 else None
        self.notices: dict[str, Notice] = {}
        self._group = 0

    def target_blocks(self, small: dict[str, int]) -> Iterator[Block]:
        """Target layers, then the output layer."""
        rows = module_rows(self.target, "target")
        layers = [row for row in rows if row.block != "output_layer"]
        if not layers:
            raise CheckpointError(
                f"{self.target.checkpoint.name}: no layer of a known model family.",
                "See `tracebook bytes` for what the tensors were taken for.",
            )
        within, final = small_parts(self.target, "target")
        add_small(small, Phase.TARGET_LAYERS, within + final)
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
        named = Row(
            "output", None, "head", row["matrix"], row["bytes"], row["rows"], row["cols"], 1
        )
        return self.read(named, phase, self.next_group())

    def next_group(self) -> int:
        """A number that no other fusion group has."""
        self._group += 1
        return self._group

    def layer_reads(
        self, rows: Sequence[Row], phase: Phase, use: ExpertUse | None = None
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
        row: Row,
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
        shares = self._shares(row)
        if shares > 1:
            size, basis = -(-size // shares), "derived" if basis == "exact" else basis
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

    def _shares(self, row: Row) -> int:
        """Into how many parts the ranks divide a matrix; 1 where each holds it whole.

        K and V are divided by whole heads: where there are fewer of them than ranks, some
        ranks hold the same head.
        """
        order = _order_file()
        whole = (
            row.op in order["replicated"]
            or row.block in order["replicated_blocks"]
            or row.matrix.rsplit(".", 1)[-1] in order["replicated_matrices"]
        )
        if whole:
            return 1
        if row.op in ("k", "v") and self._kv_heads is not None:
            return min(self.ranks, self._kv_heads)
        return self.ranks
