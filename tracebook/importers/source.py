"""What an importer needs of an export, whatever container it lies in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import polars as pl

Window = tuple[int | None, int | None]
T = TypeVar("T")

#: Times beyond this (73 years in ns, which leaves room for epoch times) and kernels
#: longer than 2^50 ns (13 days) are no measurements; the bounds also keep sums of
#: durations within 64 bits.
LATEST_NS = 2**62
LONGEST_NS = 2**50
#: Rows that are read at a time: raw rows take 130 bytes, so a page takes 8 MB.
PAGE_ROWS = 65_536


@dataclass(frozen=True)
class RawKernels:
    """Kernel rows as the export holds them, in the order of their ids.

    Attributes:
        frame: `kernel_id` and the columns asked for, all Int64, null where the
            export has NULL or something that is not an integer.
        misfits: Number of values that were not integers, per column.
        at: Place of the first row: pages lie in places of their own, in the order of ids.
        room: Places that all rows together may need, the same for every page.
    """

    frame: pl.DataFrame
    misfits: Mapping[str, int]
    at: int
    room: int


class Source(Protocol):
    """An opened export. All reads are read-only."""

    path: Path
    tables: Mapping[str, tuple[str, ...]]
    views: frozenset[str]

    def kernels(
        self,
        table: str,
        columns: Mapping[str, str],
        window: Window,
        each: Callable[[RawKernels], T],
    ) -> list[T]:
        """Read `columns` (ours -> raw) of rows whose start lies in [from, to), page by page.

        Returns:
            What `each` made of the pages, in the order of the ids; at least one. Pages may
            be handed to `each` in several threads.
        """
        ...

    def rows(
        self, table: str, columns: Sequence[str], limit: int = 100_000
    ) -> list[tuple[object, ...]]:
        """Rows of a small table; text that is not UTF-8 is decoded with replacement."""
        ...

    def text_columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table that hold text in some row."""
        ...

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """The texts of these StringIds; ids without a text are absent."""
        ...

    def names_starting(self, prefixes: Sequence[str]) -> list[int]:
        """Ids of the strings that begin with one of `prefixes`."""
        ...

    def texts_starting(
        self, table: str, column: str, prefixes: Sequence[str], key: str | None = None
    ) -> dict[int, str]:
        """Texts in `column` that begin with one of `prefixes`, by `key` or by row id."""
        ...

    def integers(
        self,
        table: str,
        columns: Mapping[str, str],
        wanted: Collection[int],
        key: str | None = None,
    ) -> pl.DataFrame:
        """`columns` (ours -> raw) of the rows whose `key`, or row id, is in `wanted` (not empty).

        `start_ns` and `end_ns` must be among the columns. All are Int64, null where the
        export has NULL or something that is not an integer; `row_id` comes first.
        """
        ...

    def pairs(self, table: str, key: str, value: str, keys: Collection[int]) -> dict[int, int]:
        """For each of `keys` in column `key` one `value` that is not NULL."""
        ...

    def has_rows(self, table: str, column: str | None = None, among: Sequence[int] = ()) -> bool:
        """Whether the table has a row (where `column` is not NULL, or is one of `among`)."""
        ...

    def in_parts(self, table: str) -> bool:
        """Whether rows can be read page by page without holding the whole table."""
        ...

    def row_count(self, table: str) -> int:
        """Number of rows, or more where that is not known without a scan."""
        ...

    def span(self, table: str, start: str, end: str) -> tuple[int, int] | None:
        """Smallest start and largest end of rows with sound times, None where there is none."""
        ...
