"""Expected texts in files: what a run gave when it was last looked at."""

from __future__ import annotations

import difflib
from pathlib import Path

#: Lines of a difference that are shown; the rest is in the `.got` file.
_SHOWN = 60


def check_golden(path: Path, text: str, *, accept: bool) -> None:
    """Compare a text with the file that holds the expected one.

    Args:
        path: The expected text.
        text: What came out.
        accept: Write it as the expected text instead.

    Raises:
        AssertionError: They differ. `path` with `.got` added then holds what came out.
    """
    got = path.with_name(f"{path.name}.got")
    if accept:
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if text == expected:
        got.unlink(missing_ok=True)
        return
    got.write_text(text, encoding="utf-8")
    lines = list(
        difflib.unified_diff(
            expected.splitlines(), text.splitlines(), path.name, got.name, lineterm="", n=2
        )
    )
    more = f"\n... {len(lines) - _SHOWN} more lines" if len(lines) > _SHOWN else ""
    difference = "\n".join(lines[:_SHOWN]) + more
    raise AssertionError(
        f"{path} is not what came out (see {got.name}; `pytest --accept` takes it over):\n"
        f"{difference}"
    )
