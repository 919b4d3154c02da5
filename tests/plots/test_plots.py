"""Pictures say what the report says, name their units and keep everything inside."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from handmade import make_report, make_trace
from matplotlib.colors import to_hex
from matplotlib.text import Text

import tracebook
from tracebook.errors import TracebookError
from tracebook.phase_styles import phase_styles
from tracebook.plots import KINDS, plot
from tracebook.plots.canvas import run_name, saved
from tracebook.report import Report
from tracebook.step_detail import StepSamples

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipe() -> Report:
    return tracebook.analyze(ROOT / "fixtures" / "full-recipe" / "trace.sqlite")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    """The report keeps paths of checkpoints relative to where it was made."""
    monkeypatch.chdir(ROOT)


def visible_texts(figure) -> list[tuple[str, object]]:
    """Texts that are drawn, with their boxes in pixels; ticks outside the view are not."""
    figure.canvas.draw()
    inside = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            # Not the annotation's own box: that has its leader in it.
            inside.append((text.get_text(), Text.get_window_extent(text)))
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                shown = low - 1e-9 <= tick.get_loc() <= high + 1e-9
                for label in (tick.label1, tick.label2):
                    if not shown or not label.get_visible() or not tick.get_visible():
                        hidden.add((label.get_text(), label.get_window_extent().bounds))
    return [(text, box) for text, box in inside if (text, box.bounds) not in hidden]


@pytest.mark.parametrize("width_in", [6.0, 12.0])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off_and_no_text_covers_another(recipe, kind, width_in):
    figure = plot(kind, (recipe,), width_in=width_in)
    assert figure.get_figwidth() == width_in
    texts = visible_texts(figure)
    width, height = figure.canvas.get_width_height()
    for text, box in texts:
        assert box.x0 >= -1 and box.y0 >= -1, text
        assert box.x1 <= width + 1 and box.y1 <= height + 1, text
    for number, (text, box) in enumerate(texts):
        for other, other_box in texts[:number]:
            apart = (
                box.x0 >= other_box.x1 - 1
                or other_box.x0 >= box.x1 - 1
                or box.y0 >= other_box.y1 - 1
                or other_box.y0 >= box.y1 - 1
            )
            assert apart, (text, other)


@pytest.mark.parametrize("kind", KINDS)
def test_every_axis_with_numbers_has_a_unit(recipe, kind):
    for axes in plot(kind, (recipe,)).axes:
        if axes.get_xlabel():
            assert "(" in axes.get_xlabel() or axes.get_xlabel() == "layer"
        named = [tick.get_text() for tick in axes.get_yticklabels()]
        numeric = any(text.lstrip("\N{MINUS SIGN}").replace(".", "").isdigit() for text in named)
        if numeric and axes.get_subplotspec().is_first_col():
            assert "(" in axes.get_ylabel()


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_come_from_the_saved_report_alone(recipe, kind, tmp_path):
    recipe.save(tmp_path / "r.json", steps=True)
    again = Report.load(tmp_path / "r.json")
    named = replace(recipe, trace=replace(recipe.trace, path=again.trace.path))  # no folders
    assert saved(plot(kind, (again,)), "svg") == saved(plot(kind, (named,)), "svg")


def test_breakdown_bars_add_up_to_the_step(recipe):
    figure = recipe.plot.breakdown(make_report(), names=("a", "b"))
    (axes,) = figure.axes
    bars = [patch for patch in axes.patches if patch.get_height() > 0.5]
    first = [patch for patch in bars if patch.get_y() < 0]
    assert sum(patch.get_width() for patch in first) == pytest.approx(99.5867, abs=1e-3)
    floors = [patch for patch in axes.patches if patch.get_height() < 0.5 and patch.get_y() < 0.5]
    moved = sum(row.traffic_bytes or 0 for row in recipe.phase_rows)
    assert moved > 20.8e9  # the weights alone
    assert sum(patch.get_width() for patch in floors) == pytest.approx(moved / 273e6, rel=1e-4)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a (synthetic)", "b"]


def test_a_phase_has_one_colour_everywhere(recipe):
    blue = phase_styles()["target_layers"].colour
    for kind in ("breakdown", "timeline"):
        figure = plot(kind, (recipe,))
        legend = figure.legends[0]
        names = [text.get_text() for text in legend.get_texts()]
        entries = dict(zip(names, legend.get_patches(), strict=True))
        assert to_hex(entries["target layers"].get_facecolor()) == blue
    assert blue in saved(plot("layers", (recipe,)), "svg").decode()


def test_roofline_shows_rates_lines_and_names(recipe):
    figure = recipe.plot.roofline()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert f"target layers, {recipe.phase_rows[0].traffic_gbps:.0f} GB/s" in labels
    texts = [text for text, _ in visible_texts(figure)]
    assert "published peak, 273 GB/s" in texts
    assert "measured ceiling, 234 GB/s" in texts
    assert "gate_proj + up_proj" in texts


def test_a_phase_has_one_marker_in_every_run(recipe):
    rows = tuple(row for row in recipe.phase_rows if row.phase != "output_layer")
    markers = []
    for report in (recipe, replace(recipe, phase_rows=rows)):
        (legend,) = report.plot.roofline().legends
        markers.append(
            {
                text.get_text().split(",")[0]: line.get_marker()
                for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
            }
        )
    assert "output layer" in markers[0] and "output layer" not in markers[1]
    assert all(markers[0][phase] == marker for phase, marker in markers[1].items())


def test_pictures_of_several_runs_say_which_are_synthetic(recipe):
    real = replace(recipe, trace=replace(recipe.trace, synthetic=False))
    for draw in ("breakdown", "sweep"):
        alone = getattr(recipe.plot, draw)()
        assert ", NVIDIA GB10, synthetic" in alone.axes[0].get_title(loc="left")
        both = getattr(recipe.plot, draw)(recipe)
        assert "2 runs, NVIDIA GB10, synthetic" in both.axes[0].get_title(loc="left")
        mixed = getattr(recipe.plot, draw)(real, names=("made", "measured"))
        assert "synthetic" not in mixed.axes[0].get_title(loc="left")
        told = " ".join(text.get_text() for text in mixed.findobj(Text))
        assert "made (synthetic)" in told and "measured (synthetic)" not in told


@pytest.mark.parametrize(("width_in", "every"), [(6.0, 5), (9.0, 2), (30.0, 1)])
def test_timeline_numbers_layers_at_regular_intervals(recipe, width_in, every):
    (axes,) = recipe.plot.timeline(width_in=width_in).axes
    numbers = [int(text.get_text()) for text in axes.texts]
    assert numbers[: 63 // every + 1] == list(range(0, 64, every))


def test_layers_mark_the_change_of_format(recipe):
    labels = [text.get_text() for text in recipe.plot.layers().legends[0].get_texts()]
    # The checkpoint keeps the MLPs of its last eight layers, 56 to 63, in FP8.
    assert "matrices change their bytes at layer 56" in labels


def test_flow_follows_the_order_of_the_gpu(recipe):
    figure = recipe.plot.flow(layer=3)
    (axes,) = figure.axes
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    order = [names.index(n) for n in ("q_proj + k_proj + v_proj", "attention", "o_proj",
                                      "gate_proj + up_proj", "down_proj")]  # fmt: skip
    assert order == sorted(order)
    assert "layer 3, attention layer" in axes.get_title(loc="left")
    with pytest.raises(TracebookError, match="no layer 64"):
        recipe.plot.flow(layer=64)


@pytest.mark.parametrize("width_in", [6, 12])
def test_each_kind_of_layer_names_its_own_rows(recipe, width_in):
    figure = recipe.plot.flow(width_in=width_in)
    recurrent, attention = [
        [text.get_text() for text in axes.get_yticklabels() if text.get_visible()]
        for axes in figure.axes[:2]
    ]
    assert "gdn" in recurrent
    assert "q_proj + k_proj + v_proj" in attention
    assert all(axes.yaxis.get_tick_params()["labelleft"] for axes in figure.axes[:2])


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Report:
    """The same run with nothing told: no checkpoint, no bytes."""
    path = tmp_path_factory.mktemp("bare") / "trace.sqlite"
    path.write_bytes((ROOT / "fixtures" / "full-recipe" / "trace.sqlite").read_bytes())
    return tracebook.analyze(path)


def test_layers_of_another_kind_are_not_slow_ones(bare):
    # Without bytes nothing tells that the last eight layers read more, but they are many.
    panel = bare.plot.layers().axes[0]
    assert [text.get_text() for text in panel.texts] == []


def test_names_of_slow_neighbours_do_not_touch(bare):
    slow = (10, 11, 13, 15)
    rows = tuple(
        replace(row, ms=replace(row.ms, median=2.2))
        if row.phase == "target_layers" and row.layer in slow
        else row
        for row in bare.layer_rows
        if row.layer is None or row.layer < 56
    )
    figure = replace(bare, layer_rows=rows).plot.layers(width_in=6.0)
    figure.canvas.draw()
    names = figure.axes[0].texts
    assert [text.get_text() for text in names] == ["10\N{EN DASH}11", "13", "15"]
    boxes = [Text.get_window_extent(text) for text in names]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_flow_without_bytes_speaks_of_none(bare):
    figure = bare.plot.flow()
    assert "bytes not known" in figure.get_suptitle()
    for axes in figure.axes:
        assert "MB" not in axes.get_title(loc="left")
        names = [tick.get_text() for tick in axes.get_yticklabels()]
        colours = {
            name: to_hex(bar.get_facecolor()) for name, bar in zip(names, axes.patches, strict=True)
        }
        assert colours["gemm"] == phase_styles()["target_layers"].colour != colours["norm"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "reads no weights" not in labels
    assert {"matrix product", "attention", "recurrent state", "other"} == set(labels)


def test_steps_mark_what_was_left_out():
    report = make_report()
    samples = report.step_samples
    keep = [0, 1, 4, 5, 6, 7]
    picked = replace(
        samples,
        start_ms=tuple(samples.start_ms[i] for i in keep),
        wall_ms=tuple(samples.wall_ms[i] for i in keep),
        idle_ms=tuple(samples.idle_ms[i] for i in keep),
        phases_ms={p: [v[i] for i in keep] for p, v in samples.phases_ms.items()},
    )
    labels = [
        text.get_text()
        for text in replace(report, step_samples=picked).plot.steps().legends[0].get_texts()
    ]
    assert "steps left out" in labels
    assert "steps left out" not in [
        text.get_text() for text in report.plot.steps().legends[0].get_texts()
    ]


def test_steps_mark_two_regimes():
    report = make_report()
    rng = np.random.default_rng(7)
    wall = np.where(np.arange(60) < 40, 100.0, 112.0) + rng.normal(0, 0.1, 60)
    samples = StepSamples(
        start_ms=tuple(np.cumsum(wall) - wall),
        wall_ms=tuple(wall),
        idle_ms=(0.5,) * 60,
        phases_ms={"target_layers": list(wall - 0.5)},
    )
    picture = replace(report, step_samples=samples).plot.steps()
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    for label, regime, middle, steps in zip(
        labels, ("faster", "slower"), (100, 112), (40, 20), strict=False
    ):
        name, time, count = label.split(", ")
        assert (name, count) == (f"{regime} regime", f"{steps} steps")
        assert float(time.removesuffix(" ms")) == pytest.approx(middle, abs=0.2)
    one = [text.get_text() for text in report.plot.steps().legends[0].get_texts()]
    assert one[0] == "median, 1.00 ms"


@pytest.mark.parametrize("kind", ["steps", "timeline", "flow"])
def test_a_report_without_steps_says_what_to_do(kind):
    bare = Report.from_json(make_report().to_json())
    with pytest.raises(TracebookError, match="without them") as error:
        plot(kind, (bare,))
    assert "--detail steps" in error.value.hint


def test_without_bytes_only_the_roofline_is_refused():
    report = make_report(with_plan=False)
    for kind in set(KINDS) - {"roofline", "sweep"}:
        assert saved(plot(kind, (report,)), "png").startswith(b"\x89PNG")
    with pytest.raises(TracebookError, match="no bytes"):
        report.plot.roofline()


def test_sweep_shows_the_best_number_and_the_measured_one(recipe):
    (axes,) = recipe.plot.sweep(most_drafts=12).axes
    curve, best, measured = axes.lines
    assert list(curve.get_xdata()) == list(range(13))
    rates = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert best.get_ydata()[0] == max(rates.values())
    # 5.32 tokens in 99.6 ms at 10 drafts; the prediction learns from that very run.
    assert (measured.get_xdata()[0], measured.get_ydata()[0]) == (10, pytest.approx(53.4, abs=0.1))
    assert rates[10] == pytest.approx(53.4, rel=0.01)
    with pytest.raises(TracebookError, match="drafted"):
        tracebook.analyze(ROOT / "fixtures" / "plain-nvfp4" / "trace.sqlite").plot.sweep()


def test_hostile_names_and_settings_do_no_harm():
    report = make_report(trace=make_trace(unknown_name="$x_{a}^$ <b>\\alpha"))
    with mpl.rc_context({"text.usetex": True, "font.size": 40, "savefig.bbox": "tight"}):
        figure = report.plot.timeline(width_in=6)
        assert saved(figure, "png").startswith(b"\x89PNG")


def test_names_of_runs():
    assert run_name("fixtures/full-recipe/trace.sqlite") == "full-recipe"
    assert run_name("runs/before.sqlite") == "before"
    assert run_name("trace.sqlite") == "trace"


def test_matplotlib_loads_only_for_pictures_and_no_window_opens():
    code = (
        "import sys; from handmade import make_report; r = make_report();"
        "assert 'matplotlib' not in sys.modules; r.plot.timeline();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "tests")
