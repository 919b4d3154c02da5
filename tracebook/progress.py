"""Progress bars: on stderr, only on a terminal, and only when something takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_QUIET_S = 1.0


class Bar:
    """Counts work of any threads and shows it once it has lasted; `advance` is all one calls."""

    def __init__(self, words: str, total: int) -> None:
        self._words, self._total = words, total
        self._done = 0
        self._begun = time.monotonic()
        self._lock = Lock()
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def advance(self, amount: int) -> None:
        """Count work that was done."""
        with self._lock:
            self._done += amount
            if self._shown is None and sys.stderr.isatty():
                if time.monotonic() - self._begun < _QUIET_S:
                    return
                self._show()
            if self._shown is not None:
                progress, task = self._shown
                progress.update(task, completed=min(self._done, self._total))

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        progress = Progress(console=Console(stderr=True), transient=True)
        progress.start()
        self._shown = progress, progress.add_task(self._words, total=self._total)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Say what is waited for, where no share of it is known; only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield
