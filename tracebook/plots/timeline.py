"""One median step as lanes over time: phases, layers, each stream, and what is idle.

Gaps between kernels are far narrower than a line can be drawn, so the idle lane shows the
share of idle time in each small stretch of the step, and its label the full height's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracebook.phases import Phase
from tracebook.plots.canvas import (
    INK,
    caption,
    drawn,
    fill,
    legend_below,
    median_step_of,
    phase_patch,
    picture,
)
from tracebook.report import Report
from tracebook.step_detail import MedianStep
from tracebook.units import ms

_HEIGHT = 0.72
_STRETCHES = 160
#: Dots that the widest picture has for a step: what is narrower cannot be seen.
_PIXELS = 2000
_LAYER_SHADES = ("#9aa3ad", "#d9dde2")


@drawn
def draw(report: Report, *, width_in: float) -> Figure:
    """Draw the step; see `Plots.timeline`."""
    step = median_step_of(report)
    streams = sorted({stream for stream in step.stream if stream is not None})
    lanes = ["phase", "layer", *(f"stream {stream}" for stream in streams)]
    if None in step.stream:
        lanes.append("stream unknown")
    lanes.append("idle")
    figure = picture(width_in, 1.35 + 0.42 * len(lanes) + (0.2 if width_in < 8 else 0.0))
    axes = figure.add_subplot()
    spans = _spans(step)
    runs = _runs(spans, step.phase)
    for phase, start, end in runs:
        axes.broken_barh([(start, end - start)], _lane(0), **fill(phase))
    _layers(axes, spans, step, width_in)
    for place, stream in enumerate([*streams, *([None] if None in step.stream else [])]):
        for phase in dict.fromkeys(step.phase):
            here = _visible(
                [
                    span
                    for span, where, what in zip(spans, step.stream, step.phase, strict=True)
                    if where == stream and what == phase
                ],
                ms(step.wall_ns) / _PIXELS,
            )
            axes.broken_barh(here, _lane(place + 2), **fill(phase))
    idle = _idle(spans, ms(step.wall_ns))
    lanes[-1] = f"idle\n(height: {_idle_bars(axes, len(lanes) - 1, idle, step):.0%})"
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlim(0, ms(step.wall_ns))
    axes.set_yticks(range(len(lanes)), lanes)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time since the step began (ms)")
    idle_ms = sum(width for _, width in idle)
    axes.set_title(
        f"{caption(report)}: step {step.position}, {ms(step.wall_ns):.2f} ms, {idle_ms:.2f} ms idle"
    )
    axes.spines["left"].set_visible(False)
    shown = [phase for phase in Phase if phase in step.phase]
    legend_below(figure, [phase_patch(phase) for phase in shown])
    return figure


def _lane(place: int) -> tuple[float, float]:
    return place - _HEIGHT / 2, _HEIGHT


def _spans(step: MedianStep) -> list[tuple[float, float]]:
    """Start and end of each kernel in ms, cut at the borders of the step."""
    return [
        (ms(max(start, 0)), ms(min(start + duration, step.wall_ns)))
        for start, duration in zip(step.start_ns, step.duration_ns, strict=True)
    ]


def _runs(
    spans: Sequence[tuple[float, float]], keys: Sequence[str]
) -> list[tuple[str, float, float]]:
    """Neighbours with one key as one stretch."""
    found = []
    for key, group in groupby(zip(keys, spans, strict=True), key=lambda item: item[0]):
        members = [span for _, span in group]
        found.append((key, members[0][0], max(end for _, end in members)))
    return found


def _layers(
    axes: Axes, spans: Sequence[tuple[float, float]], step: MedianStep, width_in: float
) -> None:
    """Layers as alternating shades, numbered at regular intervals."""
    keys = [
        "" if layer is None else f"{phase} {layer}"
        for phase, layer in zip(step.phase, step.layer, strict=True)
    ]
    bars: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    found = [(key.split(), start, end) for key, start, end in _runs(spans, keys) if key]
    every = _intervals(found, 0.18 / (width_in - 1.2) * ms(step.wall_ns))
    for (phase, layer), start, end in found:
        number = int(layer)
        bars[number % 2].append((start, end - start))
        if number % every[phase] == 0:
            middle = (start + end) / 2
            axes.text(middle, 1, layer, ha="center", va="center", fontsize=7)
    for shade, spans_of_it in zip(_LAYER_SHADES, bars, strict=True):
        axes.broken_barh(spans_of_it, _lane(1), facecolor=shade, linewidth=0)


def _intervals(
    found: Sequence[tuple[Sequence[str], float, float]], least_ms: float
) -> dict[str, int]:
    """Which layers of each phase are numbered: every one, every second, every fifth ..."""
    widths: dict[str, list[float]] = {}
    for (phase, _), start, end in found:
        widths.setdefault(phase, []).append(end - start)
    return {
        phase: next((n for n in (1, 2, 5, 10, 20, 50, 100) if n * min(here) >= least_ms), 1000)
        for phase, here in widths.items()
    }


def _visible(spans: Sequence[tuple[float, float]], least_ms: float) -> list[tuple[float, float]]:
    """Starts and widths of bars, gaps closed that are too narrow to be drawn true."""
    bars: list[tuple[float, float]] = []
    for start, end in spans:
        if bars and start - (bars[-1][0] + bars[-1][1]) < least_ms:
            bars[-1] = (bars[-1][0], end - bars[-1][0])
        else:
            bars.append((start, end - start))
    return bars


def _idle_bars(
    axes: Axes, place: int, idle: Sequence[tuple[float, float]], step: MedianStep
) -> float:
    """Draw the idle share over time; return the share that fills the lane."""
    edges = np.linspace(0, ms(step.wall_ns), _STRETCHES + 1)
    starts = np.array([start for start, _ in idle])
    ends = starts + np.array([width for _, width in idle])
    overlap = np.minimum(ends[:, None], edges[1:]) - np.maximum(starts[:, None], edges[:-1])
    share = np.clip(overlap, 0, None).sum(axis=0) / np.diff(edges)
    most = float(share.max()) or 1.0
    height = _HEIGHT * share / most
    bottom = place + _HEIGHT / 2
    axes.bar(edges[:-1], -height, np.diff(edges), bottom, align="edge", color=INK, linewidth=0)
    axes.plot([0, edges[-1]], [bottom, bottom], color=INK, linewidth=0.5)
    return most


def _idle(spans: Sequence[tuple[float, float]], wall_ms: float) -> list[tuple[float, float]]:
    """Gaps in which no kernel runs, as start and width."""
    gaps, reached = [], 0.0
    for start, end in [*sorted(spans), (wall_ms, wall_ms)]:
        if start > reached:
            gaps.append((reached, start - reached))
        reached = max(reached, end)
    return gaps
