"""Room for arrays that are as long as a trace: in memory, or in files where memory is short.

A file has no name, so that nothing is left behind even by a kill, and goes when the last
array on it goes. Its pages are the system's to write out and to take back: they count as
cache, not as memory that the program holds.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tracebook.errors import TraceError
from tracebook.units import BYTES_PER_GB


@dataclass(eq=False)
class Scratch:
    """Makes arrays; in `folder`, where one is given, else in memory."""

    folder: Path | None = None
    _maps: WeakSet[mmap.mmap] = field(default_factory=WeakSet, repr=False)

    @property
    def in_files(self) -> bool:
        """Whether arrays lie in files: whole-length temporaries should then be avoided."""
        return self.folder is not None

    def empty(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array of shape (length,) with nothing useful in it yet.

        Raises:
            TraceError: The disk has no room for it.
        """
        return self._mapped(length, dtype) if self.in_files else np.empty(length, dtype)

    def zeros(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array of shape (length,) of zeros, which take no memory before they are changed.

        Raises:
            TraceError: The disk has no room for it.
        """
        return self._mapped(length, dtype) if self.in_files else np.zeros(length, dtype)

    def release(self) -> None:
        """Let the system take back the memory of all arrays; nothing is lost, not even time.

        What was written stays in the system's cache until the disk has it.
        """
        for mapped in list(self._maps):
            with suppress(AttributeError, OSError, ValueError):
                mapped.madvise(mmap.MADV_DONTNEED)

    def _mapped(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array in a file of its own, all zeros."""
        size = length * np.dtype(dtype).itemsize
        if self.folder is None or not size:
            return np.zeros(length, dtype)
        try:
            # A trace tells of the run: nobody else may read it.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                _reserve(file.fileno(), size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise TraceError(
                f"{self.folder} has no room for {size / BYTES_PER_GB:.1f} GB of kernels that are "
                f"not to be held in memory: {error.strerror or error}.",
                "Free some space, set XDG_CACHE_HOME to a larger disk, or raise --max-memory.",
            ) from error
        self._maps.add(mapped)
        return np.frombuffer(mapped, dtype)


def _reserve(file: int, size: int) -> None:
    """Take the space now: a full disk would otherwise end the program when a page is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


#: Arrays in memory.
MEMORY = Scratch()
