"""Kernel names: resolved once for each distinct id."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from tracebook.importers.columns import column_map, pick
from tracebook.importers.source import Source
from tracebook.notices import Notice
from tracebook.printable import ODD_LETTERS
from tracebook.printable import printable as printable_text
from tracebook.trace import NAME_SCHEMA

#: Longer names say no more about a kernel, and a trace can hold one of a megabyte.
_LONGEST_NAME = 10_000


def printable(text: pl.Expr) -> pl.Expr:
    """A text column with characters replaced that are not fit to be shown."""
    return text.str.replace_all(ODD_LETTERS, "\ufffd")


def resolve_names(
    source: Source, short_ids: Mapping[int, int | None]
) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Look up names: of each name_id, ascending, the id of the short name is given.

    The full name falls back on the short one, then on the mangled one, then on
    `unknown-name-ID`.

    Returns:
        Frame in NAME_SCHEMA sorted by name_id, and notices.
    """
    wanted = {key for pair in short_ids.items() for key in pair if key is not None}
    texts = source.strings(wanted)
    nameless = [
        key for key, short in short_ids.items() if not texts.get(key) and not _text(texts, short)
    ]
    mangled = _mangled_names(source, nameless) if nameless else {}
    rows, unknown, odd, longest = [], 0, 0, 0
    for name_id, short_id in short_ids.items():
        name = texts.get(name_id) or _text(texts, short_id) or mangled.get(name_id)
        if not name:
            unknown += 1
            name = f"unknown-name-{name_id}"
        short = _text(texts, short_id) or name
        cleaned = (printable_text(name), printable_text(short))
        odd += cleaned != (name, short)
        longest = max(longest, len(name), len(short))
        rows.append((name_id, *(text[:_LONGEST_NAME] for text in cleaned)))
    notices = []
    if unknown:
        words = "1 kernel name is" if unknown == 1 else f"{unknown:,} kernel names are"
        notices.append(
            Notice("names_unknown", f"{words} missing from StringIds and shown by the id.")
        )
    if longest > _LONGEST_NAME:
        sentence = f"A kernel name of {longest:,} letters: {_LONGEST_NAME:,} of them are kept."
        notices.append(Notice("names_shortened", sentence))
    if odd:
        words = "1 kernel name" if odd == 1 else f"{odd:,} kernel names"
        notices.append(
            Notice("names_unprintable", f"{words} held control characters, shown as \ufffd.")
        )
    return pl.DataFrame(rows, schema=NAME_SCHEMA, orient="row"), tuple(notices)


def _text(texts: Mapping[int, str], key: int | None) -> str | None:
    return None if key is None else texts.get(key)


def _mangled_names(source: Source, name_ids: Collection[int]) -> dict[int, str]:
    """Mangled names for kernels that have no other, by name_id."""
    mapping = column_map()
    columns = pick(mapping.names, source.tables[mapping.kernel_table])
    if "mangled" not in columns or len(columns) < 2:
        return {}
    first = columns.get("full") or columns["short"]
    ids = source.pairs(mapping.kernel_table, first, columns["mangled"], name_ids)
    texts = source.strings(set(ids.values()))
    return {name_id: texts[mangled] for name_id, mangled in ids.items() if mangled in texts}
