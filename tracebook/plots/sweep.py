"""Tokens per second over the number of draft tokens: what a run would reach with others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tracebook.config import RunDescription
from tracebook.errors import TracebookError
from tracebook.plots.canvas import INK, captions, drawn, grid, legend_below, picture, run_name
from tracebook.predict import predict
from tracebook.prediction import Prediction
from tracebook.report import Report

#: Runs differ by line and marker: colours are for phases.
_LOOKS: tuple[tuple[Literal["-", "--", ":", "-."], str], ...] = (
    ("-", "o"),
    ("--", "s"),
    (":", "^"),
    ("-.", "D"),
)


@drawn
def draw(
    reports: Sequence[Report],
    *,
    runs: Sequence[RunDescription] | None = None,
    names: Sequence[str] | None = None,
    most_drafts: int,
    width_in: float,
) -> Figure:
    """Draw one curve per report; see `Plots.sweep`."""
    runs = runs or [described(report) for report in reports]
    names = names or [run_name(report.trace.path) for report in reports]
    told, names = captions(reports, names)
    figure = picture(width_in, 4.2)
    axes = figure.add_subplot()
    handles: list[Any] = []
    for number, (report, run, name) in enumerate(zip(reports, runs, names, strict=True)):
        line, marker = _LOOKS[number % len(_LOOKS)]
        found = predict(run, learn_from=report, sweep=True, most_drafts=most_drafts)
        known = [(row.draft_tokens, row.tokens_per_s) for row in found.sweep if row.tokens_per_s]
        if not known:
            raise TracebookError(
                f"How many drafts of {name} are accepted is not known.",
                "Say it with --tokens-per-step.",
            )
        drafts, rates = zip(*known, strict=True)
        axes.plot(drafts, rates, line, marker=marker, color=INK, markersize=4, linewidth=1.2)
        handles.append(
            Line2D([], [], linestyle=line, marker=marker, markersize=4, color=INK,
                   label=_told(name, found))
        )  # fmt: skip
        best = max(known, key=lambda entry: entry[1])
        axes.plot(*best, marker, markersize=9, color=INK, markerfacecolor="white", zorder=3)
        if report.run.draft_tokens and report.steps.tokens_per_s:
            axes.plot(
                report.run.draft_tokens, report.steps.tokens_per_s, "*", markersize=13,
                color="#e69f00", markeredgecolor=INK, markeredgewidth=0.7, zorder=4,
            )  # fmt: skip
    handles.append(
        Line2D([], [], linestyle="", marker="o", markersize=9, color=INK,
               markerfacecolor="white", label=f"best number of drafts up to {most_drafts}")
    )  # fmt: skip
    handles.append(
        Line2D([], [], linestyle="", marker="*", markersize=13, color="#e69f00",
               markeredgecolor=INK, markeredgewidth=0.7, label="as measured")
    )  # fmt: skip
    axes.set_title(f"{told}, predicted")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("draft tokens per step, K (tokens)")
    axes.set_ylabel("rate (tokens per second)")
    grid(axes)
    legend_below(figure, handles)
    return figure


def _told(name: str, found: Prediction) -> str:
    alpha = found.speculation.alpha if found.speculation else None
    return name if alpha is None else f"{name}, acceptance {alpha:.3f} per position"


def described(report: Report) -> RunDescription:
    """The run of a report, as far as the report tells it; paths are as it keeps them."""
    run = report.run
    return RunDescription(
        bandwidth_gbps=report.machine.bandwidth_gbps,
        ceiling_gbps=report.machine.ceiling_gbps,
        target=run.target,
        drafter=run.drafter,
        draft_method=run.draft_method,  # type: ignore[arg-type]
        draft_tokens=run.draft_tokens,
        draft_head=run.draft_head,
        gdn_dtype=run.gdn_dtype,
        kv_dtype=run.kv_dtype,
        context_tokens=run.context_tokens,
        batch=run.batch,
        tokens_per_step=run.tokens_per_step,
        replay=run.replay,
    )
