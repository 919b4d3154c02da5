"""Orders in which engines may make the reads of one plan.

Only orders that matter for the alignment are listed: where the shared expert of a
mixture stands relative to the router and the routed experts.
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
    """The plan in each order worth trying; just itself for models without shared experts."""
    if not any(read.op.startswith("shared") for read in plan.reads):
        return [plan]
    return [
        replace(plan, blocks=tuple(_reordered(block, order) for block in plan.blocks))
        for order in EXPERT_ORDERS
    ]


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
