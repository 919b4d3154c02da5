"""Broken and hostile files: a right result or a TracebookError, never another exception."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import polars as pl
import pytest

from tracebook.errors import TracebookError
from tracebook.importers import open_trace, sqlite_source
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA

from .exports import KERNEL, MIDDLE, NAMES, RUNTIME, capture, kernel, write

PAGE = 1024


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A sound export of small pages, so that there are many kinds of them."""
    folder = tmp_path_factory.mktemp("sound")
    path = folder / "run.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        connection.commit()
    write(
        path,
        kernels=[kernel(10 * i, 10 * i + 5, demangledName=1 + i % 40) for i in range(600)],
        names={i: f"kernel_{i}" * 5 for i in range(1, 60)} | {2: "gemm"},
        tables=capture(("PROCESS_0:COMMAND", "vllm"))
        | {
            RUNTIME: (["start", "nameId"], [(i, 50) for i in range(200)]),
            "DIAGNOSTIC_EVENT": (["text"], [("Not all CUDA events",)] * 20),
            "TARGET_INFO_GPU": (["id", "name"], [(0, "NVIDIA L4")]),
        },
    )
    return path.read_bytes()


def outcome(path, **selection):
    """The trace, checked against what it promises, or the refusal."""
    try:
        trace = open_trace(path, **selection)
    except TracebookError as error:
        assert error.message
        return error
    kernels = trace.kernels
    assert kernels.schema == pl.Schema(KERNEL_SCHEMA)
    assert trace.names.schema == pl.Schema(NAME_SCHEMA)
    assert kernels.height > 0
    assert kernels["kernel_id"].n_unique() == kernels.height
    assert (kernels["end_ns"] >= kernels["start_ns"]).all()
    assert kernels.sort("start_ns", "end_ns", "kernel_id").equals(kernels)
    assert set(kernels["name_id"]) == set(trace.names["name_id"])
    assert kernels.select("start_ns", "end_ns", "device", "name_id").null_count().row(0) == (0,) * 4
    return trace


