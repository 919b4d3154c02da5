"""Importers: from a path to a `Trace`. Nothing to the right of them knows the container."""

from __future__ import annotations

from pathlib import Path

from tracebook.importers.assemble import Selection, assemble
from tracebook.importers.sniff import Kind, sniff
from tracebook.importers.sqlite_source import open_sqlite
from tracebook.trace import Trace


def open_trace(
    path: str | Path,
    *,
    device: int | None = None,
    pid: int | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> Trace:
    """Read the kernels of a capture.

    The container is told by content, never by name or version: an SQLite export, a
    directory export (Parquet or Arrow), or an nsys report, which is exported first into the
    cache directory. The input is
    opened read-only and nothing is written beside it.

    Args:
        path: The export or report.
        device: Keep kernels of this CUDA device only.
        pid: Keep kernels of this process only.
        from_ns: Keep kernels that start at or after this time (ns since capture start).
        to_ns: Keep kernels that start before this time (ns since capture start).

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
    path = Path(path)
    selection = Selection(device=device, pid=pid, from_ns=from_ns, to_ns=to_ns)
    kind = sniff(path)
    if kind is Kind.FOLDER:
        from tracebook.importers.folder_source import open_folder

        with open_folder(path) as folder:
            return assemble(folder, selection)
    if kind is Kind.REPORT:
        from tracebook.nsys import export

        with open_sqlite(export(path), shown_as=path) as source:
            return assemble(source, selection)
    with open_sqlite(path) as source:
        return assemble(source, selection)
