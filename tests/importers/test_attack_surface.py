"""What a foreign SQLite file may not do: write, load, run its own definitions, leave traces."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tracebook.errors import TraceError
from tracebook.importers import open_trace
from tracebook.importers.sqlite_open import SETTINGS, connect, read_only_uri
from tracebook.importers.sqlite_source import open_sqlite

from .exports import KERNEL, kernel, write


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "run.sqlite", kernels=[kernel(100 * i, 100 * i + 50) for i in range(9)])


def test_a_connection_can_neither_write_nor_load(path):
    with closing(connect(read_only_uri(path, path))) as connection:
        assert connection.execute("PRAGMA query_only").fetchone() == (1,)
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        for statement in (
            f"DELETE FROM {KERNEL}",
            "CREATE TABLE x (y)",
            "PRAGMA user_version = 7",
            "SELECT load_extension('x')",
            "VACUUM INTO 'copy.sqlite'",
        ):
            with pytest.raises(sqlite3.Error):
                connection.execute(statement)


def test_every_connection_says_so_first(path, monkeypatch):
    """Also the driver that reads the kernel rows, which is another library."""
    import adbc_driver_manager

    said = []
    real = adbc_driver_manager.AdbcStatement.set_sql_query

    class Listening(adbc_driver_manager.AdbcStatement):
        def set_sql_query(self, query):
            said.append(query)
            return real(self, query)

    monkeypatch.setattr(adbc_driver_manager, "AdbcStatement", Listening)
    open_trace(path)
    assert tuple(said[: len(SETTINGS)]) == SETTINGS
    assert said[len(SETTINGS)].startswith("SELECT")


def test_functions_of_the_file_itself_are_not_called(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("shout", 1, lambda _: 1 / 0)
        connection.execute("CREATE VIEW META_DATA_CAPTURE AS SELECT shout(1) AS name, 2 AS value")
        connection.execute(f"CREATE TRIGGER t BEFORE INSERT ON {KERNEL} BEGIN SELECT shout(1); END")
        connection.commit()
    assert open_trace(path).kernels.height == 9


def files(path):
    return sorted(p.name for p in path.parent.iterdir())


def test_a_file_in_write_ahead_mode_is_read_without_side_files(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA user_version = 3")
    assert files(path) == ["run.sqlite"]
    before = path.read_bytes()
    assert open_trace(path).kernels.height == 9
    assert files(path) == ["run.sqlite"]
    assert path.read_bytes() == before


def test_a_log_that_is_still_being_written_is_refused_with_the_reason(path):
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}")
        writer.commit()
        before = {p: p.read_bytes() for p in path.parent.iterdir() if p.suffix != ".sqlite-shm"}
        with pytest.raises(TraceError, match="write-ahead log") as refused:
            open_trace(path)
        assert "finish" in refused.value.hint
        assert {p: p.read_bytes() for p in before} == before
    assert open_trace(path).kernels.height == 18


def test_a_writer_that_holds_the_file_is_waited_for_and_then_told(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TraceError, match="locked"):
            open_trace(path)
    assert open_trace(path).kernels.height == 9


def test_a_value_of_hundreds_of_megabytes_is_not_made(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        connection.execute("INSERT INTO META_DATA_CAPTURE VALUES ('x', zeroblob(70000000))")
        connection.commit()
    with pytest.raises(TraceError), open_sqlite(path) as source:
        source.rows("META_DATA_CAPTURE", ("name", "value"))
