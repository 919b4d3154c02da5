"""The kept steps over the capture: how steady they are, and which phases vary."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tracebook.phase_styles import phase_styles
from tracebook.phases import Phase
from tracebook.plots.canvas import (
    FAINT,
    INK,
    caption,
    drawn,
    grid,
    legend_below,
    phase_label,
    picture,
    samples_of,
)
from tracebook.regimes import two_groups
from tracebook.report import Report
from tracebook.step_detail import StepSamples

#: Phases drawn below: those that vary most.
_VARYING = 5
_MARKERS = ("o", "s", "^", "D", "v", "P")


@drawn
def draw(report: Report, *, width_in: float) -> Figure:
    """Draw the steps; see `Plots.steps`."""
    samples = samples_of(report)
    start_s = np.array(samples.start_ms) / 1e3
    wall = np.array(samples.wall_ms)
    figure = picture(width_in, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    gaps = _gaps(samples)
    for axes in (above, below):
        for begin, end in gaps:
            axes.axvspan(begin, end, color=FAINT, alpha=0.6, linewidth=0)
    many = len(wall) > 200
    handles: list[Line2D | Patch] = _walls(above, start_s, samples, size=2.5 if many else 6)
    for edge in (report.steps.wall_ms.p05, report.steps.wall_ms.p95):
        above.axhline(edge, color=INK, linewidth=0.8, linestyle=":")
    above.set_ylabel("time of a step (ms)")
    above.set_title(f"{caption(report)}: {report.steps.kept} steps kept of {report.steps.found}")
    grid(above)
    handles.append(Line2D([], [], color=INK, linestyle=":", label="5 and 95 %"))
    if gaps:
        handles.append(Patch(color=FAINT, alpha=0.6, label="steps left out"))
    handles += _phases(below, start_s, samples, many=many)
    below.axhline(0, color=INK, linewidth=0.8)
    below.set_ylabel("off its median (ms)")
    below.set_xlabel("time since the capture began (s)")
    grid(below)
    figure.align_ylabels()
    legend_below(figure, handles)
    return figure


def _walls(
    axes: Axes, start_s: np.ndarray, samples: StepSamples, *, size: float
) -> list[Line2D | Patch]:
    """Step times with their median; where there are two regimes, each with its own."""
    wall = np.array(samples.wall_ms)
    busy = wall - np.array(samples.idle_ms)
    slow = two_groups(np.log(busy)) if busy.min() > 0 else None
    groups = [("median", "o", np.ones(len(wall), dtype=bool), "-")]
    if slow is not None:
        groups = [("faster regime", "o", ~slow, "-"), ("slower regime", "^", slow, "--")]
    handles: list[Line2D | Patch] = []
    for name, marker, members, line in groups:
        middle = float(np.median(wall[members]))
        face = "white" if marker == "^" else INK
        axes.plot(
            start_s[members], wall[members], marker, color=INK, markersize=size,
            markerfacecolor=face, markeredgewidth=0.6,
        )  # fmt: skip
        axes.axhline(middle, color=INK, linewidth=1, linestyle=line)
        count = f", {int(members.sum())} steps" if slow is not None else ""
        handles.append(
            Line2D([], [], color=INK, linestyle=line, marker=marker, markersize=5,  # type: ignore[arg-type]
                   markerfacecolor=face, label=f"{name}, {middle:.2f} ms{count}")
        )  # fmt: skip
    return handles


def _gaps(samples: StepSamples) -> list[tuple[float, float]]:
    """Stretches in s between kept steps that no kept step fills."""
    ends = np.array(samples.start_ms) + np.array(samples.wall_ms)
    starts = np.array(samples.start_ms)[1:]
    apart = np.flatnonzero(starts - ends[:-1] > 0.5 * np.median(samples.wall_ms))
    return [(float(ends[i]) / 1e3, float(starts[i]) / 1e3) for i in apart]


def _phases(axes: Axes, start_s: np.ndarray, samples: StepSamples, *, many: bool) -> list[Line2D]:
    """The phases that vary most, each as its distance from its own median."""
    times = {phase: np.array(values) for phase, values in samples.phases_ms.items()}
    times[Phase.IDLE.value] = np.array(samples.idle_ms)
    spread = {phase: float(np.ptp(values)) for phase, values in times.items()}
    chosen = sorted(spread, key=lambda phase: -spread[phase])[:_VARYING]
    handles = []
    for phase, marker in zip([p for p in times if p in chosen], _MARKERS, strict=False):
        colour = "#8a8a8a" if phase == Phase.IDLE else phase_styles()[phase].colour
        (line,) = axes.plot(
            start_s,
            times[phase] - np.median(times[phase]),
            color=colour,
            linewidth=0.9,
            marker=None if many else marker,
            markersize=5,
            markeredgecolor=INK,
            markeredgewidth=0.5,
            label=phase_label(phase),
        )
        handles.append(line)
    return handles
