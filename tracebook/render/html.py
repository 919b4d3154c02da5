"""The report as a page of its own: tables, pictures and a timeline, without any network."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib import resources
from typing import Any

from tracebook.errors import TracebookError
from tracebook.phase_styles import phase_styles
from tracebook.phases import Phase
from tracebook.plots import KINDS, plot
from tracebook.plots.canvas import FAINT, FLOOR, INK, run_name, saved
from tracebook.render import words
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
from tracebook.render.regimes import regime_sentence, regime_table
from tracebook.render.words import Column
from tracebook.report import Report
from tracebook.step_detail import MedianStep
from tracebook.units import gb_text, number_text

#: Pictures of the page; the timeline is drawn by a script instead.
_PICTURES = ("breakdown", "roofline", "layers", "flow", "steps")
_PICTURE_IN = 8.0
_NUMBER = "text-align:right;padding-left:1em"
_MISSING = (
    "The report was saved without its single steps. Make the page from the trace, or save with "
    "--format json --detail steps."
)


def render(report: Report, *, detail: str, terminal: bool) -> str:
    """Write the page; it always holds every detail."""
    # Before anything is drawn: captions of pictures name the run too.
    report = replace(report, trace=replace(report.trace, path=words.trace_path(report)))
    name = run_name(report.trace.path)
    parts = [
        ("phases", "Phases", _phases(report)),
        ("timeline-part", "One step", _timeline(report)),
        ("pictures", "Pictures", _pictures(report)),
        ("layers", "Layers", _parts(report.layer_rows, words.LAYER_COLUMNS, "Layers")),
        ("matrices", "Matrices", _parts(report.matrix_rows, words.MATRIX_COLUMNS, "Matrices")),
    ]
    if report.steps.regimes:
        parts.insert(1, ("regimes", "Two regimes", _regimes(report)))
    if report.unclassified.names:
        parts.append(("unclassified", "Unclassified kernels", _unclassified(report)))
    parts.append(("words", "How each number is defined", _definitions(report)))
    body = [
        element("header", element("h1", f"Decode step: {words.clean(name)}"), _summary(report)),
        navigation([(identifier, title) for identifier, title, _ in parts]),
        element("main", *(section(*part) for part in parts)),
    ]
    data = {
        "phases": [
            {"label": style.label, "colour": style.colour} for style in phase_styles().values()
        ],
        "peak": report.machine.bandwidth_gbps,
        "step": None if report.median_step is None else _step_data(report.median_step),
    }
    title = f"Decode step: {words.clean(name)}"
    return page(title, joined(body), scripts=("tables.js", "timeline.js"), data=data)


def fragment(report: Report) -> str:
    """The report in short, for a notebook: what it says, the phases, the warnings.

    A notebook brings its own style, so that everything needed is said on the elements.
    """
    columns, lines = words.phase_table(report, {})
    colours = [phase_styles()[row.phase].colour for row in report.phase_rows]
    colours += [phase_styles()[Phase.IDLE].colour, "transparent"]
    rows = []
    for colour, (name, *cells) in zip(colours, lines, strict=True):
        square = element("span", "\N{BLACK SQUARE} ", style=f"color:{colour}")
        rows.append(
            element(
                "tr",
                element("td", square, name, style="text-align:left"),
                *(element("td", cell, style=_NUMBER) for cell in cells),
            )
        )
    heads = [
        element("th", one.heading, style="text-align:left" if one.text else _NUMBER)
        for one in columns
    ]
    told = [element("p", words.verdict(report))]
    told.append(element("table", element("thead", element("tr", *heads)), element("tbody", *rows)))
    told += [
        element("p", element("b", "Warning: "), words.clean(warning.message))
        for warning in report.warnings
    ]
    return element("div", *told)


def _summary(report: Report) -> Html:
    total, steps = report.total, report.steps
    cards = [("step, median", f"{number_text(steps.wall_ms.median, 2)} ms")]
    if steps.tokens_per_s is not None:
        cards.append(("tokens per second", number_text(steps.tokens_per_s, 1)))
    if total.weight_bytes:
        cards.append(("weights read per step", f"{gb_text(total.weight_bytes)} GB"))
    if total.roofline_pct is not None:
        cards.append(("of the peak", f"{number_text(total.roofline_pct, 1)} %"))
    if total.floor_ms is not None:
        cards.append(("floor", f"{number_text(total.floor_ms, 2)} ms"))
    cards.append(("idle", f"{number_text(100 * steps.idle_share, 1)} %"))
    facts = [
        Html(element("dt", label) + element("dd", value)) for label, value in words.facts(report)
    ]
    return joined(
        [
            element("p", words.verdict(report), class_="lead"),
            element(
                "dl",
                *(element("div", element("dt", k), element("dd", v)) for k, v in cards),
                class_="cards",
            ),
            warnings([(notice.message, notice.hint) for notice in report.warnings]),
            element("dl", *facts, class_="facts"),
        ]
    )


def _phase_cells(report: Report) -> tuple[list[Column], list[list[str]]]:
    """The phase table of all renderers, with colours before the names and no bars."""
    columns, rows = words.phase_table(report, {})
    phases = [row.phase for row in report.phase_rows] + [Phase.IDLE.value]
    named = [[phase_cell(phase), *row[1:]] for phase, row in zip(phases, rows, strict=False)]
    return columns, [*named, *rows[len(named) :]]


def _phases(report: Report) -> Html:
    columns, rows = _phase_cells(report)
    shares = [row.share for row in report.phase_rows] + [report.steps.idle_share]
    phases = [row.phase for row in report.phase_rows] + [Phase.IDLE.value]
    bars = [
        element(
            "span",
            class_="bar",
            style=f"width:{100 * share / max(shares):.2f}%;"
            f"background:{phase_styles()[phase].colour}",
        )
        for phase, share in zip(phases, shares, strict=True)
    ]
    rows = [[*row, bar] for row, bar in zip(rows, [*bars, Html("")], strict=True)]
    left = [index for index, column in enumerate(columns) if column.text]
    headings = [*(column.heading for column in columns), ""]
    note = words.footnote(report)
    return joined(
        [
            table(headings, rows, left=[*left, len(columns)], label="Phases of the step", foot=1),
            element("p", note, class_="soft") if note else "",
        ]
    )


def _regimes(report: Report) -> Html:
    columns, rows = regime_table(report)
    named = [[phase_cell(row[0].replace(" ", "_")), *row[1:]] for row in rows[:-1]]
    headings = [column.heading for column in columns]
    shown = table(headings, [*named, rows[-1]], left=[0], label="Phases of two regimes", foot=1)
    return joined([element("p", regime_sentence(report)), shown])


def _parts(rows: Any, columns: tuple[Column, ...], label: str) -> Html:
    if not rows:
        return element("p", "No kernel was matched with a layer or a matrix.")
    cells = [[phase_cell(row.phase), *words.part_cells(row, columns)[1:]] for row in rows]
    return table(
        [column.heading for column in columns],
        cells,
        left=[index for index, column in enumerate(columns) if column.text],
        wraps=[index for index, column in enumerate(columns) if column.wraps],
        label=label,
        tall=True,
    )


def _timeline(report: Report) -> Html:
    step = report.median_step
    if step is None:
        return element("p", _MISSING)
    buttons = [
        ("earlier", "\N{LEFTWARDS ARROW}", "Earlier"),
        ("later", "\N{RIGHTWARDS ARROW}", "Later"),
        ("zoom-in", "+", "Zoom in"),
        ("zoom-out", "\N{MINUS SIGN}", "Zoom out"),
        ("whole", "Whole step", None),
        ("previous", "Previous", "Previous kernel"),
        ("next", "Next", "Next kernel"),
    ]
    tools = [
        element("button", sign, type="button", id=f"timeline-{name}", aria_label=told)
        for name, sign, told in buttons
    ]
    tools.append(
        Html(
            '<input type="search" id="timeline-search" placeholder="Search name, matrix, layer 12"'
            ' aria-label="Search kernels" autocomplete="off" spellcheck="false">'
        )
    )
    tools.append(element("span", id="timeline-count", aria_live="polite", class_="soft"))
    shown = [phase for phase in Phase if phase in step.phase]
    keys = Html(
        "Drag to move; choose the timeline and turn the wheel to zoom. By keyboard: "
        "<kbd>\N{LEFTWARDS ARROW}</kbd> <kbd>\N{RIGHTWARDS ARROW}</kbd> move, <kbd>+</kbd> "
        "<kbd>-</kbd> zoom, <kbd>Home</kbd> whole step, <kbd>n</kbd> <kbd>p</kbd> next and "
        "previous kernel, <kbd>Enter</kbd> zoom to it, <kbd>/</kbd> search."
    )
    return joined(
        [
            element(
                "p",
                f"The kernels of kept step {step.position}, whose time is nearest the median.",
            ),
            element("div", *tools, id="timeline-tools"),
            element(
                "canvas",
                id="timeline",
                tabindex="0",
                role="application",
                aria_label="Timeline of one step",
                aria_describedby="timeline-keys",
            ),
            element("output", id="kernel", aria_live="polite"),
            element(
                "ul",
                *(element("li", phase_cell(phase)) for phase in shown),
                class_="legend",
            ),
            element("p", keys, id="timeline-keys", class_="soft screen"),
        ]
    )


def _step_data(step: MedianStep) -> dict[str, Any]:
    """The step as columns of numbers; texts that repeat are told once."""
    streams = sorted({stream for stream in step.stream if stream is not None})
    lanes = [f"stream {stream}" for stream in streams]
    lanes += ["stream unknown"] if None in step.stream else []
    texts: dict[str | None, int] = {None: 0}

    def numbered(values: tuple[str | None, ...]) -> list[int]:
        return [
            texts.setdefault(None if value is None else words.clean(value), len(texts))
            for value in values
        ]

    order = [phase.value for phase in Phase]
    columns = {
        "start": step.start_ns,
        "duration": step.duration_ns,
        "lane": [len(streams) if s is None else streams.index(s) for s in step.stream],
        "phase": [order.index(phase) for phase in step.phase],
        "layer": step.layer,
        "name": step.name,
        "op": numbered(step.op),
        "matrix": numbered(step.matrix),
        "evidence": numbered(step.evidence),
        "bytes": step.weight_bytes,
    }
    names = [words.clean(name) for name in step.names]
    return {"wall": step.wall_ns, "lanes": lanes, "names": names, "texts": list(texts), **columns}


def _pictures(report: Report) -> Html:
    figures = []
    for kind in _PICTURES:
        try:
            drawing = inline_svg(saved(plot(kind, (report,), width_in=_PICTURE_IN), "svg"), kind)
        except TracebookError as error:
            drawing = element("p", coded(f"Not drawn: {error.message}"), class_="soft")
        figures.append(
            element(
                "figure",
                element("figcaption", KINDS[kind]),
                element("div", drawing, class_="scroll", tabindex="0", role="img",
                        aria_label=KINDS[kind]),
            )
        )  # fmt: skip
    return joined(figures)


#: Inks that follow the reader's light or dark page, and the fonts that stand in.
_INKS = {INK: "currentColor", FAINT: "var(--faint)", FLOOR: "var(--floor)"}


def inline_svg(svg: bytes, prefix: str) -> Html:
    """A picture as part of a page: own names, the page's inks, no background."""
    markup = svg.decode("utf-8")
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    markup = re.sub(r'\bid="', f'id="{prefix}-', markup)
    markup = markup.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
    # The figure's own patch is its background.
    markup = re.sub(
        rf'(<g id="{prefix}-patch_1">\s*<path [^>]*style=")fill: #ffffff', r"\1fill: none", markup
    )
    for ink, name in _INKS.items():
        markup = markup.replace(ink, name)
    return Html(markup.strip())


def _unclassified(report: Report) -> Html:
    rows = [
        [f"{entry.ms:.3f}", str(entry.kernels), words.clean(entry.name)]
        for entry in report.unclassified.names
    ]
    return table(["ms", "kernels", "name"], rows, left=[2], wraps=[2], label="Unknown kernels")


def _definitions(report: Report) -> Html:
    source = resources.files("tracebook") / "data" / "html" / "definitions.toml"
    told = tomllib.loads(source.read_text(encoding="utf-8"))["definition"]
    listed = [Html(element("dt", one["term"]) + element("dd", one["text"])) for one in told]
    present = [row.phase for row in report.phase_rows]
    phases = [
        Html(element("dt", phase_cell(phase)) + element("dd", phase_styles()[phase].meaning))
        for phase in present
    ]
    return joined(
        [
            element("dl", *listed, class_="words"),
            element("h3", "Phases"),
            element("dl", *phases, class_="words"),
        ]
    )