def test_the_sound_file_is_read(sound, tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_bytes(sound)
    assert outcome(path).kernels.height == 600


@pytest.mark.parametrize("seed", range(60))
def test_pages_overwritten(sound, tmp_path, seed):
    dice = random.Random(seed)
    content = bytearray(sound)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(content) // PAGE) * PAGE
        other = dice.randrange(len(content) // PAGE) * PAGE
        fill = dice.choice([dice.randbytes(PAGE), bytes(PAGE), sound[other : other + PAGE]])
        content[at : at + PAGE] = fill
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    outcome(path)
    outcome(path, from_ns=100, to_ns=5000)


@pytest.mark.parametrize("seed", range(60))
def test_bytes_changed(sound, tmp_path, seed):
    dice = random.Random(seed)
    content = bytearray(sound)
    for _ in range(dice.choice([1, 10, 300])):
        content[dice.randrange(len(content))] = dice.randrange(256)
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    outcome(path)


def test_cut_at_every_page_and_between(sound, tmp_path):
    path = tmp_path / "run.sqlite"
    for length in [*range(1, 120, 7), *range(PAGE, len(sound), 5 * PAGE), len(sound) - 1]:
        path.write_bytes(sound[:length])
        assert isinstance(outcome(path), TracebookError), length


def test_a_tree_that_claims_rows_without_end(sound, tmp_path):
    """Interior pages whose children are all the same: the file has no room for its rows."""
    content = bytearray(sound)
    for at in range(PAGE, len(content), PAGE):
        cells = int.from_bytes(content[at + 3 : at + 5], "big")
        if content[at] == 5 and cells > 1:
            first = int.from_bytes(content[at + 12 : at + 14], "big")
            child = content[at + first : at + first + 4]
            for cell in range(cells):
                place = int.from_bytes(content[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
                content[at + place : at + place + 4] = child
            content[at + 8 : at + 12] = child
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    assert isinstance(outcome(path), TracebookError)


VALUES = [None, 0, -1, 2**63 - 1, -(2**63), 2**31, 1.5, 1e300, "text", "", b"\xff\x00", "7"]


@pytest.mark.parametrize("column", MIDDLE)
def test_any_value_in_any_column(tmp_path, column, monkeypatch):
    rows = [kernel(100, 200)] + [
        kernel(1000 * i, 1000 * i + 5) | {column: value} for i, value in enumerate(VALUES)
    ]
    path = write(tmp_path / "run.sqlite", kernels=rows)
    trace = outcome(path)
    assert 1 in trace.kernels["kernel_id"]
    monkeypatch.setattr(sqlite_source, "_BATCH_ROWS", 64)
    late = write(tmp_path / "late.sqlite", kernels=[kernel(i, i) for i in range(-100, 0)] + rows)
    assert outcome(late).kernels.height == trace.kernels.height + 100


@pytest.mark.parametrize("value", VALUES[2:])
def test_any_value_in_the_string_table(tmp_path, value):
    path = write(tmp_path / "run.sqlite", kernels=[kernel()], names=None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id, value)")
        connection.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, value), (value, "x"), (2, value), (1, "y")]
        )
        connection.commit()
    assert outcome(path).kernels.height == 1


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("table", ["META_DATA_CAPTURE", "META_DATA_EXPORT", "TARGET_INFO_GPU"])
def test_any_value_in_the_small_tables(tmp_path, table, value):
    columns = ["id", "name", "memoryBandwidth", "smCount", "value"]
    path = write(tmp_path / "run.sqlite", kernels=[kernel()], tables={table: (columns, [])})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        for at in range(5):
            row = [0, "PROCESS_0:COMMAND", 1, 1, "vllm serve a/b"]
            row[at] = value
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", row)
        connection.commit()
    assert outcome(path).kernels.height == 1


@pytest.mark.parametrize(
    "script",
    [
        f"CREATE VIRTUAL TABLE {KERNEL} USING fts4(start, end, deviceId, shortName)",
        f"CREATE TABLE {KERNEL} (start PRIMARY KEY, end, deviceId, shortName) WITHOUT ROWID;"
        f"INSERT INTO {KERNEL} VALUES (1, 2, 0, 1)",
        f"CREATE TABLE {KERNEL} (rowid TEXT, start, end, deviceId, shortName);"
        f"INSERT INTO {KERNEL} VALUES ('x', 1, 2, 0, 1), ('x', 1, 2, 0, 1)",
        f"CREATE TABLE {KERNEL} (start, end, deviceId, shortName AS (load_extension('x')));"
        f"INSERT INTO {KERNEL} VALUES (1, 2, 0)",
        f"CREATE VIEW StringIds AS SELECT 1 AS id, 'x' AS value;"
        f"CREATE TABLE {KERNEL} (start, end, deviceId, shortName);"
        f"INSERT INTO {KERNEL} VALUES (1, 2, 0, 1)",
        f"CREATE TABLE {KERNEL} (start, end, deviceId, shortName);"
        f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN DELETE FROM {KERNEL}; END;",
        f'CREATE TABLE "a""b" (x); CREATE TABLE "" (""); CREATE TABLE {KERNEL} ("start", x)',
    ],
    ids=["virtual", "no rowid", "own rowid", "generated", "view", "trigger", "odd names"],
)
def test_tables_that_are_no_plain_tables(tmp_path, script):
    path = write(tmp_path / "run.sqlite", names=None)
    with closing(sqlite3.connect(path)) as connection:
        try:
            connection.executescript(script)
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite cannot make it: {error}")
        connection.commit()
    outcome(path)


def test_a_very_long_name_of_odd_letters(tmp_path):
    name = "\x1b]0;title\x07" * 100_000
    path = write(tmp_path / "run.sqlite", kernels=[kernel()], names=NAMES | {1: name})
    assert "\x1b" not in outcome(path).names["name"][0]
