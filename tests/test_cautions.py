"""Warnings about the pace of the steps and about rates that cannot be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from handmade import labelled_run, make_report

from tracebook.cautions import (
    _about_ceiling,
    _about_pace,
    _about_ranks,
    _about_roofline,
    _about_rows,
    _about_surroundings,
    _about_yield,
)
from tracebook.kernels.labels import KindInfo, LabelledKernels
from tracebook.notices import Notice
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


@pytest.mark.parametrize(
    ("ceiling", "gbps", "told"),
    [
        (234.0, 200.0, []),
        (234.0, 238.0, []),  # 1.7 % above
        (234.0, 242.0, ["above_ceiling"]),
        (234.0, 80.0, ["far_below_ceiling"]),  # 34 % of the ceiling, 29 % of the peak
        (None, 240.0, []),
        (None, 105.0, ["far_below_ceiling"]),  # 38.5 % of the peak
        (234.0, 300.0, []),  # above the peak: that is told instead
    ],
)
def test_phases_are_held_against_the_ceiling(report, ceiling, gbps, told):
    row = replace(
        report.phase_rows[0],
        share=0.5,
        weight_bytes=1,
        traffic_gbps=gbps,
        roofline_pct=gbps / 2.73,
        ceiling_pct=None if ceiling is None else 100 * gbps / ceiling,
    )
    machine = replace(report.machine, bandwidth_gbps=273.0, ceiling_gbps=ceiling)
    changed = replace(report, phase_rows=(row,), machine=machine)
    assert codes(_about_ceiling(changed)) == told
    tiny = replace(changed, phase_rows=(replace(row, share=0.001),))
    assert codes(_about_ceiling(tiny)) == []


def test_phases_without_weights_need_not_reach_the_ceiling(report):
    row = replace(report.phase_rows[0], weight_bytes=None, traffic_gbps=5.0, roofline_pct=2.0)
    assert codes(_about_ceiling(replace(report, phase_rows=(row,)))) == []


def test_steps_that_are_the_smaller_part_are_told():
    labelled = labelled_run(8)
    assert codes(_about_surroundings(labelled)) == []
    rows = labelled.kernels.rows.with_columns(
        step_id=pl.when(pl.col("step_id") < 3).then(pl.col("step_id"))
    )
    few = replace(labelled, kernels=LabelledKernels.of(rows), steps=labelled.steps.head(3))
    (notice,) = _about_surroundings(few)
    assert notice.code == "outside_steps"
    assert notice.message.startswith("62 %")  # five of eight equal steps
    asked = replace(few, notices=(Notice("first_steps", "as asked"),))
    assert codes(_about_surroundings(asked)) == []


ROWS_OF_SAID = [
    (1, "none", None, 1, []),
    (4, "none", None, 4, []),
    (None, "none", None, 4, ["rows_unlike"]),
    (1, "dflash2", 10, 11, []),
    (1, "dflash2", 10, 16, []),
    (1, "dflash2", 7, 11, ["rows_unlike"]),
    (1, "dflash2", 15, 11, ["rows_unlike"]),
    (2, "mtp", 3, 8, []),
    (None, "mtp", 3, 8, ["rows_unlike"]),
    (1, "mtp", None, 8, []),
    (1, None, None, 8, []),
    (1, "none", None, None, []),
]


@pytest.mark.parametrize(("batch", "method", "drafts", "rows", "told"), ROWS_OF_SAID)
def test_batch_and_drafts_are_held_against_the_grids(report, batch, method, drafts, rows, told):
    run = replace(report.run, batch=batch, draft_method=method, draft_tokens=drafts)
    labelled = SimpleNamespace(
        kinds=(KindInfo("00000000", 20, 900, rows, (rows, 48) if rows else ()),)
    )
    assert codes(_about_rows(replace(report, run=run), labelled)) == told


@pytest.mark.parametrize(
    ("method", "drafts", "norms", "told"),
    [
        ("dflash2", 10, (11, 10), []),
        ("dflash2", 7, (11, 10), ["rows_unlike"]),
        ("dflash", 4, (9, 8), ["rows_unlike"]),  # 5 is filled up to 8, but 8 is the drafter's
        ("none", None, (1,), []),
        ("none", None, (512, 1), ["rows_unlike"]),
        ("eagle3", 4, (16, 4), []),  # a tree: the target verifies more than there are passes
        ("dflash2", 7, (), []),
    ],
)
def test_norms_alone_tell_the_drafts_of_a_block(report, method, drafts, norms, told):
    run = replace(report.run, batch=1, draft_method=method, draft_tokens=drafts)
    kinds = (KindInfo("00000000", 20, 900, None, norm_grids=norms),)
    changed = replace(report, run=run)
    assert codes(_about_rows(changed, SimpleNamespace(kinds=kinds))) == told


@pytest.mark.parametrize(
    ("ranks", "devices", "gbps", "kernel_class", "told"),
    [
        (2, 1, 1400.0, "unknown", ["ranks_unconfirmed"]),
        (2, 1, 1400.0, "gemm", []),  # names would tell collectives
        (2, 1, 1800.0, "unknown", []),  # one rank could not read that fast
        (2, 2, 1400.0, "unknown", []),
        (2, None, 1400.0, "unknown", []),
        (1, 1, 1400.0, "unknown", []),
    ],
)
def test_ranks_that_nothing_confirms_are_told(report, ranks, devices, gbps, kernel_class, told):
    labelled = SimpleNamespace(
        plan=SimpleNamespace(ranks=ranks),
        verdict=SimpleNamespace(fitted_gbps=gbps),
        devices=devices,
        kernels=SimpleNamespace(labels=pl.DataFrame({"kernel_class": [kernel_class]})),
    )
    machine = replace(report.machine, bandwidth_gbps=3352.0)
    assert codes(_about_ranks(replace(report, machine=machine), labelled)) == told


@pytest.mark.parametrize(
    ("method", "drafts", "batch", "tokens", "told"),
    [
        ("none", None, 1, 1.0, []),
        ("none", None, None, 4.0, ["yield_too_high"]),
        ("mtp", 3, 2, 8.0, []),
        ("mtp", 3, 2, 8.1, ["yield_too_high"]),
        ("mtp", None, 1, 99.0, []),
        (None, None, 1, 99.0, []),
    ],
)
def test_more_tokens_than_a_step_can_yield_are_told(report, method, drafts, batch, tokens, told):
    run = replace(
        report.run, draft_method=method, draft_tokens=drafts, batch=batch, tokens_per_step=tokens
    )
    assert codes(_about_yield(replace(report, run=run))) == told
