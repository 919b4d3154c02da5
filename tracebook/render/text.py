"""The report for a terminal: fits its width, plain ASCII where colour is not wanted.

Warnings come last, with their hints, so that they are what a reader sees first above
the prompt.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracebook.render import words
from tracebook.render.regimes import regime_sentence, regime_table
from tracebook.render.words import Column
from tracebook.render.wrapping import fill
from tracebook.report import PartRow, Report
from tracebook.units import number_text

_BAR_CELLS = 10
_NARROWEST = 40
_UNKNOWN_NAMES = 5
#: Cells between columns: one of padding, one of the box.
_GAP = 2
#: Cells that a column which wraps is given at least.
_WRAPPED = 24
#: From this width on tables are as documented; below it they tell what they leave out.
_USUAL = 80

#: Nothing but a rule under the heading and above the last row.
_LINES = "    \n    \n {0}{0} \n    \n {0}{0} \n {0}{0} \n    \n    \n"
_PLAIN_BOX = Box(_LINES.format("-"), ascii=True)
_RICH_BOX = Box(_LINES.format("─"))


@dataclass(frozen=True)
class _Style:
    """How to draw: width in cells, and whether colour and block characters are wanted."""

    width: int
    rich: bool


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Draw the report as wide as the terminal is (80 in a pipe)."""
    width = max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)
    return draw(report, detail=detail, width=width, rich=terminal and "NO_COLOR" not in os.environ)


def draw(report: Report, *, detail: str, width: int, rich: bool) -> str:
    """Draw the report.

    Args:
        report: The report.
        detail: `phases`, `traffic`, `layers`, `matrices` or `steps`.
        width: Cells in a line.
        rich: Colour and block characters; else plain ASCII.
    """
    style = _Style(width, rich)
    blocks = [_facts(report, style), _phases(report, style)]
    if detail == "traffic":
        blocks.append(_table(*words.traffic_table(report), style))
    if detail == "layers":
        blocks.append(_parts(report.layer_rows, words.LAYER_COLUMNS, style))
    if detail == "matrices":
        blocks.append(_parts(report.matrix_rows, words.MATRIX_COLUMNS, style))
    if detail == "steps":
        blocks.append(_table(*words.step_table(report), style, tall=True))
    if report.steps.regimes:
        blocks.append(_wrapped(regime_sentence(report), style))
        blocks.append(_table(*regime_table(report), style, last_apart=True))
    footnote = words.footnote(report)
    blocks.append(_wrapped(words.verdict(report), style))
    blocks += [_wrapped(footnote, style)] if footnote else []
    blocks += [_unclassified(report, style)] if report.unclassified.names else []
    blocks += [_warnings(report, style)] if report.warnings else []
    text = "\n\n".join(block.strip("\n") for block in blocks) + "\n"
    return text if rich else text.encode("ascii", "backslashreplace").decode("ascii")


def _facts(report: Report, style: _Style) -> str:
    lines = []
    for label, sentence in words.facts(report):
        lines.append(_hanging(f"{label:<9}", sentence, style))
    return "\n".join(lines)


def _phases(report: Report, style: _Style) -> str:
    shares = {row.phase: row.share for row in report.phase_rows} | {"idle": report.steps.idle_share}
    longest = max(shares.values())
    bars = {phase: _bar(share / longest, style) for phase, share in shares.items()}
    columns, rows = words.phase_table(report, bars)
    return _table(columns, rows, style, last_apart=True)


def _parts(parts: Sequence[PartRow], columns: tuple[Column, ...], style: _Style) -> str:
    if not parts:
        return "No kernel was matched with a layer or a matrix."
    return _table(columns, [words.part_cells(row, columns) for row in parts], style)


