"""A trace that is larger than the memory allowed gives the same, to the nanosecond, from files."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.importers.exports import GLOBAL_PID, KERNEL, kernel, write
from tracebook import analyze
from tracebook.analysis import examine
from tracebook.cache import cache_dir
from tracebook.errors import TraceError
from tracebook.importers import folder_source, open_trace, sqlite_source
from tracebook.importers.kernel_columns import filtered
from tracebook.importers.sidecar import make_sidecar
from tracebook.importers.window import Percent
from tracebook.opening import BASE_BYTES, open_within
from tracebook.scratch import MEMORY, Scratch

FIXTURES = Path(__file__).parents[1] / "fixtures"
FIXTURE = FIXTURES / "full-recipe" / "trace.sqlite"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/trace.sqlite"))
#: The least that can be allowed: no kernel at all fits beside the program.
TIGHT = {"max_memory_bytes": BASE_BYTES}
PARTS = [
    {},
    {"device": 1},
    {"pid": 0x1235},
    {"device": 0, "pid": 0x1234},
    {"from_ns": 3_000},
    {"to_ns": 3_000},
    {"from_ns": Percent(25.0), "to_ns": Percent(75.0)},
    {"from_ns": 1_000, "to_ns": 9_000, "device": 1},
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield cache_dir() / "scratch"
    assert not list((cache_dir() / "scratch").glob("*"))


@pytest.fixture
def small_pages(monkeypatch):
    """Two threads and many pages, as in a trace of millions."""
    monkeypatch.setattr(sqlite_source, "PAGE_ROWS", 1_000)
    monkeypatch.setattr(sqlite_source, "_PARALLEL_ROWS", 1)
    monkeypatch.setattr(folder_source, "PAGE_ROWS", 1_000)


def assert_same(path, **part):
    tight, whole = open_within(path, **TIGHT, **part), open_within(path, **part)
    assert tight.scratch.in_files
    assert whole.scratch is MEMORY
    assert_frame_equal(tight.kernels, whole.kernels)
    assert_frame_equal(tight.names, whole.names)
    assert tight.info == whole.info
    assert all(chunks == 1 for chunks in tight.kernels.n_chunks("all"))


def shuffled(path, target):
    """The same kernels in another order of rows, so with other ids."""
    shutil.copyfile(path, target)
    with closing(sqlite3.connect(target)) as db:
        columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({KERNEL})"))
        rows = db.execute(f"SELECT {columns} FROM {KERNEL}").fetchall()
        random.Random(7).shuffle(rows)
        db.execute(f"DELETE FROM {KERNEL}")
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {KERNEL} ({columns}) VALUES ({marks})", rows)
        db.commit()
    return target


def mixed(rows=6_000):
    """Kernels of two devices and processes with gaps, ties, and rows that cannot be used."""
    dice = random.Random(3)
    made = []
    for number in range(rows):
        start = number + dice.choice((0, 0, -40, 700))
        made.append(
            kernel(
                start,
                start + dice.choice((-5, 0, 3, 3, 900)),
                deviceId=dice.choice((0, 0, 1, None)),
                globalPid=GLOBAL_PID + (dice.choice((0, 1)) << 24),
                streamId=dice.choice((7, 7, 8, None, "x")) if number > 3_000 else 7,
                correlationId=number // 3,
                demangledName=dice.choice((1, 4, None)),
                shortName=dice.choice((2, 5)),
                gridX=dice.choice((1, 2**40)),
                graphNodeId=dice.choice((None, number)) if number > 2_500 else None,
            )
        )
    return made


@pytest.mark.parametrize("name", NAMES)
def test_the_report_of_a_saved_run(name):
    path = FIXTURES / name / "trace.sqlite"
    assert analyze(path, **TIGHT).to_json(steps=True) == analyze(path).to_json(steps=True)


@pytest.mark.parametrize(
    "part", [{"steps": 3}, {"from_ns": Percent(30.0)}, {"to_ns": 900_000_000}, {"device": 0}]
)
def test_the_report_of_a_part(part, small_pages):
    tight, whole = examine(FIXTURE, **TIGHT, **part), examine(FIXTURE, **part)
    assert tight.trace.scratch.in_files
    assert_frame_equal(tight.labelled.steps, whole.labelled.steps)
    report = analyze(FIXTURE, **TIGHT, **part).to_json(steps=True)
    assert report == analyze(FIXTURE, **part).to_json(steps=True)


def test_rows_in_no_order_at_all(tmp_path, small_pages):
    mess = shuffled(FIXTURE, tmp_path / "trace.sqlite")
    assert_same(mess)
    steps = examine(mess, run_file=FIXTURE.with_name("run.toml"), **TIGHT).labelled.steps
    whole = examine(FIXTURE).labelled.steps
    assert steps["start_ns"].to_list() == whole["start_ns"].to_list()
    assert steps["end_ns"].to_list() == whole["end_ns"].to_list()


@pytest.mark.parametrize("part", PARTS)
def test_devices_processes_and_what_is_missing(tmp_path, small_pages, part):
    trace = write(tmp_path / "run.sqlite", kernels=mixed())
    assert_same(trace, **part)


@pytest.mark.parametrize("part", PARTS)
def test_the_same_from_an_index(tmp_path, small_pages, part, monkeypatch):
    trace = write(tmp_path / "run.sqlite", kernels=mixed())
    plain = open_trace(trace, **part)
    make_sidecar(trace)
    monkeypatch.setattr("tracebook.importers.read_trace", None)
    assert_same(trace, **part)
    assert_frame_equal(open_within(trace, **TIGHT, **part).kernels, plain.kernels)


@pytest.mark.parametrize("part", [{}, {"device": 7}, {"pid": 7}, {"from_ns": 10**9}])
@pytest.mark.parametrize("indexed", [False, True])
def test_refusals_are_the_same(tmp_path, part, indexed):
    rows = mixed() if part else [kernel(20, 10)]
    trace = write(tmp_path / "run.sqlite", kernels=rows)
    if indexed and part:
        make_sidecar(trace)
    told = []
    for limits in ({}, TIGHT):
        with pytest.raises(TraceError) as caught:
            open_within(trace, **limits, **part)
        told.append((caught.value.message, caught.value.hint))
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("part", PARTS[::3])
def test_a_directory_export(tmp_path, small_pages, kind, part):
    place = tmp_path / "run_dir"
    place.mkdir()
    trace = write(tmp_path / "run.sqlite", kernels=[r | {"streamId": 7} for r in mixed()])
    with closing(sqlite3.connect(trace)) as db:
        for table in (KERNEL, "StringIds"):
            frame = pl.read_database(f"SELECT * FROM {table}", db, infer_schema_length=None)
            save = frame.write_parquet if kind == "parquet" else frame.write_ipc
            save(place / f"{table}.{kind}")
    assert_same(place, **part)
    assert_frame_equal(open_within(place, **TIGHT).kernels, open_trace(trace).kernels)


def test_an_arrow_stream_is_only_read_whole(tmp_path):
    place = tmp_path / "run_dir"
    place.mkdir()
    columns = {name: [1] for name in ("start", "end", "deviceId", "demangledName")}
    pl.DataFrame(columns).write_ipc_stream(place / f"{KERNEL}.arrow")
    assert open_within(place).kernels.height == 1
    with pytest.raises(TraceError, match="kernels there") as caught:
        open_within(place, **TIGHT)
    assert "parquetdir" in caught.value.hint


def test_the_columns_are_the_files_themselves(cache):
    """Nothing is copied: what polars reads lies in the mapped files, or in that of the index."""
    trace = open_within(FIXTURE, **TIGHT)
    assert_mapped(trace.kernels, str(cache))
    make_sidecar(FIXTURE)
    assert_mapped(open_trace(FIXTURE).kernels, "kernels.columns")


def assert_mapped(kernels, name):
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    places = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    for column in ("kernel_id", "start_ns", "end_ns", "name_id", "grid_x"):
        at = kernels[column].to_numpy().__array_interface__["data"][0]
        assert any(first <= at < last for first, last in places), column


def test_ranks_are_taken_apart_page_by_page(tmp_path, small_pages):
    rows = [row | {"streamId": 7} for row in mixed()]
    kernels = open_within(write(tmp_path / "run.sqlite", kernels=rows), **TIGHT).kernels
    own = (pl.col("device") == 1) & pl.col("pid").eq_missing(pl.lit(0x1235))
    part = filtered(kernels, own, Scratch(cache_dir() / "scratch"))
    assert_frame_equal(part, filtered(kernels, own, MEMORY))
    assert 0 < part.height < kernels.height


def test_a_full_disk_is_told(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TraceError, match="No space left") as caught:
        analyze(FIXTURE, **TIGHT)
    assert "--max-memory" in caught.value.hint


def command(*words):
    return [sys.executable, "-m", "tracebook", "report", str(FIXTURE), "--format", "json", *words]


def test_the_command_in_a_process_of_its_own():
    tight = subprocess.run(command("--max-memory", "200MB"), capture_output=True, text=True)
    whole = subprocess.run(command(), capture_output=True, text=True)
    assert tight.returncode == 0, tight.stderr
    assert tight.stdout == whole.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_stopped_leaves_nothing(number, cache):
    for wait_s in (0.3, 0.6, 0.9):
        process = subprocess.Popen(
            command("--max-memory", "200MB"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(wait_s)
        process.send_signal(number)
        process.communicate(timeout=30)
        assert not list(cache.glob("*"))
