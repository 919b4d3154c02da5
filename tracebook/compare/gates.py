"""How much slower is too much: relative and absolute thresholds.

A quantity is a phase, `idle`, or `step` for the whole wall time. Phases and idle are
held to the gate, the step to three tenths of it: it is known that much better, and a
small change of the largest phase would else pass everywhere. Less than that, captures of
one build differ by themselves.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracebook.errors import TracebookError
from tracebook.phases import STEP_PHASES

STEP = "step"
IDLE = "idle"
#: Everything that a gate can be set for.
QUANTITIES = (STEP, *(phase.value for phase in STEP_PHASES), IDLE)

#: Gate of the step as a part of the gate of phases.
STEP_PART = 0.3


class GateError(TracebookError):
    """A gate that cannot be."""

    exit_code = 2


@dataclass(frozen=True)
class Gates:
    """What counts as a change, and how sure one must be of it.

    Attributes:
        gate: Change of a phase that counts, as a fraction of its old time.
        per_quantity: Gates of single quantities, instead of `gate`.
        min_ms: No change below this counts, in ms.
        alpha: Chance of calling any quantity changed where none is, all together.
        min_steps: Fewest steps per side that are compared.
    """

    gate: float = 0.02
    per_quantity: Mapping[str, float] = field(default_factory=dict)
    min_ms: float = 0.05
    alpha: float = 0.005
    min_steps: int = 20

    def of(self, quantity: str) -> float:
        """The relative gate of a phase, `idle` or `step`."""
        if quantity in self.per_quantity:
            return self.per_quantity[quantity]
        return self.gate * STEP_PART if quantity == STEP else self.gate

    def threshold_ns(self, quantity: str, old_ns: float) -> float:
        """The smallest change that counts."""
        return max(self.of(quantity) * old_ns, self.min_ms * 1e6)


def make_gates(
    *,
    gate: float = 0.02,
    per_quantity: Mapping[str, float] | None = None,
    min_ms: float = 0.05,
    min_steps: int = 20,
) -> Gates:
    """Gates whose values have been looked at.

    Args:
        gate: Fraction, 0.02 for 2 %.
        per_quantity: Phase, `idle` or `step` to its own fraction.
        min_ms: In ms.
        min_steps: At least 8: fewer steps cannot carry a verdict.

    Raises:
        GateError: A value is out of range, or a name is not known.
    """
    for name, value in ((f"gate of {k}", v) for k, v in (per_quantity or {}).items()):
        _check_fraction(name, value)
    _check_fraction("gate", gate)
    for quantity in per_quantity or {}:
        if quantity not in QUANTITIES:
            begun = [known for known in QUANTITIES if quantity and known.startswith(quantity)]
            near = begun or difflib.get_close_matches(quantity, QUANTITIES, n=1)
            known = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(QUANTITIES)}."
            raise GateError(f"There is no phase {quantity!r} to set a gate for.", known)
    if not math.isfinite(min_ms) or min_ms < 0:
        raise GateError(f"The smallest change must be 0 ms or more, not {min_ms}.")
    if min_steps < 8:
        raise GateError(f"At least 8 steps are needed for a verdict, not {min_steps}.")
    return Gates(gate, dict(per_quantity or {}), min_ms=min_ms, min_steps=min_steps)


def parse_fraction(text: str) -> float:
    """Read `2%` or `0.02`.

    Raises:
        GateError: It is neither.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    if match is None:
        raise GateError(f"{text!r} is not a gate.", "Write 2% or 0.02.")
    value = float(match[1]) / (100.0 if match[2] else 1.0)
    _check_fraction("gate", value)
    return value


def _check_fraction(name: str, value: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise GateError(
            f"The {name} must be a fraction from 0 to 1, not {value}.",
            "Write 2% or 0.02 for two percent.",
        )
