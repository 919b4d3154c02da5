"""The cache directory: private, keyed by content, safe under two processes and a kill.

What was not used for longest is deleted when the cache grows beyond its limit
(TRACEBOOK_CACHE_GB, 20 by default). An entry is a file or a folder `KEY.SUFFIX` in one of
the cache's folders, and appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tracebook.errors import TracebookError
from tracebook.units import BYTES_PER_GB

_DEFAULT_LIMIT_GB = 20.0
#: An entry that was used within this time may be about to be opened by another process.
_FRESH_S = 60.0
_LOCK_SUFFIX, _PART_SUFFIX = ".lock", ".part"


@dataclass(frozen=True)
class Entry:
    """A finished entry: its path, its size on disk, and when it was last used (epoch s)."""

    path: Path
    size_bytes: int
    used_s: float


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tracebook`, or `tracebook` in the user's cache directory.

    See the XDG base directory specification: a relative value counts as unset.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    return base / "tracebook"


def limit_bytes() -> int:
    """What the cache may hold, from TRACEBOOK_CACHE_GB (GB = 10^9 bytes).

    Raises:
        TracebookError: The variable holds something other than a positive number.
    """
    given = os.environ.get("TRACEBOOK_CACHE_GB", "").strip()
    try:
        limit_gb = float(given) if given else _DEFAULT_LIMIT_GB
    except ValueError:
        limit_gb = -1.0
    if not 0 <= limit_gb < float("inf"):
        raise TracebookError(
            f"TRACEBOOK_CACHE_GB is {given!r}, not a number of GB.",
            "Set it to a number such as 20.",
        )
    return round(limit_gb * BYTES_PER_GB)


def cached(
    folder: str,
    source: Path,
    suffix: str,
    make: Callable[[Path], None],
    *,
    key: str | None = None,
) -> Path:
    """A file or folder made from `source`, made once for each content.

    Of two processes that want the same one, the second waits and takes what the first made.

    Args:
        folder: Part of the cache.
        source: The file it is made from; its content is the key.
        suffix: Ending of what is made.
        make: Writes a file or a folder at the path it is given, in an empty folder of its own.
        key: Stands for the content where it is known already.

    Raises:
        TracebookError: The cache directory cannot be used.
    """
    key = key or content_key(source)
    place = cache_dir() / folder
    target, part = place / f"{key}{suffix}", place / f"{key}{_PART_SUFFIX}"
    limit = limit_bytes()
    try:
        # Exports hold the environment of the run: nobody else may read them.
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(place / f"{key}{_LOCK_SUFFIX}"):
            if not _complete(target):
                shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
                part.mkdir(mode=0o700)
                try:
                    make(part / f"made{suffix}")
                    (part / f"made{suffix}").replace(target)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
            os.utime(target)
        _trim(limit, keep=target)
    except OSError as error:
        raise _unusable(place, error) from error
    return target


def find_cached(folder: str, key: str, suffix: str) -> Path | None:
    """The entry of this key, None where there is none; finding it counts as using it."""
    target = cache_dir() / folder / f"{key}{suffix}"
    try:
        if not _complete(target):
            return None
        os.utime(target)
    except OSError:
        return None
    return target


def entries() -> tuple[Entry, ...]:
    """All finished entries, the one that was not used for longest first."""
    found = []
    with suppress(OSError):
        for path in cache_dir().glob("*/*"):
            if path.suffix in (_LOCK_SUFFIX, _PART_SUFFIX):
                continue
            with suppress(OSError):  # another process may delete it meanwhile
                found.append(Entry(path, _size(path), path.stat().st_mtime))
    return tuple(sorted(found, key=lambda entry: (entry.used_s, entry.path.name)))


def clear() -> tuple[int, int]:
    """Delete every entry and what killed processes left; what is being made stays.

    Returns:
        Number of entries that were deleted, and their bytes.

    Raises:
        TracebookError: Something cannot be deleted.
    """
    count, freed = 0, 0
    try:
        for entry in entries():
            _delete(entry.path)
            count, freed = count + 1, freed + entry.size_bytes
        for lock in cache_dir().glob(f"*/*{_LOCK_SUFFIX}"):
            with _locked(lock, wait=False) as held:
                if held:
                    shutil.rmtree(lock.with_suffix(_PART_SUFFIX), ignore_errors=True)
    except OSError as error:
        raise _unusable(cache_dir(), error) from error
    return count, freed


def content_key(source: Path) -> str:
    """SHA-256 of a file's content.

    Raises:
        TracebookError: It cannot be read.
    """
    try:
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TracebookError(
            f"{source} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error


def _trim(limit: int, *, keep: Path) -> None:
    """Delete what was not used for longest until the cache is within its limit."""
    listed = entries()
    total = sum(entry.size_bytes for entry in listed)
    fresh_from = time.time() - _FRESH_S
    for entry in listed:
        if total <= limit:
            return
        if entry.path != keep and entry.used_s < fresh_from:
            _delete(entry.path)
            total -= entry.size_bytes


def _complete(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.stat().st_size > 0)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())


def _delete(path: Path) -> None:
    if path.is_dir():
        doomed = path.with_name(f"{path.stem}{_PART_SUFFIX}")
        with suppress(OSError):  # a folder goes at once: nobody then sees half of it
            path = path.rename(doomed)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _unusable(place: Path, error: OSError) -> TracebookError:
    return TracebookError(
        f"The cache directory {place} cannot be used: {error.strerror or error}.",
        "Set XDG_CACHE_HOME to a folder that can be written and has space.",
    )


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that the system releases even if this process is killed.

    Yields:
        Whether it is held; without `wait` another process may have it.
    """
    with path.open("ab") as file:
        held = True
        try:
            if sys.platform == "win32":
                import msvcrt

                mode = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK
                msvcrt.locking(file.fileno(), mode, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if wait:
                raise
            held = False
        yield held
