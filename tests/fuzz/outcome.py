"""What any command must do on any input: a result, or a sentence; never a fault or a trail."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracebook.cli import main

LONGEST_S = 60
_ESCAPES = [chr(27), chr(7), chr(0x9B), "\u202e"]


class TooLongError(BaseException):
    """A command ran longer than it may (no Exception: nothing may swallow it)."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_bytes() -> int:
    """Most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def run(arguments: list[str], capfd, *, inputs: list[Path], folder: Path) -> tuple[int, str, str]:
    """Run a command; check what must hold whatever the input is.

    Returns:
        Exit status, stdout and stderr.
    """
    before = {path: path.read_bytes() for path in inputs if path.is_file()}
    capfd.readouterr()
    with within(LONGEST_S):
        status = main(arguments)
    told = capfd.readouterr()
    shown = f"{arguments}: {status}\n{told.err[-600:]}"
    assert status in (0, 1, 2, 3, 4), shown
    assert "fault in tracebook" not in told.err, shown
    assert "Traceback" not in told.err, shown
    if status == 1 and "doctor" not in arguments:
        assert "Error: " in told.err, shown
        assert "Hint: " in told.err, shown
    for escape in _ESCAPES:
        assert escape not in told.err, shown
        assert escape not in told.out, f"{arguments}: {escape!r} on stdout"
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path} was changed by {arguments}"
    left = [path for path in folder.rglob("*") if ".part" in path.name]
    assert not left, f"{arguments} left {left}"
    return status, told.out, told.err
