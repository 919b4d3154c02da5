"""Files that appear under their name only when they are whole.

What is written goes to a draft beside its place and takes it at the end: a reader never
sees a half of it, and a run that is stopped leaves what was there before.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

#: What SQLite may put beside a draft.
_SIDE_FILES = ("", "-journal", "-wal", "-shm")


#: Where names stand for what a process has open already: written to, never replaced.
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Give a path beside `path` that takes its place when all went well, else is deleted.

    A link stays and what it points to is replaced. A pipe or a device stays what it is: the
    finished draft is copied into it.

    Raises:
        OSError: The draft cannot be written or moved.
    """
    if _written_through(path):
        with tempfile.TemporaryDirectory(prefix="tracebook-") as folder:
            draft = Path(folder) / f"draft{path.suffix}"
            yield draft
            with draft.open("rb") as made, path.open("wb") as target:
                shutil.copyfileobj(made, target)
        return
    place = Path(os.path.realpath(path))
    draft = place.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield draft
        draft.replace(place)
    finally:
        for suffix in _SIDE_FILES:
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _written_through(path: Path) -> bool:
    """Whether a path names a pipe, a device or what is open already, which must stay."""
    if os.path.abspath(path).startswith(_OPEN_ALREADY):  # noqa: PTH100  links stay links
        return True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
