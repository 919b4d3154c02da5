"""Other ways in which engines make the reads of one plan.

Only what matters for the alignment is listed: where the shared expert of a mixture
stands relative to the router and the routed experts, whether a block drafter takes
in its context with one fused copy of all K and V matrices or layer by layer, and whether the
up-projection of latent attention is applied in two halves around the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tracebook.checkpoint.plan import Plan, Read

#: Orders of the parts of a mixture-of-experts layer, by the prefix of their ops.
EXPERT_ORDERS = (
    ("router", "shared", "experts"),
    ("router", "experts", "shared"),
    ("shared", "router", "experts"),
)

#: Up-projection of the latent to K and V of all heads, as one matrix.
LATENT_UP = "kv_b"


def read_orders(plan: Plan) -> list[Plan]:
    """The plan in each order worth trying; one for plain layers."""
    plan = _with_context_by_layer(plan)
    plans = [plan]
    if any(read.op == LATENT_UP for read in plan.reads):
        plans.append(_changed(plan, _absorbed))
    if not any(read.op.startswith("shared") for read in plan.reads):
        return plans
    return [
        _changed(one, partial(_reordered, order=order)) for one in plans for order in EXPERT_ORDERS
    ]


def _changed(plan: Plan, change: Callable[[Sequence[Read]], Sequence[Read]]) -> Plan:
    """The plan with the reads of each block changed."""
    blocks = (replace(block, reads=tuple(change(block.reads))) for block in plan.blocks)
    return replace(plan, blocks=tuple(blocks))


def _absorbed(reads: Sequence[Read]) -> list[Read]:
    """Each up-projection of latents as two: that of K in front of the attention, of V behind it.

    Engines multiply the queries by the one and the result by the other, so that attention reads
    latents. Most models have K (without its rotary part) and V of one width: half each. Source:
    vLLM v1/attention/backends/mla/common.py (W_UK, W_UV).
    """
    found: list[Read] = []
    number = max((read.group for read in reads), default=0) + 1
    for read in reads:
        if read.op != LATENT_UP:
            found.append(read)
            continue
        v_bytes = read.weight_bytes // 2
        halves = {"k_b": read.weight_bytes - v_bytes, "v_b": v_bytes}
        for op, size in halves.items():
            family = f"{read.family}.{op}"
            half = replace(read, op=op, weight_bytes=size, rows=None, basis="derived")
            found.append(replace(half, group=number, family=family))
            number += 1
    return found


def _with_context_by_layer(plan: Plan) -> Plan:
    """Add, as reads that may be missing, a drafter's K and V matrices to its context intake.

    SGLang projects the context layer by layer with the matrices as they are stored, vLLM
    with a fused copy, which the plan already has (source: `models/dflash.py` of both).
    """
    layers = [r for b in plan.blocks if b.name == "draft" for r in b.reads if r.op in ("k", "v")]
    group = max((read.group for read in plan.reads), default=0) + 1
    context = [replace(read, optional=True, group=group + (read.layer or 0)) for read in layers]
    blocks = (
        replace(block, reads=(*block.reads, *context)) if block.name == "draft_context" else block
        for block in plan.blocks
    )
    return replace(plan, blocks=tuple(blocks))


def _reordered(block: Sequence[Read], order: Sequence[str]) -> list[Read]:
    """The reads of a block with the parts of each mixture in the given order."""
    reads: list[Read] = []
    mixture: list[Read] = []

    def part(read: Read) -> int | None:
        return next((i for i, name in enumerate(order) if read.op.startswith(name)), None)

    for read in block:
        if part(read) is not None and (not mixture or mixture[-1].layer == read.layer):
            mixture.append(read)
            continue
        reads += sorted(mixture, key=lambda r: part(r) or 0)
        mixture = []
        (mixture if part(read) is not None else reads).append(read)
    return [*reads, *sorted(mixture, key=lambda r: part(r) or 0)]
