"""A prediction as text, JSON or Markdown."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from tracebook.prediction import SCHEMA, Prediction
from tracebook.render.words import clean
from tracebook.units import gb_text, number_text

FORMATS = ("text", "json", "markdown")

Rows = Sequence[Sequence[str]]


def render_prediction(prediction: Prediction, format_name: str) -> str:
    """Write a prediction.

    Args:
        prediction: The prediction.
        format_name: One of `FORMATS`.
    """
    if format_name == "json":
        document = {"schema": SCHEMA, **asdict(prediction)}
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    markdown = format_name == "markdown"
    width = max(60, shutil.get_terminal_size((80, 24)).columns)
    blocks = []
    for title, table in _tables(prediction):
        heading = f"### {title}\n\n" if markdown else f"{title}\n"
        blocks.append(heading + (_pipes(table) if markdown else _columns(table)))
    head = [_fold(line, width, markdown=markdown) for line in _facts(prediction)]
    tail = [_fold(line, width, markdown=markdown) for line in _closing(prediction)]
    text = "\n\n".join(["\n".join(head), *blocks, *tail]) + "\n"
    return text if markdown else text.encode("ascii", "backslashreplace").decode("ascii")


def _facts(prediction: Prediction) -> list[str]:
    machine = prediction.machine
    peak = f"peak {number_text(machine.bandwidth_gbps, 0)} GB/s"
    if machine.ceiling_gbps is not None:
        peak += f", measured ceiling {machine.ceiling_gbps:g} GB/s"
    lines = [
        f"run      {clean(prediction.description)}, batch {prediction.batch}",
        f"machine  {clean(machine.name or 'not named')}, {peak}",
    ]
    if prediction.learnt is not None:
        lines.append(f"learnt   {clean(prediction.learnt.source)}")
    if prediction.assumed:
        lines.append(f"assumed  {', '.join(prediction.assumed)} (not said)")
    return lines


def _tables(prediction: Prediction) -> list[tuple[str, Rows]]:
    found = [("Bytes and shortest time of each phase", _phase_rows(prediction))]
    if prediction.steps:
        found.append(("The step", _step_rows(prediction)))
    if prediction.sweep:
        rate = prediction.speculation.rate if prediction.speculation else ""
        found.append((f"Over the number of drafts K ({rate})", _sweep_rows(prediction)))
    return found


def _phase_rows(prediction: Prediction) -> Rows:
    rows = [["phase", "weights GB", "all GB", "basis", "floor ms", "ceiling ms", "learnt ms"]]
    for phase in prediction.phases:
        rows.append(
            [
                phase.phase.replace("_", " "),
                gb_text(phase.weight_bytes or None),
                gb_text(phase.traffic_bytes),
                phase.basis,
                number_text(phase.floor_ms, 2),
                number_text(phase.ceiling_ms, 2),
                number_text(phase.learnt_ms, 2),
            ]
        )
    total = ["step", gb_text(prediction.weight_bytes), gb_text(prediction.traffic_bytes), ""]
    times = [prediction.step_ms(at) for at in ("peak", "ceiling", "learnt, by phase")]
    return [*rows, [*total, *(number_text(time, 2) for time in times)]]


def _step_rows(prediction: Prediction) -> Rows:
    rows = [["at", "GB/s", "ms", "steps/s", "tokens/s"]]
    rows += [
        [
            step.at,
            number_text(step.gbps, 1),
            number_text(step.ms, 1),
            number_text(step.steps_per_s, 2),
            number_text(step.tokens_per_s, 1),
        ]
        for step in prediction.steps
    ]
    return rows


def _sweep_rows(prediction: Prediction) -> Rows:
    rows = [["K", "tokens/step", "GB", "ms", "tokens/s", "speedup", "break-even alpha"]]
    for row in prediction.sweep:
        rows.append(
            [
                str(row.draft_tokens),
                number_text(row.expected_tokens, 2),
                gb_text(row.traffic_bytes),
                number_text(row.step_ms, 1),
                number_text(row.tokens_per_s, 1),
                number_text(row.speedup, 2),
                number_text(row.break_even_alpha, 3),
            ]
        )
    return rows


def _closing(prediction: Prediction) -> list[str]:
    lines = []
    found = prediction.speculation
    if found is not None:
        lines.append(_spoken(prediction))
    for warning in prediction.warnings:
        hint = f" {clean(warning.hint)}" if warning.hint else ""
        lines.append(f"Warning: {clean(warning.message)}{hint}")
    return lines


def _spoken(prediction: Prediction) -> str:
    found = prediction.speculation
    assert found is not None
    if found.alpha is None:
        text = "How many drafts are accepted is not known: add --tokens-per-step or --alpha."
    else:
        text = (
            f"With an acceptance of {found.alpha:.3f} per position, {found.draft_tokens} drafts "
            f"yield {number_text(found.tokens_per_step, 2)} tokens per step."
        )
    if found.break_even_alpha is not None:
        text += (
            f" From an acceptance of {found.break_even_alpha:.3f} on they beat plain decoding "
            f"({found.plain_ms:.1f} ms a step)."
        )
    else:
        text += " No acceptance makes them beat plain decoding."
    if found.best_draft_tokens is not None:
        last = max(row.draft_tokens for row in prediction.sweep)
        text += f" The best number of drafts up to {last} is {found.best_draft_tokens}."
    return text


def _columns(rows: Rows) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(_cell(cell, widths[i], i) for i, cell in enumerate(row)) for row in rows]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(line.rstrip() for line in lines)


def _cell(cell: str, width: int, place: int) -> str:
    return cell.ljust(width) if place == 0 else cell.rjust(width)


def _pipes(rows: Rows) -> str:
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])


def _fold(line: str, width: int, *, markdown: bool) -> str:
    if markdown:
        label, _, rest = line.partition("  ")
        known = label in ("run", "machine", "learnt", "assumed")
        return f"- {label}: {rest.strip()}" if known else line
    hang = " " * 9 if line[:9].rstrip() in ("run", "machine", "learnt", "assumed") else ""
    return textwrap.fill(line, width, subsequent_indent=hang, break_on_hyphens=False)
