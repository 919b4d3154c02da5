from __future__ import annotations

import json

import numpy as np
import pytest
from handmade import make_report
from hypothesis import given
from hypothesis import strategies as st

from tracebook.errors import ReportVersionError
from tracebook.phase_styles import phase_styles
from tracebook.phases import STEP_PHASES
from tracebook.render import render
from tracebook.report import Report
from tracebook.step_detail import ms_each
from tracebook.units import ms


@given(st.lists(st.integers(0, 2**50), max_size=20))
def test_times_of_steps_are_as_one_by_one(ns):
    assert ms_each(np.array(ns, dtype=np.int64)) == [ms(one) for one in ns]


def test_samples_of_every_step_add_up_to_the_wall(report):
    steps = report.step_samples
    assert steps.start_ms == tuple(float(n) for n in range(8))
    assert steps.wall_ms == (1.0,) * 8
    assert steps.idle_ms == pytest.approx([0.1] * 8)
    assert {phase: values[0] for phase, values in steps.phases_ms.items()} == {
        "target_layers": 0.6, "output_layer": 0.2, "sampling": 0.06, "unclassified": 0.04,
    }  # fmt: skip
    assert steps.frame.columns[:4] == ["start_ms", "wall_ms", "idle_ms", "target_layers_ms"]


def test_the_median_step_holds_its_kernels(report):
    step = report.median_step
    assert step.wall_ns == 1_000_000
    assert step.start_ns == (0, 300_000, 600_000, 760_000, 860_000)
    assert step.duration_ns == (300_000, 300_000, 200_000, 100_000, 40_000)
    assert step.frame["name"].to_list() == [
        "cutlass_gemm", "cutlass_gemm", "cutlass_gemm", "argmax_kernel", "mystery<kernel>",
    ]  # fmt: skip
    assert step.layer == (0, 1, None, None, None)
    assert step.stream == (7, 7, 7, 9, 7)
    assert step.weight_bytes == (60_000_000, 60_000_000, 30_000_000, None, None)


def test_steps_are_saved_only_when_asked_for(report, tmp_path):
    report.save(tmp_path / "plain.json")
    assert "median_step" not in json.loads((tmp_path / "plain.json").read_text())
    assert Report.load(tmp_path / "plain.json").step_samples is None
    report.save(tmp_path / "steps.json", steps=True)
    loaded = Report.load(tmp_path / "steps.json")
    assert loaded == report
    assert loaded.step_samples == report.step_samples
    assert loaded.median_step == report.median_step
    assert loaded.to_json(steps=True) == (tmp_path / "steps.json").read_text()


def test_a_report_without_steps_says_how_to_save_them():
    bare = Report.from_json(make_report().to_json())
    for format_name in ("text", "csv", "markdown"):
        with pytest.raises(ReportVersionError, match="without its single steps") as error:
            render(bare, format_name, detail="steps")
        assert "--detail steps" in error.value.hint


def lightness(colour: str) -> float:
    """CIE L*, 0 black to 100 white."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_phases_can_be_told_apart_in_grey_print():
    styles = [phase_styles()[phase] for phase in (*STEP_PHASES, "idle")]
    for number, one in enumerate(styles):
        for other in styles[:number]:
            apart = abs(lightness(one.colour) - lightness(other.colour))
            assert one.hatch != other.hatch or apart >= 8, (one.label, other.label)


#: Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIMULATED = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
}  # fmt: skip


@pytest.mark.parametrize("vision", SIMULATED)
def test_phases_can_be_told_apart_by_the_colour_blind(vision):
    def seen(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        mixed = [sum(a * b for a, b in zip(row, linear, strict=True)) for row in SIMULATED[vision]]
        return [max(c, 0) ** (1 / 2.4) for c in mixed]

    styles = [phase_styles()[phase.value] for phase in STEP_PHASES]
    for number, one in enumerate(styles):
        for other in styles[:number]:
            apart = sum(
                (a - b) ** 2 for a, b in zip(seen(one.colour), seen(other.colour), strict=True)
            ) ** 0.5  # fmt: skip
            assert one.hatch != other.hatch or apart > 0.15, (one.label, other.label)
