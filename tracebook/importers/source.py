"""What an importer needs of an export, whatever container it lies in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class RawKernels:
    """Kernel rows as the export holds them, in the order of their ids.

    Attributes:
        frame: `kernel_id` and the columns asked for, all Int64, null where the
            export has NULL or something that is not an integer.
        misfits: Number of values that were not integers, per column.
    """

    frame: pl.DataFrame
    misfits: Mapping[str, int]


class Source(Protocol):
    """An opened export. All reads are read-only."""

    path: Path
    tables: Mapping[str, tuple[str, ...]]
    views: frozenset[str]

    def kernels(self, table: str, columns: Mapping[str, str], window: Window) -> RawKernels:
        """Read `columns` (ours -> raw) of rows whose start lies in [from, to)."""
        ...

    def rows(
        self, table: str, columns: Sequence[str], limit: int = 100_000
    ) -> list[tuple[object, ...]]:
        """Rows of a small table; text that is not UTF-8 is decoded with replacement."""
        ...

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """The texts of these StringIds; ids without a text are absent."""
        ...

    def names_starting(self, prefixes: Sequence[str]) -> list[int]:
        """Ids of the strings that begin with one of `prefixes`."""
        ...

    def pairs(self, table: str, key: str, value: str, keys: Collection[int]) -> dict[int, int]:
        """For each of `keys` in column `key` one `value` that is not NULL."""
        ...

    def has_rows(self, table: str, column: str | None = None, among: Sequence[int] = ()) -> bool:
        """Whether the table has a row (where `column` is not NULL, or is one of `among`)."""
        ...

    def span(self, table: str, start: str, end: str) -> tuple[int, int] | None:
        """Smallest start and largest end of the table, None where it has no usable row."""
        ...
