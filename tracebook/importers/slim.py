"""A slim copy of a capture: what the tool reads of it within a window, and nothing else.

The copy is a new database that is filled row by row, so no byte of the original gets into
it that was not asked for. Free text of the original is never copied, except kernel names,
GPU names, and the command line where that is wanted: scopes, messages and metadata are
written in our own words.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from tracebook.importers.clocks import METRICS, SAMPLES, is_clock
from tracebook.importers.columns import column_map, pick
from tracebook.importers.command_line import is_command
from tracebook.importers.facts import (
    DIAGNOSTICS_TABLE,
    SYNTHETIC_KEY,
    TRIMMED_KEY,
    lost_counts,
    lost_words,
    read_facts,
)
from tracebook.importers.nvtx import CALL_COLUMNS, CALLS, EVENTS, RANGES, scope_ranges, scope_text
from tracebook.importers.source import Source, Window

#: Versions are copied where they look like one.
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")
_SAMPLE_COLUMNS = {
    "start_ns": "timestamp",
    "end_ns": "timestamp",
    "type": "typeId",
    "metric": "metricId",
    "value": "value",
}


def write_slim(source: Source, path: Path, window: Window, *, keep_command_line: bool) -> None:
    """Write the slim copy of an export.

    Args:
        source: The export.
        path: The file to make; it must not exist.
        window: Kernels that start in [from, to) are kept, with their rowids.
        keep_command_line: Keep the recorded command line.

    Raises:
        OSError: The file cannot be written.
    """
    kernels, columns = _kernels(source, window)
    calls = _calls(source, kernels)
    texts = {**_call_names(source, calls), **_kernel_names(source, kernels)}
    path.touch(exist_ok=False)  # SQLite's own message would not say what is wrong
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            out = _Writer(connection)
            mapping = column_map()
            raw = [f'"{columns[ours]}"' for ours in kernels.columns[1:]]
            out.table(mapping.kernel_table, raw, kernels.iter_rows(), rowid=True)
            names = ["start", "end", "globalTid", "correlationId", "nameId"]
            out.table(CALLS, names, calls.iter_rows())
            texts |= _events(source, out, calls, max(texts, default=0) + 1)
            out.strings(texts)
            _metadata(source, out, keep_command_line=keep_command_line)
            _clock(source, out, kernels)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise OSError(None, f"SQLite says: {error}") from error


class _Writer:
    """Tables of the new database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def table(
        self,
        name: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        rowid: bool = False,
        types: str = "INTEGER",
    ) -> None:
        """Make and fill a table; with `rowid` the first value of a row is its rowid."""
        declared = ", ".join(f"{column} {types}" for column in columns)
        self._connection.execute(f"CREATE TABLE {name} ({declared})")
        listed = (["rowid"] if rowid else []) + list(columns)
        marks = ", ".join("?" * len(listed))
        statement = f"INSERT INTO {name} ({', '.join(listed)}) VALUES ({marks})"
        self._connection.executemany(statement, rows)

    def strings(self, texts: dict[int, str]) -> None:
        """Make the table of strings, by id."""
        table = column_map().string_table
        self._connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, value TEXT)")
        rows = ((key, text) for key, text in sorted(texts.items()))
        self._connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)


def _kernels(source: Source, window: Window) -> tuple[pl.DataFrame, dict[str, str]]:
    """Kernel rows of the window, `kernel_id` first, and what their columns are called."""
    mapping = column_map()
    present = source.tables[mapping.kernel_table]
    columns = {
        ours: raw
        for choices in (mapping.required, mapping.names, mapping.optional)
        for ours, raw in pick(choices, present).items()
    }
    pages = source.kernels(mapping.kernel_table, columns, window, lambda raw: raw.frame)
    frame = pl.concat(pages).select("kernel_id", *columns).drop_nulls(["start_ns", "end_ns"])
    return frame, columns


def _kernel_names(source: Source, kernels: pl.DataFrame) -> dict[int, str]:
    ids = {
        key
        for column in column_map().names
        if column in kernels.columns
        for key in kernels[column].drop_nulls().unique().to_list()
    }
    return source.strings(ids) if ids else {}


def _calls(source: Source, kernels: pl.DataFrame) -> pl.DataFrame:
    """CUDA calls that launched the kernels: start, end, thread, correlation and name."""
    columns = pick({**CALL_COLUMNS, "name_id": ("nameId",)}, source.tables.get(CALLS, ()))
    order = [*CALL_COLUMNS, "name_id"]
    launched = (
        kernels["correlation_id"].drop_nulls().unique().to_list()
        if "correlation_id" in kernels.columns
        else []
    )
    if not launched or not set(CALL_COLUMNS) <= columns.keys():
        return pl.DataFrame(schema=dict.fromkeys(order, pl.Int64()))
    found = source.integers(CALLS, columns, launched, columns["correlation_id"])
    if "name_id" not in found.columns:
        found = found.with_columns(name_id=pl.lit(None, pl.Int64))
    return found.select(order).drop_nulls(list(CALL_COLUMNS)).sort("start_ns")


