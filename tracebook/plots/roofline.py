"""How near to the memory roofline: GB/s of phases and matrices against their bytes."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tracebook.errors import ReportVersionError
from tracebook.phase_styles import phase_styles
from tracebook.phases import STEP_PHASES, Phase
from tracebook.plots.canvas import (
    INK,
    caption,
    drawn,
    grid,
    legend_below,
    phase_label,
    picture,
    short_matrix,
)
from tracebook.report import PartRow, Report
from tracebook.units import BYTES_PER_GB

#: Matrices that are named: those which lose most time against the peak.
_NAMED = 3
#: A phase has its marker in every picture, whichever other phases are there.
_MARKERS = dict(zip(STEP_PHASES, "oD^svP*XhH", strict=True))


@drawn
def draw(report: Report, *, width_in: float) -> Figure:
    """Draw the roofline; see `Plots.roofline`."""
    phases = [row for row in report.phase_rows if row.traffic_gbps and row.traffic_bytes]
    if not phases:
        raise ReportVersionError(
            "This report has no bytes, so there is no rate to draw.",
            "Give the checkpoint with --checkpoint.",
        )
    figure = picture(width_in, 4.6)
    axes = figure.add_subplot()
    machine = report.machine
    handles: list[Any] = []
    for row in phases:
        colour = phase_styles()[row.phase].colour
        marker = _MARKERS[Phase(row.phase)]
        axes.plot(
            (row.traffic_bytes or 0) / BYTES_PER_GB,
            row.traffic_gbps or 0,
            marker,
            markersize=11,
            color=colour,
            markeredgecolor=INK,
            zorder=4,
        )
        label = f"{phase_label(row.phase)}, {row.traffic_gbps:.0f} GB/s"
        handles.append(_mark(marker, colour, 9, label))
        for part in _parts(report, row.phase):
            axes.plot(
                (part.weight_bytes or 0) / BYTES_PER_GB,
                part.weight_gbps or 0,
                marker,
                markersize=5,
                color=colour,
                markeredgecolor=INK,
                markeredgewidth=0.5,
                zorder=3,
            )
    handles.append(_mark("o", "white", 4.5, "small: one kind of matrix, all layers"))
    rates = [row.traffic_gbps or 0.0 for row in phases]
    rates += [part.weight_gbps or 0.0 for part in _parts(report, None)]
    top = max([*rates, machine.bandwidth_gbps or 0.0, machine.ceiling_gbps or 0.0])
    axes.set_ylim(0, top * 1.12)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.3, high * 1.6)
    _lines(axes, report)
    _names(axes, report)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bytes per step (GB, logarithmic)")
    axes.set_ylabel("achieved rate (GB/s)")
    axes.set_title(caption(report))
    grid(axes, "both")
    legend_below(figure, handles)
    return figure


def _mark(marker: str, colour: str, size: float, label: str) -> Line2D:
    return Line2D(
        [], [], marker=marker, linestyle="", color=colour, markeredgecolor=INK,
        markersize=size, label=label,
    )  # fmt: skip


def _parts(report: Report, phase: str | None) -> list[PartRow]:
    return [
        part
        for part in report.matrix_rows
        if part.weight_gbps and part.weight_bytes and phase in (None, part.phase)
    ]


def _lines(axes: Axes, report: Report) -> None:
    """Peak and measured ceiling across the whole width, named at the left."""
    machine = report.machine
    lines = (
        (machine.bandwidth_gbps, "-", "published peak", "bottom"),
        (machine.ceiling_gbps, "--", "measured ceiling", "bottom"),
    )
    for rate, style, name, side in lines:
        if rate:
            axes.axhline(rate, linestyle=style, color=INK, linewidth=1.2, zorder=2)
            axes.text(
                0.01, rate, f"{name}, {rate:g} GB/s", va=side, fontsize=8.5,
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip


def _names(axes: Axes, report: Report) -> None:
    """Name the matrices that lose most time."""
    peak = report.machine.bandwidth_gbps
    if not peak:
        return
    lost = sorted(
        _parts(report, None),
        key=lambda part: part.ms.median - (part.weight_bytes or 0) / peak / 1e6,
        reverse=True,
    )[:_NAMED]
    # From left to right each name stands lower and ends below its point, so that no leader
    # crosses another name.
    for place, part in enumerate(sorted(lost, key=lambda part: part.weight_bytes or 0)):
        gb = (part.weight_bytes or 0) / BYTES_PER_GB
        axes.annotate(
            short_matrix(part.matrix or part.op or ""),
            xy=(gb, part.weight_gbps or 0),
            xytext=(gb, 0.42 - 0.1 * place),
            textcoords=axes.get_xaxis_transform(),
            ha="right",
            va="center",
            fontsize=8.5,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.6, "shrinkB": 4,
                        "relpos": (1.0, 0.5)},
        )  # fmt: skip
