"""Launch order: kernels in the order the host launched them, not as streams interleave.

Two kernels on different streams may swap places from step to step; the order in
which they were launched does not. Within one process correlation ids count
launches, and all nodes of one graph launch share one id.
"""

from __future__ import annotations

import polars as pl

#: Where more than this share of kernels has no correlation id, start order is used.
MISSING_IDS = 0.01
#: A later launch whose start lies this far before an earlier one's contradicts the order.
BACK_NS = 2_000_000
BACK_SHARE = 0.001


def launch_order(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sort the kernels of one device and process by launch.

    Args:
        kernels: KERNEL_SCHEMA, one device and process, sorted by start.

    Returns:
        The same rows in launch order with two more columns: `launch` (UInt32, equal
        within one launch, rising) and `in_graph` (whether the launch has several
        kernels or the kernel is a graph node). Start order where ids do not help.
    """
    ids = kernels["correlation_id"]
    if kernels.is_empty() or ids.null_count() > MISSING_IDS * len(kernels):
        return _by_start(kernels)
    ordered = (
        kernels.with_columns(
            pl.col("correlation_id")
            .fill_null(strategy="forward")
            .fill_null(strategy="backward")
            .alias("_corr")
        )
        .with_columns(_offset=pl.col("start_ns") - pl.col("start_ns").min().over("_corr"))
        .with_columns(_place=_place_in_launch(kernels))
    )
    if not _is_sorted(ordered):
        ordered = ordered.sort(["_corr", "_place", "start_ns", "kernel_id"])
    starts = ordered["start_ns"]
    back = (starts.cum_max().shift(1) - starts > BACK_NS).sum()
    if back > BACK_SHARE * len(ordered):
        return _by_start(kernels)
    size = pl.len().over("_corr")
    return ordered.with_columns(
        launch=pl.col("_corr").rle_id(),
        in_graph=(size > 1) | pl.col("graph_node_id").is_not_null(),
    ).drop("_corr", "_offset", "_place")


def _is_sorted(kernels: pl.DataFrame) -> bool:
    """Whether start order is launch order already, as on a single stream."""
    later, same = pl.col("_corr").diff() > 0, pl.col("_corr").diff() == 0
    rising = (later | (same & (pl.col("_place").diff() >= 0))).fill_null(True)
    return bool(kernels.select(rising.all()).item())


def _place_in_launch(kernels: pl.DataFrame) -> pl.Expr:
    """Mean start offset of a graph node over its launches, else the own offset."""
    own = pl.col("_offset").cast(pl.Float64)
    if kernels["graph_node_id"].null_count() == len(kernels):
        return own
    return (
        pl.when(pl.col("graph_node_id").is_null())
        .then(own)
        .otherwise(own.mean().over("graph_node_id"))
    )


def _by_start(kernels: pl.DataFrame) -> pl.DataFrame:
    """Start order; each kernel its own launch unless ids say otherwise."""
    ordered = kernels.sort(["start_ns", "end_ns", "kernel_id"])
    same = (pl.col("correlation_id") == pl.col("correlation_id").shift(1)).fill_null(False)
    return ordered.with_columns(
        launch=(~same).cum_sum().cast(pl.UInt32),
        in_graph=pl.col("graph_node_id").is_not_null(),
    )
