"""The kernels of a trace as columns of known length, filled page by page.

The columns are numpy arrays, in memory or in files (`Scratch`), and polars takes them as
they are: a frame over them holds nothing twice. A column that has one value throughout is
that value alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.columns import is_constant, parts
from tracebook.importers.merge import merge_order, unsettled
from tracebook.scratch import Scratch
from tracebook.trace import KERNEL_SCHEMA

#: Never one value throughout: these make the frame and its order.
KEYS = frozenset({"kernel_id", "start_ns", "end_ns"})
#: What numpy calls the types of the columns.
NUMPY: dict[pl.DataType, type] = {pl.Int64(): np.int64, pl.Int32(): np.int32}


@dataclass(frozen=True)
class Column:
    """A column of int64 or int32: arrays of shape (n,), or one value (None: all missing).

    Attributes:
        dtype: Int64 or Int32.
        values: The values, None where there is one for all rows.
        missing: Where a value counts as missing, None where none does.
        value: The one value, where `values` is None.
    """

    dtype: pl.DataType
    values: NDArray[Any] | None = None
    missing: NDArray[np.bool_] | None = None
    value: int | None = None


def frame_of(columns: dict[str, Column], rows: int, scratch: Scratch) -> pl.DataFrame:
    """The first `rows` rows of columns as a frame over the same memory.

    In files one value is written out for all rows: a later stage that asks for the column
    would else hold it in memory.
    """
    held, exprs = [], []
    for name, column in columns.items():
        values = column.values
        if values is None and column.value is not None and scratch.in_files:
            values = scratch.empty(rows, NUMPY[column.dtype])
            values[:] = column.value
            scratch.release()
        if values is None:
            exprs.append(pl.lit(column.value, column.dtype).alias(name))
            continue
        held.append(pl.Series(name, values[:rows]))
        expr = pl.col(name)
        if column.missing is not None:
            # A bitmap is made, the values stay where they are.
            held.append(_there(column.missing[:rows]).alias(f"{name} there"))
            expr = pl.when(f"{name} there").then(expr).alias(name)
        exprs.append(expr)
    return pl.DataFrame(held).select(exprs)


def _there(missing: NDArray[np.bool_]) -> pl.Series:
    """Where values are, in bits, made in parts: a byte each is held for a part only."""
    return pl.concat([pl.Series(~missing[part]) for part in parts(len(missing))]).rechunk()


class KernelColumns:
    """Takes sorted pages in KERNEL_SCHEMA, in any order and from several threads."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._columns = {name: _Growing(name, dtype) for name, dtype in KERNEL_SCHEMA.items()}
        self._pages: list[tuple[int, int]] = []
        self._lock = Lock()

    def put(self, page: pl.DataFrame, at: int, room: int) -> None:
        """Place a page.

        Args:
            page: Rows in KERNEL_SCHEMA, sorted by (start_ns, end_ns, kernel_id).
            at: Its first row's place; those of no other page may lie in it.
            room: Places that there are, the same for every page.

        Raises:
            TraceError: The disk has no room.
        """
        if page.is_empty():
            return
        for name, column in self._columns.items():
            with self._lock:
                stored = column.prepare(page[name], room, self._scratch)
            if stored:
                column.put(page[name], at)
        with self._lock:
            self._pages.append((at, page.height))
            self._scratch.release()

    def frame(self) -> pl.DataFrame:
        """All rows, sorted by (start_ns, end_ns, kernel_id); the last thing that is asked for."""
        segments = self._without_gaps()
        rows = segments[-1][1] if segments else 0
        if rows:
            self._put_in_order(segments)
        columns = {name: column.finished() for name, column in self._columns.items()}
        if not rows:
            return pl.DataFrame(schema=KERNEL_SCHEMA)
        return frame_of(columns, rows, self._scratch)

    def _without_gaps(self) -> list[tuple[int, int]]:
        """Move pages to where the one before ends; from and to of each, in the order of ids."""
        segments, end = [], 0
        for at, height in sorted(self._pages):
            if at != end:
                for array in self._arrays():
                    array[end : end + height] = array[at : at + height]
            segments.append((end, end + height))
            end += height
        return segments

    def _put_in_order(self, segments: list[tuple[int, int]]) -> None:
        """Merge pages: only rows whose place is not certain move."""
        start, end = (self._columns[name].values for name in ("start_ns", "end_ns"))
        assert start is not None and end is not None
        moving = unsettled(start, segments)
        order = merge_order(start, end, moving, self._scratch)
        if not len(order):
            return
        for array in self._arrays():
            moved = self._scratch.empty(len(order), array.dtype)
            for part in parts(len(order)):
                moved[part] = array[order[part]]
            at = 0
            for first, last in moving:
                array[first:last] = moved[at : at + last - first]
                at += last - first
            self._scratch.release()

    def _arrays(self) -> Iterator[NDArray[Any]]:
        for column in self._columns.values():
            yield from (a for a in (column.values, column.missing) if a is not None)


def filtered(kernels: pl.DataFrame, wanted: pl.Expr, scratch: Scratch) -> pl.DataFrame:
    """The rows of a frame in KERNEL_SCHEMA that are wanted, where `scratch` has room for them.

    Raises:
        TraceError: The disk has no room.
    """
    if not scratch.in_files:
        return kernels.filter(wanted)
    columns, at = KernelColumns(scratch), 0
    room = int(kernels.select(wanted.sum()).item())
    for part in parts(kernels.height):
        page = kernels[part].filter(wanted)
        columns.put(page, at, room)
        at += page.height
    return columns.frame()


class _Growing:
    """A column that is one value until a page holds another."""

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        self._dtype = dtype
        self._one = name not in KEYS
        self._value: int | None = None
        self._begun = False
        self.values: NDArray[Any] | None = None
        self.missing: NDArray[np.bool_] | None = None

    def prepare(self, page: pl.Series, room: int, scratch: Scratch) -> bool:
        """Make what the page needs; whether it must be stored. One thread at a time."""
        nulls = page.null_count()
        if self.values is None:
            if self._one and self._goes_on(page):
                return False
            self.values = scratch.empty(room, NUMPY[self._dtype])
            if self._begun:
                self.values.fill(self._value or 0)
                if self._value is None:
                    self.missing = scratch.zeros(room, np.bool_)
                    self.missing.fill(True)
        if nulls and self.missing is None:
            self.missing = scratch.zeros(room, np.bool_)
        return True

    def _goes_on(self, page: pl.Series) -> bool:
        """Whether the page holds the one value of all pages before it."""
        if not is_constant(page):
            return False
        if not self._begun:
            self._begun, self._value = True, page[0]
        return bool(self._value == page[0])

    def put(self, page: pl.Series, at: int) -> None:
        """Store a page whose need was prepared."""
        assert self.values is not None
        places = slice(at, at + len(page))
        if self.missing is not None:
            self.missing[places] = page.is_null().to_numpy()
        self.values[places] = (page.fill_null(0) if page.null_count() else page).to_numpy()

    def finished(self) -> Column:
        return Column(self._dtype, self.values, self.missing, self._value)
