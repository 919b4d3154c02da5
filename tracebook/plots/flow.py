"""One token through one layer, in the order in which the GPU runs it."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracebook.errors import ReportVersionError
from tracebook.phase_styles import phase_styles
from tracebook.phases import Phase
from tracebook.plots.canvas import (
    FAINT,
    INK,
    caption,
    drawn,
    legend_below,
    median_step_of,
    picture,
    short_matrix,
)
from tracebook.report import Report
from tracebook.step_detail import MedianStep

_PHASE = Phase.TARGET_LAYERS.value
_KINDS = {"attention": "attention layer", "gdn": "recurrent layer"}
_GLUE = "#d0d4d9"
#: Colour and name of the classes of kernels, where it is not known what reads weights.
_PRODUCT = ("matrix product", phase_styles()[_PHASE].colour)
_CLASSES = {
    "gemm": _PRODUCT,
    "moe": _PRODUCT,
    "attention": ("attention", "#e69f00"),
    "gdn": ("recurrent state", "#009e73"),
    "conv": ("recurrent state", "#009e73"),
}
_OTHER = ("other", _GLUE)


@drawn
def draw(report: Report, *, layer: int | None, width_in: float) -> Figure:
    """Draw the layer; see `Plots.flow`."""
    step = median_step_of(report)
    layers = _layers(step)
    if not layers:
        raise ReportVersionError(
            "No kernel of this report was given a layer.", "Give the checkpoint with --checkpoint."
        )
    if layer is not None and layer not in layers:
        raise ReportVersionError(
            f"There is no layer {layer} in this step.", f"Layers: {min(layers)} to {max(layers)}."
        )
    chosen = [layer] if layer is not None else _typical(layers)
    rows = max(len(layers[index]) for index in chosen)
    side_by_side = width_in >= 9.5
    shape = (1, len(chosen)) if side_by_side else (len(chosen), 1)
    tall = rows if side_by_side else sum(len(layers[index]) for index in chosen)
    figure = picture(width_in, 0.9 + 0.24 * tall + 0.75 * shape[0])
    longest = max(kernel["us"] for index in chosen for kernel in layers[index])
    heights = [len(layers[index]) for index in chosen] if not side_by_side else None
    panels = figure.subplots(*shape, squeeze=False, sharex=True, height_ratios=heights)
    known = any(kernel["weight_bytes"] for kernels in layers.values() for kernel in kernels)
    room = (0.9 if width_in < 8 else 0.75) if known else 0.25
    shown: dict[str, str] = {}
    for axes, index in zip(panels.flat, chosen, strict=True):
        looks = [_look(kernel, known=known) for kernel in layers[index]]
        _panel(axes, index, layers[index], looks, longest, known=known, text_room=room)
        shown |= dict(looks)
    told = caption(report) + ("" if known else "; bytes not known")
    figure.suptitle(told, fontsize=10, x=0.01, ha="left")
    named = dict(_LOOKS) if known else dict(sorted(shown.items(), key=lambda look: look == _OTHER))
    legend_below(
        figure,
        [
            Patch(facecolor=colour, edgecolor=INK, linewidth=0.5, label=label)
            for label, colour in named.items()
        ],
    )
    return figure


_LOOKS = (("reads weights", phase_styles()[_PHASE].colour), ("reads no weights", _GLUE))


def _look(kernel: dict[str, Any], *, known: bool) -> tuple[str, str]:
    """Name and colour of what a kernel is: by its bytes, and by its class without any."""
    if known:
        return _LOOKS[0 if kernel["weight_bytes"] else 1]
    return _CLASSES.get(kernel["kernel_class"], _OTHER)


def _layers(step: MedianStep) -> dict[int, list[dict[str, Any]]]:
    """The kernels of each target layer in order of start."""
    found: dict[int, list[dict[str, Any]]] = {}
    for kernel in step.frame.iter_rows(named=True):
        if kernel["phase"] == _PHASE and kernel["layer"] is not None:
            kernel["us"] = kernel["duration_ns"] / 1e3
            found.setdefault(kernel["layer"], []).append(kernel)
    return found


def _typical(layers: dict[int, list[dict[str, Any]]]) -> list[int]:
    """Of each kind of layer the one whose time is nearest the kind's median.

    Kinds differ by their recurrent or attention kernel; only the most frequent sequence
    of operations of a kind is looked at, which leaves out the first and the last layer.
    """
    kinds: dict[str, list[int]] = {}
    for index, kernels in layers.items():
        kinds.setdefault(_kind(kernels), []).append(index)
    chosen = []
    for members in kinds.values():
        shapes = {index: tuple(k["op"] for k in layers[index]) for index in members}
        usual = Counter(shapes.values()).most_common(1)[0][0]
        alike = [index for index in members if shapes[index] == usual]
        times = {index: sum(k["us"] for k in layers[index]) for index in alike}
        middle = median(times.values())
        chosen.append(min(alike, key=lambda index: abs(times[index] - middle)))
    return chosen[:2]


def _kind(kernels: list[dict[str, Any]]) -> str:
    classes = {kernel["kernel_class"] for kernel in kernels}
    return next((name for kind, name in _KINDS.items() if kind in classes), "layer")


def _panel(
    axes: Axes,
    index: int,
    kernels: list[dict[str, Any]],
    looks: list[tuple[str, str]],
    longest: float,
    *,
    known: bool,
    text_room: float,
) -> None:
    for place, (kernel, (_, colour)) in enumerate(zip(kernels, looks, strict=True)):
        axes.barh(place, kernel["us"], height=0.7, color=colour, edgecolor=INK, linewidth=0.5)
        axes.text(kernel["us"] + 0.015 * longest, place, _figures(kernel), va="center", fontsize=8)
    total = sum(kernel["us"] for kernel in kernels)
    read = sum(kernel["weight_bytes"] or 0 for kernel in kernels)
    kind = _kind(kernels)
    title = f"layer {index}, {kind}" if kind != "layer" else f"layer {index}"
    axes.set_title(f"{title}: {total:.0f} µs" + (f", {read / 1e6:.0f} MB" if known else ""))
    axes.set_yticks(range(len(kernels)), [_label(kernel) for kernel in kernels], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(kernels) - 0.4, -0.6)
    axes.set_xlim(0, longest * (1 + text_room))
    spec = axes.get_subplotspec()
    # Only the x axis is common: the rows of two kinds of layer differ.
    if spec is None or spec.is_last_row():
        axes.set_xlabel("time (µs)")
    else:
        axes.tick_params(labelbottom=False)
    axes.grid(visible=True, axis="x", color=FAINT)


def _label(kernel: dict[str, Any]) -> str:
    """The matrix in short, or what the kernel does."""
    if kernel["matrix"]:
        return short_matrix(kernel["matrix"])
    return str(kernel["op"] or kernel["kernel_class"]).replace("_", " ")


def _figures(kernel: dict[str, Any]) -> str:
    if not kernel["weight_bytes"]:
        return f"{kernel['us']:.1f} µs"
    rate = kernel["weight_bytes"] / kernel["duration_ns"]
    return f"{kernel['us']:.0f} µs, {kernel['weight_bytes'] / 1e6:.1f} MB, {rate:.0f} GB/s"
