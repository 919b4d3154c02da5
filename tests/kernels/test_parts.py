"""The stages work part by part: neither the length of a part nor where arrays lie matters."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tracebook.account import account
from tracebook.columns import Values, distinct, parts
from tracebook.config import RunDescription
from tracebook.kernels.label import label_kernels
from tracebook.kernels.launches import launch_order
from tracebook.kernels.sequence import Durations
from tracebook.kernels.steps import Slice
from tracebook.kernels.template import Template, medians
from tracebook.machine import Machine
from tracebook.scratch import MEMORY, Scratch
from tracebook.trace import Trace

from .toy import ATTENTION, GBPS, NORM, K, jittered, plan, play, step

PREFILL = "_causal_conv1d_fwd_kernel"


def busy_trace(seed: int) -> Trace:
    """Steps that change, of two streams and beside another process, with some ids missing.

    What runs on the second stream is launched behind the kernel that it starts before.
    """
    rng = random.Random(seed)
    kernels = [K("warmup", 3000, "")] * 9 + [K(PREFILL, 900_000, "")] * 3
    for number in range(14):
        for k in jittered(step(), rng):
            if k.name == ATTENTION:
                k = replace(k, grid=(1, 8, 1 + number))
            kernels.append(replace(k, graph=0 < len(kernels) % 50 < 20))
            if rng.random() < 0.03:
                kernels.append(K("extra", 2000, ""))
        if number == 9:
            kernels += [K(NORM, 2300, "")] * 5
    trace, _ = play(kernels)
    frame = trace.kernels.with_columns(
        graph_node_id=pl.when(pl.lit(rng.random() < 0.5) & (pl.col("kernel_id") % 50 < 20)).then(
            100 + pl.col("kernel_id") % 50
        ),
        correlation_id=pl.when(pl.col("kernel_id") % 301 > 0).then("correlation_id"),
    )
    early = pl.col("kernel_id") % 11 == 5
    frame = frame.with_columns(
        stream=pl.when(early).then(9).otherwise("stream"),
        start_ns=pl.col("start_ns") - pl.when(early).then(12_000).otherwise(0),
        end_ns=pl.col("end_ns") - pl.when(early).then(11_000).otherwise(0),
    )
    other = frame.filter(pl.col("kernel_id") % 3 == 0).with_columns(
        pid=pl.lit(42, pl.Int64),
        kernel_id=pl.col("kernel_id") + 100_000,
        start_ns=pl.col("start_ns") + 7,
        end_ns=pl.col("end_ns") + 7,
    )
    whole = pl.concat([frame, other]).sort("start_ns", "end_ns", "kernel_id")
    return replace(trace, kernels=whole)


@pytest.fixture
def small_parts(monkeypatch):
    for name in ("columns.CHUNK", "kernels.launches.CHUNK", "step_time.CHUNK"):
        monkeypatch.setattr(f"tracebook.{name}", 67)
    monkeypatch.setattr("tracebook.kernels.launches._SAMPLE", 8)
    monkeypatch.setattr("tracebook.kernels.template._SLICES", 3)


def told(trace: Trace, **asked):
    labelled = label_kernels(trace, plan(), peak_gbps=GBPS, **asked)
    machine = Machine("toy", GBPS, None, "said")
    report = account(labelled, trace=trace, machine=machine, run=RunDescription())
    return labelled, report.to_json(steps=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pid", [None, 41])
def test_parts_in_files_give_the_same_as_a_whole_in_memory(seed, pid, tmp_path, request):
    trace = busy_trace(seed)
    if pid is None:
        trace = replace(trace, kernels=trace.kernels.filter(pl.col("pid") == 41))
        assert launch_order(trace.kernels).order is not None
    whole, expected = told(trace, pid=pid)
    request.getfixturevalue("small_parts")
    found, report = told(replace(trace, scratch=Scratch(tmp_path)), pid=pid)
    assert found.rows.equals(whole.rows)
    assert found.steps.equals(whole.steps)
    assert report == expected
    assert whole.steps.height >= 10
    assert not list(tmp_path.iterdir())


def test_the_other_process_makes_no_difference():
    """Labels are those of the same kernels in a trace of their own."""
    trace = busy_trace(3)
    alone = replace(trace, kernels=trace.kernels.filter(pl.col("pid") == 41))
    rows = told(trace, pid=41)[0].rows
    assert rows.equals(told(alone)[0].rows)
    assert rows.equals(rows.sort("start_ns", "end_ns", "kernel_id"))


def test_a_column_by_part():
    series = pl.Series([5, None, 7, 8], dtype=pl.Int64)
    values = Values(series, missing=-1)
    assert values[1:3].tolist() == [-1, 7]
    assert [int(values[i]) for i in range(4)] == [5, -1, 7, 8]
    assert values[np.array([3, 1])].tolist() == [8, -1]
    picked = Values(series, missing=-1, at=np.array([2, 1, 0]))
    assert len(picked) == 3
    assert picked[1:].tolist() == [-1, 5]
    whole = Values(pl.Series([1, 2, 3]), at=np.array([2, 0]))
    assert whole[:].tolist() == [3, 1]
    assert int(whole[1]) == 1
    assert whole[np.array([1])].tolist() == [1]


def test_a_column_of_one_value_is_kept_once():
    same = Values(pl.Series([4] * 9, dtype=pl.Int32), at=np.array([2, 1]))
    assert same.constant
    assert same[:].tolist() == [4, 4]
    assert same[np.array([1])].tolist() == [4]
    assert int(same[0]) == 4
    assert not Values(pl.Series([4, 4, 5, 4, 4, 4])).constant
    assert not Values(pl.Series([4, 4, None, 4])).constant
    assert Values(pl.Series([], dtype=pl.Int64))[:].tolist() == []


def test_parts_cover_a_length_once(small_parts):
    covered = [i for part in parts(200, 3) for i in range(part.start, part.stop)]
    assert covered == list(range(3, 200))
    assert list(parts(0)) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, 3], [3]), ([4, None, 2, 4], [2, 4]), ([None, None], []), ([], []), ([7, None], [7])],
)
def test_distinct_values(values, expected):
    assert distinct(pl.Series(values, dtype=pl.Int64)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_medians_are_those_of_each_position(seed, small_parts):
    """Slices that follow each other or not, alike or not; a position that no slice has is 0."""
    rng = np.random.default_rng(seed)
    positions, start = 9, 0
    shapes = [np.array(p) for p in ([0, 1, 2, 3, 5, 6, 7, 8], range(9), [0, -1, 1, 2, 3, 8])]
    shapes = [np.where(p == 4, -1, p) for p in shapes]
    slices, places = [], []
    for _ in range(11):
        start += int(rng.integers(0, 2))
        place = shapes[rng.integers(0, 3)]
        slices.append(Slice(start, start + len(place)))
        places.append(place)
        start += len(place)
    end = rng.integers(1, 10**6, start)
    template = Template(
        np.zeros(positions, dtype=int), np.zeros(0), tuple(slices), tuple(places), np.zeros(0)
    )
    durations = Durations(Values(np.zeros(start, dtype=np.int64)), Values(end))
    seen = [[] for _ in range(positions)]
    for piece, place in zip(slices, places, strict=True):
        for value, position in zip(end[piece.first : piece.end], place, strict=True):
            if position >= 0:
                seen[position].append(value)
    expected = [float(np.median(values)) if values else 0.0 for values in seen]
    assert medians(durations, template, MEMORY).tolist() == expected
    assert expected[4] == 0.0


def test_a_saved_run_in_files(tmp_path):
    """The whole report of a fixture."""
    from tracebook.analysis import account_for, examine_trace, models_of_run, open_for
    from tracebook.options import describe

    path = Path(__file__).parents[2] / "fixtures" / "full-recipe" / "trace.sqlite"
    run, models, _ = models_of_run(describe(path, {}))
    trace = open_for(path, {})
    reports = [
        account_for(examine_trace(one, run, models, {}, None)).to_json(steps=True)
        for one in (trace, replace(trace, scratch=Scratch(tmp_path)))
    ]
    assert reports[0] == reports[1]
