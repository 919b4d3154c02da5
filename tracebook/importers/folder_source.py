"""A directory export: `nsys export --type parquetdir` or `arrowdir`, one file a table.

Files are called TABLE.parquet or TABLE.arrow; Arrow files are read in both of the
format's forms (file and stream), told by their first bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tracebook.errors import NotATrace, TraceError
from tracebook.importers.columns import column_map, pick
from tracebook.importers.source import LATEST_NS, LONGEST_NS, PAGE_ROWS, RawKernels, T, Window

_SUFFIXES = (".parquet", ".arrow")
_ARROW_FILE_MAGIC = b"ARROW1"


@contextmanager
def open_folder(path: Path) -> Iterator[FolderSource]:
    """Open a directory export; what the readers raise becomes a TraceError.

    Raises:
        NotATrace: The directory holds no table of an export.
        TraceError: A table cannot be read.
    """
    try:
        yield FolderSource(path)
    except PermissionError as error:
        raise TraceError(
            f"{path} cannot be read: permission denied.",
            f"Allow reading: chmod -R u+rX {path.name}",
        ) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(
            f"A table of {path} is damaged or cannot be read.", "Repeat the export."
        ) from error


class FolderSource:
    """A read-only directory export; row numbers, from 1, stand for the kernels' rowids."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: frozenset[str] = frozenset()
        self._files = {
            entry.stem: entry
            for entry in sorted(path.iterdir())
            if entry.suffix in _SUFFIXES and entry.is_file()
        }
        if not self._files:
            raise NotATrace(f"{path} is a directory without an nsys table in it.", _hint_for(path))
        self._frames: dict[str, pl.LazyFrame] = {}
        self.tables: Mapping[str, tuple[str, ...]] = _Columns(self._files, self._scan)

    def _scan(self, table: str) -> pl.LazyFrame:
        if table not in self._frames:
            self._frames[table] = _lazily(self._files[table])
        return self._frames[table]

    def kernels(
        self,
        table: str,
        columns: Mapping[str, str],
        window: Window,
        each: Callable[[RawKernels], T],
    ) -> list[T]:
        """See `Source.kernels`."""
        frame = self._scan(table)
        named = [pl.col(theirs).alias(ours) for ours, theirs in columns.items()]
        inside = _inside(window)
        total = room = self.row_count(table)
        if inside is not None:
            starts = frame.select(start_ns=columns["start_ns"])
            room = int(starts.filter(inside).select(pl.len()).collect().item())
        made, at = [], 0
        for first in range(0, max(total, 1), PAGE_ROWS):
            # What else polars can do on the way would make it read the whole table each time.
            page = frame.slice(first, PAGE_ROWS).select(named).collect()
            page = page.with_row_index("kernel_id", offset=first + 1)
            if inside is not None:
                page = page.filter(inside)
            rows, misfits = _as_raw(page, columns)
            made.append(each(RawKernels(rows, misfits, at=at, room=room)))
            at += rows.height
        return made

    def rows(
        self, table: str, columns: Sequence[str], limit: int = 100_000
    ) -> list[tuple[object, ...]]:
        """See `Source.rows`."""
        return self._scan(table).select(columns).head(limit).collect().rows()

    def text_columns(self, table: str) -> tuple[str, ...]:
        """See `Source.text_columns`."""
        schema = self._scan(table).collect_schema()
        return tuple(name for name, dtype in schema.items() if dtype in (pl.String, pl.Categorical))

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """See `Source.strings`."""
        texts = self._strings()
        if texts is None:
            return {}
        found = texts.filter(pl.col("id").is_in(list(ids)) & pl.col("value").is_not_null())
        return dict(found.unique("id", keep="first", maintain_order=True).collect().rows())

    def names_starting(self, prefixes: Sequence[str]) -> list[int]:
        """See `Source.names_starting`."""
        texts = self._strings()
        if texts is None:
            return []
        starts = pl.any_horizontal(*(pl.col("value").str.starts_with(p) for p in prefixes))
        return texts.filter(starts).collect()["id"].drop_nulls().to_list()

    def _strings(self) -> pl.LazyFrame | None:
        mapping = column_map()
        columns = pick(mapping.strings, self.tables.get(mapping.string_table, ()))
        if len(columns) < 2:
            return None
        return self._scan(mapping.string_table).select(
            id=pl.col(columns["id"]).cast(pl.Int64, strict=False),
            value=pl.col(columns["value"]).cast(pl.String, strict=False),
        )

    def texts_starting(
        self, table: str, column: str, prefixes: Sequence[str], key: str | None = None
    ) -> dict[int, str]:
        """See `Source.texts_starting`."""
        text = pl.col(column).cast(pl.String, strict=False)
        starts = pl.any_horizontal(*(text.str.starts_with(prefix) for prefix in prefixes))
        rows = self._scan(table).with_row_index("_row", offset=1).filter(starts)
        return dict(
            rows.select(pl.col(key or "_row").cast(pl.Int64, strict=False), text).collect().rows()
        )

    def integers(
        self,
        table: str,
        columns: Mapping[str, str],
        wanted: Collection[int],
        key: str | None = None,
    ) -> pl.DataFrame:
        """See `Source.integers`."""
        rows = self._scan(table).with_row_index("row_id", offset=1)
        rows = rows.filter(pl.col(key or "row_id").cast(pl.Int64, strict=False).is_in(list(wanted)))
        raw = rows.select(
            "row_id", *(pl.col(theirs).alias(ours) for ours, theirs in columns.items())
        ).collect()
        return raw.select(_as_integers(raw.schema))

    def pairs(self, table: str, key: str, value: str, keys: Collection[int]) -> dict[int, int]:
        """See `Source.pairs`."""
        wanted = pl.col(key).is_in(list(keys)) & pl.col(value).is_not_null()
        both = self._scan(table).select(key, value).filter(wanted)
        return dict(both.unique(key, keep="first", maintain_order=True).collect().rows())

    def has_rows(self, table: str, column: str | None = None, among: Sequence[int] = ()) -> bool:
        """See `Source.has_rows`."""
        if table not in self.tables or (column and column not in self.tables[table]):
            return False
        frame = self._scan(table)
        if column:
            tested = pl.col(column)
            frame = frame.filter(tested.is_in(list(among)) if among else tested.is_not_null())
            frame = frame.select(column)
        return frame.head(1).collect().height > 0

    def in_parts(self, table: str) -> bool:
        """See `Source.in_parts`: a stream has no index to read parts by."""
        return not _is_stream(self._files[table])

    def row_count(self, table: str) -> int:
        """See `Source.row_count`."""
        return int(self._scan(table).select(pl.len()).collect().item())

    def span(self, table: str, start: str, end: str) -> tuple[int, int] | None:
        """See `Source.span`."""
        begin = pl.col(start).cast(pl.Int64, strict=False)
        finish = pl.col(end).cast(pl.Int64, strict=False)
        sound = begin.is_between(-LATEST_NS, LATEST_NS) & finish.is_between(
            begin, begin + LONGEST_NS
        )
        times = self._scan(table).filter(sound).select(begin.min(), finish.max().alias("last"))
        first, last = times.collect().row(0)
        return None if first is None or last is None else (first, last)


