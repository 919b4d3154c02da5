"""A comparison as Markdown, for a pull request or the summary of a job."""

from __future__ import annotations

from collections.abc import Sequence

from tracebook.compare.comparison import Comparison
from tracebook.compare.outcome import Outcome
from tracebook.render.comparison import words


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Write what came out first, then the tables."""
    blocks = []
    for label, text in words.remarks(found, outcome):
        blocks.append(f"**{label}.** {_escaped(text)}")
    blocks += [_escaped(words.sum_sentence(found)), _escaped(words.counts_sentence(found))]
    blocks.append(_table(words.HEADINGS, words.rows(found), left=(0, 6)))
    rates, parts = words.rate_rows(found), words.part_rows(found)
    if rates:
        blocks.append(_table(words.RATE_HEADINGS, rates, left=(0,)))
    if parts:
        blocks.append(_table(words.PART_HEADINGS, parts, left=(0, 1, 6)))
    return "\n\n".join(blocks) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    rule = ["---" if i in left else "---:" for i in range(len(headings))]
    lines = [headings, rule, *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Text in which nothing is markup."""
    for character in "\\|<>*_[]":
        text = text.replace(character, f"\\{character}")
    return text
