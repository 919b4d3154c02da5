"""How a foreign SQLite file is opened: read-only, and without trust in what it defines.

A file can carry views, triggers, virtual tables and expressions that would run when it is
read. Only plain tables are read (`sqlite_source`), nothing can be written, no extension can
be loaded, and no function with side effects can be called from the file's own definitions.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from tracebook.errors import NotATrace, TraceError

_LOCK_WAIT_S = 0.5
#: Said on every connection, whichever library opened it (sqlite.org/security.html).
SETTINGS = ("PRAGMA query_only = 1", "PRAGMA trusted_schema = 0", "PRAGMA cell_size_check = 1")
#: No text or blob of a sound export is longer, and SQLite's own limit is 1 GB.
_LONGEST_VALUE_BYTES = 64 * 2**20


def connect(uri: str) -> sqlite3.Connection:
    """A connection of the standard library to what `read_only_uri` gave."""
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)
    if hasattr(connection, "enable_load_extension"):  # off by default, and left out of some builds
        connection.enable_load_extension(False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    for setting in SETTINGS:
        connection.execute(setting)
    return connection


def read_only_uri(path: Path, shown: Path) -> str:
    """The `file:` URI that opens `path` without writing anything, beside it included.

    A database in write-ahead mode is opened as immutable, since SQLite would else
    create its side files; where a log holds rows the main file does not tell the
    whole, so it is refused.

    Raises:
        TraceError: The file is truncated, or a writer left its log beside it.
    """
    _refuse_unfinished(path, shown)
    with path.open("rb") as file:
        header = file.read(100)
    size = path.stat().st_size
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size
    pages = int.from_bytes(header[28:32], "big")
    if len(header) < 100 or size < pages * page_size:
        raise TraceError(
            f"{shown} is truncated: its header promises {pages * page_size:,} bytes "
            f"and the file has {size:,}.",
            "Copy it again, or repeat the export.",
        )
    mode = "?mode=ro&immutable=1" if 2 in header[18:20] else "?mode=ro"
    return "file:" + quote(str(path)) + mode


def _refuse_unfinished(path: Path, shown: Path) -> None:
    for suffix, what in (("-wal", "write-ahead log"), ("-journal", "rollback journal")):
        log = path.with_name(path.name + suffix)
        if log.is_file() and log.stat().st_size > 0:
            raise TraceError(
                f"{shown} has a {what} beside it ({log.name}): another program is writing "
                "it or was stopped while doing so.",
                "Let that program finish, or repeat the export.",
            )


def damaged(path: Path) -> TraceError:
    """The file is not what SQLite writes."""
    return TraceError(
        f"{path} is a damaged SQLite database.", "Copy it again, or repeat the export."
    )


def as_trace_error(path: Path, error: Exception) -> TraceError:
    """What SQLite or its driver said, in our words."""
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return TraceError(
            f"{path} is locked: another program is writing it.", "Try again when it has finished."
        )
    if "not a database" in text:
        return NotATrace(
            f"{path} is not an SQLite database, or is encrypted.", "Give an nsys SQLite export."
        )
    return damaged(path)


class Budget:
    """Progress handler that stops a statement after so many calls in all."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self) -> int:
        """Count a call; 1 stops the statement."""
        self._left -= 1
        return 1 if self._left < 0 else 0
