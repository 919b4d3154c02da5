"""A table of runs: one row each, as text, CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracebook.render.wrapping import fill
from tracebook.units import gb_text, number_text

if TYPE_CHECKING:
    from tracebook.sweep import Row

FORMATS = ("text", "json", "csv", "markdown")
#: Columns that leave where the terminal is too narrow, first ones first.
_LEAVING = ("steps", "GB", "tokens/s", "most time in", "GB/s")
_NARROWEST, _PIPE = 40, 80
#: Cells that the name of a run is given at least.
_NAMED = 12
_HEADINGS = ("run", "steps", "step ms", "tokens/s", "GB", "GB/s", "% of peak", "most time in")


def render_sweep(rows: Sequence[Row], format_name: str) -> str:
    """Write the rows; text and Markdown tell failed runs below the table."""
    rows = _without_folders(rows)
    if format_name == "json":
        return json.dumps({"runs": [asdict(row) for row in rows]}, indent=1) + "\n"
    if format_name == "csv":
        return _csv(rows)
    names = _short_names([row.path for row in rows])
    good = [(name, row) for name, row in zip(names, rows, strict=True) if row.error is None]
    cells = [_cells(name, row) for name, row in good]
    table = _markdown(cells) if format_name == "markdown" else _aligned(cells)
    failed = [f"{row.path}: {row.error}" for row in rows if row.error is not None]
    told = [f"Failed: {line}\n" for line in failed]
    return (table if good else "") + ("\n" if good and told else "") + "".join(told)


def _cells(name: str, row: Row) -> list[str]:
    return [
        name,
        str(row.steps),
        number_text(row.step_ms, 2),
        number_text(row.tokens_per_s, 1),
        gb_text(row.weight_bytes),
        number_text(row.weight_gbps, 1),
        number_text(row.roofline_pct, 1),
        (row.slowest or "-").replace("_", " "),
    ]


def _aligned(cells: list[list[str]]) -> str:
    """Columns that fit the terminal; names that do not are folded."""
    width = max(_NARROWEST, shutil.get_terminal_size((_PIPE, 24)).columns)
    lines = [list(_HEADINGS), *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADINGS))]
    kept, leaving = list(range(len(_HEADINGS))), [_HEADINGS.index(name) for name in _LEAVING]

    def room() -> int:
        """Cells that are left for the name."""
        return width - sum(widths[i] + 2 for i in kept[1:])

    while room() < min(widths[0], _NAMED) and leaving:
        kept.remove(leaving.pop(0))
    widths[0] = min(widths[0], max(room(), _NAMED))
    left = {0, len(_HEADINGS) - 1}
    made = []
    for line in lines:
        name, *more = textwrap.wrap(line[0], widths[0]) or [""]
        padded = [
            text.ljust(widths[i]) if i in left else text.rjust(widths[i])
            for i, text in ((i, line[i] if i else name) for i in kept)
        ]
        made += ["  ".join(padded).rstrip(), *more]
    made.insert(1, "-" * (sum(widths[i] for i in kept) + 2 * (len(kept) - 1)))
    out = [name for i, name in enumerate(_HEADINGS) if i not in kept]
    if out:
        made += ["", fill(f"Left out at this width: {', '.join(out)}.", width)]
    return "\n".join(made) + "\n"


def _markdown(cells: list[list[str]]) -> str:
    lines = [list(_HEADINGS), ["---"] + ["---:"] * 6 + ["---"], *cells]
    escaped = [[text.replace("|", "\\|") for text in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _csv(rows: Sequence[Row]) -> str:
    from tracebook.sweep import Row as Columns

    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Columns)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def _without_folders(rows: Sequence[Row]) -> list[Row]:
    """The rows, absolute paths cut to the last parts by which they differ.

    Folders are named after people and machines; what was typed as a relative path stays.
    """
    paths = {row.path for row in rows if PurePath(row.path).is_absolute()}
    kept, short = 0, dict.fromkeys(paths, "")
    while len(set(short.values())) < len(paths):
        kept += 1
        short = {path: str(PurePath(*PurePath(path).parts[-kept:])) for path in paths}
    return [
        replace(
            row,
            path=short[row.path],
            error=row.error and row.error.replace(row.path, short[row.path]),
            hint=row.hint and row.hint.replace(row.path, short[row.path]),
        )
        if row.path in short
        else row
        for row in rows
    ]


def _short_names(paths: Sequence[str]) -> list[str]:
    """Paths without the parts that all of them share."""
    parts = [PurePath(path).parts for path in paths]
    front = 0
    while all(len(p) > front + 1 for p in parts) and len({p[front] for p in parts}) == 1:
        front += 1
    rest = [p[front:] for p in parts]
    if all(len(p) > 1 for p in rest) and len({p[-1] for p in rest}) == 1:
        rest = [p[:-1] for p in rest]
    return ["/".join(p) for p in rest]