def _call_names(source: Source, calls: pl.DataFrame) -> dict[int, str]:
    """Names of CUDA calls; anything that does not look like one is left out."""
    ids = set(calls["name_id"].drop_nulls().unique().to_list())
    named = source.strings(ids) if ids else {}
    return {key: text for key, text in named.items() if re.fullmatch(r"cu\w{1,80}", text)}


def _events(source: Source, out: _Writer, calls: pl.DataFrame, first_id: int) -> dict[int, str]:
    """Write the engine's scopes around the calls that are kept, named in our own words."""
    ranges = scope_ranges(source) if not calls.is_empty() else None
    if ranges is None or ranges.is_empty():
        return {}
    first, last = calls["start_ns"].min(), calls["end_ns"].max()
    kept = ranges.filter((pl.col("end_ns") >= first) & (pl.col("start_ns") <= last))
    keys = kept.select("scope", "layer").unique(maintain_order=True).rows()
    ids = {key: first_id + number for number, key in enumerate(keys)}
    rows = (
        (start, end, thread, RANGES[0], ids[(scope, layer)])
        for start, end, thread, scope, layer in kept.select(
            "start_ns", "end_ns", "thread", "scope", "layer"
        ).iter_rows()
    )
    out.table(EVENTS, ["start", "end", "globalTid", "eventType", "textId"], rows)
    return {number: scope_text(*key) for key, number in ids.items()}


def _metadata(source: Source, out: _Writer, *, keep_command_line: bool) -> None:
    """Write the facts that the tool reads, in our own words."""
    facts, mapping = read_facts(source), column_map()
    export = [(TRIMMED_KEY, "true")]
    if facts.synthetic:
        export.append((SYNTHETIC_KEY, "true"))
    for name, value in (
        ("EXPORT_PRODUCT_VERSION", facts.nsys_version),
        ("EXPORT_SCHEMA_VERSION", facts.schema_version),
    ):
        if value is not None and _VERSION.fullmatch(value):
            export.append((name, value))
    out.table(mapping.metadata_tables[0], ["name", "value"], export, types="TEXT")
    capture: list[tuple[object, object]] = []
    if facts.capture_mode != "unknown":
        capture.append(("CUDA_GRAPH_TRACE_OPTIONS:MODE", facts.capture_mode.capitalize()))
    if keep_command_line and {"name", "value"} <= set(source.tables.get(mapping.capture_table, ())):
        recorded = source.rows(mapping.capture_table, ("name", "value"))
        capture += [(name, value) for name, value in recorded if is_command(str(name))]
    out.table(mapping.capture_table, ["name", "value"], capture, types="TEXT")
    gpus = pick(mapping.gpus, source.tables.get(mapping.gpu_table, ()))
    if "name" in gpus:
        rows = source.rows(mapping.gpu_table, tuple(gpus.values()), limit=1000)
        out.table(mapping.gpu_table, list(gpus.values()), rows, types="")
    said = [(w,) for w, n in zip(lost_words(), lost_counts(source), strict=True) for _ in range(n)]
    if said:
        out.table(DIAGNOSTICS_TABLE, ["text"], said, types="TEXT")


def _clock(source: Source, out: _Writer, kernels: pl.DataFrame) -> None:
    """Write the samples of the processors' clock that lie in the window."""
    needed = ("typeId", "metricId", "metricName")
    if not set(needed) <= set(source.tables.get(METRICS, ())) or kernels.is_empty():
        return
    if not set(_SAMPLE_COLUMNS.values()) <= set(source.tables.get(SAMPLES, ())):
        return
    metrics = [row for row in source.rows(METRICS, needed) if is_clock(str(row[2]))]
    ids = {row[1] for row in metrics if isinstance(row[1], int)}
    if not ids:
        return
    samples = source.integers(SAMPLES, _SAMPLE_COLUMNS, ids, "metricId").drop_nulls()
    inside = pl.col("start_ns").is_between(kernels["start_ns"].min(), kernels["end_ns"].max())
    out.table(METRICS, needed, metrics, types="")
    kept = samples.filter(inside).select("start_ns", "type", "metric", "value")
    out.table(SAMPLES, ["timestamp", "typeId", "metricId", "value"], kept.iter_rows())
