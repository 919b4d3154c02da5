"""Pages: one self-contained HTML file with its style, scripts and data, and its parts.

Whatever text comes in is text on the page: `text` escapes, `Html` marks what is markup
already, and data goes into a script element in which no tag can end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from tracebook.phase_styles import phase_styles

#: What a control character in a name becomes.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NUMBER = re.compile(r"[+-]?[\d,]+(?:\.\d+)?(?: %| ms)?")


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def text(value: str) -> Html:
    """Text as markup that shows just it."""
    if isinstance(value, Html):
        return value
    return Html(escape(_CONTROL.sub("?", value)))


def coded(value: str) -> Html:
    """Text as markup, in which what stands between backticks is code."""
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value)))


def element(tag: str, *content: str, **attributes: str | None) -> Html:
    """An element; `class_` is the attribute `class`, a None attribute is left out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{told}>{''.join(text(part) for part in content)}</{tag}>")


def joined(parts: Sequence[str]) -> Html:
    """Elements one after another, each on its line."""
    return Html("\n".join(text(part) for part in parts))


def page(title: str, body: Html, *, scripts: Sequence[str], data: Any) -> str:
    """A whole file.

    Args:
        title: Title of the window.
        body: What is in it.
        scripts: Names of files in data/html.
        data: What the scripts read, as JSON.
    """
    files = resources.files("tracebook") / "data" / "html"

    def read(name: str) -> str:
        return (files / name).read_text(encoding="utf-8").strip()

    return (
        Template(read("page.html")).substitute(
            title=text(title),
            style=read("page.css"),
            body=body,
            data=script_json(data),
            script="\n".join(read(name) for name in scripts),
        )
        + "\n"
    )


def script_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int],
    label: str,
    foot: int = 0,
    wraps: Sequence[int] = (),
    tall: bool = False,
) -> Html:
    """A table that sorts by its headings.

    Args:
        headings: One per column; a column without one does not sort.
        rows: Cells.
        left: Columns of text.
        label: What the table shows, for those who cannot see it.
        foot: Last rows that stay below when the others are sorted.
        wraps: Columns whose text may be broken.
        tall: Whether it scrolls on its own.
    """
    heads = [
        element(
            "th",
            element("button", heading, type="button") if heading else "",
            scope="col",
            class_="text" if column in left else None,
        )
        for column, heading in enumerate(headings)
    ]
    cut = len(rows) - foot
    kinds = [_kind(column, left, wraps) for column in range(len(headings))]
    sections = [
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(row, kinds) for row in rows[:cut])),
    ]
    if foot:
        sections.append(element("tfoot", *(_row(row, kinds) for row in rows[cut:])))
    return element(
        "div",
        element("table", *sections, class_="sortable"),
        class_="scroll tall" if tall else "scroll",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def _kind(column: int, left: Sequence[int], wraps: Sequence[int]) -> str | None:
    kinds = (["text"] if column in left else []) + (["wraps"] if column in wraps else [])
    return " ".join(kinds) or None


def _row(cells: Sequence[str], kinds: Sequence[str | None]) -> Html:
    return element(
        "tr",
        *(
            element("td", cell, class_=kind, data_sort=_sort_key(cell, as_text=kind is not None))
            for cell, kind in zip(cells, kinds, strict=True)
        ),
    )


def _sort_key(cell: str, *, as_text: bool) -> str | None:
    """The value by which a cell sorts; None where it holds none."""
    if isinstance(cell, Html):
        cell = re.sub(r"<[^>]*>", "", cell)
    if as_text:
        return cell or None
    found = _NUMBER.fullmatch(cell)
    return re.sub(r"[^0-9.+-]", "", cell) if found else None


def phase_cell(phase: str) -> Html:
    """A phase's name with its colour."""
    style = phase_styles()[phase]
    swatch = element(
        "span", class_="swatch", style=f"background:{style.colour}", aria_hidden="true"
    )
    return Html(swatch + text(style.label))


def warnings(found: Sequence[tuple[str, str | None]]) -> Html:
    """Sentences with their hints."""
    return joined(
        [
            element(
                "div",
                element("p", coded(message)),
                element("p", "What to do: ", coded(hint)) if hint else "",
                class_="warning",
            )
            for message, hint in found
        ]
    )


def section(identifier: str, title: str, *content: str) -> Html:
    """A part of the page with a heading that can be linked to."""
    heading = element("h2", title, id=f"{identifier}-title")
    return element(
        "section", heading, *content, id=identifier, aria_labelledby=f"{identifier}-title"
    )


def navigation(parts: Sequence[tuple[str, str]]) -> Html:
    """Links to the sections."""
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in parts]
    return element("nav", element("ul", *links), aria_label="Sections")
