from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

import tracebook
from tracebook.compare.record import record

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures" / "plain-fp8"


def test_steps_are_those_of_the_report():
    report = tracebook.analyze(FIXTURE / "trace.sqlite")
    run = record(FIXTURE / "trace.sqlite")
    assert run.steps == report.steps.kept
    assert run.wall_ns.mean() / 1e6 == pytest.approx(report.steps.wall_ms.mean, abs=1e-5)
    assert run.idle_ns.mean() / 1e6 == pytest.approx(report.steps.idle_ms.mean, abs=1e-5)
    for row in report.phase_rows:
        assert run.phases_ns[row.phase].mean() / 1e6 == pytest.approx(row.ms.mean, abs=1e-5)
    assert (sum(run.phases_ns.values()) + run.idle_ns == run.wall_ns).all()


def test_parts_are_the_kernels_of_the_median_step():
    report = tracebook.analyze(FIXTURE / "trace.sqlite")
    run = record(FIXTURE / "trace.sqlite")
    for row in report.phase_rows:
        parts = [part for part in run.parts if part.phase == row.phase]
        assert sum(part.kernels for part in parts) == row.kernels
        assert sum(part.ns for part in parts) / 1e6 == pytest.approx(row.ms.median, rel=0.01)


def test_a_sampled_clock_is_kept(tmp_path):
    for name in ("trace.sqlite", "run.toml"):
        shutil.copy(FIXTURE / name, tmp_path / name)
    headers = ROOT / "fixtures" / "headers"
    text = (tmp_path / "run.toml").read_text().replace("../headers", str(headers))
    (tmp_path / "run.toml").write_text(text)
    with sqlite3.connect(tmp_path / "trace.sqlite") as db:
        db.execute("create table TARGET_INFO_GPU_METRICS (typeId, metricId, metricName)")
        db.execute("insert into TARGET_INFO_GPU_METRICS values (256, 3, 'GPC Clock Frequency')")
        db.execute("create table GPU_METRICS (timestamp, typeId, metricId, value)")
        times = range(0, 20_000_000_000, 10_000_000)
        db.executemany("insert into GPU_METRICS values (?, 256, 3, 2418)", ((t,) for t in times))
    db.close()
    assert record(tmp_path / "trace.sqlite").clock == 2418.0
    assert record(FIXTURE / "trace.sqlite").clock is None
