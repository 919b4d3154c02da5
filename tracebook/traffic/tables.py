"""Bytes of tables of which a step reads rows only, and of the logits.

In: ledgers and settings. Out: `Movement`s of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Basis
from tracebook.phases import Phase
from tracebook.traffic.movement import Movement, Settings, moved


def embedding_rows(
    phase: Phase, ledger: Ledger, settings: Settings, rows: int
) -> Iterator[Movement]:
    """One row of the embedding table per position."""
    found = ledger.modules.filter((pl.col("part") == "target") & (pl.col("block") == "embedding"))
    for size, height in found.select("bytes", "rows").iter_rows():
        if height:
            # Ranks hold a share of the rows each: on average each reads that share.
            row_bytes = rows * (size // height)
            yield from moved(
                phase, "embedding_rows", "read", -(-row_bytes // settings.ranks), "exact",
                f"{rows} of {height:,} rows",
            )  # fmt: skip


def gather_rows(phase: Phase, ledger: Ledger, settings: Settings, each: int) -> Iterator[Movement]:
    """Rows of gather tables: a selector's candidates at every drafted position, else one each.

    The two codebooks of DFlash2 are looked up for the candidates of each position, the
    second also for the token before the block (vLLM qwen3_dflash2.py).
    """
    part = "drafter" if phase is Phase.DRAFT_HEAD else "target"
    tables = ledger.modules.filter(
        (pl.col("part") == part)
        & (pl.col("block") == "gather_table")
        & pl.col("rows").is_not_null()
    )
    basis: Basis = "derived"
    rows = each
    if part == "drafter":
        candidates = (ledger.checkpoint.config or {}).get("dflash_config", {}).get("selector_top_k")
        basis = "derived" if isinstance(candidates, int) else "assumed"
        rows = each * max(settings.drafts, 1) * (candidates if isinstance(candidates, int) else 1)
    total = read_bytes = 0
    for number, (size, height) in enumerate(tables.select("bytes", "rows").iter_rows()):
        read = rows + (each if part == "drafter" and number else 0)
        total, read_bytes = total + read, read_bytes + read * (size // height)
    note = f"{total} rows of {tables.height} tables"
    yield from moved(phase, "gather_rows", "read", read_bytes, basis, note)


def logits(
    written: Phase, read: Phase, vocabulary: int, positions: int, settings: Settings
) -> Iterator[Movement]:
    """Scores of the whole vocabulary, written by the head and read once to choose a token."""
    size = vocabulary * positions * settings.model_bytes
    note = f"{positions} positions of {vocabulary:,} scores"
    yield from moved(written, "logits", "write", -(-size // settings.ranks), "derived", note)
    yield from moved(read, "logits", "read", size, "derived", note)
