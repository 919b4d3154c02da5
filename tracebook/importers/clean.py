"""From raw kernel rows to KERNEL_SCHEMA: what cannot be right is dropped and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.importers.source import LATEST_NS, LONGEST_NS, RawKernels
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA

_PID_SHIFT = 24
_PID_MASK = 0xFFFFFF

_REQUIRED = ("start_ns", "end_ns", "device")
#: Why a row is left out; of several reasons the first counts.
_REASONS = (
    "without a usable start, end, device or name",
    "with times that cannot be",
    "that end before they start",
    "longer than 13 days",
)


@dataclass(frozen=True)
class Cleaned:
    """A page of kernels that can be placed, and what was left out of it.

    Attributes:
        frame: KERNEL_SCHEMA plus `short_id` (nullable), sorted by (start_ns, end_ns, kernel_id).
        dropped: Number of rows by the reason for which they were left out.
        lost: Number of values by the column in which they count as missing.
    """

    frame: pl.DataFrame
    dropped: Mapping[str, int]
    lost: Mapping[str, int]


def clean_page(raw: RawKernels) -> Cleaned:
    """Check and convert kernel rows.

    Args:
        raw: `kernel_id`, start, end and device, `full`, `short` and `mangled` name ids
            where the export has them, and optional columns.
    """
    frame = raw.frame
    name_columns = [c for c in ("full", "short", "mangled") if c in frame.columns]
    frame = frame.with_columns(
        name_id=pl.coalesce(name_columns),
        short_id=pl.col("short") if "short" in name_columns else pl.lit(None, pl.Int64),
    )
    frame, dropped = _drop_unusable(frame)
    frame, out_of_range = _to_schema(frame)
    lost = Counter(raw.misfits)
    lost.update(out_of_range)
    return Cleaned(_sort_page(frame), dropped, lost)


def left_out(dropped: Mapping[str, int], lost: Mapping[str, int]) -> tuple[Notice, ...]:
    """One notice for each kind of thing left out, from the counts of all pages."""
    notices = [
        Notice(
            "rows_dropped",
            f"{'1 kernel row' if count == 1 else f'{count:,} kernel rows'} {reason} left out.",
        )
        for reason in _REASONS
        if (count := dropped.get(reason, 0))
    ]
    return (*notices, *_lost_values(lost))


def _drop_unusable(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Drop rows that cannot be placed, counting each row under its first reason."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    missing = pl.any_horizontal(
        *(pl.col(c).is_null() for c in (*_REQUIRED, "name_id")),
        ~pl.col("device").is_between(-(2**31), 2**31 - 1),
    ).fill_null(True)
    beyond = (start.abs() > LATEST_NS) | (end.abs() > LATEST_NS) | (start == -(2**63))
    too_long = (end - start) > LONGEST_NS
    tests = dict(zip(_REASONS, (missing, beyond, end < start, too_long), strict=True))
    counts = {}
    for reason, test in tests.items():
        bad = frame.select(test.alias("bad"))["bad"]
        count = int(bad.sum())
        if count:
            frame = frame.filter(~bad)
            counts[reason] = count
    return frame, counts


def _to_schema(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    if "global_pid" in frame.columns:
        pid = (pl.col("global_pid") // (1 << _PID_SHIFT)) & _PID_MASK
        frame = frame.with_columns(pid=pid)
    out_of_range: dict[str, int] = {}
    columns = []
    for ours, dtype in KERNEL_SCHEMA.items():
        if ours not in frame.columns:
            columns.append(pl.lit(None, dtype).alias(ours))
        elif dtype == pl.Int64:
            columns.append(pl.col(ours))
        else:
            columns.append(pl.col(ours).cast(dtype, strict=False))
    converted = frame.select(*columns, pl.col("short_id"))
    for ours in set(frame.columns) & set(KERNEL_SCHEMA):
        count = converted[ours].null_count() - frame[ours].null_count()
        if count:
            out_of_range[ours] = count
    return converted, out_of_range


def _lost_values(lost: Mapping[str, int]) -> list[Notice]:
    return [
        Notice(
            "values_dropped",
            f"{count:,} values of {column} were not integers in range and count as missing.",
        )
        for column, count in sorted(lost.items())
        if column not in _REQUIRED and column not in ("full", "short", "mangled")
    ]


def _sort_page(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort a page by (start_ns, end_ns, kernel_id), while it is in the processor's cache."""
    start, end = _times(frame)
    if _in_order(start, end):
        return frame
    # numpy's stable sort takes what order there is: an export is nearly in order of time.
    return frame[np.lexsort((end, start)).astype(np.uint32)]


def _times(frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()


def _in_order(start: NDArray[np.int64], end: NDArray[np.int64]) -> bool:
    """Whether rows in the order of kernel_id are in the order of (start, end) too."""
    later, same = start[1:] > start[:-1], start[1:] == start[:-1]
    return bool((later | (same & (end[1:] >= end[:-1]))).all())
