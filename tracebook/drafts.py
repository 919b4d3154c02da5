"""Files that appear under their name only when they are whole.

What is written goes to a draft beside its place and takes it at the end: a reader never
sees a half of it, and a run that is stopped leaves what was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

#: What SQLite may put beside a draft.
_SIDE_FILES = ("", "-journal", "-wal", "-shm")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Give a path beside `path` that takes its place when all went well, else is deleted.

    Raises:
        OSError: The draft cannot be written or moved.
    """
    draft = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    finally:
        for suffix in _SIDE_FILES:
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def write_parquet(frame: pl.DataFrame, path: Path, **options: Any) -> None:
    """Write a frame as Parquet.

    Raises:
        OSError: The disk is full, as any other writer says it; polars has its own error.
    """
    try:
        frame.write_parquet(path, **options)
    except OSError:
        raise
    except Exception as error:
        if "os error" not in str(error):
            raise
        raise OSError(None, str(error)) from error
