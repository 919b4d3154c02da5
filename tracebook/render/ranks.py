"""The reports of all ranks in one document, with a line on how far they differ."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from tracebook.notices import Notice
from tracebook.ranks import Ranks
from tracebook.render import csv, render
from tracebook.render.words import clean
from tracebook.report import Report
from tracebook.units import number_text

#: Formats that hold several reports.
FORMATS = ("text", "json", "csv", "markdown")
_WIDTH = 80


def render_ranks(ranks: Ranks, format_name: str, *, detail: str, terminal: bool) -> str:
    """Write all reports.

    Args:
        ranks: The reports.
        format_name: One of `FORMATS`.
        detail: As for `render`.
        terminal: As for `render`.
    """
    if format_name == "json":
        return ranks.to_json(steps=detail == "steps")
    if format_name == "csv":
        return pl.concat(_rows(ranks, detail), how="diagonal_relaxed").write_csv()
    title, line = ("# {}", "- {}") if format_name == "markdown" else ("== {} ==", "{}")
    shared = _shared(ranks)
    blocks = []
    for number, report in enumerate(ranks.reports):
        own = tuple(warning for warning in report.warnings if warning not in shared)
        text = render(replace(report, warnings=own), format_name, detail=detail, terminal=terminal)
        blocks += [title.format(_name(number, report)), text.strip("\n")]
    blocks.append(title.format("All ranks"))
    sentences = [summary(ranks), *_left_out(ranks), *_warnings(shared)]
    blocks.append("\n".join(textwrap.fill(line.format(text), _WIDTH) for text in sentences))
    return "\n\n".join(blocks) + "\n"


def summary(ranks: Ranks) -> str:
    """Which rank the others wait for, and how far they differ."""
    spread, count = ranks.spread, len(ranks.reports)
    steps = " to ".join(dict.fromkeys(number_text(value, 2) for value in spread.step_ms))
    if count == 1:
        return f"One rank decodes; its step takes {steps} ms."
    slowest = ranks.reports[spread.slowest]
    more = number_text(spread.spread_pct, 1)
    return (
        f"{count} ranks decode; the slowest is {_name(spread.slowest, slowest)}: "
        f"{number_text(spread.work_ms[1], 2)} ms of work of its own a step (without "
        f"communication), {more} % more than the fastest. Steps take {steps} ms."
    )


def _name(number: int, report: Report) -> str:
    trace = report.trace
    pid = f", pid {trace.pid}" if trace.pid is not None else ""
    return f"rank {number} (device {trace.device}{pid})"


def _shared(ranks: Ranks) -> tuple[Notice, ...]:
    """Warnings of all ranks alike."""
    return tuple(w for w in ranks.warnings if all(w in r.warnings for r in ranks.reports))


def _left_out(ranks: Ranks) -> Iterator[str]:
    for entry in ranks.left_out:
        pid = f", pid {entry.pid}" if entry.pid is not None else ""
        yield f"Left out: device {entry.device}{pid}: {clean(entry.reason)}"


def _warnings(warnings: tuple[Notice, ...]) -> Iterator[str]:
    for warning in warnings:
        hint = f" {clean(warning.hint)}" if warning.hint else ""
        yield f"Warning: {clean(warning.message)}{hint}"


def _rows(ranks: Ranks, detail: str) -> Iterator[pl.DataFrame]:
    for number, report in enumerate(ranks.reports):
        yield csv.rows(report, detail).select(
            pl.lit(number).alias("rank"),
            pl.lit(report.trace.device, pl.Int64).alias("device"),
            pl.lit(report.trace.pid, pl.Int64).alias("pid"),
            pl.all(),
        )
