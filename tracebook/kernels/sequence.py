"""The launch-ordered sequence of one device and process as arrays, and its symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.kernels.classes import CLASSES

#: Of any width: what numbers a few names or shapes takes as few bytes as will do.
Ints = NDArray[np.integer]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Durations of one kernel name are taken for two populations where neighbours in the
#: sorted list differ by more than this factor and both sides are well filled.
SPLIT_FACTOR = 1.6
SPLIT_SHARE = 0.004
SPLIT_TIME_SHARE = 0.005
SPLIT_LEAST = 3
SPLIT_WINDOW = 200_000
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
#: Kernels that are hashed at a time, so that what is made meanwhile stays in the cache.
_CHUNK = 65_536
#: Up to so many numbers between the smallest and the largest id a table is quicker than a search.
_DENSE_IDS = 1 << 24
#: Parts of the trace in which two populations of one name have to run side by side.
SPLIT_PARTS = 16
#: Short names that stand for any kernel of a library (reference: CUTLASS, cuBLAS).
SAYS_NOTHING = ["kernel", "kernel2", "device_kernel", "main", "kernel_impl", "global_kernel"]
#: Classes whose grid follows the length of the context, so that it drifts from step to step.
CONTEXT_SHAPED = ("attention",)


@dataclass(frozen=True)
class Grids:
    """Grids of kernels, x, y and z as columns; an index gives an array of shape (..., 3)."""

    columns: tuple[Ints, Ints, Ints]

    def __getitem__(self, index: int | slice | Ints) -> Ints:
        """Grids of some kernels."""
        picked = [np.asarray(column[index], dtype=np.int64) for column in self.columns]
        return np.stack(picked, axis=-1)


@dataclass(frozen=True)
class ByName:
    """What kernels have by their name, looked up for those that are asked for."""

    of_name: NDArray[Any]
    name: Ints

    def __getitem__(self, index: slice | Ints) -> NDArray[Any]:
        """Values of some kernels."""
        return np.asarray(self.of_name[self.name[index]])


@dataclass(frozen=True)
class Kernels:
    """Arrays of shape (kernels,) in launch order, one device and process.

    `shape_symbol` compares (name, grid, block) for equality; `symbol` also separates
    clearly different durations of one shape, which is all there is where names and
    grids say nothing. `kernel_class` indexes CLASSES. `name` numbers the names of
    `name_ids` and `classes` (one per name).
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
    grid: Grids
    prefill: Bools
    autotune: Bools
    step_marker: ByName
    train: Bools
    base_name: ByName
    empty_base_names: Ints
    names: dict[int, str]
    name: Ints
    name_ids: Ints

    def __len__(self) -> int:
        """Number of kernels."""
        return len(self.symbol)


def build_kernels(ordered: pl.DataFrame, classes: pl.DataFrame, names: pl.DataFrame) -> Kernels:
    """Turn launch-ordered rows into arrays.

    What is the same for all kernels of a name is looked up by name.

    Args:
        ordered: KERNEL_SCHEMA with `launch` and `in_graph`, in launch order.
        classes: CLASS_SCHEMA.
        names: NAME_SCHEMA.
    """
    known = names.join(
        classes.select("name_id", "kernel_class", "marker"),
        on="name_id",
        how="left",
        maintain_order="left",
    )
    name_ids = known["name_id"].to_numpy()
    # Of the width that numpy looks up by, for as long as much is looked up.
    name = _positions(ordered["name_id"].to_numpy(), name_ids)
    code = {name: number for number, name in enumerate(CLASSES)}
    class_of_name = known["kernel_class"].replace_strict(code, return_dtype=pl.Int8).to_numpy()
    marker = known["marker"].fill_null("")
    base = known["short_name"].rank("dense").fill_null(0).cast(pl.Int32).to_numpy()

    def marked(word: str) -> Bools:
        flags = (marker == word).to_numpy()
        return flags[name] if flags.any() else np.zeros(len(name), dtype=bool)

    drifts = np.isin(np.array(CLASSES)[class_of_name], CONTEXT_SHAPED)
    shape_symbol = _number_shapes(ordered, name, drifts)
    start, end = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    duration = (end - start).astype(np.float64)
    narrow = name.astype(np.int32)
    x, y, z = (ordered[f"grid_{axis}"].fill_null(0).to_numpy() for axis in "xyz")
    return Kernels(
        frame=ordered,
        symbol=split_by_duration(shape_symbol, duration),
        shape_symbol=shape_symbol,
        kernel_class=class_of_name[name],
        duration_ns=duration,
        start_ns=start,
        end_ns=end,
        gap_ns=_idle_before(start, end),
        launch=ordered["launch"].to_numpy(),
        in_graph=ordered["in_graph"].to_numpy(),
        grid=Grids((x, y, z)),
        prefill=marked("prefill"),
        autotune=marked("autotune"),
        step_marker=ByName((marker == "step").to_numpy(), narrow),
        train=marked("train"),
        base_name=ByName(base, narrow),
        empty_base_names=_empty_base_names(names),
        names=dict(names.select("name_id", "name").iter_rows()),
        name=narrow,
        name_ids=name_ids,
    )


