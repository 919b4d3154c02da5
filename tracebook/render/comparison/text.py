"""A comparison for a terminal, in plain ASCII; what came out stands last."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from tracebook.compare.comparison import Comparison
from tracebook.compare.outcome import Outcome
from tracebook.render.comparison import words
from tracebook.render.wrapping import fill

_GAP = "  "
_NARROWEST, _PIPE = 40, 80
#: Cells that a column which folds is given at least.
_FOLDED = 12


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Draw tables and sentences that fit the terminal."""
    width = max(_NARROWEST, shutil.get_terminal_size((_PIPE, 24)).columns)
    blocks = [
        _wrapped(words.counts_sentence(found), width),
        _table(
            words.HEADINGS,
            words.rows(found),
            width,
            left=(0, 6),
            drop=(5, 4, 1, 2),
            last_apart=True,
        ),
        _wrapped(words.sum_sentence(found), width),
    ]
    rates, parts = words.rate_rows(found), words.part_rows(found)
    if rates:
        blocks.append(_table(words.RATE_HEADINGS, rates, width, left=(0,), drop=(1, 2)))
    if parts:
        blocks.append(
            _table(
                words.PART_HEADINGS, parts, width, left=(0, 1, 6), drop=(2, 3, 4, 0), wraps=(1, 6)
            )
        )
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
    wraps: Sequence[int] = (),
    last_apart: bool = False,
) -> str:
    """Columns as wide as they need to be; those in `left` hold text, the others figures.

    Where the terminal is too narrow, the columns in `drop` leave in that order, but first,
    below the usual width, those in `wraps` are folded.
    """
    cells_of = [max(len(line[i]) for line in (headings, *rows)) for i in range(len(headings))]
    kept = list(range(len(headings)))
    leaving = list(drop)

    def needed() -> int:
        return sum(cells_of[i] for i in kept) + len(_GAP) * (len(kept) - 1)

    def fold() -> None:
        while needed() > width and wraps:
            widest = max(wraps, key=lambda i: cells_of[i])
            if cells_of[widest] <= _FOLDED:
                return
            cells_of[widest] -= 1

    # A wide terminal shows all columns; at the usual width the usual ones stay as they are.
    while needed() > max(width, _PIPE) and leaving:
        kept.remove(leaving.pop(0))
    fold()
    while needed() > width and leaving:
        kept.remove(leaving.pop(0))

    def line(cells: Sequence[str]) -> str:
        folded = [_folded(cells[i], cells_of[i]) for i in kept]
        return "\n".join(
            _GAP.join(
                cell.ljust(cells_of[i]) if i in left else cell.rjust(cells_of[i])
                for i, cell in zip(kept, part, strict=True)
            ).rstrip()
            for part in zip_longest(*folded, fillvalue="")
        )

    rule = "-" * needed()
    lines = [line(headings), rule, *(line(row) for row in rows)]
    if last_apart:
        lines.insert(-1, rule)
    out = [headings[i] for i in range(len(headings)) if i not in kept]
    if out and width < _PIPE:
        lines += ["", fill(f"Left out at this width: {', '.join(out)}.", width)]
    return "\n".join(lines)


def _folded(cell: str, width: int) -> list[str]:
    """A cell in lines, broken after a plus too."""
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell.replace("+", "+ "), width)


def _hanging(label: str, sentence: str, width: int) -> str:
    return fill(sentence, width, first=label, others=" " * len(label))


def _wrapped(sentence: str, width: int) -> str:
    return fill(sentence, width)
