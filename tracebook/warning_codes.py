"""What each warning means, and which of them --strict makes fatal: `data/warnings.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Literal, get_args

from tracebook.errors import RuleError, TracebookError
from tracebook.notices import Notice

Level = Literal["alarm", "note"]

#: Where a warning arises, in the order of the documentation, with its heading.
PLACES = {
    "trace": "The trace",
    "run": "What was said about the run",
    "checkpoint": "The checkpoint",
    "labels": "Kernels, steps and the plan",
    "figures": "The figures",
    "comparison": "Comparisons",
}


class AlarmError(TracebookError):
    """There are alarms, and --strict was given."""


@dataclass(frozen=True)
class Warned:
    """One entry of `data/warnings.toml`, where the fields are described."""

    code: str
    level: Level
    where: str
    means: str
    causes: str


@cache
def warning_codes() -> dict[str, Warned]:
    """Read and check `data/warnings.toml`.

    Raises:
        RuleError: An entry lacks a key, or has an unknown level or place.
    """
    text = resources.files("tracebook.data").joinpath("warnings.toml").read_text(encoding="utf-8")
    found = {}
    for code, entry in tomllib.loads(text).items():
        try:
            warned = Warned(code, **entry)
        except TypeError as error:
            raise RuleError(f"warnings.toml: {code}: {error}.") from error
        if warned.level not in get_args(Level) or warned.where not in PLACES:
            raise RuleError(f"warnings.toml: {code} has an unknown level or place.")
        found[code] = warned
    return found


def entry_of(code: str) -> Warned | None:
    """The entry of a code: its own, or one whose pattern takes it."""
    known = warning_codes()
    if code in known:
        return known[code]
    return next((known[name] for name in known if "*" in name and fnmatchcase(code, name)), None)


def refuse_alarms(notices: Iterable[Notice]) -> None:
    """Raise where there is an alarm; a code that is not known counts as one.

    Raises:
        AlarmError: Naming the codes.
    """
    entries = {notice.code: entry_of(notice.code) for notice in notices}
    alarms = [code for code, entry in entries.items() if entry is None or entry.level == "alarm"]
    if alarms:
        raise AlarmError(
            f"--strict: {', '.join(alarms)}.",
            "The warnings say what to do; docs/warnings.md tells what each comes from.",
        )
