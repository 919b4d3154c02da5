"""Tables of a recipe: text for people, or all their rows as JSON or CSV."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracebook.errors import TracebookError

if TYPE_CHECKING:
    import polars as pl

    from tracebook.importers.nsys_results import RecipeResult

#: Rows that text shows of each table, unless one table is asked for.
_ROWS = 20
_MOST_LETTERS = 48


def render_recipe(
    result: RecipeResult, format_name: str, table: str | None, *, terminal: bool
) -> str:
    """Write the tables of a recipe.

    Args:
        result: What a recipe found.
        format_name: text, json or csv.
        table: The one table wanted, None for all.
        terminal: Whether text goes to a terminal; files get names in full.

    Raises:
        TracebookError: The table is not there, or CSV was asked of several.
    """
    tables = dict(result.tables)
    if table is not None:
        if table not in tables:
            there = ", ".join(tables) or "none"
            raise TracebookError(f"{result.folder} has no table {table}.", f"Its tables: {there}.")
        tables = {table: tables[table]}
    if format_name == "json":
        rows = {name: frame.rows(named=True) for name, frame in tables.items()}
        return json.dumps({"recipe": result.recipe, "tables": rows}, indent=1) + "\n"
    if format_name == "csv":
        if len(tables) != 1:
            raise TracebookError(
                f"{result.folder} has {len(tables)} tables; CSV holds one.",
                f"Choose with --table: {', '.join(tables) or 'none is there'}.",
            )
        return next(iter(tables.values())).write_csv()
    if not tables:
        return f"The recipe {result.recipe or ''} has no table that is known here.\n"
    rows_shown = None if table is not None else _ROWS
    return "\n".join(_text(name, f, rows_shown, terminal) for name, f in tables.items())


def _text(name: str, frame: pl.DataFrame, rows: int | None, terminal: bool) -> str:
    shown = frame if rows is None else frame.head(rows)
    lines = [list(shown.columns)] + [[_cell(v, terminal) for v in row] for row in shown.iter_rows()]
    numeric = [dtype.is_numeric() for dtype in shown.dtypes]
    widths = [max(len(line[i]) for line in lines) for i in range(len(numeric))]
    made = [f"{name}: {frame.height:,} rows"]
    for line in lines:
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numeric, strict=True)
        ]
        made.append("  ".join(cells).rstrip())
    if rows is not None and frame.height > rows:
        made.append(f"... {frame.height - rows:,} more: --table {name}")
    return "\n".join(made) + "\n"


def _cell(value: object, terminal: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = str(value)
    cut = terminal and isinstance(value, str) and len(text) > _MOST_LETTERS
    return text[: _MOST_LETTERS - 3] + "..." if cut else text
