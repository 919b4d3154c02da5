"""A slim trace has the figures of the original and nothing else of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from planted import MARK, plant

from tracebook.analysis import analyze
from tracebook.cli import main
from tracebook.importers import open_trace
from tracebook.trim import figures, trim

FIXTURES = Path(__file__).parents[1] / "fixtures"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def query(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("name", ["full-recipe", "mtp3", "plain-fp8"])
@pytest.mark.parametrize("steps", [None, 2])
def test_its_report_has_the_figures_of_the_original(name, steps, tmp_path):
    trace, slim = FIXTURES / name / "trace.sqlite", tmp_path / "slim.sqlite"
    made = trim(trace, slim, steps=steps)
    run = {"run_file": trace.with_name("run.toml")}
    asked = {"steps": steps} if made.found > made.steps else {}
    was, now = analyze(trace, steps=steps, **run), analyze(slim, **asked, **run)
    assert now.steps.kept == was.steps.kept == made.steps
    assert figures(now) == figures(was)
    assert now.trace.synthetic
    assert "trimmed" in {warning.code for warning in now.warnings}
    assert slim.stat().st_size < trace.stat().st_size


def test_only_what_is_read_is_in_it(tmp_path):
    trace, slim = FIXTURES / "full-recipe" / "trace.sqlite", tmp_path / "slim.sqlite"
    trim(trace, slim, steps=2)
    columns = {row[1] for row in query(slim, f"PRAGMA table_info({KERNEL})")}
    assert not columns & {"contextId", "registersPerThread", "globalVid", "launchType"}
    texts = {text for (text,) in query(slim, "SELECT value FROM StringIds")}
    known = {text for (text,) in query(trace, "SELECT value FROM StringIds")}
    assert texts < known
    used = query(
        slim,
        f"SELECT count(DISTINCT id) FROM StringIds WHERE id IN (SELECT demangledName FROM {KERNEL} "
        f"UNION SELECT shortName FROM {KERNEL} UNION SELECT mangledName FROM {KERNEL} "
        "UNION SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME)",
    )
    assert used == [(len(texts),)]
    assert query(slim, "PRAGMA freelist_count") == [(0,)]
    ids = "SELECT rowid, start, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert set(query(slim, ids)) < set(query(trace, ids))


def test_the_command_line_is_kept_only_where_asked(tmp_path):
    trace = plant(tmp_path)
    slim, told = tmp_path / "slim.sqlite", tmp_path / "told.sqlite"
    assert main(["trim", str(trace), "-o", str(slim)]) == 0
    assert MARK.encode() not in slim.read_bytes()
    assert open_trace(slim).info.model_hint is None
    assert main(["trim", str(trace), "-o", str(told), "--keep-command-line"]) == 0
    content = told.read_bytes()
    assert b"/models/qwen" in content
    assert b"WANDB" not in content
    assert b"WORKING_DIRECTORY" not in content
    assert open_trace(told).info.model_hint == "unsloth/Qwen3.8-27B-NVFP4"


def test_scopes_stay_and_their_texts_do_not(tmp_path):
    trace, slim = plant(tmp_path), tmp_path / "slim.sqlite"
    trim(trace, slim)
    texts = query(slim, "SELECT DISTINCT value FROM NVTX_EVENTS JOIN StringIds ON id = textId")
    assert texts == [("execute_context_0(0)_generation_4(4)",)]
    assert [n.code for n in open_trace(slim).info.notices] == ["trimmed", "events_lost"]


def test_the_original_cannot_be_written_over(tmp_path, capsys):
    trace = plant(tmp_path)
    before = trace.read_bytes()
    assert main(["trim", str(trace), "-o", str(trace)]) == 1
    assert "is the input itself" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_a_trace_without_steps_leaves_nothing(tmp_path):
    slim = tmp_path / "slim.sqlite"
    trace = FIXTURES / "full-recipe" / "trace.sqlite"
    assert main(["trim", str(trace), "-o", str(slim), "--to", "1ms"]) == 1
    assert list(tmp_path.iterdir()) == []