class _Columns(Mapping[str, tuple[str, ...]]):
    """The columns of each table, read when they are asked for: an export has a hundred tables."""

    def __init__(self, files: Mapping[str, Path], scan: Callable[[str], pl.LazyFrame]) -> None:
        self._files = files
        self._scan = scan

    def __getitem__(self, table: str) -> tuple[str, ...]:
        if table not in self._files:
            raise KeyError(table)
        return tuple(self._scan(table).collect_schema())

    def __contains__(self, table: object) -> bool:
        return table in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _lazily(file: Path) -> pl.LazyFrame:
    if file.suffix == ".parquet":
        return pl.scan_parquet(file, glob=False)
    return pl.read_ipc_stream(file).lazy() if _is_stream(file) else pl.scan_ipc(file, glob=False)


def _is_stream(file: Path) -> bool:
    """Whether it is an Arrow stream, not an Arrow file or Parquet."""
    if file.suffix == ".parquet":
        return False
    with file.open("rb") as opened:
        return opened.read(len(_ARROW_FILE_MAGIC)) != _ARROW_FILE_MAGIC


def _inside(window: Window) -> pl.Expr | None:
    """Whether a start lies in the window, None where there is none."""
    tests = []
    if window[0] is not None:
        tests.append(pl.col("start_ns") >= window[0])
    if window[1] is not None:
        tests.append(pl.col("start_ns") < window[1])
    return pl.all_horizontal(tests) if tests else None


def _as_raw(page: pl.DataFrame, columns: Collection[str]) -> tuple[pl.DataFrame, dict[str, int]]:
    """Integers, and how many values were none, by column."""
    whole = page.select(_as_integers(page.schema))
    misfits = {
        ours: whole[ours].null_count() - page[ours].null_count()
        for ours in columns
        if whole[ours].null_count() > page[ours].null_count()
    }
    return whole, misfits


def _as_integers(schema: pl.Schema) -> list[pl.Expr]:
    """Integers as Int64; anything else is null, as in a table whose column has no type."""
    return [
        pl.col(name).cast(pl.Int64, strict=False)
        if dtype.is_integer()
        else pl.lit(None, pl.Int64).alias(name)
        for name, dtype in schema.items()
    ]


def _hint_for(path: Path) -> str:
    inside = sorted(
        entry.name
        for entry in path.iterdir()
        if entry.suffix.lower() in (".sqlite", ".nsys-rep", ".qdrep")
    )
    if inside:
        return f"It holds {', '.join(inside[:3])}: give one of them."
    return "Give the SQLite export, the report or a parquetdir export of the run."
