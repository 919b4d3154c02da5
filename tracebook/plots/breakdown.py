"""Where the time of a step goes, one bar per run, with the floor of the bytes inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracebook.phases import STEP_PHASES, Phase
from tracebook.plots.canvas import (
    FLOOR,
    captions,
    drawn,
    fill,
    grid,
    legend_below,
    phase_patch,
    picture,
    run_name,
)
from tracebook.report import Report

#: Text on a white label, which stays dark on a dark page.
_ON_WHITE = "#1f232a"
_BAR, _STRIP = 0.62, 0.14
#: Segments narrower than this part of the axis are not written on.
_WRITTEN = 0.055


@drawn
def draw(
    reports: Sequence[Report], *, names: Sequence[str] | None = None, width_in: float
) -> Figure:
    """Draw one bar per report; see `Plots.breakdown`."""
    told, names = captions(reports, names or _names(reports))
    legend_rows = 3 if width_in < 8 else 2
    figure = picture(width_in, 1.2 + 0.52 * len(reports) + 0.2 * legend_rows)
    axes = figure.add_subplot()
    longest = max(report.steps.wall_ms.mean for report in reports)
    # Room for the figure behind the longest bar, about 0.7 inches.
    axes.set_xlim(0, longest * (1 + 0.7 / (width_in - 2.5)))
    for place, report in enumerate(reports):
        _bar(axes, place, report, longest)
    axes.set_ylim(len(reports) - 0.5, -0.5)
    axes.set_yticks(range(len(reports)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_title(told)
    axes.set_xlabel("time of a step, mean of the kept steps (ms)")
    axes.spines["left"].set_visible(False)
    grid(axes, "x")
    shown = {row.phase for report in reports for row in report.phase_rows}
    handles: list[Patch] = [phase_patch(phase) for phase in STEP_PHASES if phase in shown]
    handles.append(phase_patch(Phase.IDLE))
    if any(row.floor_ms for report in reports for row in report.phase_rows):
        handles.append(Patch(facecolor=FLOOR, label="floor: bytes at peak bandwidth"))
    legend_below(figure, handles)
    return figure


def _names(reports: Sequence[Report]) -> list[str]:
    """Names of the runs, numbered where two would be the same."""
    names = [run_name(report.trace.path) for report in reports]
    count = Counter(names)
    return [
        f"{name} ({index + 1})" if count[name] > 1 else name for index, name in enumerate(names)
    ]


def _bar(axes: Axes, place: int, report: Report, longest: float) -> None:
    left = 0.0
    segments = [(row.phase, row.ms.mean, row.floor_ms) for row in report.phase_rows]
    segments.append((Phase.IDLE.value, report.steps.idle_ms.mean, None))
    for phase, width, floor_ms in segments:
        axes.barh(place, width, height=_BAR, left=left, **fill(phase))
        if floor_ms:
            low = place + _BAR / 2 - _STRIP / 2
            axes.barh(low, floor_ms, height=_STRIP, left=left, color=FLOOR, linewidth=0)
        if width > _WRITTEN * longest:
            axes.text(
                left + width / 2,
                place - 0.06,
                f"{width:.1f}",
                ha="center",
                va="center",
                fontsize=8,
                color=_ON_WHITE,
                bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1.2},
            )
        left += width
    axes.text(left + 0.012 * longest, place, f"{left:.1f} ms", va="center")
