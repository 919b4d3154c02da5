"""The cache directory: private, keyed by content, safe under two processes and a kill."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tracebook.errors import TracebookError


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tracebook`, or `tracebook` in the user's cache directory.

    See the XDG base directory specification: a relative value counts as unset.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    return base / "tracebook"


def cached(folder: str, source: Path, suffix: str, make: Callable[[Path], None]) -> Path:
    """A file made from `source`, made once for each content.

    The file appears under its name only when it is complete. Of two processes that want
    the same one, the second waits and takes what the first made.

    Args:
        folder: Part of the cache.
        source: The file it is made from; its content is the key.
        suffix: Ending of the made file.
        make: Writes the file to the path it is given, in an empty folder of its own.

    Raises:
        TracebookError: The cache directory cannot be used.
    """
    key = _content_key(source)
    place = cache_dir() / folder
    target, part = place / f"{key}{suffix}", place / f"{key}.part"
    try:
        # Exports hold the environment of the run: nobody else may read them.
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(place / f"{key}.lock"):
            if target.is_file() and target.stat().st_size > 0:
                return target
            shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
            part.mkdir(mode=0o700)
            try:
                make(part / f"made{suffix}")
                (part / f"made{suffix}").replace(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise TracebookError(
            f"The cache directory {place} cannot be used: {error.strerror or error}.",
            "Set XDG_CACHE_HOME to a folder that can be written and has space.",
        ) from error
    return target


def _content_key(source: Path) -> str:
    try:
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TracebookError(
            f"{source} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system releases even if this process is killed."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
