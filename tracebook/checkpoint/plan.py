"""The plan of a step: which matrices one decode step must read, in which order.

In: ledgers of target, drafter and draft head, and the run description.
Out: a `Plan`, the sequence that the alignment lays along the kernels of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tracebook.notices import Notice

Basis = Literal["exact", "derived", "assumed"]


@dataclass(frozen=True)
class Read:
    """One matrix read once: the finest thing a kernel can be matched with.

    Attributes:
        phase: Phase that the read belongs to, e.g. `target_layers`.
        layer: Layer index within its model, None for heads and `fc`.
        op: Role in the layer, e.g. `qkv`, `z`, `b`, `a`, `out`, `gate`, `up`,
            `down`, `q`, `k`, `v`, `o`, `fc`, `kv_copy`, `head`, `selector`.
        matrix: Module path within the layer or model as the checkpoint names
            it, e.g. `mlp.gate_proj`, `lm_head`.
        weight_bytes: All sibling tensors (scales too), from `data_offsets`.
        rows: Output features N, None where unknown.
        group: Reads of one block with the same number may share one kernel,
            contiguous in order (q,k,v; gate,up; qkv,z,b,a).
        optional: True where some engines do not make this read at all.
        basis: `exact` from headers, `derived` where computed.
        family: Reads of one kind share it across layers ("gdn.qkv/83886080"):
            one kernel name serves a family.
    """

    phase: str
    layer: int | None
    op: str
    matrix: str
    weight_bytes: int
    rows: int | None
    group: int
    optional: bool = False
    basis: Basis = "exact"
    family: str = ""


@dataclass(frozen=True)
class Block:
    """A stretch of reads that runs without interruption.

    `name` is `target`, `output`, `draft_context`, `draft` or `draft_head`;
    `passes` counts sequential draft passes from 0.
    """

    name: str
    reads: tuple[Read, ...]
    pass_index: int = 0


@dataclass(frozen=True)
class Plan:
    """Blocks in cyclic step order, beginning with `target`.

    `small_bytes` holds, per phase, the bytes that have no kernel of their own
    (norms, convolution weights, biases, per-layer vectors).
    `attention_layers` and `recurrent_layers` are the target's layers by kind.
    `description` says in words what is drafted and how (for messages). `notices`
    name what had to be assumed. `ranks` is the number of tensor-parallel ranks; bytes are
    those of one. `state_bytes` are what a step moves beside its weights (cache, state, rows), as
    far as that is known: attention over a long context may take longer than all matrices.
    """

    blocks: tuple[Block, ...]
    small_bytes: dict[str, int]
    attention_layers: tuple[int, ...]
    recurrent_layers: tuple[int, ...]
    draft_tokens: int | None
    draft_method: str
    description: str
    notices: tuple[Notice, ...] = ()
    ranks: int = 1
    state_bytes: int = 0

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """All reads in order."""
        return tuple(read for block in self.blocks for read in block.reads)
