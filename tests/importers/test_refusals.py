"""What is no usable trace: each has its own sentence, a hint and exit code 1."""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing

import pytest

from tracebook.errors import CaptureIncomplete, MissingTable, NotATrace, TraceError
from tracebook.importers import open_trace

from .exports import KERNEL, MIDDLE, NAMES, RUNTIME, capture, kernel, write

MARK = {"TARGET_INFO_GPU": (["id", "name"], [(0, "NVIDIA L4")])}
LAUNCH = {RUNTIME: (["start", "nameId"], [(1, 9)])}
LAUNCH_NAMES = NAMES | {9: "cudaGraphLaunch_v10000"}
GRAPHS = {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (["start", "end"], [(1, 2)])}


def refusal(path, kind, **arguments):
    with pytest.raises(kind) as caught:
        open_trace(path, **arguments)
    assert str(path) in caught.value.message
    assert caught.value.message.endswith(".")
    assert caught.value.hint
    assert caught.value.exit_code == 1
    return caught.value


def test_missing(tmp_path):
    path = tmp_path / "none.sqlite"
    assert "does not exist" in refusal(path, TraceError).message
    assert not path.exists()


def test_directory(tmp_path):
    assert "directory without an nsys table" in refusal(tmp_path, NotATrace).message
    (tmp_path / "run.nsys-rep").touch()
    assert "run.nsys-rep" in refusal(tmp_path, NotATrace).hint


def test_a_path_through_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    refusal(path / "run.sqlite", TraceError)


def test_a_symlink_loop(tmp_path):
    path = tmp_path / "loop.sqlite"
    path.symlink_to(path)
    refusal(path, TraceError)


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "pipe.sqlite"
    os.mkfifo(path)
    assert "regular file" in refusal(path, NotATrace).message


def test_side_files_are_looked_for_beside_the_real_file(tmp_path):
    real = write(tmp_path / "real.sqlite", kernels=[kernel()])
    link = tmp_path / "elsewhere" / "run.sqlite"
    link.parent.mkdir()
    link.symlink_to(real)
    assert open_trace(link).kernels.height == 1
    (tmp_path / "real.sqlite-wal").write_bytes(b"rows")
    assert "write-ahead log" in refusal(link, TraceError).message


def test_empty(tmp_path):
    path = tmp_path / "run.sqlite"
    path.touch()
    assert "is empty" in refusal(path, NotATrace).message


@pytest.mark.parametrize("text", ["Time (%),Total\n1,2\n", "größer\n" * 1000, "{}", "\n"])
def test_text(tmp_path, text):
    path = tmp_path / "run.sqlite"
    path.write_text(text, encoding="utf-8")
    assert "text file" in refusal(path, NotATrace).message


def test_lfs_pointer(tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    error = refusal(path, NotATrace)
    assert "LFS" in error.message
    assert "git lfs pull" in error.hint


def test_compressed(tmp_path):
    path = tmp_path / "run.sqlite.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3"))
    assert "gzip" in refusal(path, NotATrace).message


