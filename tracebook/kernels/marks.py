"""Marks: the kernels of a template whose phase is known by themselves.

They come from the alignment with a plan, or from structure where there is no plan,
and everything between two marks inherits from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.kernels.fit import Fit, bytes_of
from tracebook.phases import Phase


@dataclass(frozen=True)
class BlockMark:
    """A block of the step: `name` as in `Block`, its phase and draft pass."""

    name: str
    phase: str
    pass_index: int


@dataclass(frozen=True)
class Mark:
    """One kernel position and what it reads."""

    position: int
    block: int
    layer: int | None
    op: str
    matrix: str
    weight_bytes: int | None
    evidence: str


@dataclass(frozen=True)
class Marks:
    """Marks in cyclic step order, and the blocks they belong to."""

    blocks: tuple[BlockMark, ...]
    marks: tuple[Mark, ...]

    def by_position(self) -> list[Mark]:
        """Marks sorted by position."""
        return sorted(self.marks, key=lambda mark: mark.position)


PHASE_OF_BLOCK = {
    "target": Phase.TARGET_LAYERS,
    "output": Phase.OUTPUT_LAYER,
    "draft_context": Phase.DRAFTER_LAYERS,
    "draft": Phase.DRAFTER_LAYERS,
    "draft_head": Phase.DRAFT_HEAD,
}


def marks_of_fit(fit: Fit, plan: Plan) -> Marks:
    """Turn the findings of an alignment into marks."""
    block_of = np.repeat(np.arange(len(plan.blocks)), [len(b.reads) for b in plan.blocks])
    shares = bytes_of(fit, plan.reads)
    reads = plan.reads
    marks: list[Mark] = []
    for found in fit.found:
        part = reads[found.first : found.end]
        marks += [
            Mark(
                position=k,
                block=int(block_of[found.first]),
                layer=part[0].layer,
                op="+".join(_distinct([read.op for read in part])),
                matrix="+".join(_distinct([read.matrix for read in part])),
                weight_bytes=int(shares[k]),
                evidence="alignment",
            )
            for k in found.kernels
        ]
    blocks = tuple(
        BlockMark(b.name, PHASE_OF_BLOCK[b.name].value, b.pass_index) for b in plan.blocks
    )
    return Marks(blocks, tuple(marks))


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
