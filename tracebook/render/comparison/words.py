"""Cells and sentences that the renderers of comparisons share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracebook.compare.comparison import Comparison, Row, Verdict
from tracebook.compare.outcome import Outcome, called, decimals_of, judge, p_text
from tracebook.compare.parts import PartChange
from tracebook.units import gb_text, number_text

#: What a control character in a name becomes: a terminal must not act on it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

HEADINGS = ("phase", "old ms", "new ms", "change", "95 % interval, ms", "p", "verdict", "adds ms")
RATE_HEADINGS = ("phase", "old GB", "new GB", "old GB/s", "new GB/s")
PART_HEADINGS = ("phase", "what", "layers", "old ms", "new ms", "change ms", "")

#: Kernels that are shown: at most, from which part of the step on, and in a phase that
#: changed from which part of its change on.
_MOST_PARTS, _LEAST_PART, _LEAST_OF_PHASE = 12, 0.0005, 0.1
_LONGEST_NAME = 34


def clean(text: str) -> str:
    """A name without characters that a terminal or a reader would act on."""
    return _CONTROL.sub("?", text)


def rows(found: Comparison) -> list[list[str]]:
    """Phases, idle and the step last, in the order of `HEADINGS`."""
    return [_cells(row) for row in (*found.rows[1:], found.rows[0])]


def _cells(row: Row) -> list[str]:
    low, high = row.interval_ms
    decimals = decimals_of(row)
    return [
        row.quantity.replace("_", " "),
        number_text(row.old_ms, decimals),
        number_text(row.new_ms, decimals),
        "new" if row.change_pct is None and row.change_ms else _percent(row.change_pct),
        f"{low:+.{decimals}f} to {high:+.{decimals}f}",
        p_text(row.p),
        row.verdict,
        f"{row.contribution_ns / 1e6:+.3f}",
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} %"


def rate_rows(found: Comparison) -> list[list[str]]:
    """Bytes and rates of the rows that have any, in the order of `RATE_HEADINGS`."""
    return [
        [
            row.quantity.replace("_", " "),
            gb_text(row.old_bytes),
            gb_text(row.new_bytes),
            number_text(row.old_gbps, 1),
            number_text(row.new_gbps, 1),
        ]
        for row in (*found.rows[1:], found.rows[0])
        if row.old_bytes or row.new_bytes
    ]


def part_rows(found: Comparison) -> list[list[str]]:
    """The kernels that changed most, in the order of `PART_HEADINGS`."""
    least = dict.fromkeys((part.phase for part in found.parts), 1e6 * found.step.old_ms)
    least = {phase: _LEAST_PART * step_ns for phase, step_ns in least.items()}
    for row in found.rows:
        if row.verdict in ("worse", "better") and row.quantity in least:
            of_phase = _LEAST_OF_PHASE * abs(row.contribution_ns)
            least[row.quantity] = min(least[row.quantity], of_phase)
    kept = [part for part in found.parts if abs(part.change_ns) >= least[part.phase]]
    return [_part_cells(part) for part in kept[:_MOST_PARTS]]


def _part_cells(part: PartChange) -> list[str]:
    names = part.new_names or part.old_names
    short = clean(names[0].split("<")[0].split("(")[0].removeprefix("void "))
    what = _matrices(part.matrix) or (f"{part.op} ({short})" if part.op else short)
    return [
        part.phase.replace("_", " "),
        clean(what)[:_LONGEST_NAME],
        str(part.layers) if part.layers else "-",
        number_text(part.old_ns / 1e6, 3),
        number_text(part.new_ns / 1e6, 3),
        f"{part.change_ns / 1e6:+.3f}",
        _became(part),
    ]


def _matrices(joined: str | None) -> str | None:
    """Matrices without the modules that they stand in."""
    if joined is None:
        return None
    pieces = joined.split("+")
    last = [piece.rsplit(".", 1)[-1] for piece in pieces]
    return "+".join(last if len(set(last)) == len(last) else pieces)


def _became(part: PartChange) -> str:
    """What became of a kind of kernel."""
    told: list[str] = [part.status]
    if part.renamed:
        told.append("by another kernel")
    if part.old_phase:
        told.append(f"was in {part.old_phase.replace('_', ' ')}")
    if part.status not in ("new", "gone") and part.old_kernels != part.new_kernels:
        told.append(f"{part.old_kernels} kernels before, now {part.new_kernels}")
    return ", ".join(told)


def sum_sentence(found: Comparison) -> str:
    """The change of the step as the sum of its parts."""
    step = found.step
    parts = sorted(found.rows[1:], key=lambda row: -abs(row.contribution_ns))
    told = [row for row in parts if abs(row.contribution_ns) >= 5_000][:4]
    rest = step.contribution_ns - sum(row.contribution_ns for row in told)
    listed = [f"{called(row.quantity)} {row.contribution_ns / 1e6:+.2f}" for row in told]
    if len(told) < len(parts) and abs(rest) >= 5_000:
        listed.append(f"the rest {rest / 1e6:+.2f}")
    if not listed:
        return "The step is as long as before."
    longer = "longer" if step.contribution_ns >= 0 else "shorter"
    total = f"The step is {abs(step.contribution_ns) / 1e6:.2f} ms {longer}"
    return f"{total}: {', '.join(listed)} ms."


def verdict(found: Comparison) -> str:
    """What became of the step, and which of its parts did not become the same."""
    told = [f"step: {found.step.verdict}"]
    kinds: tuple[Verdict, ...] = ("worse", "better", "unknown")
    for kind in kinds:
        named = [called(row.quantity) for row in found.with_verdict(kind)]
        told += [f"{kind}: {', '.join(named)}"] if named else []
    return "; ".join(told)


def counts_sentence(found: Comparison) -> str:
    """How much was compared."""

    def side(steps: Sequence[int]) -> str:
        if len(steps) == 1:
            return f"{steps[0]} steps"
        return f"{sum(steps)} steps in {len(steps)} runs"

    noise = next((row for row in found.rows if row.noise_pct is not None), None)
    known = "" if noise else " The noise between runs is not known (`tracebook calibrate`)."
    return f"{side(found.old_steps)} before, {side(found.new_steps)} now.{known}"


def remarks(
    found: Comparison, outcome: Outcome | None, *, verdicts: bool = True
) -> list[tuple[str, str]]:
    """Labels and sentences below the tables: what came out, why, what to mind.

    Args:
        found: The comparison.
        outcome: What it means as a check; None for a plain diff.
        verdicts: Whether a diff tells the verdicts in one sentence.
    """
    judged = outcome or judge(found)
    lines = []
    if outcome is None:
        undecided = judged.state in ("not_comparable", "machine_state")
        lines += [("Mind", reason.message) for reason in judged.reasons if undecided]
        lines += [("Verdict", f"{verdict(found)}.")] if verdicts and not undecided else []
    else:
        label = {"passed": "Passed", "regression": "Regression"}.get(outcome.state, "Undecided")
        lines.append((label, outcome.headline))
        for reason in outcome.reasons:
            lines.append(("Why", f"{reason.message[0].upper()}{reason.message[1:]}"))
            lines += [("Hint", reason.hint)] if reason.hint else []
    for caution in found.cautions:
        lines.append(("Mind", caution.message))
        lines += [("Hint", caution.hint)] if caution.hint else []
    return [(label, clean(text)) for label, text in lines]
