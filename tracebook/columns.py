"""Columns of a trace, read by part: the trace may be larger than memory.

What is as long as the trace lies in its own columns or in arrays of its scratch; what is
made on the way is made for one part at a time, which also keeps it in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: Of any width: what numbers a few names or shapes takes as few bytes as will do.
Ints = NDArray[np.integer]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Kernels that are worked on at a time.
CHUNK = 65_536


def parts(length: int, first: int = 0) -> Iterator[slice]:
    """Slices of at most CHUNK that cover [first, length) in order."""
    for begin in range(first, length, CHUNK):
        yield slice(begin, min(begin + CHUNK, length))


def index_type(length: int) -> type[np.signedinteger[Any]]:
    """The narrowest type that numbers so many things, and -1 for none."""
    if length < 2**15:
        return np.int16
    return np.int32 if length < 2**31 else np.int64


def gather_groups(own: Callable[[slice], Ints], size: Ints, positions: Ints) -> None:
    """Write the positions of all rows to `positions`, group after group, rising in each.

    A counting sort that holds no more than a part.

    Args:
        own: Group of each row of a part.
        size: Rows per group.
        positions: Shape (rows,).
    """
    filled = np.cumsum(size) - size
    for part in parts(len(positions)):
        group = own(part)
        order = np.argsort(group, kind="stable")
        counted = np.bincount(group, minlength=len(size))
        behind = np.repeat(filled - (np.cumsum(counted) - counted), counted)
        positions[behind + np.arange(len(order))] = order + part.start
        filled += counted


def is_constant(column: pl.Series) -> bool:
    """Whether all values are the same, or all are missing."""
    return column.null_count() in (0, len(column)) and column.min() == column.max()


def distinct(column: pl.Series) -> list[Any]:
    """Distinct values of a column that has few of them, in order; nulls left out."""
    least = column.min()
    if least == column.max():  # as nearly always, and without a copy
        return [] if least is None else [least]
    found = [column[part].unique() for part in parts(len(column))]
    return pl.concat(found).drop_nulls().unique().sort().to_list()


def _one_value(array: Ints) -> bool:
    """Whether all values are the same; what differs is nearly always seen at a glance."""
    if not len(array) or not array[0] == array[len(array) // 2] == array[-1]:
        return False
    return bool(array.min() == array.max())


@dataclass(frozen=True, eq=False)
class Values:
    """A column of integers in some order; an index gives an array of a part of it.

    Attributes:
        source: The column as the trace has it, or an array.
        missing: What a null is read as.
        at: Row of each value, None where values are in the order of the rows.
    """

    source: pl.Series | Ints
    missing: int = 0
    at: Ints | None = None
    _array: Ints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Look at a column without a copy where that can be done; keep one value only once."""
        if isinstance(self.source, pl.Series):
            whole = self.source.null_count() == 0 and self.source.n_chunks() == 1
            array = self.source.to_numpy() if whole else None
        else:
            array = self.source
        if array is not None and _one_value(array):
            array = np.broadcast_to(array[0], array.shape)
            object.__setattr__(self, "source", array)
        object.__setattr__(self, "_array", array)

    @property
    def constant(self) -> bool:
        """Whether all values are known to be the same."""
        return self._array is not None and self._array.strides == (0,)

    def __len__(self) -> int:
        """Number of values."""
        return len(self.source if self.at is None else self.at)

    def __getitem__(self, index: int | slice | Ints) -> Ints:
        """Values of a part, nulls replaced; of one place, an array without dimensions."""
        if isinstance(index, int):
            return self[index : index + 1].reshape(())
        rows = index if self.at is None else self.at[index]
        if self._array is not None:
            return self._array[rows]
        assert isinstance(self.source, pl.Series)
        return self.source[rows].fill_null(self.missing).to_numpy()


def distinct_rows(columns: Sequence[NDArray[Any]]) -> tuple[Ints, Ints]:
    """Number rows by what they hold, column by column.

    `np.unique` of rows compares them as records, and an exception that a signal raises in the
    midst of that comes out of it as another one.

    Args:
        columns: At least one, of one length.

    Returns:
        A row of each number, and the number of each row.
    """
    number = np.zeros(len(columns[0]), dtype=np.int64)
    example = np.zeros(0, dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        _, example, number = np.unique(
            number * len(values) + code, return_index=True, return_inverse=True
        )
    return example, number
