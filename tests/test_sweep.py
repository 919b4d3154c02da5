"""Many traces: one row each, in order, failures told and not in the way."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tracebook import analyze
from tracebook.cli import main
from tracebook.errors import TracebookError
from tracebook.render.sweep import FORMATS as TABLES
from tracebook.render.sweep import render_sweep
from tracebook.sweep import Row, expand, row_of, sweep

FIXTURES = Path(__file__).parents[1] / "fixtures"
PATHS = [FIXTURES / name / "trace.sqlite" for name in ("mtp3", "plain-nvfp4")]


@pytest.fixture
def mixed(tmp_path):
    (tmp_path / "broken.sqlite").write_bytes(b"SQLite format 3\x00")
    return [PATHS[0], tmp_path / "broken.sqlite", PATHS[1]]


@pytest.fixture(scope="module")
def alone():
    """The rows as single reports tell them."""
    return {path: analyze(path) for path in PATHS}


def check(rows, mixed, alone):
    assert [Path(row.path).name for row in rows] == [path.name for path in mixed]
    assert rows[1].error is not None
    for row, path in zip((rows[0], rows[2]), PATHS, strict=True):
        report = alone[path]
        assert (row.error, row.steps) == (None, report.steps.kept)
        assert row.step_ms == report.steps.wall_ms.median
        assert row.weight_bytes == report.total.weight_bytes
        assert row.slowest == "target_layers"


@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_are_those_of_single_reports(mixed, alone, jobs):
    check(list(sweep(mixed, {}, jobs=jobs)), mixed, alone)


def test_a_dask_cluster(mixed, alone):
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
    ):
        check(list(sweep(mixed, {}, dask=cluster.scheduler_address)), mixed, alone)


def test_no_scheduler_at_the_address():
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with pytest.raises(TracebookError, match="No Dask scheduler"):
        list(sweep(PATHS, {}, dask="nonsense://nowhere"))


def test_dask_is_not_installed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(TracebookError, match="not installed"):
        list(sweep(PATHS, {}, dask="tcp://127.0.0.1:1"))


def test_a_fault_of_the_program_is_a_row_too(monkeypatch):
    def faulty(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("tracebook.sweep.analyze", faulty)
    row = row_of(PATHS[0], {})
    assert row.error == "fault in tracebook: ZeroDivisionError: oops"


def test_a_saved_report_is_a_run_as_well(tmp_path, alone):
    saved = tmp_path / "run.json"
    alone[PATHS[0]].save(saved)
    assert row_of(saved, {}).step_ms == alone[PATHS[0]].steps.wall_ms.median


def test_patterns(tmp_path):
    for name in ("b.sqlite", "a.sqlite", "[x].sqlite"):
        (tmp_path / name).touch()
    a, b = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    assert expand([str(tmp_path / "?.sqlite")]) == [a, b]
    assert expand([str(b), str(tmp_path / "?.sqlite")]) == [b, a]
    assert expand([str(tmp_path / "[x].sqlite")]) == [tmp_path / "[x].sqlite"]
    assert expand([str(tmp_path / "none*")]) == [tmp_path / "none*"]


ROWS = [
    Row("runs/a/trace.sqlite", steps=7, step_ms=99.6, tokens_per_s=53.4,
        weight_bytes=20_830_000_000, weight_gbps=209.1, roofline_pct=76.6, slowest="target_layers"),
    Row("runs/b/trace.sqlite", error="It is truncated.", hint="Copy it again."),
    Row("runs/c|d/trace.sqlite", steps=2, step_ms=10.0),
]  # fmt: skip


def test_text_has_a_row_for_each_run_and_tells_what_failed():
    lines = render_sweep(ROWS, "text").splitlines()
    figures = ["7", "99.60", "53.4", "20.83", "209.1", "76.6"]
    assert lines[2].split() == ["a", *figures, "target", "layers"]
    assert lines[3].split() == ["c|d", "2", "10.00", "-", "-", "-", "-", "-"]
    assert lines[-1] == "Failed: runs/b/trace.sqlite: It is truncated."


def test_other_formats_hold_all_rows():
    told = json.loads(render_sweep(ROWS, "json"))["runs"]
    assert [row["step_ms"] for row in told] == [99.6, None, 10.0]
    rows = list(csv.DictReader(io.StringIO(render_sweep(ROWS, "csv"))))
    assert [row["error"] for row in rows] == ["", "It is truncated.", ""]
    assert "c\\|d" in render_sweep(ROWS, "markdown")


@pytest.mark.parametrize("format_name", TABLES)
def test_folders_of_absolute_paths_are_not_told(format_name):
    rows = [
        Row("/home/alice/a/trace.sqlite", steps=1, step_ms=1.0),
        Row("/home/alice/b/trace.sqlite", error="/home/alice/b/trace.sqlite does not exist."),
        Row("c/run.sqlite", steps=1, step_ms=1.0),
    ]
    text = render_sweep(rows, format_name)
    assert "alice" not in text
    assert "//" not in text
    assert "b/trace.sqlite does not exist" in text
    for name in ("a/trace.sqlite", "c/run.sqlite"):
        assert name in text


def test_runs_without_a_common_folder():
    text = render_sweep([Row("/a/x.sqlite", steps=1), Row("/b/x.sqlite", steps=1)], "text")
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["a", "b"]
    text = render_sweep([Row("/a/x.sqlite", steps=1), Row("/b/y.sqlite", steps=1)], "text")
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["x.sqlite", "y.sqlite"]


def test_the_command(mixed, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    paths = [str(path) for path in mixed]
    assert main(["report", *paths, "--format", "csv", "-o", str(out)]) == 1
    assert "1 of 3 traces failed" in capsys.readouterr().err
    assert len(out.read_text().splitlines()) == 4
    assert main(["report", paths[0], str(FIXTURES / "plain*" / "trace.sqlite")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == [
        "mtp3", "plain-fp8", "plain-nvfp4",
    ]  # fmt: skip


@pytest.mark.parametrize("more", [["--verify"], ["--detail", "layers"]])
def test_what_goes_with_one_trace_only(more, capsys):
    assert main(["report", *map(str, PATHS), *more]) == 2
    assert "one trace" in capsys.readouterr().err
