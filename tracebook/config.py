"""The run description: run.toml and the flags that mean the same (flags win)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DraftMethod = Literal["none", "mtp", "eagle3", "dflash", "dflash2", "draft_model"]


@dataclass(frozen=True)
class RunDescription:
    """What the user knows about the run; None means not said.

    Paths are absolute strings or hub ids. `tokens_per_step` is measured by the
    user's benchmark. `tensor_parallel` is the number of ranks.
    """

    machine: str | None = None
    bandwidth_gbps: float | None = None
    ceiling_gbps: float | None = None
    target: str | None = None
    drafter: str | None = None
    draft_method: DraftMethod | None = None
    draft_tokens: int | None = None
    draft_head: str | None = None
    gdn_dtype: str | None = None
    kv_dtype: str | None = None
    context_tokens: int | None = None
    batch: int | None = None
    tokens_per_step: float | None = None
    tensor_parallel: int | None = None