def test_other_bytes(tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_bytes(bytes(range(256)) * 20)
    assert "neither" in refusal(path, NotATrace).message


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable(tmp_path):
    path = write(tmp_path / "run.sqlite", kernels=[kernel()])
    path.chmod(0)
    assert "permission" in refusal(path, TraceError).message


def test_unreadable_by_any_user(tmp_path, monkeypatch):
    path = write(tmp_path / "run.sqlite", kernels=[kernel()])

    def deny(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", deny)
    assert "permission denied" in refusal(path, TraceError).message


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_truncated(tmp_path, share):
    rows = [kernel(i, i + 1) for i in range(2000)]
    path = write(tmp_path / "run.sqlite", kernels=rows)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "truncated" in refusal(path, TraceError).message


def test_only_the_header(tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"SQLite format 3\x00")
    assert "truncated" in refusal(path, TraceError).message


def test_another_program_s_database(tmp_path):
    path = write(tmp_path / "x.sqlite", names=None, tables={"people": (["name"], [("a",)])})
    assert "some other SQLite database" in refusal(path, NotATrace).message


def test_a_database_without_tables(tmp_path):
    path = write(tmp_path / "x.sqlite", names=None, script="PRAGMA user_version = 1;")
    assert "without tables" in refusal(path, NotATrace).message


@pytest.mark.parametrize("name", ["dlprof_dldb.sqlite", "renamed.sqlite"])
def test_dlprof(tmp_path, name):
    path = write(
        tmp_path / name, script="CREATE VIEW view_op_nodes AS SELECT id, value FROM StringIds;"
    )
    assert "DLProf" in refusal(path, NotATrace).message


def test_columns_that_dlprof_added_to_an_nsys_export_do_no_harm(tmp_path):
    columns = [*MIDDLE, "kernel_name", "long_kernel_name"]
    path = write(tmp_path / "nsys_profile.sqlite", kernels=[kernel()], columns=columns)
    assert open_trace(path).kernels.height == 1


def test_no_kernel_table_and_no_cuda_calls(tmp_path):
    message = refusal(write(tmp_path / "x.sqlite", tables=MARK), MissingTable).message
    assert "no kernel table" in message
    assert "CUDA was not traced" in message


def test_no_kernel_table_but_cuda_calls(tmp_path):
    tables = MARK | {RUNTIME: (["start", "nameId"], [(1, 1)])}
    message = refusal(write(tmp_path / "x.sqlite", tables=tables), MissingTable).message
    assert "no kernel table" in message
    assert "RUNTIME has rows" in message


def test_a_kernel_table_without_rows(tmp_path):
    message = refusal(write(tmp_path / "x.sqlite", kernels=[]), MissingTable).message
    assert "without rows" in message


@pytest.mark.parametrize("column", ["start", "end", "deviceId"])
def test_a_kernel_table_without_a_needed_column(tmp_path, column):
    columns = [c for c in MIDDLE if c != column]
    path = write(tmp_path / "x.sqlite", kernels=[kernel()], columns=columns)
    assert f"lacks {column}" in refusal(path, MissingTable).message


def test_a_kernel_table_without_names(tmp_path):
    columns = [c for c in MIDDLE if not c.endswith("Name")]
    path = write(tmp_path / "x.sqlite", kernels=[kernel()], columns=columns)
    assert "demangledName" in refusal(path, MissingTable).message


def test_a_kernel_table_that_is_a_view(tmp_path):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    path = write(tmp_path / "x.sqlite", tables=MARK, script=f"CREATE VIEW {KERNEL} AS {endless};")
    assert "view" in refusal(path, NotATrace).message


@pytest.mark.parametrize(
    ("kernels", "tables"),
    [
        (None, LAUNCH),
        (None, GRAPHS),
        ([], GRAPHS),
        ([kernel()], LAUNCH),
        ([kernel()], GRAPHS),
        ([kernel(graphNodeId=1)], GRAPHS | capture(("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph"))),
    ],
    ids=["calls", "graphs", "empty", "eager+calls", "eager+graphs", "says graph"],
)
def test_graph_level(tmp_path, kernels, tables):
    path = write(tmp_path / "x.sqlite", kernels=kernels, names=LAUNCH_NAMES, tables=tables)
    error = refusal(path, CaptureIncomplete)
    assert "graph level" in error.message
    assert "--cuda-graph-trace=node" in error.hint


def test_graph_mode_without_graphs_is_fine(tmp_path):
    tables = capture(("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph"))
    path = write(tmp_path / "x.sqlite", kernels=[kernel()], tables=tables)
    assert open_trace(path).info.capture_mode == "graph"


def test_graph_launches_with_node_rows_are_fine(tmp_path):
    path = write(
        tmp_path / "x.sqlite", kernels=[kernel(graphNodeId=8)], names=LAUNCH_NAMES, tables=LAUNCH
    )
    assert open_trace(path).info.capture_mode == "node"


def test_a_live_write_ahead_log_is_refused(tmp_path):
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute(f"INSERT INTO {KERNEL} (start) VALUES (1)")
        writer.commit()
        assert "write-ahead log" in refusal(path, TraceError).message


def test_write_ahead_mode_after_the_writer_closed_reads_without_side_files(tmp_path):
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
    assert open_trace(path).kernels.height == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.sqlite"]


def test_a_rollback_journal_is_refused(tmp_path):
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    (tmp_path / "x.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9 journal")
    assert "rollback journal" in refusal(path, TraceError).message


def test_a_locked_file_is_refused(tmp_path):
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert "locked" in refusal(path, TraceError).message


def test_a_raw_stream(tmp_path):
    path = tmp_path / "run.qdstrm"
    path.write_bytes(b"U3w[END]NVIDIA Nsight Systems Stream 2023.4.4.54-234433681190v0!\x00\x01")
    assert "raw stream" in refusal(path, NotATrace).message
