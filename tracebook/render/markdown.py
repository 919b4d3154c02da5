"""The report as Markdown that pastes into a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from tracebook.render import words
from tracebook.render.regimes import regime_sentence, regime_table
from tracebook.render.words import Column
from tracebook.report import PartRow, Report


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Write headings, lists and pipe tables (GitHub's Markdown)."""
    facts = "\n".join(f"- {label}: {_escaped(text)}" for label, text in words.facts(report))
    blocks = [
        "## Decode step",
        _escaped(words.verdict(report)),
        _table(*words.phase_table(report, {})),
    ]
    if detail == "traffic":
        blocks += ["### Traffic", _table(*words.traffic_table(report))]
    if detail == "layers":
        blocks += ["### Layers", _parts(report.layer_rows, words.LAYER_COLUMNS)]
    if detail == "matrices":
        blocks += ["### Matrices", _parts(report.matrix_rows, words.MATRIX_COLUMNS)]
    if detail == "steps":
        blocks += ["### Steps", _table(*words.step_table(report))]
    if report.steps.regimes:
        table = _table(*regime_table(report))
        blocks += ["### Two regimes", _escaped(regime_sentence(report)), table]
    footnote = words.footnote(report)
    blocks += [_escaped(footnote)] if footnote else []
    blocks.append(facts)
    if report.unclassified.names:
        blocks += ["### Unclassified", _unknown(report)]
    if report.warnings:
        blocks += ["### Warnings", _warnings(report)]
    return "\n\n".join(blocks) + "\n"


def _parts(parts: Sequence[PartRow], columns: tuple[Column, ...]) -> str:
    if not parts:
        return "No kernel was matched with a layer or a matrix."
    return _table(columns, [words.part_cells(row, columns) for row in parts])


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        [column.heading for column in columns],
        ["---" if column.text else "---:" for column in columns],
        *([_escaped(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _unknown(report: Report) -> str:
    return "\n".join(
        f"- {entry.ms:.3f} ms: {_escaped(words.clean(entry.name))}"
        for entry in report.unclassified.names
    )


def _warnings(report: Report) -> str:
    return "\n".join(
        f"- {_escaped(words.clean(warning.message))}"
        + (f" {_escaped(words.clean(warning.hint))}" if warning.hint else "")
        for warning in report.warnings
    )


def _escaped(text: str) -> str:
    """Text in which no character starts Markdown or HTML."""
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
