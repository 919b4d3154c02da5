"""Time, bytes and GB/s over the layers: changes of format marked, slow layers named."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tracebook.errors import ReportVersionError
from tracebook.phase_styles import phase_styles
from tracebook.plots.canvas import INK, caption, drawn, grid, legend_below, phase_label, picture
from tracebook.report import PartRow, Report
from tracebook.step_detail import MedianStep

#: A layer is named where it takes this much longer than layers of the same bytes.
_SLOW, _MOST_NAMED = 1.05, 4
_KINDS = {"attention": ("^", "with attention"), "gdn": ("o", "with recurrent state")}
_PLAIN = ("o", "layer")


@drawn
def draw(report: Report, *, width_in: float) -> Figure:
    """Draw the layers; see `Plots.layers`."""
    by_phase: dict[str, list[PartRow]] = {}
    for row in report.layer_rows:
        if row.layer is not None:
            by_phase.setdefault(row.phase, []).append(row)
    if not by_phase:
        raise ReportVersionError(
            "No kernel of this report was given a layer.", "Give the checkpoint with --checkpoint."
        )
    figure = picture(width_in, 5.6)
    widths = [max(len(rows), 0.25 * max(map(len, by_phase.values()))) for rows in by_phase.values()]
    panels = figure.subplots(
        3, len(by_phase), sharex="col", sharey="row", squeeze=False, width_ratios=widths
    )
    seen: dict[str, Line2D] = {}
    lines = 0
    for column, (phase, rows) in enumerate(by_phase.items()):
        kinds = _kinds(report.median_step, phase)
        changes = _format_changes(report.median_step, phase)
        for axes in panels[:, column]:
            for layer in changes:
                axes.axvline(layer - 0.5, color=INK, linestyle="--", linewidth=0.9)
            grid(axes)
        _panel(panels[0, column], rows, [row.ms.median for row in rows], kinds, seen)
        _panel(panels[1, column], rows, [_mb(row) for row in rows], kinds, seen)
        _panel(panels[2, column], rows, [row.weight_gbps for row in rows], kinds, seen)
        layers_per_in = 1.04 * len(rows) / ((width_in - 1.2) * widths[column] / sum(widths))
        lines = max(lines, _name_slow(panels[0, column], rows, layers_per_in))
        panels[0, column].set_title(phase_label(phase))
        last = max(row.layer or 0 for row in rows)
        panels[0, column].set_xlim(-0.5 - 0.02 * last, last + 0.5 + 0.02 * last)
        panels[2, column].set_xlabel("layer")
        panels[2, column].xaxis.get_major_locator().set_params(integer=True)
        if changes:
            seen["change"] = Line2D(
                [], [], color=INK, linestyle="--", linewidth=0.9, label=_told(changes)
            )
    labels = ("time (ms)", "weights (MB)", "rate (GB/s)")
    for line, label in zip(panels, labels, strict=True):
        line[0].set_ylabel(label)
        top = max(axes.dataLim.y1 for axes in line)
        room = 1.18 + 0.12 * max(lines - 1, 0)
        line[0].set_ylim(0, room * top if top > 0 else 1.0)  # -inf where nothing was drawn
    _peak(panels[2], report)
    figure.align_ylabels()
    figure.suptitle(caption(report), fontsize=10, x=0.01, ha="left")
    legend_below(figure, list(seen.values()))
    return figure


def _mb(row: PartRow) -> float | None:
    return None if row.weight_bytes is None else row.weight_bytes / 1e6


def _panel(
    axes: Axes,
    rows: Sequence[PartRow],
    values: Sequence[float | None],
    kinds: dict[int, tuple[str, str]],
    seen: dict[str, Line2D],
) -> None:
    """One quantity of all layers, a marker for each kind of layer."""
    known = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    if not known:
        axes.text(0.5, 0.5, "not known", transform=axes.transAxes, ha="center", va="center")
        return
    colour = phase_styles()[rows[0].phase].colour
    for marker, label in dict.fromkeys(kinds.get(row.layer or 0, _PLAIN) for row, _ in known):
        here = [
            (row.layer or 0, value)
            for row, value in known
            if kinds.get(row.layer or 0, _PLAIN) == (marker, label)
        ]
        axes.plot(
            [layer for layer, _ in here],
            [value for _, value in here],
            marker,
            color=colour,
            markersize=5,
            markeredgecolor=INK,
            markeredgewidth=0.5,
        )
        seen.setdefault(label, Line2D([], [], marker=marker, linestyle="", color=INK, label=label))


def _kinds(step: MedianStep | None, phase: str) -> dict[int, tuple[str, str]]:
    """Marker and name of each layer's kind, by the kernels in it."""
    found: dict[int, tuple[str, str]] = {}
    if step is not None:
        for where, layer, kind in zip(step.phase, step.layer, step.kernel_class, strict=True):
            if where == phase and layer is not None and kind in _KINDS:
                found[layer] = _KINDS[kind]
    return found


