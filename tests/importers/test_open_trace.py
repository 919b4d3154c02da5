"""Schema variants, cleaning, names, selection and facts on small files made here."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tracebook.errors import TraceError
from tracebook.importers import open_trace
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA

from .exports import GLOBAL_PID, KERNEL, MIDDLE, NAMES, NEW, OLD, PID, capture, kernel, write


def codes(trace):
    return [notice.code for notice in trace.info.notices]


@pytest.mark.parametrize("columns", [OLD, MIDDLE, NEW], ids=["2021", "2024", "2026"])
def test_the_schema_is_the_declared_one_for_every_generation(tmp_path, columns):
    rows = [kernel(graphNodeId=5, graphId=3), kernel(3000, 3500)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows, columns=columns))
    assert trace.kernels.schema == pl.Schema(KERNEL_SCHEMA)
    assert trace.names.schema == pl.Schema(NAME_SCHEMA)
    assert trace.kernels["graph_node_id"].to_list() == [5, None]
    assert trace.kernels["graph_id"].to_list() == ([3, None] if columns is NEW else [None, None])
    assert trace.kernels["pid"].to_list() == [PID, PID]
    assert codes(trace) == []


def test_one_row_comes_through_value_by_value(tmp_path):
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=[kernel(5, 9, graphNodeId=2**40)]))
    assert trace.kernels.row(0, named=True) == {
        "kernel_id": 1,
        "start_ns": 5,
        "end_ns": 9,
        "device": 0,
        "pid": PID,
        "stream": 7,
        "correlation_id": 11,
        "name_id": 1,
        "grid_x": 8,
        "grid_y": 4,
        "grid_z": 1,
        "block_x": 128,
        "block_y": 1,
        "block_z": 1,
        "graph_node_id": 2**40,
        "graph_id": None,
    }
    assert trace.names.rows() == [(1, "void gemm<float>(float*)", "gemm")]


def test_missing_optional_columns_are_null(tmp_path):
    columns = ["start", "end", "deviceId", "shortName"]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=[kernel()], columns=columns))
    row = trace.kernels.row(0, named=True)
    assert {key for key, value in row.items() if value is None} == {
        "pid", "stream", "correlation_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
        "block_z", "graph_node_id", "graph_id",
    }  # fmt: skip
    assert trace.names.rows() == [(2, "gemm", "gemm")]


def test_rows_are_sorted_by_start_end_and_row(tmp_path):
    rows = [kernel(50, 60), kernel(10, 30), kernel(10, 20), kernel(10, 30), kernel(-5, 0)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels["kernel_id"].to_list() == [5, 3, 2, 4, 1]


def test_a_column_that_is_null_for_long_keeps_its_later_values(tmp_path):
    rows = [kernel(i, i + 1) for i in range(70_000)] + [kernel(80_000, 80_001, graphNodeId=9)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels["graph_node_id"].drop_nulls().to_list() == [9]


@pytest.mark.parametrize("late", [0, 70_000], ids=["first", "late"])
def test_values_of_the_wrong_type_are_counted_and_left_out(tmp_path, late):
    rows = [kernel(i, i + 1) for i in range(late)]
    rows += [
        kernel(100_000, 100_010),
        kernel("soon", 100_020),
        kernel(100_030, 2.5),
        kernel(100_040, 100_050, streamId="seven", gridX=b"\x00"),
        kernel(None, 100_060),
        kernel(100_070, None),
    ]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels.height == late + 2
    assert trace.kernels["stream"].null_count() == 1
    assert trace.kernels["grid_x"].null_count() == 1
    assert codes(trace) == ["rows_dropped", "values_dropped", "values_dropped"]
    assert trace.info.notes[0].startswith("4 kernel rows")


def test_impossible_times_are_counted_and_left_out(tmp_path):
    rows = [
        kernel(10, 20),
        kernel(20, 10),
        kernel(0, 2**63 - 1),
        kernel(-(2**63), 5),
        kernel(0, 2**51),
    ]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels["kernel_id"].to_list() == [1]
    assert [note.split(" left")[0] for note in trace.info.notes] == [
        "2 kernel rows with times that cannot be",
        "1 kernel row that end before they start",
        "1 kernel row longer than 13 days",
    ]


def test_values_beyond_32_bits_are_null_and_said(tmp_path):
    rows = [kernel(), kernel(3, 4, gridX=2**40), kernel(5, 6, deviceId=2**40)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels["grid_x"].to_list() == [None, 8]
    assert codes(trace) == ["rows_dropped", "values_dropped"]


def test_only_unusable_rows_is_a_refusal(tmp_path):
    with pytest.raises(TraceError, match="no usable kernel row"):
        open_trace(write(tmp_path / "run.sqlite", kernels=[kernel(20, 10)]))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (NAMES, ("void gemm<float>(float*)", "gemm")),
        ({2: "gemm", 3: "_Z4gemmPf"}, ("gemm", "gemm")),
        ({3: "_Z4gemmPf"}, ("_Z4gemmPf", "_Z4gemmPf")),
        ({1: None, 2: None, 3: None}, ("unknown-name-1", "unknown-name-1")),
        ({}, ("unknown-name-1", "unknown-name-1")),
        (None, ("unknown-name-1", "unknown-name-1")),
    ],
)
def test_names_fall_back_from_full_to_short_to_mangled_to_id(tmp_path, names, expected):
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=[kernel()], names=names))
    assert trace.names.rows() == [(1, *expected)]
    assert ("names_unknown" in codes(trace)) == expected[0].startswith("unknown")


def test_only_names_that_kernels_bear_are_read(tmp_path):
    rows = [kernel(), kernel(5, 6, demangledName=4, shortName=5), kernel(7, 8)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.names["name"].to_list() == ["void gemm<float>(float*)", "softmax(int)"]


def test_many_names_are_all_found(tmp_path):
    names = {i: f"kernel_{i}" for i in range(1, 2001)}
    rows = [kernel(i, i + 1, demangledName=i, shortName=i) for i in range(1, 2001)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows, names=names))
    assert dict(trace.names.select("name_id", "name").rows()) == names


def test_control_characters_in_names_do_not_reach_a_terminal(tmp_path):
    names = NAMES | {1: "gemm\x1b[31m\n\u202ered", 2: "gemm\x07"}
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=[kernel()], names=names))
    assert trace.names.rows() == [(1, "gemm\ufffd[31m\ufffd\ufffdred", "gemm\ufffd")]
    assert codes(trace) == ["names_unprintable"]


def test_a_name_of_a_megabyte_and_bytes_that_are_not_utf8(tmp_path):
    path = write(tmp_path / "run.sqlite", kernels=[kernel()], names={2: "x" * 1_000_000})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO StringIds VALUES (1, CAST(x'67ff6d' AS TEXT))")
        connection.commit()
    trace = open_trace(path)
    assert trace.names["name"].to_list() == ["g\ufffdm"]
    assert trace.names["short_name"].str.len_chars().to_list() == [10_000]
    assert [n.code for n in trace.info.notices] == ["names_shortened"]


def test_text_that_is_not_utf8_in_other_tables_does_no_harm(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables={"EXPORT_META_DATA": (["name", "value"], [("EXPORT_SCHEMA_VERSION", "2.9.1")])},
        script="INSERT INTO EXPORT_META_DATA VALUES ('USER', CAST(x'ff41' AS TEXT));"
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);"
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('X', CAST(x'ff41' AS TEXT));",
    )
    assert open_trace(path).info.schema_version == "2.9.1"


@pytest.mark.parametrize(
    "name", ["a b.sqlite", "a#b.sqlite", "a?b.sqlite", "a%20b.sqlite", "ü-日本.sqlite", "a'b\".db"]
)
def test_any_file_name_is_opened_and_nothing_made_beside_it(tmp_path, name):
    path = write(tmp_path / name, kernels=[kernel()])
    before = hashlib.sha256(path.read_bytes()).digest()
    assert open_trace(path).kernels.height == 1
    assert open_trace(str(path)).info.path == path
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_a_read_only_file_in_a_read_only_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = write(folder / "run.sqlite", kernels=[kernel()])
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        assert open_trace(path).kernels.height == 1
    finally:
        folder.chmod(0o700)


def test_device_and_process_select_rows(tmp_path):
    other = (1 << 48) | (77 << 24)
    rows = [kernel(), kernel(3, 4, deviceId=1), kernel(5, 6, globalPid=other, demangledName=4)]
    path = write(tmp_path / "run.sqlite", kernels=rows)
    assert open_trace(path, device=1).kernels["kernel_id"].to_list() == [2]
    only = open_trace(path, pid=77)
    assert only.kernels["kernel_id"].to_list() == [3]
    assert only.names["name_id"].to_list() == [4]
    with pytest.raises(TraceError) as caught:
        open_trace(path, device=2)
    assert "0, 1" in caught.value.hint
    with pytest.raises(TraceError) as caught:
        open_trace(path, pid=1)
    assert f"77, {PID}" in caught.value.hint


def test_a_window_keeps_what_starts_in_it(tmp_path):
    path = write(tmp_path / "run.sqlite", kernels=[kernel(t, t + 15) for t in (0, 10, 20, 30)])
    assert open_trace(path, from_ns=10, to_ns=30).kernels["start_ns"].to_list() == [10, 20]
    assert open_trace(path, from_ns=20).kernels["start_ns"].to_list() == [20, 30]
    whole = open_trace(path)
    pushed = open_trace(path, from_ns=-5, to_ns=1000)
    assert_frame_equal(whole.kernels, pushed.kernels)
    with pytest.raises(TraceError) as caught:
        open_trace(path, from_ns=2**40)
    assert "0.000 s" in caught.value.hint


def test_a_window_without_graph_kernels_in_a_node_capture_is_not_graph_level(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel(0, 1), kernel(10, 11, graphNodeId=4)],
        names=NAMES | {9: "cudaGraphLaunch_v10000"},
        tables={"CUPTI_ACTIVITY_KIND_RUNTIME": (["start", "nameId"], [(1, 9)])},
    )
    assert open_trace(path, to_ns=5).kernels.height == 1
    assert open_trace(path).info.capture_mode == "node"


def test_an_index_of_another_tool_is_not_trusted(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel(30, 40), kernel(10, 20)],
        script=f"CREATE INDEX _other_start ON {KERNEL}(start);",
    )
    trace = open_trace(path, from_ns=0, to_ns=100)
    assert trace.kernels["kernel_id"].to_list() == [2, 1]


def test_facts_come_from_the_small_tables(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables=capture(
            ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node"),
            ("PROCESS_0:COMMAND", "vllm"),
            ("PROCESS_0:ARGUMENT_0", "serve"),
            ("PROCESS_0:ARGUMENT_1", "org/model-27B"),
        )
        | {
            "META_DATA_EXPORT": (
                ["name", "value"],
                [
                    ("EXPORT_PRODUCT_VERSION", "2026.1.1.204"),
                    ("EXPORT_SCHEMA_VERSION", "3.24.14"),
                    ("TRACEBOOK_SYNTHETIC", "true"),
                ],
            ),
            "TARGET_INFO_GPU": (
                ["id", "name", "memoryBandwidth", "smCount"],
                [(1, "B", 0, 0), (0, "NVIDIA GB10", 546112000000, 48)],
            ),
        },
    )
    info = open_trace(path).info
    assert (info.nsys_version, info.schema_version) == ("2026.1.1.204", "3.24.14")
    assert (info.capture_mode, info.synthetic) == ("node", True)
    assert info.model_hint == "org/model-27B"
    first, second = info.gpus
    assert (first.device, first.bandwidth_gbps, first.sm_count) == (0, 546.112, 48)
    assert (second.device, second.bandwidth_gbps, second.sm_count) == (1, None, None)


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"])
def test_a_synthetic_trace_says_so_in_any_of_three_tables(tmp_path, table):
    def synthetic(value):
        path = tmp_path / f"{value}.sqlite"
        rows = [("TRACEBOOK_SYNTHETIC", value)]
        write(path, kernels=[kernel()], tables={table: (["name", "value"], rows)})
        return open_trace(path).info.synthetic

    assert synthetic("true")
    assert not synthetic("false")


def test_what_the_profiler_said_about_lost_events_is_counted_without_its_words(tmp_path):
    texts = [
        "Not all CUDA events might have been collected.",
        "Not all CUDA events might have been collected.",
        "Process was launched by the profiler, see /secret/path",
        "No NVTX events collected. Does the process use NVTX?",
    ]
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables={"DIAGNOSTIC_EVENT": (["text"], [(text,) for text in texts])},
    )
    notices = open_trace(path).info.notices
    assert [notice.code for notice in notices] == ["events_lost"]
    assert "2 times" in notices[0].message


def test_secrets_of_the_capture_appear_nowhere(tmp_path):
    secret = "s3cr3t-token"
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables=capture(
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f"TOKEN={secret}"),
            ("PROCESS_0:USER_NAME", secret),
            ("PROCESS_0:COMMAND", "vllm"),
            ("PROCESS_0:ARGUMENT_0", "serve"),
            ("PROCESS_0:ARGUMENT_1", "org/model"),
            ("PROCESS_0:ARGUMENT_2", "--api-key"),
            ("PROCESS_0:ARGUMENT_3", secret),
        )
        | {"TARGET_INFO_SYSTEM_ENV": (["name", "value"], [("DeviceEnvironment", secret)])},
    )
    assert secret not in repr(open_trace(path))


def test_process_ids_are_the_middle_of_the_global_id(tmp_path):
    assert GLOBAL_PID >> 48 == 1
    negative = -(2**63) | (5 << 24) | 3
    rows = [kernel(0, 1, globalPid=negative), kernel(2, 3, globalPid=None)]
    trace = open_trace(write(tmp_path / "run.sqlite", kernels=rows))
    assert trace.kernels["pid"].to_list() == [5, None]
