"""A comparison for a terminal, in plain ASCII; what came out stands last."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from tracebook.compare.comparison import Comparison
from tracebook.compare.outcome import Outcome
from tracebook.render.comparison import words

_GAP = "  "
_NARROWEST, _PIPE = 40, 80


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Draw tables and sentences; lines of text fit the terminal, tables keep their width."""
    width = max(_NARROWEST, shutil.get_terminal_size((_PIPE, 24)).columns)
    blocks = [
        _wrapped(words.counts_sentence(found), width),
        _table(words.HEADINGS, words.rows(found), width, left=(0, 6), drop=(5, 4), last_apart=True),
        _wrapped(words.sum_sentence(found), width),
    ]
    rates, parts = words.rate_rows(found), words.part_rows(found)
    if rates:
        blocks.append(_table(words.RATE_HEADINGS, rates, width, left=(0,)))
    if parts:
        blocks.append(_table(words.PART_HEADINGS, parts, width, left=(0, 1, 6), drop=(2, 3)))
    remarks = words.remarks(found, outcome)
    if remarks:
        blocks.append("\n".join(_hanging(f"{label}: ", text, width) for label, text in remarks))
    text = "\n\n".join(blocks) + "\n"
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    left: Sequence[int],
    drop: Sequence[int] = (),
    last_apart: bool = False,
) -> str:
    """Columns as wide as they need to be; those in `left` hold text, the others figures.

    Where the terminal is too narrow, the columns in `drop` leave in that order.
    """
    cells_of = [max(len(line[i]) for line in (headings, *rows)) for i in range(len(headings))]
    kept = list(range(len(headings)))
    leaving = list(drop)

    def needed() -> int:
        return sum(cells_of[i] for i in kept) + len(_GAP) * (len(kept) - 1)

    while needed() > width and leaving:
        kept.remove(leaving.pop(0))

    def line(cells: Sequence[str]) -> str:
        placed = [
            cells[i].ljust(cells_of[i]) if i in left else cells[i].rjust(cells_of[i]) for i in kept
        ]
        return _GAP.join(placed).rstrip()

    rule = "-" * needed()
    lines = [line(headings), rule, *(line(row) for row in rows)]
    if last_apart:
        lines.insert(-1, rule)
    return "\n".join(lines)


def _hanging(label: str, sentence: str, width: int) -> str:
    return textwrap.fill(
        sentence,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _wrapped(sentence: str, width: int) -> str:
    return textwrap.fill(sentence, width, break_on_hyphens=False)
