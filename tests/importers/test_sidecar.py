"""The index of a trace: the same trace as without it, keyed by content, gone when stale."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from tracebook.cli import main
from tracebook.errors import TraceError
from tracebook.importers import open_trace, read_trace, sidecar
from tracebook.importers.window import Percent

from .exports import capture, kernel, write

FIXTURE = Path(__file__).parents[2] / "fixtures" / "full-recipe" / "trace.sqlite"
ROWS = [
    kernel(30, 40, graphNodeId=5),
    kernel(10, 20, demangledName=4, shortName=5, deviceId=1),
    kernel(9, 3),
    kernel(50, 90),
]
FACTS = capture(("PROCESS_0:COMMAND", "vllm serve org/model")) | {
    "TARGET_INFO_GPU": (["id", "name", "memoryBandwidth"], [(0, "NVIDIA L4", 300 * 10**9)]),
    "META_DATA_EXPORT": (["name", "value"], [("EXPORT_SCHEMA_VERSION", "3.24.14")]),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "in").mkdir()
    return write(tmp_path / "in" / "run.sqlite", kernels=ROWS, tables=FACTS)


@pytest.fixture
def unread(monkeypatch):
    """Fails where the trace itself is read."""

    def read(*_):
        raise AssertionError("the trace itself was read")

    return lambda: monkeypatch.setattr("tracebook.importers.read_trace", read)


def assert_same(ours, theirs):
    assert_frame_equal(ours.kernels, theirs.kernels)
    assert_frame_equal(ours.names, theirs.names)
    assert ours.info == theirs.info


def test_the_trace_from_its_index_is_the_same(trace, unread):
    whole = read_trace(trace)
    made = sidecar.make_sidecar(trace)
    unread()
    assert_same(open_trace(trace), whole)
    assert [entry.name for entry in trace.parent.iterdir()] == ["run.sqlite"]
    assert made.stat().st_mode & 0o077 == 0 or made.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "part",
    [{"device": 1}, {"pid": 0x1234}, {"from_ns": 30}, {"to_ns": 30}, {"from_ns": 10, "to_ns": 31},
     {"from_ns": Percent(25.0)}, {"to_ns": Percent(50.0)},
     {"from_ns": Percent(0), "to_ns": Percent(100)}],
)  # fmt: skip
def test_parts_are_the_same_too(trace, unread, part):
    direct = open_trace(trace, **part)
    sidecar.make_sidecar(trace)
    unread()
    indexed = open_trace(trace, **part)
    assert_frame_equal(indexed.kernels, direct.kernels)
    assert_frame_equal(indexed.names, direct.names)


@pytest.mark.parametrize("part", [{"device": 7}, {"pid": 7}, {"from_ns": 1000}])
def test_refusals_are_the_same(trace, part):
    with pytest.raises(TraceError) as direct:
        open_trace(trace, **part)
    sidecar.make_sidecar(trace)
    with pytest.raises(TraceError) as indexed:
        open_trace(trace, **part)
    assert (indexed.value.message, indexed.value.hint) == (direct.value.message, direct.value.hint)


def test_a_saved_run(unread):
    whole = read_trace(FIXTURE)
    sidecar.make_sidecar(FIXTURE)
    unread()
    assert_same(open_trace(FIXTURE), whole)


def test_a_changed_trace_has_no_index(trace):
    sidecar.make_sidecar(trace)
    trace.unlink()
    write(trace, kernels=[kernel(1, 2)], tables=FACTS)
    assert open_trace(trace).kernels.height == 1


def test_a_change_of_one_page_is_seen_though_size_and_time_stay(trace):
    before, status = sidecar.sidecar_key(trace), trace.stat()
    content = bytearray(trace.read_bytes())
    content[24:28] = b"\x00\x00\x0f\xff"  # SQLite's change counter
    trace.write_bytes(content)
    os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert sidecar.sidecar_key(trace) != before


@pytest.mark.parametrize("name", ["kernels.columns", "names.parquet", "info.json"])
@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"{}")])
def test_a_damaged_index_is_passed_over(trace, name, damage):
    damage(sidecar.make_sidecar(trace) / name)
    assert_same(open_trace(trace), read_trace(trace))


@pytest.mark.parametrize(
    "spoil",
    [
        {"rows": 10**30},
        {"rows": "3"},
        {"size": 5},
        {"columns": {}},
        {"columns": None},
        {"order": "other"},
    ],
)
def test_an_index_that_tells_wrong_things_is_passed_over(trace, spoil):
    info = sidecar.make_sidecar(trace) / "info.json"
    told = json.loads(info.read_text())
    told["kernels"] |= spoil
    info.write_text(json.dumps(told))
    assert_same(open_trace(trace), read_trace(trace))


def test_an_index_that_was_cut_is_passed_over(trace):
    """A map beyond the end of its file would end the program."""
    columns = sidecar.make_sidecar(trace) / "kernels.columns"
    os.truncate(columns, columns.stat().st_size - 1)
    assert_same(open_trace(trace), read_trace(trace))


def test_an_index_that_goes_while_it_is_open_stays_readable(trace):
    whole = read_trace(trace)
    made = sidecar.make_sidecar(trace)
    indexed = open_trace(trace)
    shutil.rmtree(made)
    assert_frame_equal(indexed.kernels, whole.kernels)


def test_a_killed_process_leaves_no_index(trace, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sidecar, "_info_text", killed)
    with pytest.raises(KeyboardInterrupt):
        sidecar.make_sidecar(trace)
    assert sidecar.find_sidecar(trace) is None


def test_two_processes_make_one(trace):
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        made = pool.map(sidecar.make_sidecar, [trace, trace])
    assert made[0] == made[1]
    assert open_trace(trace).kernels.height == 3


def test_a_directory_export_needs_none(tmp_path):
    with pytest.raises(TraceError, match="columns are there already"):
        sidecar.make_sidecar(tmp_path)


def test_the_command(trace, capsys, unread):
    assert main(["index", str(trace)]) == 0
    assert "Indexed" in capsys.readouterr().err
    unread()
    assert open_trace(trace).kernels.height == 3
