"""From raw kernel rows to KERNEL_SCHEMA: what cannot be right is dropped and counted."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracebook.importers.source import RawKernels
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA

#: Times beyond this (73 years in ns, which leaves room for epoch times) and kernels
#: longer than 2^50 ns (13 days) are no measurements; the bounds also keep sums of
#: durations within 64 bits.
_LATEST_NS = 2**62
_LONGEST_NS = 2**50
_PID_SHIFT = 24
_PID_MASK = 0xFFFFFF

_REQUIRED = ("start_ns", "end_ns", "device")


def clean_kernels(raw: RawKernels) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Check, convert and sort kernel rows.

    Args:
        raw: `kernel_id`, start, end and device, `full`, `short` and `mangled` name ids
            where the export has them, and optional columns.

    Returns:
        Frame in KERNEL_SCHEMA plus `short_id` (nullable), sorted by (start_ns, end_ns,
        kernel_id), and one notice for each kind of thing left out.
    """
    frame = raw.frame
    name_columns = [c for c in ("full", "short", "mangled") if c in frame.columns]
    frame = frame.with_columns(
        name_id=pl.coalesce(name_columns),
        short_id=pl.col("short") if "short" in name_columns else pl.lit(None, pl.Int64),
    )
    frame, notices = _drop_unusable(frame)
    frame, out_of_range = _to_schema(frame)
    lost = {**raw.misfits}
    for column, count in out_of_range.items():
        lost[column] = lost.get(column, 0) + count
    notices += _lost_values(lost)
    return _sorted(frame), tuple(notices)


def _drop_unusable(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Notice]]:
    """Drop rows that cannot be placed, counting each row under its first reason."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    missing = pl.any_horizontal(
        *(pl.col(c).is_null() for c in (*_REQUIRED, "name_id")),
        ~pl.col("device").is_between(-(2**31), 2**31 - 1),
    ).fill_null(True)
    beyond = (start.abs() > _LATEST_NS) | (end.abs() > _LATEST_NS) | (start == -(2**63))
    too_long = (end - start) > _LONGEST_NS
    reasons = (
        (missing, "without a usable start, end, device or name"),
        (beyond, "with times that cannot be"),
        (end < start, "that end before they start"),
        (too_long, "longer than 13 days"),
    )
    notices = []
    for test, words in reasons:
        bad = frame.select(test.alias("bad"))["bad"]
        count = int(bad.sum())
        if count:
            frame = frame.filter(~bad)
            rows = "1 kernel row" if count == 1 else f"{count:,} kernel rows"
            notices.append(Notice("rows_dropped", f"{rows} {words} left out."))
    return frame, notices


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


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by (start_ns, end_ns, kernel_id); rows come in the order of kernel_id."""
    start, end = pl.col("start_ns").diff(), pl.col("end_ns").diff()
    in_order = frame.select(((start > 0) | ((start == 0) & (end >= 0))).all()).item()
    if in_order:
        return frame
    return frame.sort("start_ns", "end_ns", maintain_order=True)
