"""Other ways in which engines make the reads of one plan.

Only what matters for the alignment is listed: where the shared expert of a mixture
stands relative to the router and the routed experts, and whether a block drafter takes
in its context with one fused copy of all K and V matrices or layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracebook.checkpoint.plan import Block, Plan, Read

#: Orders of the parts of a mixture-of-experts layer, by the prefix of their ops.
EXPERT_ORDERS = (
    ("router", "shared", "experts"),
    ("router", "experts", "shared"),
    ("shared", "router", "experts"),
)


def read_orders(plan: Plan) -> list[Plan]:
    """The plan in each order worth trying; one for models without shared experts."""
    plan = _with_context_by_layer(plan)
    if not any(read.op.startswith("shared") for read in plan.reads):
        return [plan]
    return [
        replace(plan, blocks=tuple(_reordered(block, order) for block in plan.blocks))
        for order in EXPERT_ORDERS
    ]


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


def _reordered(block: Block, order: Sequence[str]) -> Block:
    """The reads of a block with the parts of each mixture in the given order."""
    reads: list[Read] = []
    mixture: list[Read] = []

    def part(read: Read) -> int | None:
        return next((i for i, name in enumerate(order) if read.op.startswith(name)), None)

    for read in block.reads:
        if part(read) is not None and (not mixture or mixture[-1].layer == read.layer):
            mixture.append(read)
            continue
        reads += sorted(mixture, key=lambda r: part(r) or 0)
        mixture = []
        (mixture if part(read) is not None else reads).append(read)
    reads += sorted(mixture, key=lambda r: part(r) or 0)
    return replace(block, reads=tuple(reads))