def _format_changes(step: MedianStep | None, phase: str) -> dict[int, list[str]]:
    """Layers from which on a matrix has other bytes than in the layer before it."""
    last: dict[str, int] = {}
    changes: dict[int, list[str]] = {}
    rows = zip(step.phase, step.layer, step.matrix, step.weight_bytes, strict=True) if step else ()
    for where, layer, matrix, size in rows:
        if where != phase or layer is None or matrix is None or size is None:
            continue
        # Kernels that share a matrix divide its bytes by time: only clear steps count.
        if matrix in last and abs(size - last[matrix]) > 0.05 * last[matrix]:
            changes.setdefault(layer, []).append(matrix)
        last[matrix] = size
    return changes if len(changes) <= 4 else {}


def _told(changes: dict[int, list[str]]) -> str:
    layers = ", ".join(str(layer) for layer in changes)
    return f"matrices change their bytes at layer {layers}"


def _name_slow(axes: Axes, rows: Sequence[PartRow], layers_per_in: float) -> int:
    """Name the layers that take clearly longer than others that read as much.

    Neighbours are named together; names that would touch stand one above the other. Returns
    in how many lines.
    """
    peers: dict[int | None, list[PartRow]] = {}
    for row in rows:
        peers.setdefault(row.weight_bytes, []).append(row)
    slow = [row for group in peers.values() for row in _slow(group)]
    most = sorted(slow, key=lambda row: -row.ms.median)[:_MOST_NAMED]
    lines: list[float] = []
    for run in _neighbours(most):
        first, last = run[0].layer or 0, run[-1].layer or 0
        name = f"{first}" if first == last else f"{first}\N{EN DASH}{last}"
        middle = (first + last) / 2
        half = (0.04 + 0.045 * len(name)) * layers_per_in
        line = next((i for i, end in enumerate(lines) if end < middle - half), len(lines))
        lines[line : line + 1] = [middle + half]
        axes.annotate(
            name,
            xy=(middle, max(row.ms.median for row in run)),
            xytext=(0, 5 + 10 * line),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    return len(lines)


def _slow(peers: Sequence[PartRow]) -> list[PartRow]:
    """The few of many that take longer; where they are not few, they are another kind."""
    if len(peers) < 3:
        return []
    usual = median(row.ms.median for row in peers)
    slow = [row for row in peers if row.ms.median > _SLOW * usual]
    return slow if len(slow) <= _MOST_NAMED else _slow(slow)


def _neighbours(rows: Sequence[PartRow]) -> list[list[PartRow]]:
    """Rows by layer, those next to each other together."""
    runs: list[list[PartRow]] = []
    for row in sorted(rows, key=lambda row: row.layer or 0):
        if runs and (row.layer or 0) == (runs[-1][-1].layer or 0) + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _peak(panels: Sequence[Axes], report: Report) -> None:
    peak = report.machine.bandwidth_gbps
    if not peak:
        return
    for axes in panels:
        axes.axhline(peak, color=INK, linewidth=1)
    panels[0].set_ylim(0, peak * 1.2)
    panels[0].text(
        0.01, peak, f"published peak, {peak:g} GB/s", fontsize=8, va="bottom",
        transform=panels[0].get_yaxis_transform(),
    )  # fmt: skip
