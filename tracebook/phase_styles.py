"""How each phase is named and drawn: one colour and hatch wherever it appears.

The table is `data/phases.toml`; every phase must be in it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tracebook.phases import Phase


@dataclass(frozen=True)
class PhaseStyle:
    """Label for people, fill colour (#rrggbb), matplotlib hatch, and what belongs to it."""

    label: str
    colour: str
    hatch: str
    meaning: str


@cache
def phase_styles() -> dict[str, PhaseStyle]:
    """Styles by phase, in the order of phases.

    Raises:
        ValueError: The table misses a phase, has one too many, or a colour is none.
    """
    text = (resources.files("tracebook") / "data" / "phases.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    wrong = set(table) ^ {phase.value for phase in Phase}
    if wrong:
        raise ValueError(f"data/phases.toml does not agree with the phases: {sorted(wrong)}")
    styles = {phase.value: PhaseStyle(**table[phase.value]) for phase in Phase}
    for phase, style in styles.items():
        if not re.fullmatch(r"#[0-9a-f]{6}", style.colour):
            raise ValueError(f"data/phases.toml: {phase} has no colour: {style.colour!r}")
    return styles
