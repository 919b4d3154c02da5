"""What the studies share: where things are, tables, and writing a result."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tracebook.checkpoint import Ledger, build_ledger, read_checkpoint
from tracebook.report import Report

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"


@cache
def article() -> dict[str, Any]:
    """The published figures."""
    return tomllib.loads((HERE / "article.toml").read_text(encoding="utf-8"))


@cache
def saved_report(run: str) -> Report:
    """The saved report of a fixture."""
    return Report.load(FIXTURES / run / "expected.json")


@cache
def ledger(name: str) -> Ledger:
    """The ledger of a header bundle of the fixtures."""
    return build_ledger(read_checkpoint(FIXTURES / "headers" / f"{name}.headers.json.gz"))


def table(headings: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, all columns but the first to the right."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, rule, *rows])


def number(value: float | None, decimals: int = 1, *, sign: bool = False) -> str:
    """A figure for a table; '-' where there is none."""
    if value is None:
        return "-"
    text = f"{value:+,.{decimals}f}" if sign else f"{value:,.{decimals}f}"
    zero = f"{0:.{decimals}f}"
    return zero if text.lstrip("+-") == zero else text


def cut(value: Any) -> Any:
    """Four decimals are enough, and the same everywhere."""
    if isinstance(value, float):
        return round(value, 4) + 0.0
    if isinstance(value, dict):
        return {key: cut(item) for key, item in value.items()}
    return [cut(item) for item in value] if isinstance(value, list) else value


def write(folder: Path, result: dict[str, Any], text: str) -> None:
    """Write result.json and result.md."""
    content = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    (folder / "result.json").write_text(content, encoding="utf-8")
    (folder / "result.md").write_text(text, encoding="utf-8")
