from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from step_noise import baseline_of

from tracebook.compare.baseline import Baseline, to_json
from tracebook.compare.store import Store, StoreError, listed

REPORT = {
    "trace": {"gpu": "NVIDIA GB10"},
    "run": {"target": "model", "draft_method": "mtp", "draft_tokens": 3, "batch": 1},
    "phases": [{"phase": "target_layers", "traffic_bytes": 17, "traffic_gbps": 210.0}],
}


def some(seed=1, steps=30) -> Baseline:
    return baseline_of(np.random.default_rng(seed), steps, report=REPORT)


def test_a_tagged_baseline_comes_back(tmp_path):
    store = Store(tmp_path / "kept")
    tag = store.tag("main", some())
    assert to_json(store.get("main")) == to_json(some())
    assert (tag.gpu, tag.steps, tag.draft_tokens) == ("NVIDIA GB10", 30, 3)
    assert tag.step_ms == pytest.approx(99.6, rel=0.01)


def test_a_name_moves_on_and_its_history_stays(tmp_path):
    store = Store(tmp_path)
    store.tag("main", some(1, 30))
    store.tag("other", some(2, 40))
    store.tag("main", some(3, 50))
    assert [(tag.name, tag.steps) for tag in store.latest()] == [("main", 50), ("other", 40)]
    assert [tag.steps for tag in store.history("main")] == [50, 30]
    assert store.get("main").runs[0].steps == 50
    assert store.remove("main") == 2
    assert [tag.name for tag in store.latest()] == ["other"]
    with pytest.raises(StoreError, match="'main' is neither a file nor a baseline") as error:
        store.get("main")
    assert "other" in error.value.message
    assert "baseline tag main" in error.value.hint


def test_other_programs_can_read_it(tmp_path):
    store = Store(tmp_path)
    store.tag("main", some(1, 30))
    store.tag("main", some(2, 40))
    with closing(sqlite3.connect(store.path)) as db:
        found = db.execute("select name, steps, target from baselines").fetchall()
        assert found == [("main", 40, "model")]
        rows = db.execute(
            "select t.steps, p.ms, p.traffic_bytes from phases p join tags t on t.id = p.tag_id "
            "where p.phase = 'target_layers' order by t.id"
        ).fetchall()
    db.close()
    assert [(steps, size) for steps, _, size in rows] == [(30, 17), (40, 17)]
    assert rows[0][1] == pytest.approx(84.8, rel=0.01)


@pytest.mark.parametrize("call", ["get", "history", "remove"])
def test_what_is_not_there(tmp_path, call):
    with pytest.raises(StoreError, match="empty"):
        getattr(Store(tmp_path), call)("main")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "a" * 101])
def test_names_that_cannot_be(tmp_path, name):
    with pytest.raises(StoreError, match="cannot be the name"):
        Store(tmp_path).tag(name, some())


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / "baselines.db").write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path).latest()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        Store(tmp_path / "file").tag("main", some())


def _tag_often(directory, name, times):
    for seed in range(times):
        Store(directory).tag(name, some(seed, 20))


def test_two_processes_do_not_harm_each_other(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_tag_often, args=(tmp_path, n, 8)) for n in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    store = Store(tmp_path)
    assert {name: len(store.history(name)) for name in ("one", "two")} == {"one": 8, "two": 8}
    assert to_json(store.get("one")) == to_json(some(7, 20))


def test_the_list_is_a_table(tmp_path):
    store = Store(tmp_path)
    assert "has no baselines" in listed(store.latest())
    store.tag("main", some())
    heading, row = listed(store.latest()).splitlines()
    assert heading.split()[:3] == ["name", "tagged", "steps"]
    assert row.endswith("model   mtp 3")
