"""What a ledger comes to: components, bits per weight, and what one step reads.

In: a `Ledger`, and the plan of a step where it can be laid out. Out: a `Summary`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Basis, Plan
from tracebook.notices import Notice

#: The rule of M, printed beside every figure that follows from it.
RULE_OF_M = (
    "M = every matrix with its scales, norm and vector of the target's layers, the final norm "
    "and the output layer. Not in M: the embedding table (one row a token), vision and audio, "
    "an MTP head that is off, gather tables, KV cache, recurrent state and activations."
)

_READ_ORDER = ("step", "drafting", "rows", "never", "unknown")


@dataclass(frozen=True)
class Component:
    """One line of the ledger.

    Attributes:
        name: Component.
        bytes: Its bytes.
        share: Of the payload, 0 to 1.
        params: Logical weights, None where the headers cannot tell.
        bits_per_weight: Scales included, None likewise.
        formats: How it is stored, most bytes first.
        read: When a decode step reads it: `step`, `drafting`, `rows`, `never`, `unknown`.
    """

    name: str
    bytes: int
    share: float
    params: int | None
    bits_per_weight: float | None
    formats: tuple[str, ...]
    read: str


@dataclass(frozen=True)
class Layers:
    """The target's layers as a whole: count, bytes, weights, mean bits, bytes by block."""

    count: int
    bytes: int
    params: int | None
    bits_per_weight: float | None
    blocks: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StepBytes:
    """What one decode step reads.

    Attributes:
        phases: Phase -> bytes per step, small tensors included, optional reads not.
        optional: Reads that some engines make besides, op -> bytes.
        total: Sum of `phases`.
        basis: The weakest basis of any read.
        description: What is decoded and how it is drafted.
    """

    phases: dict[str, int]
    optional: dict[str, int]
    total: int
    basis: Basis
    description: str


@dataclass(frozen=True)
class Summary:
    """A checkpoint's bytes, ready to be printed.

    Attributes:
        name: Checkpoint.
        source: `directory`, `file`, `bundle` or `gguf`.
        family: Family file that names its modules.
        files: Number of files.
        tensors: Number of tensors.
        payload_bytes: Bytes of tensor data; the components sum to it.
        components: Read parts first.
        layers: The target's layers, None where there are none.
        step: One decode step, None for a checkpoint that is no target.
        draft_pass_bytes: For a drafter: what one pass reads of this checkpoint.
        notices: Warnings.
    """

    name: str
    source: str
    family: str
    files: int
    tensors: int
    payload_bytes: int
    components: tuple[Component, ...]
    layers: Layers | None
    step: StepBytes | None
    draft_pass_bytes: int | None
    notices: tuple[Notice, ...] = ()


def summarize(ledger: Ledger, plan: Plan | None = None) -> Summary:
    """Sum a ledger up.

    Args:
        ledger: The ledger.
        plan: The plan of a step of this target, None for a checkpoint that is no target.

    Returns:
        The summary; components sum to the payload.
    """
    drafting = ledger.modules.filter(pl.col("part").is_in(["drafter", "draft_head"]))
    read = drafting.filter(pl.col("read") == "drafting")["bytes"].sum()
    return Summary(
        name=ledger.checkpoint.name,
        source=ledger.checkpoint.source,
        family=ledger.family,
        files=ledger.checkpoint.tensors["file"].n_unique(),
        tensors=ledger.checkpoint.tensors.height,
        payload_bytes=ledger.payload_bytes,
        components=_components(ledger),
        layers=_layers(ledger),
        step=None if plan is None else step_bytes(plan),
        draft_pass_bytes=int(read) if not drafting.is_empty() else None,
        notices=(*ledger.notices, *(plan.notices if plan is not None else ())),
    )


def step_bytes(plan: Plan) -> StepBytes:
    """Sum a plan up by phase."""
    phases: Counter[str] = Counter()
    optional: Counter[str] = Counter()
    bases = {read.basis for read in plan.reads if not read.optional}
    for read in plan.reads:
        if read.optional:
            optional[read.op] += read.weight_bytes
        else:
            phases[read.phase] += read.weight_bytes
    phases.update(plan.small_bytes)
    weakest: Basis = "exact"
    if bases & {"derived", "assumed"}:
        weakest = "assumed" if "assumed" in bases else "derived"
    return StepBytes(dict(phases), dict(optional), phases.total(), weakest, plan.description)


def _components(ledger: Ledger) -> tuple[Component, ...]:
    grouped = ledger.modules.group_by("component", "read", maintain_order=True).agg(
        pl.col("bytes").sum(),
        pl.when(pl.col("params").is_null().any())
        .then(None)
        .otherwise(pl.col("params").sum())
        .alias("params"),
    )
    found = []
    for name, read, size, params in grouped.iter_rows():
        share = size / ledger.payload_bytes if ledger.payload_bytes else 0.0
        formats = _formats(ledger, name)
        found.append(Component(name, size, share, params, _bits(size, params), formats, read))
    return tuple(sorted(found, key=lambda c: (_READ_ORDER.index(c.read), -c.bytes)))


def _formats(ledger: Ledger, component: str) -> tuple[str, ...]:
    frame = ledger.modules.filter(pl.col("component") == component)
    frame = frame.group_by("format").agg(pl.col("bytes").sum())
    return tuple(frame.sort("bytes", "format", descending=[True, False])["format"])


def _layers(ledger: Ledger) -> Layers | None:
    inside = ledger.modules.filter(
        (pl.col("part") == "target") & pl.col("layer").is_not_null() & (pl.col("read") == "step")
    )
    if inside.is_empty():
        return None
    blocks = inside.group_by("block").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    size = int(inside["bytes"].sum())
    known = inside["params"].null_count() == 0
    params = int(inside["params"].sum()) if known else None
    return Layers(
        count=inside["layer"].n_unique(),
        bytes=size,
        params=params,
        bits_per_weight=_bits(size, params),
        blocks=tuple(blocks.iter_rows()),
    )


def _bits(size: int, params: int | None) -> float | None:
    return 8 * size / params if params else None
