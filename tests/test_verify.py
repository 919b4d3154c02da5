"""Our kernel sums against nsys's own, by the real nsys and by what it wrote."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from importers.exports import kernel, write
from real_nsys import binary, needs_nsys

from tracebook.cli import main
from tracebook.errors import TraceError
from tracebook.importers import open_trace
from tracebook.verify import compare, verify

ROOT = Path(__file__).parents[1]
FIXTURES = sorted(ROOT.glob("fixtures/*/trace.sqlite"))
SHARED = ROOT.parent / "shared" / "traces"
#: Real exports without kernels: see INDEX.md beside them.
WITHOUT = ("centerformer", "jacc", "lightgemm")
HEADER = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"


@needs_nsys
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parent.name)
def test_the_saved_runs_agree_with_nsys_stats(path, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(binary()))
    before = path.read_bytes()
    found = verify(path)
    assert found.differing.is_empty()
    assert found.totals[0] > 9000
    assert path.read_bytes() == before


@needs_nsys
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real exports are not there")
def test_the_real_exports_agree_with_nsys_stats(monkeypatch):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(binary()))
    paths = [p for p in sorted(SHARED.glob("*.sqlite")) if not p.name.startswith(WITHOUT)]
    assert len(paths) == 12
    for path in paths:
        assert verify(path).differing.is_empty(), path.name


@pytest.fixture
def trace(tmp_path):
    rows = [kernel(0, 10), kernel(20, 25), kernel(30, 33, demangledName=4, shortName=5)]
    return write(tmp_path / "run.sqlite", kernels=rows)


def csv(tmp_path, *rows):
    path = tmp_path / "sums.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_equal_sums(trace, tmp_path, capsys):
    same = csv(tmp_path, '83.3,15,2,7.5,"void gemm<float>(float*)"', "16.7,3,1,3.0,softmax(int)")
    found = verify(trace, same)
    assert found.totals == (3, 18, 3, 18)
    assert found.differing.is_empty()


def test_where_they_differ_is_said_by_name(trace, tmp_path):
    other = csv(tmp_path, '83.3,16,2,7.5,"void gemm<float>(float*)"', "16.7,3,1,3.0,relu(int)")
    rows = {row[0]: row[1:] for row in verify(trace, other).differing.iter_rows()}
    assert rows == {
        "void gemm<float>(float*)": (2, 15, 2, 16),
        "softmax(int)": (1, 3, None, None),
        "relu(int)": (None, None, 1, 3),
    }


def test_rows_that_share_a_name_are_added_up(trace):
    theirs = pl.DataFrame(
        {
            "name": ["void gemm<float>(float*)"] * 2 + ["softmax(int)"],
            "instances": [1, 1, 1],
            "total_time_ns": [10, 5, 3],
        }
    )
    assert compare(open_trace(trace), theirs, "two ranks").differing.is_empty()


def test_a_directory_export_cannot_be_verified_by_stats(tmp_path):
    frame = pl.DataFrame({"start": [1], "end": [2], "deviceId": [0], "shortName": [1]})
    frame.write_parquet(tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    with pytest.raises(TraceError, match="directory export"):
        verify(tmp_path)


def test_the_flag_tells_agreement_and_leaves_with_1_on_difference(tmp_path, capsys):
    run = str(FIXTURES[0])
    wrong = csv(tmp_path, "100,15,2,7.5,gemm")
    assert main(["report", run, "--verify-against", str(wrong)]) == 1
    streams = capsys.readouterr()
    assert "all kernels" in streams.err
    assert "are not those of" in streams.err
    assert "GB/s" in streams.out  # the report itself is there all the same