def _table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    style: _Style,
    *,
    last_apart: bool = False,
    tall: bool = False,
) -> str:
    """Draw a table from the columns that fit; a `tall` one breaks its headings.

    Headings are broken also where the columns that stay do not fit without.
    """
    kept = _fitting(columns, rows, style.width, broken=tall)
    if _cells(columns, rows, kept, broken=tall) > style.width:
        tall = True
        kept = _fitting(columns, rows, style.width, broken=True)
    table = Table(
        box=_RICH_BOX if style.rich else _PLAIN_BOX,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        header_style="bold",
    )
    for index in kept:
        column = columns[index]
        table.add_column(
            "\n".join(_heads(column, broken=tall)),
            justify="left" if column.text else "right",
            no_wrap=not column.wraps,
            overflow="fold",
            style="cyan" if column.heading == "" else None,
        )
    for number, row in enumerate(rows, start=1):
        table.add_row(
            *(Text(row[index]) for index in kept),
            end_section=last_apart and number == len(rows) - 1,
        )
    console = Console(
        width=style.width,
        force_terminal=style.rich,
        color_system="standard" if style.rich else None,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    left = [column.heading for i, column in enumerate(columns) if i not in kept and column.heading]
    if left and (style.width < _USUAL or tall):
        lines += ["", fill(f"Left out at this width: {', '.join(left)}.", style.width)]
    return "\n".join(lines)


def _fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, broken: bool
) -> list[int]:
    """Positions of the columns that fit, those with the highest `drop` left out first."""
    kept = list(range(len(columns)))
    while _cells(columns, rows, kept, broken=broken) > width and any(
        columns[index].drop for index in kept
    ):
        kept.remove(max(kept, key=lambda index: columns[index].drop))
    return kept


def _heads(column: Column, *, broken: bool) -> list[str]:
    """The lines of a heading; one of figures may be broken before its last word."""
    return column.heading.rsplit(" ", 1) if broken and not column.text else [column.heading]


def _cells(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], kept: Sequence[int], *, broken: bool
) -> int:
    """Cells that the columns need, with their headings broken at spaces or not."""
    needed = _GAP * (len(kept) - 1)
    for index in kept:
        column = columns[index]
        heads = _heads(column, broken=broken)
        size = max(len(text) for text in (*heads, *(row[index] for row in rows)))
        needed += min(size, _WRAPPED) if column.wraps else size
    return needed


def _bar(ratio: float, style: _Style) -> str:
    """A bar of at most `_BAR_CELLS` cells; anything above zero shows."""
    if style.rich:
        eighths = max(round(ratio * _BAR_CELLS * 8), 1 if ratio > 0 else 0)
        full, rest = divmod(eighths, 8)
        return "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")
    return "#" * round(ratio * _BAR_CELLS) or ("." if ratio > 0 else "")


def _unclassified(report: Report, style: _Style) -> str:
    unknown = report.unclassified
    head = (
        f"Unclassified: {number_text(unknown.ms.median, 3)} ms a step, {100 * unknown.share:.2f} %"
    )
    lines = [head]
    for entry in unknown.names[:_UNKNOWN_NAMES]:
        cells = f"  {entry.ms:8.3f} ms  "
        room = max(style.width - len(cells), 10)
        lines.append(cells + textwrap.shorten(words.clean(entry.name), room, placeholder=" ..."))
    if len(unknown.names) > _UNKNOWN_NAMES:
        lines.append(f"  and {len(unknown.names) - _UNKNOWN_NAMES} more names")
    return "\n".join(lines)


def _warnings(report: Report, style: _Style) -> str:
    lines = []
    for warning in report.warnings:
        lines.append(_hanging("Warning: ", words.clean(warning.message), style))
        if warning.hint:
            lines.append(_hanging("   Hint: ", words.clean(warning.hint), style))
    return "\n".join(lines)


def _hanging(label: str, sentence: str, style: _Style) -> str:
    return fill(sentence, style.width, first=label, others=" " * len(label))


def _wrapped(sentence: str, style: _Style) -> str:
    return fill(sentence, style.width)
