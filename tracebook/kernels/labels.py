"""What the kernel stages hand to the account: labelled rows, steps and verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Values, parts
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

#: Columns of ROW_SCHEMA that kernels share: the same position of another step has the same.
SHARED = (
    "phase",
    "layer",
    "op",
    "matrix",
    "kernel_class",
    "weight_bytes",
    "evidence",
    "pass_index",
    "name_id",
)

#: One row per steady step that is kept, in time order. `end_ns` is the start of the
#: next step where the next follows at once, else the end of the step's last kernel.
STEP_SCHEMA: dict[str, pl.DataType] = {
    "step_id": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "kernels": pl.Int64(),
}


@dataclass(frozen=True)
class LabelledKernels:
    """Kernels with their labels, told once for all kernels that share one.

    A capture has millions of kernels and a step about a thousand, so that a kernel holds
    the number of its label here, 4 bytes instead of a hundred.

    Attributes:
        frame: The columns of ROW_SCHEMA that are each kernel's own, `step_id` excepted;
            sorted as ROW_SCHEMA is.
        step: `step_id` per kernel, -1 outside steady steps.
        label: Row of `labels` per kernel.
        labels: Distinct labels, the columns SHARED.
        at: Rows of `frame` that the kernels are, None for all.
    """

    frame: pl.DataFrame
    step: NDArray[np.integer]
    label: NDArray[np.integer]
    labels: pl.DataFrame
    at: NDArray[np.integer] | None = None

    @classmethod
    def of(cls, rows: pl.DataFrame) -> LabelledKernels:
        """From rows in ROW_SCHEMA, of which columns may be missing."""
        order = [name for name in ("start_ns", "end_ns", "kernel_id") if name in rows.columns]
        rows = rows.sort(order)
        shared = [name for name in SHARED if name in rows.columns]
        labels = rows.select(shared).unique(maintain_order=True)
        numbered = rows.select(shared).join(
            labels.with_row_index("_label"),
            on=shared,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        known = "step_id" in rows.columns
        step = rows["step_id"] if known else pl.repeat(-1, len(rows), eager=True)
        return cls(
            rows.drop(*shared, "step_id", strict=False),
            step.fill_null(-1).cast(pl.Int32).to_numpy(),
            numbered["_label"].cast(pl.Int32).to_numpy(),
            labels,
        )

    def __len__(self) -> int:
        """Number of kernels."""
        return len(self.label)

    def column(self, name: str) -> Values:
        """A column of `frame` that has no nulls, by part."""
        return Values(self.frame[name], at=self.at)

    def during(self, from_ns: int, to_ns: int) -> LabelledKernels:
        """Those that run within [from, to), also in part."""
        start, end = self.column("start_ns"), self.column("end_ns")
        found = []
        for part in parts(len(self)):
            begun = start[part]
            if begun[0] >= to_ns:
                break
            found.append(np.flatnonzero((begun < to_ns) & (end[part] > from_ns)) + part.start)
        kept = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
        frame = self.frame[kept if self.at is None else self.at[kept]]
        return LabelledKernels(frame, self.step[kept], self.label[kept], self.labels)

    def busy_ns(self) -> tuple[int, int]:
        """Sum of all durations, and of those in steady steps."""
        start, end = self.column("start_ns"), self.column("end_ns")
        total, inside = 0, 0
        for part in parts(len(self)):
            duration = end[part] - start[part]
            total += int(duration.sum())
            inside += int(duration[self.step[part] >= 0].sum())
        return total, inside

    @cached_property
    def rows(self) -> pl.DataFrame:
        """ROW_SCHEMA: a label in full for each kernel, which takes 100 bytes and more."""
        return self.select(*ROW_SCHEMA)

    def select(self, *columns: str) -> pl.DataFrame:
        """Some columns of ROW_SCHEMA."""
        step = pl.Series("step_id", self.step, pl.Int64)
        own = self.frame.select(name for name in columns if name in self.frame.columns)
        own = own if self.at is None else own[self.at]
        if "step_id" in columns:
            own = own.with_columns(step.set(step < 0, None))
        shared = [name for name in columns if name in self.labels.columns]
        told = self.labels[shared][self.label] if shared else pl.DataFrame()
        whole = pl.concat([own, told], how="horizontal").select(columns)
        return whole.cast({name: ROW_SCHEMA[name] for name in columns})


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
        row_grids: All grid sizes of row-wise kernels, the usual one first, where most of
            them and several names share it; empty where that is less clear.
        norm_grids: The same of the norms alone, where two names of norms share the usual one
            (the first norm of a step, and that which adds the residual).
    """

    signature: str
    steps: int
    kernels: int
    rows: int | None
    row_grids: tuple[int, ...] = ()
    norm_grids: tuple[int, ...] = ()

    def describe(self) -> str:
        """In words, for lists of what was left out."""
        rows = f", {self.rows} token{'s' * (self.rows != 1)} at once" if self.rows else ""
        return f"signature {self.signature}, {self.kernels} kernels{rows}"


@dataclass(frozen=True)
class Labelled:
    """The whole result of the kernel stages.

    Attributes:
        kernels: Every kernel of the examined device and process.
        steps: STEP_SCHEMA, steady steps only.
        found: Steps found before dropping any.
        dropped: (reason, count) of steps and step-like stretches left out.
        source: What the steps were found by, in words.
        verdict: Fit of the plan, None without a checkpoint.
        plan: The plan used, None without a checkpoint.
        device: The device examined.
        pid: The process examined, None where the export has none.
        devices: Devices and processes that run about as many kernels as this one, None
            where that is not known.
        notices: Warnings.
        kinds: Kinds of step that were found, the one accounted for first.
    """

    kernels: LabelledKernels
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
    devices: int | None = None

    @property
    def rows(self) -> pl.DataFrame:
        """The kernels in ROW_SCHEMA; large, so only for who needs each kernel in words."""
        return self.kernels.rows
