"""What a capture holds that should not be shared: kinds and counts, never a value.

In: an opened export. Out: a count for each kind and table. The kinds are data,
`data/secrets.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from tracebook.errors import RuleError
from tracebook.importers import open_source
from tracebook.importers.source import Source

#: Characters of a value that are looked at.
_LOOKED_AT = 4_096
#: Rows of a table that are looked at: texts of a capture are a small part of it.
_MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class Secret:
    """One entry of `data/secrets.toml`, where the fields are described."""

    kind: str
    tables: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    name: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    example: str


@dataclass(frozen=True)
class Held:
    """How many values of a kind a table holds."""

    kind: str
    table: str
    count: int


@cache
def secret_kinds() -> tuple[Secret, ...]:
    """Read and check `data/secrets.toml`.

    Raises:
        RuleError: An entry lacks its kind or has a pattern that is none.
    """
    text = resources.files("tracebook.data").joinpath("secrets.toml").read_text(encoding="utf-8")
    found = []
    for entry in tomllib.loads(text)["secret"]:
        patterns = {key: entry.get(key) for key in ("name", "pattern")}
        try:
            compiled = {k: None if p is None else re.compile(p) for k, p in patterns.items()}
            columns, tables = entry.get("columns"), entry.get("tables")
            found.append(
                Secret(
                    kind=entry["kind"],
                    tables=None if tables is None else tuple(tables),
                    columns=None if columns is None else tuple(columns),
                    name=compiled["name"],
                    pattern=compiled["pattern"],
                    example=entry["example"],
                )
            )
        except KeyError as missing:
            raise RuleError(f"secrets.toml: an entry lacks {missing}.") from missing
        except re.error as error:
            raise RuleError(f"secrets.toml: {entry['kind']}: bad pattern: {error}.") from error
    return tuple(found)


def secrets_of(path: str | Path) -> tuple[Held, ...]:
    """Count what a capture holds, by kind and table, in the order of `data/secrets.toml`.

    Raises:
        TraceError: The path holds no trace.
    """
    with open_source(Path(path)) as source:
        counts: Counter[tuple[str, str]] = Counter()
        for table, columns in sorted(source.tables.items()):
            counts.update(_in_table(source, table, tuple(columns)))
    kinds = list(dict.fromkeys(secret.kind for secret in secret_kinds()))
    order = sorted(counts, key=lambda key: (kinds.index(key[0]), key[1]))
    return tuple(Held(*key, counts[key]) for key in order)


def _in_table(source: Source, table: str, columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(kind, table) of each value that counts, once for each kind."""
    wanted = [s for s in secret_kinds() if s.tables is None or table in s.tables]
    wanted = [s for s in wanted if s.columns is None or set(s.columns) & set(columns)]
    named = {column for s in wanted for column in (s.columns or ())}
    texts = set(source.text_columns(table))
    looked_at = [c for c in columns if c in texts or c in named]
    if not wanted or not looked_at:
        return
    names = looked_at.index("name") if "name" in looked_at else None
    known: dict[tuple[str, str, str], set[str]] = {}
    for row in source.rows(table, looked_at, limit=_MOST_ROWS):
        name = _text(row[names]) if names is not None else ""
        for column, value in zip(looked_at, row, strict=True):
            if value is None or value == "":
                continue
            text = _text(value)
            key = (column, name, text)
            if key not in known:
                known[key] = {s.kind for s in wanted if _counts(s, *key)}
            for kind in known[key]:
                yield kind, table


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value[:_LOOKED_AT].decode("utf-8", "replace")
    return value[:_LOOKED_AT] if isinstance(value, str) else ""


def _counts(secret: Secret, column: str, name: str, text: str) -> bool:
    if secret.columns is not None and column not in secret.columns:
        return False
    if secret.name is not None and not secret.name.search(name):
        return False
    return secret.pattern is None or bool(text and secret.pattern.search(text))
