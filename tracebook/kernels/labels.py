"""What the kernel stages hand to the account: labelled rows, steps and verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from tracebook.checkpoint.plan import Plan
from tracebook.notices import Notice

#: One row per kernel of the examined device and process, sorted by (start_ns, end_ns,
#: kernel_id). `step_id` is null outside steady steps. `phase` is a `Phase` value.
#: `weight_bytes` is set on kernels that were matched with reads of the plan; where one
#: matrix is read by several kernels its bytes are divided among them by time, in integers.
#: `evidence` is `alignment`, `name`, `launch`, `neighbour`, `structure` or `none`.
#: `pass_index` counts draft passes from 0 (null outside drafting).
ROW_SCHEMA: dict[str, pl.DataType] = {
    "kernel_id": pl.Int64(),
    "step_id": pl.Int64(),  # nullable
    "phase": pl.String(),
    "layer": pl.Int32(),  # nullable
    "op": pl.String(),  # nullable
    "matrix": pl.String(),  # nullable; fused reads joined by "+"
    "kernel_class": pl.String(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "weight_bytes": pl.Int64(),  # nullable
    "evidence": pl.String(),
    "pass_index": pl.Int32(),  # nullable
    "stream": pl.Int64(),  # nullable
    "name_id": pl.Int64(),
}

#: One row per steady step that is kept, in time order. `end_ns` is the start of the
#: next step where the next follows at once, else the end of the step's last kernel.
STEP_SCHEMA: dict[str, pl.DataType] = {
    "step_id": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "kernels": pl.Int64(),
}


@dataclass(frozen=True)
class Verdict:
    """How well the plan fits the kernels of the steady step.

    Attributes:
        matched_share: Share of the plan's bytes that a kernel was found for.
        off_share: Share of matched bytes whose kernel is more than 25 % away from
            the time that the fitted bandwidth gives.
        unmatched_gemm_share: Share of the step's busy time in kernels that look like
            weight readers but match nothing.
        fitted_gbps: Bandwidth that explains the matched kernels best.
        phases_trusted: False where phases must not be believed.
        bytes_trusted: False where byte figures must not be given.
        matched_bytes: Weight bytes per phase and step that kernels were found for,
            `small_bytes` of the plan included.
        passes: Number of passes per phase (sequential draft passes, else 1).
    """

    matched_share: float
    off_share: float
    unmatched_gemm_share: float
    fitted_gbps: float
    phases_trusted: bool
    bytes_trusted: bool
    matched_bytes: dict[str, int]
    passes: dict[str, int]


@dataclass(frozen=True)
class KindInfo:
    """One kind of step.

    Attributes:
        signature: Short hash of names, grids and their counts, the same in every capture
            of the same build.
        steps: How many slices of it were found.
        kernels: Kernels of one of them.
        rows: Tokens that go through the model at once, from the grids of the norms; None
            where grids or names do not tell.
    """

    signature: str
    steps: int
    kernels: int
    rows: int | None

    def describe(self) -> str:
        """In words, for lists of what was left out."""
        rows = f", {self.rows} token{'s' * (self.rows != 1)} at once" if self.rows else ""
        return f"signature {self.signature}, {self.kernels} kernels{rows}"


@dataclass(frozen=True)
class Labelled:
    """The whole result of the kernel stages.

    Attributes:
        rows: ROW_SCHEMA.
        steps: STEP_SCHEMA, steady steps only.
        found: Steps found before dropping any.
        dropped: (reason, count) of steps and step-like stretches left out.
        source: What the steps were found by, in words.
        verdict: Fit of the plan, None without a checkpoint.
        plan: The plan used, None without a checkpoint.
        device: The device examined.
        pid: The process examined, None where the export has none.
        notices: Warnings.
        kinds: Kinds of step that were found, the one accounted for first.
    """

    rows: pl.DataFrame
    steps: pl.DataFrame
    found: int
    dropped: tuple[tuple[str, int], ...]
    source: str
    verdict: Verdict | None
    plan: Plan | None
    device: int | None
    pid: int | None
    notices: tuple[Notice, ...] = field(default_factory=tuple)
    kinds: tuple[KindInfo, ...] = ()
