"""A second opinion: kernel counts and times as nsys itself works them out.

In: a trace and the sums of `nsys stats` or of the recipe cuda_gpu_kern_sum on the same
capture. Out: one row per kernel name, ours beside theirs, and whether they agree. Both
are integers, so that agreement means equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracebook.errors import TraceError
from tracebook.importers import sqlite_of
from tracebook.importers.nsys_results import kernel_sums, parse_stats_csv
from tracebook.nsys import find_nsys, kernel_stats, nsys_version
from tracebook.opening import open_within
from tracebook.trace import Trace

#: One row per kernel name; null where one side does not know it.
SUMS_SCHEMA: dict[str, pl.DataType] = {
    "name": pl.String(),
    "kernels": pl.Int64(),
    "duration_ns": pl.Int64(),
    "nsys_kernels": pl.Int64(),
    "nsys_duration_ns": pl.Int64(),
}


@dataclass(frozen=True)
class Verification:
    """The comparison.

    Attributes:
        sums: SUMS_SCHEMA, most time first.
        source: What it was compared with, in words.
    """

    sums: pl.DataFrame
    source: str

    @property
    def differing(self) -> pl.DataFrame:
        """The rows in which count or time differ."""
        return self.sums.filter(
            pl.col("kernels").ne_missing(pl.col("nsys_kernels"))
            | pl.col("duration_ns").ne_missing(pl.col("nsys_duration_ns"))
        )

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Kernels and ns of ours, kernels and ns of theirs."""
        kernels, ns, theirs, their_ns = self.sums.select(pl.exclude("name").sum()).row(0)
        return kernels, ns, theirs, their_ns


def verify(
    path: Path, against: Path | None = None, *, max_memory_bytes: int | None = None
) -> Verification:
    """Compare the kernels of a whole capture with nsys's own sums.

    Args:
        path: The trace; the whole of it is compared, whatever a report looks at.
        against: A CSV file of `nsys stats -r cuda_gpu_kern_sum` or a finished folder of
            the recipe of that name; else `nsys stats` is run.
        max_memory_bytes: As `open_within`.

    Raises:
        TraceError: The trace cannot be read, or is none that nsys stats can read.
        NsysError: nsys is missing or failed.
    """
    trace = open_within(path, max_memory_bytes=max_memory_bytes)
    if against is not None:
        return compare(trace, kernel_sums(against), str(against))
    export = sqlite_of(path)
    if export is None:
        raise TraceError(
            f"nsys stats cannot read {path}, a directory export.",
            "Verify the SQLite export or the report of the same run.",
        )
    binary = find_nsys()
    theirs = parse_stats_csv(kernel_stats(export, nsys=binary), path)
    return compare(trace, theirs, f"nsys stats {nsys_version(binary) or ''}".strip())


def compare(trace: Trace, theirs: pl.DataFrame, source: str) -> Verification:
    """Put our sums beside theirs.

    Args:
        trace: The whole capture.
        theirs: name, instances, total_time_ns; a name may stand in several rows.
        source: What `theirs` comes from.
    """
    ours = (
        trace.kernels.group_by("name_id")
        .agg(kernels=pl.len(), duration_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .join(trace.names, on="name_id", how="left")
        .group_by("name")
        .agg(pl.col("kernels", "duration_ns").sum())
    )
    known = theirs.group_by("name").agg(
        nsys_kernels=pl.col("instances").sum(), nsys_duration_ns=pl.col("total_time_ns").sum()
    )
    sums = (
        ours.join(known, on="name", how="full", coalesce=True)
        .select(pl.col(name).cast(dtype) for name, dtype in SUMS_SCHEMA.items())
        .sort(
            pl.max_horizontal("duration_ns", "nsys_duration_ns"), "name", descending=[True, False]
        )
    )
    return Verification(sums, source)
