"""Warnings about the pace of the steps and about rates that cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import make_report

from tracebook.cautions import _about_pace, _about_roofline
from tracebook.stats import Summary


@pytest.fixture(scope="module")
def report():
    return make_report()


def codes(notices):
    return [notice.code for notice in notices]


def summary(mean: float, median: float) -> Summary:
    return Summary(median=median, mean=mean, p05=median, p95=median, ci95=None, n=20)


def test_a_steady_pace_is_not_talked_about(report):
    steps = replace(report.steps, wall_ms=summary(10, 10), idle_ms=summary(1, 1))
    assert codes(_about_pace(steps)) == []


def test_a_mean_far_from_the_median_is_told(report):
    steps = replace(report.steps, wall_ms=summary(12, 10), idle_ms=summary(1, 1))
    assert codes(_about_pace(steps)) == ["stalled_steps"]


def test_a_gpu_that_waits_is_told(report):
    steps = replace(report.steps, wall_ms=summary(10, 10), idle_ms=summary(6, 6))
    (notice,) = _about_pace(steps)
    assert notice.code == "mostly_idle"
    assert "60 %" in notice.message


def test_drift_is_told_with_its_sign(report):
    (notice,) = _about_pace(
        replace(report.steps, drift_share=-0.05, wall_ms=summary(10, 10), idle_ms=summary(1, 1))
    )
    assert notice.code == "drift"
    assert "-5.0 %" in notice.message


@pytest.mark.parametrize(("share", "told"), [(0.004, []), (0.05, ["above_roofline"])])
def test_only_phases_that_matter_are_held_against_the_roofline(report, share, told):
    row = replace(report.phase_rows[0], share=share, traffic_gbps=300.0, roofline_pct=110.0)
    assert codes(_about_roofline(replace(report, phase_rows=(row,)))) == told
