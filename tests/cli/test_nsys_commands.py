"""`tracebook export` and `tracebook recipe`, by a stand-in and by the real nsys."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from real_nsys import PLACE, binary, needs_nsys, needs_recipes, record

from tracebook.cli import main

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACEBOOK_NSYS", str(tmp_path / "nsys"))


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "in" / "run.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(b"\x00\x01report")
    return path


@pytest.fixture
def fake(tmp_path):
    """An nsys that does `body`; $OUT is what stands behind --output."""

    def install(body):
        path = tmp_path / "nsys"
        path.write_text(
            f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "$@" > "{tmp_path}/called"\nALL="$*"\n'
            'while [ $# -gt 0 ] && [ "$1" != --output ]; do shift; done; OUT="$2"\n' + body + "\n"
        )
        path.chmod(0o755)
        return path

    return install


def test_export_writes_where_it_is_told(fake, report, tmp_path, capsys):
    fake("printf 'SQLite format 3\\0rest' > \"$OUT\"")
    out = tmp_path / "out.sqlite"
    assert main(["export", str(report), "-o", str(out)]) == 0
    assert out.read_bytes() == b"SQLite format 3\x00rest"
    assert main(["export", str(report)]) == 0
    assert capsys.readouterr().out.strip().endswith(".sqlite")
    assert [entry.name for entry in report.parent.iterdir()] == ["run.nsys-rep"]


def test_there_is_nothing_to_export_in_an_export(fake, tmp_path, capsys):
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"SQLite format 3\x00")
    assert main(["export", str(path)]) == 2
    assert "nothing to export" in capsys.readouterr().err


GAPS = (
    'mkdir "$OUT" && echo \'{"RecipeName": "gpu_gaps"}\' > "$OUT/x.nsys-analysis"'
    ' && cp "{table}" "$OUT/analysis.parquet" && echo left > "$OUT/more.csv"'
)


@pytest.fixture
def gaps(fake, tmp_path):
    import polars as pl

    table = tmp_path / "table.parquet"
    pl.DataFrame(
        {"Row#": [1], "Duration": [5_000], "Start": [70], "PID": [4], "Device ID": [0],
         "Context ID": [1], "File": ["run"]}
    ).write_parquet(table)  # fmt: skip
    fake(GAPS.replace("{table}", str(table)))


def test_a_recipe_is_run_and_read(gaps, report, tmp_path, capsys):
    kept = tmp_path / "kept"
    args = ["recipe", "gpu_gaps", str(report), "-o", str(kept), "--format", "json"]
    assert main([*args, "--", "--gap", "1"]) == 0
    streams = capsys.readouterr()
    told = json.loads(streams.out)
    assert told["recipe"] == "gpu_gaps"
    assert told["tables"]["analysis"][0]["duration_ns"] == 5000
    assert "Left as it is: more.csv" in streams.err
    called = (tmp_path / "called").read_text().split()
    assert called[:3] == ["recipe", "gpu_gaps", "--input"]
    assert called[-2:] == ["--gap", "1"]
    # What is read later is what was kept, without nsys.
    (tmp_path / "nsys").unlink()
    assert main(["recipe", str(kept), "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "1,5000,70,4,0,1,run"
    assert [entry.name for entry in report.parent.iterdir()] == ["run.nsys-rep"]


def test_an_existing_folder_is_not_written_over(gaps, report, tmp_path, capsys):
    assert main(["recipe", "gpu_gaps", str(report), "-o", str(tmp_path / "in")]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('echo "INFO: No output generated." >&2; exit 0', "No output generated"),
        ("exit 0", "failed (exit code 0)"),
        ("echo \"ERROR: No module named 'psutil'\" >&2; exit 1", "Python package psutil"),
        ("echo \"ModuleNotFoundError: No module named 'asyncore'\" >&2; exit 1", "3.11 or older"),
        ("echo \"Cannot find '/x/nsys_recipe/third_party'\" >&2; exit 1", "third_party"),
        ('echo "ERROR: no such recipe" >&2; exit 1', "no such recipe"),
    ],
)
def test_failures_of_recipes(fake, report, capsys, body, words):
    fake(body)
    assert main(["recipe", "gpu_gaps", str(report)]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert "Hint:" in err


def test_usage_of_recipe(gaps, report, tmp_path, capsys):
    assert main(["recipe", "gpu_gaps"]) == 2
    export = tmp_path / "run.sqlite"
    export.write_bytes(b"SQLite format 3\x00")
    assert main(["recipe", "gpu_gaps", str(export)]) == 2
    assert "not its export" in capsys.readouterr().err


@needs_recipes
def test_a_real_recipe_with_nothing_to_work_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(binary()))
    monkeypatch.setenv("PATH", f"{PLACE / 'python' / 'bin'}:/usr/bin:/bin")
    recorded = record(tmp_path)
    before = {entry.name for entry in tmp_path.iterdir()}
    assert main(["recipe", "cuda_gpu_kern_sum", str(recorded)]) == 1
    assert "No output generated" in capsys.readouterr().err
    assert {entry.name for entry in tmp_path.iterdir()} == before


@needs_recipes
def test_real_recipes_on_a_saved_run(tmp_path, monkeypatch, capsys):
    """A recipe takes a fresh export that lies beside a report for its own: give it a saved run."""
    from pathlib import Path

    from tracebook.importers import open_trace
    from tracebook.nsys import run_nsys
    from tracebook.verify import verify

    nsys = binary()
    monkeypatch.setenv("TRACEBOOK_NSYS", str(nsys))
    monkeypatch.setenv("PATH", f"{PLACE / 'python' / 'bin'}:/usr/bin:/bin")
    recorded = record(tmp_path)
    saved = Path(__file__).parents[2] / "fixtures" / "mtp3" / "trace.sqlite"
    shutil.copyfile(saved, recorded.with_suffix(".sqlite"))
    for recipe, more in (("cuda_gpu_kern_sum", []), ("gpu_gaps", ["--gap", "0"])):
        folder = tmp_path / recipe
        done = run_nsys(
            nsys,
            ["recipe", recipe, "--input", str(recorded), "--output", str(folder), *more],
            timeout_s=120,
        )
        assert done.status == 0, done.stderr
    assert verify(saved, tmp_path / "cuda_gpu_kern_sum").differing.is_empty()
    assert main(["recipe", str(tmp_path / "gpu_gaps"), "--format", "json"]) == 0
    gaps = json.loads(capsys.readouterr().out)["tables"]["analysis"]
    kernels = open_trace(saved).kernels
    assert gaps[0]["duration_ns"] == max(gap["duration_ns"] for gap in gaps)
    assert 0 < gaps[0]["start_ns"] < kernels["end_ns"].max()
    same = str(tmp_path / "cuda_gpu_kern_sum")
    assert main(["recipe", "diff", same, same, "--table", "all_stats", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"]["all_stats"]
    assert {row["total_time_diff_ns"] for row in rows} == {0.0}


@needs_nsys
def test_a_real_report_is_exported(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(binary()))
    out = tmp_path / "out.sqlite"
    assert main(["export", str(record(tmp_path)), "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"SQLite format 3\x00")
