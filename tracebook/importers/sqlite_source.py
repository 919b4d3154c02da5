"""An nsys SQLite export, opened read-only.

Two connections are used: the standard library's for schema and small tables, where
text can be decoded with replacement, and ADBC's low-level one for the kernel rows,
which reaches polars without a Python object per value. ADBC is never asked for text:
it hands bytes that are not UTF-8 to polars unchecked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl

from tracebook.errors import TraceError
from tracebook.importers.columns import column_map, pick
from tracebook.importers.source import LATEST_NS, LONGEST_NS, PAGE_ROWS, RawKernels, T, Window
from tracebook.importers.sqlite_open import (
    SETTINGS,
    Budget,
    as_trace_error,
    connect,
    damaged,
    read_only_uri,
)
from tracebook.progress import Bar

#: Rows per Arrow batch; the driver's default of 1024 makes many small chunks.
_BATCH_ROWS = 65_536
#: No table row takes fewer bytes than this in a sound file. A damaged or hostile
#: b-tree can claim far more rows than the file has room for.
_MIN_ROW_BYTES = 8
#: A row of an export takes more of the file: where there are more ids than that, ids are missing.
_DENSE_ROW_BYTES = 40
_IDS_PER_QUERY = 500
#: Below this span of ids a second thread costs more than it saves.
_PARALLEL_ROWS = 100_000
#: Written into the statement itself: SQLite takes a million characters.
_INLINE_IDS = 40_000
#: What reading a damaged file can raise: SQLite's messages quote its text, which then
#: cannot be decoded, and polars panics on text that is not UTF-8.
_FAILURES = (sqlite3.Error, UnicodeError, pl.exceptions.PanicException)


@contextmanager
def open_sqlite(path: Path, *, shown_as: Path | None = None) -> Iterator[SqliteSource]:
    """Open `path` read-only and close it afterwards; SQLite's errors become TraceErrors.

    Args:
        path: The SQLite file.
        shown_as: The path that messages name, where it is not `path`.
    """
    shown = shown_as or path
    path = Path(os.path.realpath(path))  # SQLite looks for side files beside the real file
    try:
        uri = read_only_uri(path, shown)
        connection = connect(uri)
    except OSError as error:
        raise TraceError(
            f"{shown} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error
    except sqlite3.Error as error:
        raise as_trace_error(shown, error) from error
    try:
        yield SqliteSource(connection, uri, path, shown)
    except _FAILURES as error:
        raise as_trace_error(shown, error) from error
    finally:
        connection.close()


class SqliteSource:
    """A read-only SQLite export; `tables` maps each real table to its columns."""

    def __init__(
        self, connection: sqlite3.Connection, uri: str, path: Path, shown_as: Path
    ) -> None:
        self.path = shown_as
        self._connection = connection
        self._uri = uri
        self._max_rows = path.stat().st_size // _MIN_ROW_BYTES + 1
        connection.text_factory = _decode
        # A sound scan needs a handful of steps for each row; a damaged tree could go on for ever.
        connection.set_progress_handler(Budget(self._max_rows // 10 + 1_000), 1000)
        self.views: frozenset[str] = frozenset()
        self.tables: Mapping[str, tuple[str, ...]] = self._probe()

    def _probe(self) -> dict[str, tuple[str, ...]]:
        entries = self._connection.execute(
            "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        ).fetchall()
        real: list[str] = []
        unreal: list[str] = []
        for name, kind, sql in entries:
            virtual = str(sql or "").lstrip().upper().startswith("CREATE VIRTUAL")
            (unreal if kind == "view" or virtual else real).append(str(name))
        self.views = frozenset(unreal)
        tables = {}
        for name in real:
            info = self._connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
            tables[name] = tuple(str(row[1]) for row in info)
        return tables

    def kernels(
        self,
        table: str,
        columns: Mapping[str, str],
        window: Window,
        each: Callable[[RawKernels], T],
    ) -> list[T]:
        """See `Source.kernels`. A file whose rows do not ascend is damaged and refused."""
        return self._pages(table, columns, _window_sql(columns["start_ns"], window), each)

    def _pages(
        self,
        table: str,
        columns: Mapping[str, str],
        where: str,
        each: Callable[[RawKernels], T],
    ) -> list[T]:
        """What `each` makes of the pages of the rows that pass `where`.

        Two threads read a half of the ids each: SQLite decodes on one core only.
        """
        name = _quoted(table)  # two questions: SQLite answers each from an end of the tree
        first, last = self._connection.execute(
            f"SELECT (SELECT min(rowid) FROM {name} NOT INDEXED), "
            f"(SELECT max(rowid) FROM {name} NOT INDEXED)"
        ).fetchone()
        if first is None:
            return [each(RawKernels(*self._page(table, columns, where, 0, 0), at=0, room=0))]
        if not isinstance(first, int) or not isinstance(last, int):
            raise damaged(self.path)  # a column of its own that is called rowid
        middle = (first + last) // 2
        ranges = [(first, last)]
        if last - first >= _PARALLEL_ROWS:
            ranges = [(first, middle), (middle + 1, last)]
        places = self._places(table, where, ranges)

        def read(number: int) -> list[T]:
            made = []
            after, end = ranges[number][0] - 1, ranges[number][1]
            at, stop = places[number], places[number + 1]
            while True:
                frame, misfits = self._page(table, columns, where, after, end)
                if at + frame.height > stop:
                    raise damaged(self.path)  # more rows than were counted
                bar.advance(frame.height)
                made.append(each(RawKernels(frame, misfits, at=at, room=places[-1])))
                if frame.height < PAGE_ROWS:
                    return made
                at, after = at + frame.height, frame["kernel_id"][-1]

        with Bar(f"Reading {self.path.name}", last - first + 1) as bar:
            if len(ranges) == 1:
                return read(0)
            with ThreadPoolExecutor(max_workers=len(ranges)) as pool:
                return [made for half in pool.map(read, range(len(ranges))) for made in half]

    def _places(self, table: str, where: str, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Where the rows of each range of ids lie when all are put together, and where all end.

        The ids of an export run from 1 without a gap; else, and in a window, the rows are
        counted, which also bounds the scan of a damaged tree.
        """
        places = [0]
        for first, last in ranges:
            rows = last - first + 1
            if where or rows * _DENSE_ROW_BYTES > self._max_rows * _MIN_ROW_BYTES:
                ids = f"rowid BETWEEN {first} AND {last}{where and f' AND {where}'}"
                query = f"SELECT count(*) FROM {_quoted(table)} NOT INDEXED WHERE {ids}"
                (rows,) = self._connection.execute(query).fetchone()
            places.append(places[-1] + rows)
        if places[-1] > self._max_rows:
            raise damaged(self.path)  # there is no room for so many in the file
        return places

    def _page(
        self, table: str, columns: Mapping[str, str], where: str, after: int, end: int
    ) -> tuple[pl.DataFrame, dict[str, int]]:
        """Rows whose id lies in (after, end], a page of them at most, and counted misfits."""
        rows = f"rowid > {after} AND rowid <= {end}{where and f' AND {where}'}"
        plain = {ours: _quoted(raw) for ours, raw in columns.items()}
        misfits: dict[str, int] = {}
        frame = self._arrow(table, plain, rows)
        if frame is None:
            misfits = self._count_misfits(table, columns, rows)
            guarded = {
                ours: f"CASE typeof({raw}) WHEN 'integer' THEN {raw} END"
                for ours, raw in plain.items()
            }
            frame = self._arrow(table, guarded, rows)
        if frame is None or not _ascends(frame["kernel_id"], after):
            raise damaged(self.path)
        return frame, misfits

    def _arrow(self, table: str, columns: Mapping[str, str], rows: str) -> pl.DataFrame | None:
        """A page of the columns as Int64; None where a value is of another type."""
        import adbc_driver_manager
        import adbc_driver_sqlite

        listed = ", ".join(f"{sql} AS {ours}" for ours, sql in columns.items())
        # NOT INDEXED: rows must come in the order of their ids, and an index that
        # another tool added may be stale.
        query = (
            f"SELECT rowid AS kernel_id, {listed} FROM {_quoted(table)} NOT INDEXED "
            f"WHERE {rows} LIMIT {PAGE_ROWS}"
        )
        batch = {adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value: str(_BATCH_ROWS)}
        try:
            with (
                adbc_driver_sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                for setting in SETTINGS:
                    statement.set_sql_query(setting)
                    statement.execute_update()
                statement.set_options(**batch)
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
                # Copied, since a batch of the driver stays in memory whole while one of its
                # columns is in use, and most are converted.
                frame = pl.DataFrame(stream).rechunk()
        except pl.exceptions.ComputeError as error:
            if "Type mismatch" in str(error):
                return None
            raise damaged(self.path) from error
        except adbc_driver_manager.Error as error:
            if "Type mismatch" in str(error):
                return None
            raise as_trace_error(self.path, error) from error
        return frame if all(dtype == pl.Int64 for dtype in frame.dtypes) else None

    def _count_misfits(self, table: str, columns: Mapping[str, str], rows: str) -> dict[str, int]:
        counts = ", ".join(
            f"sum(typeof({_quoted(raw)}) NOT IN ('integer', 'null'))" for raw in columns.values()
        )
        # Pages are read in threads, and a connection of the standard library serves one.
        with closing(connect(self._uri)) as own:
            row = own.execute(
                f"SELECT {counts} FROM (SELECT * FROM {_quoted(table)} NOT INDEXED "
                f"WHERE {rows} LIMIT {PAGE_ROWS})"
            ).fetchone()
        return {ours: count for ours, count in zip(columns, row, strict=True) if count}

    def rows(
        self, table: str, columns: Sequence[str], limit: int = 100_000
    ) -> list[tuple[object, ...]]:
        """See `Source.rows`."""
        listed = ", ".join(_quoted(column) for column in columns)
        return self._connection.execute(
            f"SELECT {listed} FROM {_quoted(table)} NOT INDEXED LIMIT ?", (limit,)
        ).fetchall()

    def text_columns(self, table: str) -> tuple[str, ...]:
        """See `Source.text_columns`; a declared type promises nothing."""
        columns = self.tables[table]
        tests = ", ".join(f"max(typeof({_quoted(c)}) IN ('text', 'blob'))" for c in columns)
        if not columns:
            return ()
        query = f"SELECT {tests} FROM {_quoted(table)} NOT INDEXED"
        row = self._connection.execute(query).fetchone()
        return tuple(column for column, found in zip(columns, row, strict=True) if found)

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """See `Source.strings`."""
        mapped = self._string_columns()
        if mapped is None:
            return {}
        table, id_, value = mapped
        found: dict[int, str] = {}
        wanted = sorted(ids)
        for at in range(0, len(wanted), _IDS_PER_QUERY):
            part = wanted[at : at + _IDS_PER_QUERY]
            marks = ",".join("?" * len(part))
            query = (
                f"SELECT {id_}, {value} FROM {table} NOT INDEXED WHERE {id_} IN ({marks}) LIMIT ?"
            )
            for key, text in self._connection.execute(query, (*part, 10 * len(part))):
                if isinstance(text, bytes):
                    text = _decode(text)
                if isinstance(text, str):
                    found.setdefault(int(key), text)
        return found

    def names_starting(self, prefixes: Sequence[str]) -> list[int]:
        """See `Source.names_starting`."""
        mapped = self._string_columns()
        if mapped is None:
            return []
        table, id_, value = mapped
        tests = " OR ".join(f"{value} GLOB ?" for _ in prefixes)
        query = f"SELECT {id_} FROM {table} WHERE {tests} LIMIT {_IDS_PER_QUERY}"
        found = self._connection.execute(query, [prefix + "*" for prefix in prefixes])
        return [key for (key,) in found if isinstance(key, int)]

    def _string_columns(self) -> tuple[str, str, str] | None:
        mapping = column_map()
        columns = pick(mapping.strings, self.tables.get(mapping.string_table, ()))
        if len(columns) < 2:
            return None
        return _quoted(mapping.string_table), _quoted(columns["id"]), _quoted(columns["value"])

    def texts_starting(
        self, table: str, column: str, prefixes: Sequence[str], key: str | None = None
    ) -> dict[int, str]:
        """See `Source.texts_starting`."""
        text, id_ = _quoted(column), _quoted(key) if key else "rowid"
        tests = " OR ".join(f"substr({text}, 1, {len(prefix)}) = ?" for prefix in prefixes)
        query = (
            f"SELECT {id_}, {text} FROM {_quoted(table)} NOT INDEXED "
            f"WHERE {text} IS NOT NULL AND ({tests}) LIMIT {self._max_rows}"
        )
        return dict(self._connection.execute(query, tuple(prefixes)))

    def integers(
        self,
        table: str,
        columns: Mapping[str, str],
        wanted: Collection[int],
        key: str | None = None,
    ) -> pl.DataFrame:
        """See `Source.integers`."""
        tested, ids = _quoted(key) if key else "rowid", sorted(wanted)
        found: list[pl.DataFrame] = []
        for at in range(0, len(ids), _INLINE_IDS):
            listed = ",".join(str(int(number)) for number in ids[at : at + _INLINE_IDS])
            found += self._pages(table, columns, f"{tested} IN ({listed})", lambda raw: raw.frame)
        return pl.concat(found).rename({"kernel_id": "row_id"})

    def pairs(self, table: str, key: str, value: str, keys: Collection[int]) -> dict[int, int]:
        """See `Source.pairs`."""
        query = (
            f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)} NOT INDEXED "
            f"WHERE typeof({_quoted(value)}) = 'integer' GROUP BY 1 LIMIT {self._max_rows}"
        )
        wanted = set(keys)
        return {k: v for k, v in self._connection.execute(query) if k in wanted}

    def has_rows(self, table: str, column: str | None = None, among: Sequence[int] = ()) -> bool:
        """See `Source.has_rows`."""
        if table not in self.tables or (column and column not in self.tables[table]):
            return False
        where = ""
        if column and among:
            where = f"WHERE {_quoted(column)} IN ({','.join('?' * len(among))})"
        elif column:
            where = f"WHERE {_quoted(column)} IS NOT NULL"
        query = f"SELECT 1 FROM {_quoted(table)} NOT INDEXED {where} LIMIT 1"
        return self._connection.execute(query, tuple(among)).fetchone() is not None

    def in_parts(self, table: str) -> bool:
        """See `Source.in_parts`."""
        return table in self.tables

    def row_count(self, table: str) -> int:
        """See `Source.row_count`: the ids of an export run from 1 without a gap."""
        query = f"SELECT max(rowid) FROM {_quoted(table)} NOT INDEXED"
        (last,) = self._connection.execute(query).fetchone()
        return min(last, self._max_rows) if isinstance(last, int) else 0

    def span(self, table: str, start: str, end: str) -> tuple[int, int] | None:
        """See `Source.span`."""
        begin, finish = _quoted(start), _quoted(end)
        # Counted, so that an index of another tool, which may be stale, is of no use to SQLite.
        first, last, _ = self._connection.execute(
            f"SELECT min({begin}), max({finish}), count({begin}) FROM {_quoted(table)} "
            f"NOT INDEXED WHERE typeof({begin}) = 'integer' AND typeof({finish}) = 'integer' "
            f"AND {begin} BETWEEN -{LATEST_NS} AND {LATEST_NS} "
            f"AND {finish} BETWEEN {begin} AND {begin} + {LONGEST_NS}"
        ).fetchone()
        return None if first is None else (first, last)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _window_sql(start: str, window: Window) -> str:
    tests = []
    if window[0] is not None:
        tests.append(f"{_quoted(start)} >= {int(window[0])}")
    if window[1] is not None:
        tests.append(f"{_quoted(start)} < {int(window[1])}")
    return " AND ".join(tests)


def _ascends(ids: pl.Series, after: int) -> bool:
    if not len(ids):
        return True
    return ids.null_count() == 0 and ids[0] > after and bool((ids.diff() > 0).all())
