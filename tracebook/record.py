"""The nsys command that records a decode run, with the reason for each of its flags.

In: the command that starts the engine. Out: the whole command line, and what has to be
done while it runs. The flags and engines are data: `data/record.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Recording:
    """A command line and what belongs to it.

    Attributes:
        words: The command, nsys first.
        reasons: (flag, reason) for each flag of nsys, in order.
        engine: Name of the engine, None where the command is of none that is known.
        added: Arguments that were added to the engine's own.
        steps: What to do while it runs, one sentence each.
    """

    words: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]
    engine: str | None
    added: tuple[str, ...]
    steps: tuple[str, ...]


def recording(
    command: Sequence[str],
    *,
    output: str = "decode",
    nsys: str = "nsys",
    capture_range: bool | None = None,
    delay_s: int = 60,
    duration_s: int = 30,
) -> Recording:
    """Work out how to record a command.

    Args:
        command: The words that start the engine.
        output: Name of the report, without its ending.
        nsys: The binary, as it is to be called.
        capture_range: Whether the program calls cudaProfilerStart; None goes by the
            engine (an unknown one is taken not to).
        delay_s: Without a capture range: seconds before recording begins.
        duration_s: Without a capture range: seconds to record.
    """
    known = _known()
    engine = next((e for e in known["engine"] if _runs(e, command)), None)
    ranged = capture_range if capture_range is not None else bool(engine and engine["range"])
    values = {"output": output, "delay_s": delay_s, "duration_s": duration_s}
    reasons = tuple(
        (entry["flag"].format(**values), entry["reason"])
        for entry in [*known["flag"], *known["range" if ranged else "timed"]]
    )
    added = _added(engine, command) if ranged else ()
    words = (nsys, "profile", *(flag for flag, _ in reasons), *command, *added)
    steps = tuple(engine["steps"]) if engine is not None and ranged == engine["range"] else ()
    return Recording(words, reasons, engine["name"] if engine else None, added, steps)


def _runs(engine: Mapping[str, Any], command: Sequence[str]) -> bool:
    return any(re.search(engine["match"], word) for word in command)


def _added(engine: Mapping[str, Any] | None, command: Sequence[str]) -> tuple[str, ...]:
    """The engine's own switches that the command does not have yet."""
    if engine is None or engine.get("only_with", command[0]) not in command:
        return ()
    return tuple(
        argument
        for argument in engine["arguments"]
        if not any(word.startswith(re.split(r"[.=]", argument)[0]) for word in command)
    )


@cache
def _known() -> dict[str, Any]:
    text = resources.files("tracebook.data").joinpath("record.toml").read_text("utf-8")
    return tomllib.loads(text)
