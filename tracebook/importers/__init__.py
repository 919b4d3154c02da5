"""Importers: from a path to a `Trace`. Nothing to the right of them knows the container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracebook.importers.assemble import assemble, select
from tracebook.importers.columns import column_map, pick
from tracebook.importers.refusals import refuse_without_kernels
from tracebook.importers.sniff import Kind, sniff
from tracebook.importers.source import Source
from tracebook.importers.sqlite_source import open_sqlite
from tracebook.importers.window import At, Selection, Span
from tracebook.scratch import MEMORY, Scratch
from tracebook.trace import Trace

#: From so many rows on a scan for the time of a capture is worth its cost, 0.1 s a million.
_SCAN_ROWS = 3_000_000


def open_trace(
    path: str | Path,
    *,
    device: int | None = None,
    pid: int | None = None,
    from_ns: At | None = None,
    to_ns: At | None = None,
    scratch: Scratch = MEMORY,
) -> Trace:
    """Read the kernels of a capture.

    The container is told by content, never by name or version: an SQLite export, a
    directory export (Parquet or Arrow), or an nsys report, which is exported first into the
    cache directory. The input is
    opened read-only and nothing is written beside it. Where `tracebook index` has kept its
    columns they are taken instead; the notices are then those of the whole capture.

    Args:
        path: The export or report.
        device: Keep kernels of this CUDA device only.
        pid: Keep kernels of this process only.
        from_ns: Keep kernels that start at or after this time (ns since capture start, or a
            `Percent` of the time with kernels).
        to_ns: Keep kernels that start before this time (the same).
        scratch: Where the columns lie, in memory or in files.

    Returns:
        The trace: KERNEL_SCHEMA sorted by (start_ns, end_ns, kernel_id), NAME_SCHEMA
        with the names of exactly those kernels, and facts about the capture.

    Raises:
        TraceError: The path cannot be read, or nothing is left by the arguments.
        NotATrace: It is no Nsight Systems export.
        MissingTable: The export has no kernels.
        CaptureIncomplete: The capture was recorded at graph level.
        NsysError: A report could not be exported.
    """
    selection = Selection(device=device, pid=pid, from_ns=from_ns, to_ns=to_ns)
    path = Path(path)
    if sniff(path) is not Kind.FOLDER:
        from tracebook.importers.sidecar import find_sidecar, read_sidecar

        folder = find_sidecar(path)
        indexed = read_sidecar(folder, path, scratch) if folder is not None else None
        if indexed is not None:
            return select(indexed, selection)
    return read_trace(path, selection, scratch)


def read_trace(path: Path, selection: Selection | None = None, scratch: Scratch = MEMORY) -> Trace:
    """Read the capture itself, whether there is an index of it or not."""
    with open_source(path) as source:
        return assemble(source, selection or Selection(), scratch)


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open the tables of a capture, whatever container they lie in.

    Raises:
        TraceError: The path cannot be read, or is no trace.
        NsysError: A report could not be exported.
    """
    kind = sniff(path)
    if kind is Kind.FOLDER:
        from tracebook.importers.folder_source import open_folder

        with open_folder(path) as folder:
            yield folder
    elif kind is Kind.REPORT:
        from tracebook.nsys import export

        with open_sqlite(export(path), shown_as=path) as source:
            yield source
    else:
        with open_sqlite(path) as source:
            yield source


def sqlite_of(path: Path) -> Path | None:
    """The SQLite file that holds a trace: itself, or a report's export; None for a directory.

    Raises:
        TraceError: Nothing is there, or it is no trace.
        NsysError: A report could not be exported.
    """
    kind = sniff(path)
    if kind is Kind.SQLITE:
        return path
    if kind is Kind.FOLDER:
        return None
    from tracebook.nsys import export

    return export(path)


def readable_in_parts(path: Path) -> bool:
    """Whether kernels can be read page by page, without holding all of their table."""
    with open_source(path) as source:
        return source.in_parts(column_map().kernel_table)


def kernel_rows(path: Path) -> int:
    """Number of kernel rows (at most), without reading them.

    Raises:
        TraceError: The path cannot be read, or has no kernels.
    """
    with open_source(path) as source:
        refuse_without_kernels(source)
        return source.row_count(column_map().kernel_table)


def capture_extent(path: Path, *, exact: bool = False) -> tuple[int, Span | None]:
    """How large a capture is, without reading its kernels.

    Args:
        path: The trace.
        exact: Also read the times of all kernels, which takes a scan of the table.

    Returns:
        Number of kernel rows (at most), and start of the first and end of the last kernel
        in ns, None where that is not known without a scan.

    Raises:
        TraceError: The path cannot be read, or has no kernels.
    """
    rows = kernel_rows(path)
    with open_source(path) as source:
        mapping = column_map()
        table = mapping.kernel_table
        columns = pick(mapping.required, source.tables[table])
        scan = exact or rows > _SCAN_ROWS
        span = source.span(table, columns["start_ns"], columns["end_ns"]) if scan else None
        return rows, span
