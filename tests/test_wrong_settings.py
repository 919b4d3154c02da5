"""Settings that contradict the trace: said, and without a mixture of two runs in one report."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracebook

FULL = Path(__file__).parents[1] / "fixtures" / "full-recipe"


def codes(report):
    return {warning.code for warning in report.warnings}


def by_phase(report):
    return {row.phase: row for row in report.phase_rows}


def test_a_peak_that_is_too_low_is_shown_and_said():
    report = tracebook.analyze(FULL / "trace.sqlite", bandwidth=207)
    rows = by_phase(report)
    assert rows["output_layer"].roofline_pct == pytest.approx(110.2, abs=0.1)
    assert {"above_peak", "above_roofline"} <= codes(report)


def test_a_peak_far_too_low_costs_the_bytes_and_not_the_phases():
    report = tracebook.analyze(FULL / "trace.sqlite", bandwidth=100)
    assert by_phase(report)["target_layers"].ms.median == pytest.approx(84.8, abs=0.01)
    assert by_phase(report)["draft_head"].ms.median == pytest.approx(2.3, abs=0.01)
    assert report.total.weight_gbps is None


def test_state_and_weights_are_of_the_same_number_of_ranks():
    right = by_phase(tracebook.analyze(FULL / "trace.sqlite"))
    report = tracebook.analyze(FULL / "trace.sqlite", tensor_parallel=3)
    assert "plan_contradicted" in codes(report)
    assert report.run.tensor_parallel == 1
    assert by_phase(report)["replay"].traffic_gbps == right["replay"].traffic_gbps


@pytest.mark.parametrize("drafts", [3, 7, 15])
def test_another_number_of_drafts_of_a_block_drafter_is_told(drafts):
    report = tracebook.analyze(FULL / "trace.sqlite", draft_tokens=drafts)
    (notice,) = [warning for warning in report.warnings if warning.code == "rows_unlike"]
    assert "11 tokens at once" in notice.message
