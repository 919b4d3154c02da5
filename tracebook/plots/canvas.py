"""What all pictures share: fonts, ink, phase colours, names of runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import PurePath
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracebook.errors import ReportVersionError, TracebookError
from tracebook.phase_styles import phase_styles
from tracebook.report import Report
from tracebook.step_detail import MedianStep, StepSamples

#: Text and axes, faint lines, and the mark of a floor.
INK, FAINT, FLOOR = "#1f2328", "#c4c9cf", "#1f2329"

_LOOK: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "figure.dpi": 100.0,
    "savefig.dpi": 150.0,
    "savefig.bbox": None,
    "svg.fonttype": "none",
    "svg.hashsalt": "tracebook",
    "path.simplify": True,
}

_P = ParamSpec("_P")


class Picture(Figure):
    """A figure that Jupyter shows without pyplot, whatever backend is set."""

    def _repr_png_(self) -> bytes:
        return saved(self, "png")


def picture(width_in: float, height_in: float) -> Figure:
    """An empty figure whose contents are kept apart and inside."""
    figure = Picture(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def drawn(draw: Callable[_P, Figure]) -> Callable[_P, Figure]:
    """Let a picture look the same whatever the user's matplotlib settings are."""

    @wraps(draw)
    def looking(*args: _P.args, **kwargs: _P.kwargs) -> Figure:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_LOOK)
            return draw(*args, **kwargs)

    return looking


def saved(figure: Figure, format_name: str) -> bytes:
    """A figure as png, svg or pdf, without a date, so that the same data gives the same file."""
    dated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_LOOK)
        figure.savefig(buffer, format=format_name, metadata=dated.get(format_name))
    return buffer.getvalue()


def fill(phase: str) -> dict[str, Any]:
    """How a patch of a phase is filled."""
    style = phase_styles()[phase]
    # The hatch takes the colour of the edge, which itself is not drawn.
    return {
        "facecolor": style.colour,
        "hatch": style.hatch or None,
        "edgecolor": (0.0, 0.0, 0.0, 0.45),
        "linewidth": 0.0,
    }


def phase_label(phase: str) -> str:
    """What people call a phase."""
    return phase_styles()[phase].label


def short_matrix(matrix: str) -> str:
    """Fused matrices by the last part of each name."""
    return " + ".join(part.split(".")[-1] for part in matrix.split("+"))


def phase_patch(phase: str, label: str | None = None) -> Patch:
    """The entry of a phase in a legend."""
    return Patch(label=label or phase_label(phase), **fill(phase))


def legend_below(figure: Figure, handles: list[Any]) -> None:
    """A legend under everything, in as many columns as surely fit."""
    lengths = [len(str(handle.get_label())) for handle in handles]
    columns = len(handles)
    while columns > 1 and _width_in(lengths, columns) > figure.get_figwidth():
        columns -= 1
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        handlelength=1.6,
        columnspacing=1.2,
    )


def _width_in(lengths: list[int], columns: int) -> float:
    """What a legend of so many columns needs, filled column by column as matplotlib does."""
    rows, longer = divmod(len(lengths), columns)
    width_in, begin = 0.0, 0
    for column in range(columns):
        end = begin + rows + (column < longer)
        width_in += 0.45 + 0.075 * max(lengths[begin:end])
        begin = end
    return width_in


def grid(axes: Axes, axis: str = "y") -> None:
    """Faint lines behind the data."""
    axes.grid(visible=True, axis=axis)  # type: ignore[arg-type]


def samples_of(report: Report) -> StepSamples:
    """The single steps of a report; an error with the remedy where it has none."""
    if report.step_samples is None:
        raise _without_steps()
    return report.step_samples


def median_step_of(report: Report) -> MedianStep:
    """The kernels of the median step; an error with the remedy where there are none."""
    if report.median_step is None:
        raise _without_steps()
    return report.median_step


def _without_steps() -> TracebookError:
    return ReportVersionError(
        "This picture needs single steps, and the report was saved without them.",
        "Draw from the trace, or save with "
        "`tracebook report RUN --format json --detail steps -o FILE`.",
    )


#: File names that say nothing about a run; its folder then does.
_GENERIC = ("trace", "run", "report", "expected", "profile", "baseline")


def run_name(path: str) -> str:
    """What to call a run by its path."""
    pure = PurePath(path)
    stem = pure.name.split(".")[0]
    folder = pure.parent.name
    return folder if stem in _GENERIC and folder not in ("", "..") else stem


def caption(report: Report) -> str:
    """One line that says which run a picture shows."""
    parts = [run_name(report.trace.path), report.trace.gpu or report.machine.name or ""]
    parts.append("synthetic" if report.trace.synthetic else "")
    return ", ".join(part for part in parts if part)


def captions(reports: Sequence[Report], names: Sequence[str]) -> tuple[str, list[str]]:
    """One line for a picture of several runs, and their names.

    What holds for all of them, the GPU and that they are synthetic, stands in the line; which
    of them are synthetic, where not all are, stands with their names.
    """
    if len(reports) == 1:
        return caption(reports[0]), list(names)
    gpus = dict.fromkeys(report.trace.gpu or report.machine.name or "" for report in reports)
    parts = [f"{len(reports)} runs", *(gpu for gpu in gpus if gpu)]
    synthetic = [report.trace.synthetic for report in reports]
    if all(synthetic):
        return ", ".join([*parts, "synthetic"]), list(names)
    marked = [
        f"{name} (synthetic)" if made else name for name, made in zip(names, synthetic, strict=True)
    ]
    return ", ".join(parts), marked
