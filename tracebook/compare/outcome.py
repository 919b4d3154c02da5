"""Whether a check passes: the exit status and the sentences that say why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tracebook.compare.comparison import Comparison, Row
from tracebook.compare.gates import STEP
from tracebook.notices import Notice

State = Literal["passed", "regression", "not_comparable", "machine_state"]

_EXIT = {"passed": 0, "regression": 3, "not_comparable": 4, "machine_state": 4}


@dataclass(frozen=True)
class Outcome:
    """The end of a check.

    Attributes:
        state: What came out.
        headline: One sentence.
        reasons: What led to it, one notice each.
        regressions: Quantities that are worse: phases and idle by what they add to the
            step, then the step.
    """

    state: State
    headline: str
    reasons: tuple[Notice, ...]
    regressions: tuple[Row, ...]

    @property
    def exit_code(self) -> int:
        """0 passed, 3 regression, 4 not comparable or machine state."""
        return _EXIT[self.state]


def judge(found: Comparison) -> Outcome:
    """Decide whether a comparison passes as a check."""
    if found.reasons:
        return Outcome("not_comparable", "The two cannot be compared.", found.reasons, ())
    if found.machine_state is not None:
        return Outcome(
            "machine_state",
            "The machine was in another state, so this check neither passes nor blames the code.",
            (found.machine_state,),
            (),
        )
    worse = found.with_verdict("worse")
    if worse or found.step.verdict == "worse":
        rows = (*worse, *([found.step] if found.step.verdict == "worse" else []))
        reasons = tuple(Notice(f"{row.quantity}_worse", sentence(row)) for row in rows)
        return Outcome("regression", _regression(found, worse), reasons, rows)
    untold = [row for row in found.rows if _must_be_known(found, row)]
    if untold:
        names = (called(row.quantity) for row in untold)
        return Outcome(
            "not_comparable",
            f"The steps vary too much to tell whether {_listed(names)} changed.",
            tuple(Notice("too_noisy", _untold(row), _QUIETER) for row in untold),
            (),
        )
    return Outcome("passed", _passed(found), (), ())


_QUIETER = "Record more steps, on a quieter machine, or with locked clocks."


#: A check that could have missed a step slower by this part does not pass.
_MISSED = 0.1


def _must_be_known(found: Comparison, row: Row) -> bool:
    """What was gated by name may not stay unknown, nor may a large change of the step."""
    if row.verdict != "unknown":
        return False
    named = row.quantity in found.gates.per_quantity
    return named or (row.quantity == STEP and row.seen_ms > _MISSED * row.old_ms)


def sentence(row: Row) -> str:
    """One quantity in words."""
    low, high = row.interval_ms
    digits = decimals_of(row)
    percent = f" ({row.change_pct:+.1f} %)" if row.change_pct is not None else ""
    return (
        f"{called(row.quantity)}: {row.old_ms:.{digits}f} to {row.new_ms:.{digits}f} ms, "
        f"{row.change_ms:+.{digits}f} ms{percent}, "
        f"95 % interval {low:+.{digits}f} to {high:+.{digits}f} ms, p {p_text(row.p)}; "
        f"what counts is {row.threshold_ms:.{digits}f} ms (gate {row.gate_pct:g} %)."
    )


def decimals_of(row: Row) -> int:
    """Decimals that suit the times of a quantity, in ms."""
    return 2 if max(row.old_ms, row.new_ms) >= 1 else 3


def called(quantity: str) -> str:
    """A quantity as a sentence names it."""
    return {"step": "the step", "idle": "idle time"}.get(quantity, quantity.replace("_", " "))


def p_text(p: float) -> str:
    """A p-value in two digits."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def _untold(row: Row) -> str:
    return (
        f"{called(row.quantity)}: {row.old_ms:.2f} to {row.new_ms:.2f} ms; a change below "
        f"{row.seen_ms:.2f} ms could have been missed."
    )


def _regression(found: Comparison, worse: tuple[Row, ...]) -> str:
    step = found.step
    longer = "longer" if step.change_ms >= 0 else "shorter"
    change = f"the step is {abs(step.change_ms):.2f} ms {longer} ({step.change_pct or 0:+.1f} %)"
    if worse:
        blamed = _listed(f"the {called(row.quantity)}".replace("the idle", "idle") for row in worse)
        return f"Slower in {blamed}; {change}."
    most = max(found.rows[1:], key=lambda row: row.contribution_ns)
    return (
        f"{change[0].upper()}{change[1:]}, most of it in the {called(most.quantity)}, "
        "though no phase alone is beyond its gate."
    )


def _passed(found: Comparison) -> str:
    step = found.step
    if step.verdict == "better":
        faster = f"{-step.change_ms:.2f} ms ({step.change_pct or 0:+.1f} %)"
        return f"No regression; the step is faster by {faster}."
    text = f"No regression: the step takes {step.new_ms:.2f} ms, {step.old_ms:.2f} before."
    vague = [
        f"{called(row.quantity)} below {row.seen_ms:.2f} ms"
        for row in found.rows
        if row.verdict == "unknown"
    ]
    return text + (f" Could have been missed: changes of {_listed(vague)}." if vague else "")


def _listed(names: Iterable[str]) -> str:
    *most, last = [name.replace("_", " ") for name in names]
    return f"{', '.join(most)} and {last}" if most else last
