"""What nsys itself worked out, as typed frames: stats CSV files and recipe folders."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tracebook.errors import MissingTable, NotATrace, TraceError
from tracebook.importers.nsys_results import kernel_sums, read_recipe, read_stats_csv

SHARED = Path(__file__).parents[3] / "shared" / "traces" / "csv"
KERN_SUM = {
    "Time": [75.0, 25.0],
    "Total Time": [30, 10],
    "Instances": [3, 1],
    "Avg": [10.0, 10.0],
    "Q1": [9.0, 10.0],
    "Med": [10.0, 10.0],
    "Q3": [11.0, 10.0],
    "Min": [8, 10],
    "Max": [12, 10],
    "StdDev": [2.0, None],
    "Min File": ["a", "a"],
    "Max File": ["a", "a"],
    "Name": ["gemm", "softmax\x1b"],
}


@pytest.fixture
def folder(tmp_path):
    def make(recipe, tables, analysis=None):
        place = tmp_path / "out"
        place.mkdir()
        told = {"RecipeName": recipe} if analysis is None else analysis
        (place / "out.nsys-analysis").write_text(json.dumps(told))
        for name, columns in tables.items():
            pl.DataFrame(columns).write_parquet(place / f"{name}.parquet")
        return place

    return make


def test_kernel_sums_of_the_recipe(folder):
    place = folder("cuda_gpu_kern_sum", {"all_stats": KERN_SUM})
    (place / "all_stats.csv").write_text("the same rows")
    (place / "mine.parquet").write_bytes(b"never read")
    result = read_recipe(place)
    table = result.tables["all_stats"]
    assert table.schema["total_time_ns"] == pl.Int64
    assert table["total_time_ns"].to_list() == [30, 10]
    assert table["stddev_ns"].to_list() == [2.0, None]
    assert table["name"].to_list() == ["gemm", "softmax\ufffd"]
    assert [path.name for path in result.left] == ["mine.parquet"]
    assert kernel_sums(place).rows() == [("gemm", 3, 30), ("softmax\ufffd", 1, 10)]


def test_pacing_becomes_one_row_for_each_report_and_iteration(folder):
    wide = {"0": [5.0, 7.0, 9.0], "1": [6.0, 8.0, None]}
    tables = {
        f"pace_{name}": wide
        for name in ("start", "end", "duration", "delta", "duration_accum", "delta_accum")
    }
    tables["files"] = {"File": ["first", "second"]}
    tables["pace_delta_stats"] = {"Min": [1]}
    result = read_recipe(folder("cuda_gpu_kern_pace", tables))
    pace = result.tables["pace"]
    assert pace.select("file", "iteration", "start_ns").rows() == [
        ("first", 0, 5), ("first", 1, 7), ("first", 2, 9), ("second", 0, 6), ("second", 1, 8),
    ]  # fmt: skip
    assert [path.name for path in result.left] == ["pace_delta_stats.parquet"]


def test_gaps_keep_their_unit_in_the_name(folder):
    columns = {
        "Row#": [1], "Duration": [104993800], "Start": [157524126], "PID": [4711],
        "Device ID": [0], "Context ID": [1], "File": ["run"],
    }  # fmt: skip
    table = read_recipe(folder("gpu_gaps", {"analysis": columns})).tables["analysis"]
    assert table.row(0, named=True)["duration_ns"] == 104993800


def test_columns_of_a_newer_nsys_are_named_and_left(folder):
    result = read_recipe(folder("cuda_gpu_kern_sum", {"all_stats": KERN_SUM | {"Energy": [1, 2]}}))
    assert "Energy" in result.notices[0].message
    assert "Energy" not in result.tables["all_stats"].columns


def test_a_column_that_is_gone_is_an_error_with_its_name(folder):
    fewer = {name: values for name, values in KERN_SUM.items() if name != "Total Time"}
    with pytest.raises(TraceError, match="Total Time"):
        read_recipe(folder("cuda_gpu_kern_sum", {"all_stats": fewer}))


def test_a_diff_names_no_recipe_but_the_folders(folder):
    columns = {name: values for name, values in KERN_SUM.items() if "File" not in name}
    place = folder(None, {"all_stats": columns}, analysis={"DiffDirs": ["a", "b"]})
    result = read_recipe(place)
    assert result.recipe == "diff"
    assert result.tables["all_stats"]["total_time_diff_ns"].to_list() == [30.0, 10.0]


def test_other_recipes_are_listed_and_left(folder):
    result = read_recipe(folder("mpi_sum", {"stats": {"a": [1]}}))
    assert result.tables == {}
    assert [path.name for path in result.left] == ["stats.parquet"]
    with pytest.raises(MissingTable):
        kernel_sums(result.folder)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(NotATrace):
        read_recipe(tmp_path)
    (tmp_path / "x.nsys-analysis").write_text("{")
    with pytest.raises(TraceError):
        read_recipe(tmp_path)


def test_a_damaged_table(folder):
    place = folder("gpu_gaps", {})
    (place / "analysis.parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceError, match="damaged"):
        read_recipe(place)


@pytest.mark.parametrize(
    ("unit", "factor"), [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)]
)
def test_stats_times_come_in_ns_whatever_the_unit_of_the_file(tmp_path, unit, factor):
    path = tmp_path / "sums.csv"
    path.write_text(
        "Processing [run.sqlite] with [report]...\n\n"
        f"Time (%),Total Time ({unit}),Instances,Avg ({unit}),Name\n60.0,30,2,15.0,gemm\n\n"
    )
    table = read_stats_csv(path)
    assert table["total_time_ns"].to_list() == [30 * factor]
    assert table["avg_ns"].to_list() == [15.0 * factor]
    assert table["instances"].to_list() == [2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "Time (%),Total Time (fortnight),Instances,Name\n1,2,3,x\n",
        "Time (%),Name\n1,x\n",
    ],
)
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "sums.csv"
    path.write_text(text)
    with pytest.raises(NotATrace):
        read_stats_csv(path)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real exports are not there")
@pytest.mark.parametrize(
    ("name", "names", "total_ms"),
    [("c64-post521-decode", 56, 2138.4), ("c65-post534-decode", 56, 2137.0),
     ("decode-phase6-pre", 66, 65770), ("decode-phase6-post", 66, 90930)],
)  # fmt: skip
def test_real_stats_files(name, names, total_ms):
    table = read_stats_csv(SHARED / f"kiln-{name}_cuda_gpu_kern_sum.csv")
    assert table.height == names
    digit = 10 if total_ms > 9999 else 0.1
    assert table["total_time_ns"].sum() / 1e6 == pytest.approx(total_ms, abs=digit / 2)
