"""The launch-ordered sequence of one device and process as arrays, and its symbols."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.kernels.classes import CLASSES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Durations of one kernel name are taken for two populations where neighbours in the
#: sorted list differ by more than this factor and both sides are well filled.
SPLIT_FACTOR = 1.6
SPLIT_SHARE = 0.004
SPLIT_TIME_SHARE = 0.005
SPLIT_LEAST = 3
SPLIT_WINDOW = 200_000
#: Parts of the trace in which two populations of one name have to run side by side.
SPLIT_PARTS = 16
#: Short names that stand for any kernel of a library (reference: CUTLASS, cuBLAS).
SAYS_NOTHING = ["kernel", "kernel2", "device_kernel", "main", "kernel_impl", "global_kernel"]
#: Classes whose grid follows the length of the context, so that it drifts from step to step.
CONTEXT_SHAPED = ("attention",)


@dataclass(frozen=True)
class Kernels:
    """Arrays of shape (kernels,) in launch order, one device and process.

    `shape_symbol` compares (name, grid, block) for equality; `symbol` also separates
    clearly different durations of one shape, which is all there is where names and
    grids say nothing. `kernel_class` indexes CLASSES. `grid` has shape (kernels, 3).
    `gap_ns` is the time before the kernel in which nothing ran.
    """

    frame: pl.DataFrame
    symbol: Ints
    shape_symbol: Ints
    kernel_class: Ints
    duration_ns: Floats
    start_ns: Ints
    end_ns: Ints
    gap_ns: Floats
    launch: Ints
    in_graph: Bools
    grid: Ints
    prefill: Bools
    autotune: Bools
    step_marker: Bools
    train: Bools
    base_name: Ints
    empty_base_names: Ints
    names: dict[int, str]

    def __len__(self) -> int:
        """Number of kernels."""
        return len(self.symbol)


def build_kernels(ordered: pl.DataFrame, classes: pl.DataFrame, names: pl.DataFrame) -> Kernels:
    """Turn launch-ordered rows into arrays.

    Args:
        ordered: KERNEL_SCHEMA with `launch` and `in_graph`, in launch order.
        classes: CLASS_SCHEMA.
        names: NAME_SCHEMA.
    """
    frame = ordered.join(
        classes.select("name_id", "kernel_class", "marker"),
        on="name_id",
        how="left",
        maintain_order="left",
    )
    drifts = pl.col("kernel_class").is_in(CONTEXT_SHAPED)
    shape = [
        pl.when(~drifts).then(name).alias(name)
        for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    ]
    shape_symbol = _number_distinct(frame.select("name_id", *shape))
    start = frame["start_ns"].to_numpy().astype(np.int64)
    end = frame["end_ns"].to_numpy().astype(np.int64)
    duration = (end - start).astype(np.float64)
    code = {name: number for number, name in enumerate(CLASSES)}
    kernel_class = frame["kernel_class"].replace_strict(code, return_dtype=pl.Int64)
    marker = frame["marker"].fill_null("")

    def marked(name: str) -> Bools:
        return (marker == name).to_numpy()

    grid = frame.select(pl.col("grid_x", "grid_y", "grid_z").fill_null(0)).to_numpy()
    return Kernels(
        frame=frame,
        symbol=split_by_duration(shape_symbol, duration),
        shape_symbol=shape_symbol,
        kernel_class=kernel_class.to_numpy(),
        duration_ns=duration,
        start_ns=start,
        end_ns=end,
        gap_ns=_idle_before(start, end),
        launch=frame["launch"].to_numpy().astype(np.int64),
        in_graph=frame["in_graph"].to_numpy(),
        grid=grid.astype(np.int64),
        prefill=marked("prefill"),
        autotune=marked("autotune"),
        step_marker=marked("step"),
        train=marked("train"),
        base_name=_base_names(frame, names),
        empty_base_names=_empty_base_names(names),
        names=dict(names.select("name_id", "name").iter_rows()),
    )


def _base_names(frame: pl.DataFrame, names: pl.DataFrame) -> Ints:
    """A number per kernel, equal where the short names (without template arguments) are."""
    numbered = names.select("name_id", base=pl.col("short_name").rank("dense"))
    joined = frame.select("name_id").join(numbered, on="name_id", how="left", maintain_order="left")
    return joined["base"].fill_null(0).to_numpy().astype(np.int64)


def _empty_base_names(names: pl.DataFrame) -> Ints:
    """Numbers (as in `_base_names`) of the short names that say nothing."""
    numbered = names.select("short_name", base=pl.col("short_name").rank("dense"))
    empty = numbered.filter(pl.col("short_name").str.to_lowercase().is_in(SAYS_NOTHING))
    return empty["base"].unique().to_numpy().astype(np.int64)


def _number_distinct(frame: pl.DataFrame) -> Ints:
    """A number per row, equal where all columns are; numbered by first occurrence.

    Rows are compared by a 64-bit hash: with a few thousand distinct rows two that collide
    are less likely than a memory error.
    """
    key = frame.select(key=pl.struct(pl.all()).hash())
    distinct = key.unique(maintain_order=True).with_row_index("number")
    joined = key.join(distinct, on="key", how="left", maintain_order="left")
    return joined["number"].to_numpy().astype(np.int64)


def _idle_before(start: Ints, end: Ints) -> Floats:
    """Idle time before each kernel, in time order, given back in launch order."""
    in_order = bool((start[1:] >= start[:-1]).all())
    order = np.arange(len(start)) if in_order else np.lexsort((end, start))
    reached = np.maximum.accumulate(end[order])
    gap = np.zeros(len(start))
    gap[order[1:]] = np.maximum(0, start[order][1:] - reached[:-1])
    return gap


def split_by_duration(shape_symbol: Ints, duration_ns: Floats) -> Ints:
    """Refine symbols where one shape has clearly separate durations (any number of groups).

    Populations are told apart on a window from the middle of the trace, then every kernel
    is assigned by the limits found there.
    """
    if not len(shape_symbol):
        return shape_symbol
    spare = max(0, len(shape_symbol) - SPLIT_WINDOW) // 2
    window = slice(spare, spare + SPLIT_WINDOW)
    limits = _population_limits(shape_symbol[window], duration_ns[window])
    groups = np.ones(int(shape_symbol.max()) + 1, dtype=np.int64)
    for shape, _ in limits:
        groups[shape] += 1
    symbol = (np.cumsum(groups) - groups)[shape_symbol]
    for shape, limit in limits:
        symbol[(shape_symbol == shape) & (duration_ns >= limit)] += 1
    return np.asarray(symbol, dtype=np.int64)


def _population_limits(shape_symbol: Ints, duration_ns: Floats) -> list[tuple[int, float]]:
    """Pairs (shape, shortest duration of its next population)."""
    order = np.lexsort((duration_ns, shape_symbol))
    shape, duration = shape_symbol[order], duration_ns[order]
    log = np.log(np.maximum(duration, 1.0))
    first = np.flatnonzero(np.diff(shape, prepend=shape[0] - 1))
    count = np.diff(np.append(first, len(shape)))
    jump = np.diff(log, prepend=log[0]) > np.log(SPLIT_FACTOR)
    jump[first] = True
    # A group too small to be a population of its own joins the one below it: it needs its
    # share of the kernels of that name, or of all time (a head is rare and long).
    edges = np.flatnonzero(jump)
    size = np.diff(np.append(edges, len(shape)))
    owner = np.searchsorted(first, edges, side="right") - 1
    time = np.add.reduceat(duration, edges)
    heavy = time >= SPLIT_TIME_SHARE * duration.sum()
    own = (size >= SPLIT_LEAST) & (heavy | (size >= SPLIT_SHARE * count[owner]))
    keep = own & np.append(True, own[:-1]) & ~np.isin(edges, first)
    ends = np.append(edges[1:], len(shape))
    parts = min(SPLIT_PARTS, 1 + len(shape) // 64)
    part = order * parts // len(shape)
    return [
        (int(shape[edges[i]]), float(duration[edges[i]]))
        for i in np.flatnonzero(keep)
        if _side_by_side(part[edges[i - 1] : edges[i]], part[edges[i] : ends[i]])
    ]


def _side_by_side(low: Ints, high: Ints) -> bool:
    """Whether two populations run in the same parts of the trace.

    Those of two roles do; the same role before and after a drop of the clock does not.
    """
    low_parts, high_parts = np.unique(low), np.unique(high)
    shared = len(np.intersect1d(low_parts, high_parts))
    return shared >= 0.5 * min(len(low_parts), len(high_parts))
