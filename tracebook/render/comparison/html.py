"""A comparison as a page of its own, in the form of the report's page."""

from __future__ import annotations

from collections.abc import Sequence

from tracebook.compare.comparison import Comparison, Row
from tracebook.compare.outcome import Outcome
from tracebook.phase_styles import phase_styles
from tracebook.render.comparison import words
from tracebook.render.page import (
    Html,
    coded,
    element,
    joined,
    navigation,
    page,
    phase_cell,
    section,
    table,
    warnings,
)

_WORDS = (
    ("change", "New median less old median of the steps, in percent of the old one."),
    (
        "95 % interval",
        "Of the change in ms. Steps that follow each other are alike, which makes it wider.",
    ),
    ("p", "Of the rank test, corrected for the number of rows: how often chance alone does this."),
    (
        "verdict",
        "worse or better where the change passes both thresholds, its interval leaves out zero "
        "and the test rejects; same where a change worth speaking of would have been found; "
        "else unknown.",
    ),
    ("adds ms", "What the row adds to the change of the step. The rows add up to it exactly."),
)


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Write the page."""
    parts = [("phases", "Phases", _phases(found))]
    rates, kernels = words.rate_rows(found), words.part_rows(found)
    if rates:
        parts.append(("rates", "Bytes and rates", _rates(rates)))
    if kernels:
        parts.append(("kernels", "Kernels behind the change", _kernels(kernels)))
    told = [Html(element("dt", term) + element("dd", text)) for term, text in _WORDS]
    parts.append(("words", "How each number is defined", element("dl", *told, class_="words")))
    title = "Two runs compared" if outcome is None else "Checked against a baseline"
    body = [
        element("header", element("h1", title), _summary(found, outcome)),
        navigation([(identifier, heading) for identifier, heading, _ in parts]),
        element("main", *(section(*part) for part in parts)),
    ]
    return page(title, joined(body), scripts=("tables.js",), data=None)


def _summary(found: Comparison, outcome: Outcome | None) -> Html:
    step = found.step
    cards = [
        ("step before", f"{step.old_ms:.2f} ms"),
        ("step now", f"{step.new_ms:.2f} ms"),
        ("change", words.rows(found)[-1][3]),
        ("verdict", words.verdict(found)),
    ]
    told = words.remarks(found, outcome, verdicts=False)
    remarks = [(f"{label}. {sentence}", None) for label, sentence in told]
    return joined(
        [
            element("p", words.sum_sentence(found), class_="lead"),
            element(
                "dl",
                *(element("div", element("dt", k), element("dd", v)) for k, v in cards),
                class_="cards",
            ),
            warnings(remarks),
            element("p", coded(words.counts_sentence(found)), class_="soft"),
        ]
    )


def _phases(found: Comparison) -> Html:
    """The rows of all renderers, with a bar for what each adds to the step."""
    rows = [*found.rows[1:], found.rows[0]]
    most = max((abs(row.contribution_ns) for row in rows), default=0) or 1
    cells = [
        [_named(row), *line[1:], _bar(row.contribution_ns / most)]
        for row, line in zip(rows, words.rows(found), strict=True)
    ]
    headings = [*words.HEADINGS, ""]
    verdict = words.HEADINGS.index("verdict")
    left = [0, verdict, len(headings) - 1]
    return table(headings, cells, left=left, label="Change of each phase", foot=1)


def _named(row: Row) -> str:
    return phase_cell(row.quantity) if row.quantity in phase_styles() else row.quantity


def _bar(part: float) -> Html:
    """A bar to the right of the middle where it became slower, to the left where faster."""
    side = "left:50%" if part > 0 else f"left:{50 * (1 + part):.2f}%"
    fill = element(
        "i", class_="slower" if part > 0 else None, style=f"{side};width:{50 * abs(part):.2f}%"
    )
    return element("span", fill, class_="change", aria_hidden="true")


def _rates(rows: Sequence[Sequence[str]]) -> Html:
    return table(words.RATE_HEADINGS, rows, left=[0], label="Bytes and rates", foot=1)


def _kernels(rows: Sequence[Sequence[str]]) -> Html:
    return table(
        words.PART_HEADINGS, rows, left=[0, 1, 6], wraps=[1, 6], label="Changed kernels", tall=True
    )
