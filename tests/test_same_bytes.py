"""Same in, same out: whatever the threads, the hashes, the order of rows and the folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds")


def told(arguments: list[str], **variables: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "tracebook", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
    )
    return done.stdout


def shuffled(name: str, folder: Path, seed: int) -> Path:
    """A copy of a saved run whose rows lie in another order, with other rowids."""
    folder.mkdir(exist_ok=True)
    trace = folder / "trace.sqlite"
    shutil.copy(FIXTURES / name / "trace.sqlite", trace)
    text = (FIXTURES / name / "run.toml").read_text().replace('"../', f'"{FIXTURES}/')
    (folder / "run.toml").write_text(text)
    with closing(sqlite3.connect(trace)) as connection:
        for table in TABLES:
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            random.Random(seed).shuffle(rows)
            connection.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.commit()
    return trace


@pytest.mark.parametrize("name", ["full-recipe", "plain-fp8"])
def test_threads_and_hashes_do_not_show(name):
    trace = str(FIXTURES / name / "trace.sqlite")
    for command in (
        ["report", trace, "--format", "json", "--detail", "steps"],
        ["kernels", trace],
    ):
        one = told(command, POLARS_MAX_THREADS="1", PYTHONHASHSEED="1")
        two = told(command, POLARS_MAX_THREADS="2", PYTHONHASHSEED="2")
        assert one == two == told(command, PYTHONHASHSEED="3")


def test_the_order_of_rows_does_not_show(tmp_path):
    first = shuffled("full-recipe", tmp_path / "a", 1)
    second = shuffled("full-recipe", tmp_path / "b", 2)
    command = ["--format", "json", "--detail", "steps"]
    assert told(["report", str(first), *command]) == told(["report", str(second), *command])
    saved = [tmp_path / "a.json", tmp_path / "b.json"]
    for trace, path in zip((first, second), saved, strict=True):
        told(["save", str(trace), "-o", str(path)])
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_a_saved_report_names_no_folder(tmp_path, monkeypatch):
    trace = shuffled("mtp3", tmp_path / "sekret", 3)
    monkeypatch.chdir(tmp_path)
    text = told(["report", str(trace), "--format", "json"]).decode()
    assert json.loads(text)["trace"]["path"] == "trace.sqlite"
    assert "sekret" not in text
