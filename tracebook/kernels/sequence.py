"""The launch-ordered sequence of one device and process: one number a kernel, and tables.

Kernels of one name and shape, and of about one duration, have one number. What they share is
told once for all of them, what is a kernel's own is read in the trace's columns, so that a
capture of many millions of kernels takes a few bytes for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.columns import Bools, Floats, Ints, Values, index_type, parts
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.launches import Launches
from tracebook.kernels.numbering import Numbering
from tracebook.kernels.populations import find_populations
from tracebook.scratch import MEMORY, Scratch

SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
#: What a column of SHAPE and the name are multiplied by to make one number of all: odd, and
#: without pattern.
_FACTORS = (
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
    0xE7037ED1A0B428DB,
    0x8EBC6AF09C88C6E3,
    0x589965CC75374CC3,
)
#: Up to so many numbers between the smallest and the largest id a table is quicker than a search.
_DENSE_IDS = 1 << 24
#: Short names that stand for any kernel of a library (reference: CUTLASS, cuBLAS).
SAYS_NOTHING = ["kernel", "kernel2", "device_kernel", "main", "kernel_impl", "global_kernel"]
#: Classes whose grid follows the length of the context, so that it drifts from step to step.
CONTEXT_SHAPED = ("attention",)


@dataclass(frozen=True)
class Grids:
    """Grids of kernels, x, y and z as columns; an index gives an array of shape (..., 3)."""

    columns: tuple[Values, Values, Values]

    def __getitem__(self, index: int | slice | Ints) -> Ints:
        """Grids of some kernels."""
        picked = [np.asarray(column[index], dtype=np.int64) for column in self.columns]
        return np.stack(picked, axis=-1)


@dataclass(frozen=True)
class Shared:
    """What kernels of one code have in common, looked up for those that are asked for.

    Attributes:
        of_code: Value per code.
        code: Per kernel.
        count: Kernels per code.
    """

    of_code: NDArray[Any]
    code: Ints
    count: Ints

    def __getitem__(self, index: slice | Ints) -> NDArray[Any]:
        """Values of some kernels."""
        return np.asarray(self.of_code[self.code[index]])

    def any(self) -> bool:
        """Whether a flag is set for a kernel."""
        return bool(self.of_code[self.count > 0].any())

    def mean(self) -> float:
        """Share of the kernels for which a flag is set."""
        return float(self.count[self.of_code].sum() / max(int(self.count.sum()), 1))


@dataclass(frozen=True)
class Durations:
    """Time that kernels run, ns; an index gives that of some."""

    start_ns: Values
    end_ns: Values

    def __getitem__(self, index: slice | Ints) -> Ints:
        """Durations of some kernels."""
        return np.asarray(self.end_ns[index] - self.start_ns[index])


@dataclass(frozen=True)
class Kernels:
    """The kernels of one device and process in launch order.

    An index gives the values of some kernels: kernels.grid[:10].

    Attributes:
        frame: KERNEL_SCHEMA, all kernels of the trace.
        rows: Rows of `frame` that belong to the device and process, None for all.
        order: Position among `rows` of each kernel in launch order, None where it is the same.
        code: Number of name, shape and population of durations, per kernel.
        symbol: The same where kernels that replace each other have one number.
        count: Kernels per symbol.
        busy_ns: Sum of durations per symbol.
        before_ns: Sum of the durations of all kernels in front of each, and of all.
        gap_ns: Time before each kernel in which nothing ran.
        shape_symbol: Equal where name, grid and block are.
        kernel_class: Indexes CLASSES.
        name: Numbers the names of `name_ids`.
    """

    frame: pl.DataFrame
    rows: Ints | None
    order: Ints | None
    code: Ints
    symbol: Ints
    count: Ints
    busy_ns: Floats
    before_ns: Ints
    start_ns: Values
    end_ns: Values
    duration_ns: Durations
    gap_ns: Values
    launch: Launches
    in_graph: Bools
    grid: Grids
    shape_symbol: Shared
    kernel_class: Shared
    prefill: Shared
    autotune: Shared
    step_marker: Shared
    train: Shared
    base_name: Shared
    name: Shared
    empty_base_names: Ints
    names: dict[int, str]
    name_ids: Ints
    scratch: Scratch = MEMORY

    def __len__(self) -> int:
        """Number of kernels."""
        return len(self.code)

    def renamed(self, alias: Ints) -> Kernels:
        """The same with other symbols: `alias` has one for each, below its own length."""
        symbol = self.scratch.empty(len(self), self.symbol.dtype)
        for part in parts(len(self)):
            symbol[part] = alias[self.symbol[part]]
        count = np.bincount(alias, weights=self.count, minlength=len(alias)).astype(np.int64)
        busy_ns = np.zeros(len(alias))
        np.add.at(busy_ns, alias, self.busy_ns)
        return replace(self, symbol=symbol, count=count, busy_ns=busy_ns)

    def with_symbols(self, symbol: Ints) -> Kernels:
        """The same with another symbol per kernel, of those that there are."""
        count = np.zeros(len(self.count), dtype=np.int64)
        busy_ns = np.zeros(len(self.count))
        for part in parts(len(self)):
            count += np.bincount(symbol[part], minlength=len(count))
            busy_ns += np.bincount(
                symbol[part], weights=self.duration_ns[part], minlength=len(count)
            )
        return replace(self, symbol=symbol, count=count, busy_ns=busy_ns)

    def grouped(self, shared: Shared) -> Ints:
        """A number per kernel, equal where something that codes have in common is."""
        number = np.unique(shared.of_code, return_inverse=True)[1]
        grouped = self.scratch.empty(len(self), index_type(len(number)))
        for part in parts(len(self)):
            grouped[part] = number[self.code[part]]
        return grouped

    def busy_between(self, first: int, end: int) -> int:
        """Sum of the durations of kernels [first, end), ns."""
        return int(self.before_ns[end] - self.before_ns[first])


def build_kernels(
    frame: pl.DataFrame,
    launches: Launches,
    classes: pl.DataFrame,
    names: pl.DataFrame,
    *,
    rows: Ints | None = None,
    scratch: Scratch = MEMORY,
) -> Kernels:
    """Number the kernels of one device and process, and tell what those of a number share.

    Args:
        frame: KERNEL_SCHEMA, sorted by start.
        launches: The order of launch of its `rows`.
        classes: CLASS_SCHEMA.
        names: NAME_SCHEMA.
        rows: Those of the device and process, None for all.
        scratch: Where arrays of one value per kernel go.
    """
    at, order = rows, launches.order
    if order is not None:
        at = order if rows is None else _picked(rows, order, scratch)
    known = names.join(
        classes.select("name_id", "kernel_class", "marker"),
        on="name_id",
        how="left",
        maintain_order="left",
    )
    name_ids = known["name_id"].to_numpy()
    number = {name: number for number, name in enumerate(CLASSES)}
    class_of_name = known["kernel_class"].replace_strict(number, return_dtype=pl.Int8).to_numpy()
    marker = known["marker"].fill_null("")
    base_of_name = known["short_name"].rank("dense").fill_null(0).cast(pl.Int32).to_numpy()
    drifts = np.isin(np.array(CLASSES)[class_of_name], CONTEXT_SHAPED)
    start, end = (Values(frame[column], at=at) for column in ("start_ns", "end_ns"))
    duration_ns = Durations(start, end)
    coded = _code(_shapes(frame, at, name_ids, drifts, scratch), duration_ns, scratch)

    def shared(of_name: NDArray[Any]) -> Shared:
        return Shared(of_name[coded.name], coded.code, coded.count)

    x, y, z = (Values(frame[f"grid_{axis}"], at=at) for axis in "xyz")
    return Kernels(
        frame=frame,
        rows=rows,
        order=order,
        code=coded.code,
        symbol=coded.code,
        count=coded.count,
        busy_ns=coded.busy_ns,
        before_ns=coded.before_ns,
        start_ns=start,
        end_ns=end,
        duration_ns=duration_ns,
        gap_ns=Values(_idle_before(frame, rows, scratch), at=order),
        launch=launches,
        in_graph=launches.in_graph,
        grid=Grids((x, y, z)),
        shape_symbol=Shared(coded.shape, coded.code, coded.count),
        kernel_class=shared(class_of_name),
        prefill=shared((marker == "prefill").to_numpy()),
        autotune=shared((marker == "autotune").to_numpy()),
        step_marker=shared((marker == "step").to_numpy()),
        train=shared((marker == "train").to_numpy()),
        base_name=shared(base_of_name),
        name=shared(np.arange(len(name_ids))),
        empty_base_names=_empty_base_names(names),
        names=dict(names.select("name_id", "name").iter_rows()),
        name_ids=name_ids,
        scratch=scratch,
    )


def _picked(rows: Ints, order: Ints, scratch: Scratch) -> Ints:
    """Rows in launch order."""
    picked = scratch.empty(len(order), rows.dtype)
    for part in parts(len(order)):
        picked[part] = rows[order[part]]
    return picked


def _places(known: Ints) -> Callable[[Ints], Ints]:
    """What finds the position of ids among the known ones."""
    lowest, highest = int(known.min(initial=0)), int(known.max(initial=0))
    if highest - lowest < _DENSE_IDS:  # those of an export are: its strings are numbered
        table = np.zeros(highest - lowest + 1, dtype=np.int64)
        table[known - lowest] = np.arange(len(known))
        return lambda ids: table[ids - lowest] if lowest else table[ids]
    order = np.argsort(known)
    return lambda ids: order[np.searchsorted(known[order], ids)]


def _empty_base_names(names: pl.DataFrame) -> Ints:
    """Numbers (as in `_base_names`) of the short names that say nothing."""
    numbered = names.select("short_name", base=pl.col("short_name").rank("dense"))
    empty = numbered.filter(pl.col("short_name").str.to_lowercase().is_in(SAYS_NOTHING))
    return empty["base"].unique().to_numpy().astype(np.int64)


@dataclass(frozen=True)
class _Shapes:
    """Number of name and shape per kernel, by first occurrence, and the name per number."""

    number: Ints
    name: Ints


def _shapes(
    frame: pl.DataFrame, at: Ints | None, name_ids: Ints, drifts: Bools, scratch: Scratch
) -> _Shapes:
    """Number kernels by name, grid and block.

    Where the grid drifts, which a name tells, it counts for nothing. Kernels are compared by
    a 64-bit hash: with a few thousand distinct shapes two that collide are less likely than a
    memory error.
    """
    # A missing value is none that a grid can have.
    sizes = [Values(frame[column], -1, at) for column in SHAPE]
    factors = [np.uint64(factor) for factor in _FACTORS]
    telling = [(size, f) for size, f in zip(sizes, factors, strict=False) if not size.constant]
    ids, place = Values(frame["name_id"], at=at), _places(name_ids)
    number = scratch.empty(len(ids), np.int32)
    numbering, names = Numbering(), []
    for part in parts(len(ids)):
        name = place(ids[part])
        key = np.zeros(len(name), dtype=np.uint64)
        for size, factor in telling:
            key += size[part].astype(np.uint64) * factor
        if drifts.any():
            key[drifts[name]] = 0
        key += name.astype(np.uint64) * np.uint64(_FACTORS[-1])
        known = len(numbering)
        number[part] = numbering.number(key)
        if len(numbering) > known:
            new = number[part] >= known
            names.append(name[new][np.unique(number[part][new], return_index=True)[1]])
    return _Shapes(number, np.concatenate([np.zeros(0, np.int64), *names]))


@dataclass(frozen=True)
class _Coded:
    """Kernels by code: see `Kernels`; shape and name are per code."""

    code: Ints
    before_ns: Ints
    count: Ints
    busy_ns: Floats
    shape: Ints
    name: Ints


def _code(shapes: _Shapes, duration_ns: Durations, scratch: Scratch) -> _Coded:
    """Divide shapes by duration, and add up what kernels of one code take."""
    length = len(shapes.number)
    populations = find_populations(shapes.number, duration_ns, len(shapes.name))
    shape = np.repeat(np.arange(len(shapes.name)), populations.groups)
    code = scratch.empty(length, index_type(len(shape)))
    before_ns = scratch.empty(length + 1, np.int64)
    before_ns[:1] = 0
    count = np.zeros(len(shape), dtype=np.int64)
    busy_ns = np.zeros(len(shape), dtype=np.float64)
    for part in parts(length):
        duration = duration_ns[part]
        own = populations.symbols(shapes.number[part], duration)
        code[part] = own
        count += np.bincount(own, minlength=len(shape))
        busy_ns += np.bincount(own, weights=duration, minlength=len(shape))
        running = before_ns[part.start + 1 : part.stop + 1]
        np.cumsum(duration, out=running)
        running += before_ns[part.start]
    return _Coded(code, before_ns, count, busy_ns, shape, shapes.name[shape])


def _idle_before(frame: pl.DataFrame, rows: Ints | None, scratch: Scratch) -> Ints:
    """Idle time before each kernel, by start."""
    start, end = (Values(frame[column], at=rows) for column in ("start_ns", "end_ns"))
    gap = scratch.empty(len(start), np.int64)
    reached: int | None = None
    for part in parts(len(start)):
        begun = start[part]
        latest = np.empty(len(begun) + 1, dtype=np.int64)
        latest[0] = begun[0] if reached is None else reached
        latest[1:] = end[part]
        np.maximum.accumulate(latest, out=latest)
        np.subtract(begun, latest[:-1], out=gap[part])
        np.maximum(gap[part], 0, out=gap[part])
        reached = int(latest[-1])
    return gap
