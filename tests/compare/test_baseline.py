from __future__ import annotations

import dataclasses
import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_noise import baseline_of

from tracebook.compare import baseline as module
from tracebook.compare.baseline import (
    Baseline,
    Noise,
    Part,
    Run,
    from_json,
    is_saved,
    load,
    to_json,
    write,
)
from tracebook.compare.comparison import compare
from tracebook.compare.outcome import judge
from tracebook.errors import ReportVersionError, TracebookError
from tracebook.render.comparison import CHECK_FORMATS, render

PARTS = (
    Part("target_layers", 0, "gate", "mlp.gate_proj", "gemm", "cutlass", 1, 400),
    Part("target_layers", None, None, None, "norm", "rms<bf16>", 2, 5),
)


def small_run(**changes) -> Run:
    values = {
        "report": {"schema": "tracebook.report/1", "trace": {"gpu": "NVIDIA GB10"}},
        "wall_ns": np.array([100, 110]),
        "idle_ns": np.array([10, 10]),
        "phases_ns": {"target_layers": np.array([60, 70]), "output_layer": np.array([30, 30])},
        "checkpoint_bytes": {"target": 17},
        "parts": PARTS,
        "clock": 2100.0,
    }
    return Run(**(values | changes))


def edited(**changes) -> str:
    document = json.loads(to_json(Baseline((small_run(),))))
    document["runs"][0] |= changes
    return json.dumps(document)


def test_what_is_saved_comes_back():
    noise = Noise(3, {"step": 0.001})
    found = from_json(to_json(Baseline((small_run(), small_run(checkpoint_bytes=None)), noise)))
    assert found.noise == noise
    first, second = found.runs
    assert first.parts == PARTS
    assert first.wall_ns.tolist() == [100, 110]
    assert {name: v.tolist() for name, v in first.phases_ns.items()} == {
        "target_layers": [60, 70],
        "output_layer": [30, 30],
    }
    assert (first.checkpoint_bytes, second.checkpoint_bytes) == ({"target": 17}, None)
    assert (first.clock, first.fact("trace", "gpu")) == (2100.0, "NVIDIA GB10")
    assert to_json(found) == to_json(
        Baseline((small_run(), small_run(checkpoint_bytes=None)), noise)
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1, max_size=40))
def test_any_whole_times_come_back(steps):
    layers, idle = (np.array(column, dtype=np.int64) for column in zip(*steps, strict=True))
    run = small_run(wall_ns=layers + idle, idle_ns=idle, phases_ns={"target_layers": layers})
    (found,) = from_json(to_json(Baseline((run,)))).runs
    assert found.phases_ns["target_layers"].tolist() == layers.tolist()
    assert found.wall_ns.tolist() == (layers + idle).tolist()


def test_packed_files_have_no_time_stamp(tmp_path):
    saved = Baseline((small_run(),))
    for name in ("one.gz", "two.gz"):
        write(saved, tmp_path / name, packed=True)
    content = (tmp_path / "one.gz").read_bytes()
    assert content == (tmp_path / "two.gz").read_bytes()
    assert content[4:8] == b"\0\0\0\0"  # MTIME of RFC 1952
    assert to_json(load(tmp_path / "one.gz")) == to_json(saved)
    assert is_saved(tmp_path / "one.gz")


def test_three_hundred_steps_stay_small():
    text = to_json(baseline_of(np.random.default_rng(1), 300))
    assert len(text) < 30_000


def test_newer_versions_are_refused_with_the_remedy():
    text = edited().replace("tracebook.baseline/1", "tracebook.baseline/9")
    with pytest.raises(ReportVersionError, match=r"baseline/9.*reads up to.*baseline/1") as error:
        from_json(text)
    assert "pip install --upgrade" in error.value.hint


def test_older_versions_are_upgraded(monkeypatch):
    """As if version 2 called the times of steps otherwise."""

    def upgrade(document):
        runs = [{**run, "clock": 7.0} for run in document["runs"]]
        return {**document, "runs": runs}

    monkeypatch.setattr(module, "VERSION", 2)
    monkeypatch.setattr(module, "UPGRADES", {1: upgrade})
    assert from_json(edited()).runs[0].clock == 7.0
    with pytest.raises(ReportVersionError, match="never was"):
        from_json(edited().replace("baseline/1", "baseline/0"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "not a saved run"),
        ("{", "not a saved run"),
        ('{"schema": "tracebook.baseline/x"}', "not a saved run"),
        ('{"schema": "tracebook.report/1"}', "lacks the times of single steps"),
        ('{"schema": "tracebook.baseline/1"}', "damaged"),
        ('{"schema": "tracebook.baseline/1", "runs": []}', "no run"),
        (edited(wall_ns=[100, 111]), "do not add up"),
        (edited(wall_ns=[100]), "different numbers of steps"),
        (edited(wall_ns=[100.5, 110]), "whole nanoseconds"),
        (edited(wall_ns=[], idle_ns=[], phases_ns={}), "no step"),
        (edited(report=[]), "not an object"),
        (edited(parts={"texts": [], "phase": [4]}), "damaged"),
        (edited(wall_ns=[10**30, 110]), "damaged"),
    ],
)
def test_what_is_no_baseline_is_refused(text, message):
    with pytest.raises(ReportVersionError, match=message) as error:
        from_json(text)
    assert "tracebook save" in error.value.hint


def damaged(draw, value):
    """A JSON value in which something is another thing."""
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-5, 10**20), st.text(max_size=3),
        st.just([]), st.just({}), st.just([[1]]), st.just({"a": {"b": 1}}),
    )  # fmt: skip
    if draw(st.integers(0, 5)) == 0 or not isinstance(value, dict | list) or not value:
        return draw(junk)
    if isinstance(value, dict):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged(draw, value[key])}
    at = draw(st.integers(0, len(value) - 1))
    return [*value[:at], damaged(draw, value[at]), *value[at + 1 :]]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_compared(data):
    """Whatever is broken: a refusal in words, or a comparison, but never a stack trace."""
    report = {"trace": {"gpu": "a"}, "run": {"batch": 1}, "phases": [{"phase": "x"}], "total": {}}
    run = dataclasses.replace(baseline_of(np.random.default_rng(0), 9).runs[0], parts=PARTS,
                              report=report, checkpoint_bytes={"target": 17})  # fmt: skip
    document = json.loads(to_json(Baseline((run,), Noise(3, {"step": 0.001}))))
    broken = damaged(data.draw, document)
    try:
        found = from_json(json.dumps(broken))
    except TracebookError:
        return
    compared = compare(Baseline((run,)), found)
    for format_name in CHECK_FORMATS:
        render(compared, judge(compared), format_name)


def test_files_that_cannot_be_read(tmp_path):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"{}")[:-4])
    for path in (tmp_path / "absent.json", broken):
        with pytest.raises(ReportVersionError, match="cannot be read"):
            load(path)