def _positions(ids: Ints, known: Ints) -> NDArray[np.intp]:
    """Position of each id among the known ones."""
    lowest, highest = int(known.min(initial=0)), int(known.max(initial=0))
    if highest - lowest < _DENSE_IDS:  # those of an export are: its strings are numbered
        table = np.zeros(highest - lowest + 1, dtype=np.intp)
        table[known - lowest] = np.arange(len(known))
        return table[ids - lowest] if lowest else table[ids]
    order = np.argsort(known)
    return order[np.searchsorted(known[order], ids)]


def _empty_base_names(names: pl.DataFrame) -> Ints:
    """Numbers (as in `_base_names`) of the short names that say nothing."""
    numbered = names.select("short_name", base=pl.col("short_name").rank("dense"))
    empty = numbered.filter(pl.col("short_name").str.to_lowercase().is_in(SAYS_NOTHING))
    return empty["base"].unique().to_numpy().astype(np.int64)


def _number_shapes(ordered: pl.DataFrame, name: Ints, drifts: Bools) -> NDArray[np.int32]:
    """A number per kernel, equal where name, grid and block are; numbered by first occurrence.

    Where the grid drifts, which a name tells, it counts for nothing. Kernels are compared by
    a 64-bit hash: with a few thousand distinct shapes two that collide are less likely than a
    memory error.
    """
    # A missing value is none that a grid can have.
    sizes = [ordered[column].fill_null(-1).to_numpy() for column in SHAPE]
    key = np.zeros(len(name), dtype=np.uint64)
    for first in range(0, len(name), _CHUNK):
        part = slice(first, first + _CHUNK)
        for size in sizes:
            _mix(key[part], size[part])
        key[part][drifts[name[part]]] = 0
        _mix(key[part], name[part])
    keys = pl.DataFrame({"key": key})
    distinct = keys.unique(maintain_order=True).with_row_index("number")
    joined = keys.join(distinct, on="key", how="left", maintain_order="left")
    return joined["number"].to_numpy().astype(np.int32)


def _mix(key: NDArray[np.uint64], value: Ints) -> None:
    """Fold one more column into a hash, in place (the finish of splitmix64)."""
    key += value.astype(np.uint32)  # the same bits, also of a negative number
    key *= np.uint64(0xBF58476D1CE4E5B9)
    key ^= key >> np.uint64(31)
    key *= np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(29)


def _idle_before(start: Ints, end: Ints) -> Floats:
    """Idle time before each kernel, in time order, given back in launch order."""
    order: Ints | None = None
    if not bool((start[1:] >= start[:-1]).all()):
        order = np.lexsort((end, start))
        start, end = start[order], end[order]
    gap = np.zeros(len(start))
    pause = start[1:] - np.maximum.accumulate(end)[:-1]
    gap[1:] = np.maximum(0, pause)
    if order is None:
        return gap
    placed = np.empty_like(gap)
    placed[order] = gap
    return placed


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
    groups = np.ones(int(shape_symbol.max()) + 1, dtype=np.int32)
    for shape, _ in limits:
        groups[shape] += 1
    first = np.cumsum(groups, dtype=np.int32) - groups
    symbol = first[shape_symbol]
    # Limits of one shape rise, so one test each counts those that a duration reaches.
    for shape, limit in limits:
        symbol[(shape_symbol == shape) & (duration_ns >= limit)] += 1
    return symbol


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
