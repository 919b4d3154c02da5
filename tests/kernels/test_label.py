"""All stages together on traces of the toy model: labels, symmetries, cost, what is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest

from tracebook.errors import NoDecodeSteps
from tracebook.kernels import coarse
from tracebook.kernels.label import label_kernels
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA
from tracebook.step_time import group, per_step, share_out

from .toy import (
    GBPS,
    HEAD_MB,
    LAYERS,
    MB,
    NORM,
    K,
    drafted_plan,
    drafted_step,
    jittered,
    make_trace,
    plan,
    play,
    step,
)

PEAK = 273.0


def run_of(make=step, count=10, seed=0, share=0.02):
    rng = random.Random(seed)
    return [k for _ in range(count) for k in jittered(make(), rng, share)]


def labelled(kernels, of=None, peak=PEAK, **more):
    trace, _ = play(kernels)
    return label_kernels(trace, plan() if of is None else of, peak_gbps=peak, **more)


def check_labels(result, kernels):
    """Phase, layer and bytes of every kernel in a step are the truth; returns how many.

    The layer of what stands between layers (gather, final norm) is left open.
    """
    rows = result.rows.filter(pl.col("step_id").is_not_null())
    for row in rows.iter_rows(named=True):
        true = kernels[row["kernel_id"] - 1]
        assert row["phase"] == true.phase, row
        assert true.layer is None or row["layer"] == true.layer, row
        assert (row["weight_bytes"] or 0) == true.weight_bytes, row
    return rows.height


@pytest.mark.parametrize(
    ("make", "of"), [(step, plan()), (lambda: drafted_step(2), drafted_plan(2))],
    ids=["plain", "drafted"],
)  # fmt: skip
def test_every_kernel_of_every_step(make, of):
    kernels = run_of(make)
    result = labelled(kernels, of)
    assert check_labels(result, kernels) == len(kernels)
    assert result.steps.height == result.found == 10
    assert result.dropped == ()
    assert result.notices == ()
    assert dict(result.rows.schema) == ROW_SCHEMA
    assert dict(result.steps.schema) == STEP_SCHEMA
    assert result.verdict.passes.get("drafter_layers", 0) == (2 if make is not step else 0)


def test_bytes_of_a_step_are_those_of_the_plan():
    kernels = run_of()
    per_step = labelled(kernels).rows.group_by("step_id").agg(pl.col("weight_bytes").sum())
    assert set(per_step["weight_bytes"]) == {(LAYERS * 110 + HEAD_MB) * MB}


def test_phases_and_idle_are_the_wall_time_of_each_step():
    """In integers, recomputed from the durations and pauses that were played."""
    kernels = run_of(lambda: drafted_step(2))
    result = labelled(kernels, drafted_plan(2))
    time = share_out(result.kernels, result.steps)
    groups = group(time.labels, ("phase",))
    owned = per_step(groups, time.owned)
    assert (owned.sum(axis=0) + time.idle_ns == time.wall_ns).all()
    size = len(drafted_step(2))
    for number in range(10):
        mine = kernels[number * size : (number + 1) * size]
        for code, (phase,) in enumerate(groups.keys):
            assert owned[code][number] == sum(k.ns for k in mine if k.phase == phase)


def labels_only(result):
    return result.rows.select("kernel_id", "step_id", "phase", "layer", "matrix", "weight_bytes")


@pytest.mark.parametrize("turn", [3, 20, 44])
def test_a_capture_that_begins_inside_a_step(turn):
    """What is cut is left out; all other steps are as before."""
    kernels = run_of()[turn:]
    kernels = kernels[: -(len(step()) - turn)]
    result = labelled(kernels)
    size = len(step())
    assert check_labels(result, kernels) == 8 * size
    starts = result.rows.filter(pl.col("step_id").is_not_null()).group_by("step_id").agg(
        pl.col("kernel_id").min())["kernel_id"].sort()  # fmt: skip
    assert starts.to_list() == [size - turn + 1 + size * i for i in range(8)]


def test_names_of_equal_meaning_are_only_compared():
    """Names that say nothing, mixed up by a permutation: nothing changes."""
    kernels = [replace(k, name=f"k{hash_of(k.name)}", grid=(1, 1, 1)) for k in run_of()]
    names = sorted({k.name for k in kernels})
    shuffled = names[3:] + names[:3]
    other = [replace(k, name=shuffled[names.index(k.name)]) for k in kernels]
    first, second = labelled(kernels), labelled(other)
    assert labels_only(first).equals(labels_only(second))
    rows = first.rows.filter(pl.col("weight_bytes") > 0)
    assert rows.height == 10 * (4 * LAYERS + 1)
    assert all(kernels[k - 1].weight_bytes for k in rows["kernel_id"])


@pytest.mark.parametrize(
    ("make", "of"), [(step, plan()), (lambda: drafted_step(2), drafted_plan(2))],
    ids=["plain", "drafted"],
)  # fmt: skip
def test_one_name_for_everything(make, of):
    """Only order, durations and bytes are left; every matrix is found by them."""
    kernels = [replace(k, name="device_kernel", grid=(1, 1, 1)) for k in run_of(make, 8)]
    rows = labelled(kernels, of).rows.filter(pl.col("weight_bytes") > 0)
    for row in rows.iter_rows(named=True):
        true = kernels[row["kernel_id"] - 1]
        assert (row["phase"], row["layer"]) == (true.phase, true.layer)
        assert row["weight_bytes"] == true.weight_bytes
    assert rows.height == sum(bool(k.matrix) for k in kernels)


@pytest.mark.parametrize(
    "factor",
    [
        1.4,
        2,
    ],
)
def test_steps_after_a_drop_of_the_clock_are_kept_or_counted(factor):
    slow = [replace(k, ns=int(factor * k.ns)) for k in run_of(count=8, seed=1)]
    result = labelled(run_of(count=8) + slow)
    assert result.steps.height + sum(count for _, count in result.dropped) >= 16


def hash_of(name):
    return sum(ord(c) * (i + 1) for i, c in enumerate(name))


@pytest.mark.parametrize("factor", [3, 10])
def test_a_slower_clock_scales_the_bandwidth_and_nothing_else(factor):
    kernels = run_of()
    slow = [replace(k, ns=k.ns * factor, pause_ns=k.pause_ns * factor) for k in kernels]
    fast, slowed = labelled(kernels), labelled(slow, peak=PEAK / factor)
    assert labels_only(fast).equals(labels_only(slowed))
    assert slowed.verdict.fitted_gbps == pytest.approx(GBPS / factor, rel=0.02)


def test_order_of_rows_and_gaps_in_ids_do_not_matter():
    trace, _ = play(run_of())
    plain = label_kernels(trace, plan(), peak_gbps=PEAK)
    sparse = replace(
        trace, kernels=trace.kernels.with_columns(correlation_id=pl.col("correlation_id") * 7 + 11)
    )
    assert labels_only(label_kernels(sparse, plan(), peak_gbps=PEAK)).equals(labels_only(plain))


def counted(monkeypatch, count):
    """How often a table is aligned for so many steps that are all alike."""
    calls = []
    original = coarse.align
    monkeypatch.setattr(coarse, "align", lambda *a, **k: calls.append(1) or original(*a, **k))
    result = labelled(drafted_step(2) * count, drafted_plan(2))
    monkeypatch.undo()
    assert result.steps.height == count
    return len(calls)


def test_work_is_done_once_a_signature(monkeypatch):
    few, many = counted(monkeypatch, 10), counted(monkeypatch, 200)
    assert few == many > 0


# ---- several processes ----------------------------------------------------------------------


def two_processes():
    """Two ranks with overlapping ids on two devices; the second runs eight steps, not ten."""
    first, _ = play(run_of(count=10))
    second, _ = play(run_of(count=8, seed=4))
    moved = second.kernels.with_columns(
        device=pl.lit(1, pl.Int32),
        pid=pl.lit(42, pl.Int64),
        kernel_id=pl.col("kernel_id") + first.kernels.height,
    )
    names = list(first.names["name"])
    rows = pl.concat([first.kernels, moved]).to_dicts()
    return make_trace(rows, names)


def test_the_busiest_process_is_taken_and_that_is_said():
    result = label_kernels(two_processes(), plan(), peak_gbps=PEAK)
    assert (result.device, result.pid, result.steps.height) == (0, 41, 10)
    assert [notice.code for notice in result.notices] == ["several_processes"]


@pytest.mark.parametrize("choice", [{"device": 1}, {"pid": 42}, {"device": 1, "pid": 42}])
def test_another_process_can_be_asked_for(choice):
    result = label_kernels(two_processes(), plan(), peak_gbps=PEAK, **choice)
    assert (result.device, result.pid, result.steps.height) == (1, 42, 8)
    assert result.rows.height == 8 * len(step())


def test_a_refusal_names_the_other_processes():
    """The busiest process runs a numerical loop, the other one decodes."""
    loop, _ = play([K(NORM, 90_000, ""), K("a_loop_kernel", 400_000, "")] * 400)
    server, _ = play(run_of(count=8))
    moved = server.kernels.with_columns(
        pid=pl.lit(42, pl.Int64),
        kernel_id=pl.col("kernel_id") + loop.kernels.height,
        name_id=pl.col("name_id") + loop.names.height,
    )
    names = [*loop.names["name"], *server.names["name"]]
    both = make_trace(pl.concat([loop.kernels, moved]).to_dicts(), names)
    with pytest.raises(NoDecodeSteps) as caught:
        label_kernels(both, plan(), peak_gbps=PEAK)
    assert "pid 41" in caught.value.hint
    assert "--pid" in caught.value.hint
    assert label_kernels(both, plan(), peak_gbps=PEAK, pid=42).steps.height == 8


def test_a_process_that_is_not_there_is_refused_with_what_is():
    with pytest.raises(NoDecodeSteps, match="device 5") as caught:
        label_kernels(two_processes(), plan(), peak_gbps=PEAK, device=5)
    assert "device 0 pid 41" in caught.value.hint
    assert "device 1 pid 42" in caught.value.hint


# ---- warm-up, prefill, rules ----------------------------------------------------------------


def test_warm_up_and_prefill_stay_outside():
    """A lone step, autotuning, a prompt of other kernels, then decode."""
    tuning = [K("delay_kernel", 9000, "")] * 40
    prompt = [K("chunk_fwd_kernel_o", 90_000, ""), K("other_gemm_kernel", 700_000, "")] * 20
    kernels = [*step(), *tuning, *prompt, *run_of(count=8)]
    result = labelled(kernels)
    before = len(step()) + 80
    assert check_labels(result, kernels) == 8 * len(step())
    outside = result.rows.filter(pl.col("step_id").is_null())
    assert outside["kernel_id"].to_list() == list(range(1, before + 1))
    assert set(outside["phase"]) == {"warmup", "prefill"}
    assert outside["weight_bytes"].null_count() == before


def test_rules_of_the_user_reach_the_labels(tmp_path):
    """An all-reduce that no shipped rule knows."""
    rules = tmp_path / "mine.toml"
    rules.write_text("[[rule]]\nclass = 'comm'\npattern = 'my_ring'\nexample = 'my_ring_kernel'\n")
    once = step()
    once.insert(6, K("my_ring_kernel", 9000, "communication"))
    kernels = once * 8
    assert "communication" not in set(labelled(kernels).rows["phase"])
    assert check_labels(labelled(kernels, rules=rules), kernels) == len(kernels)


def test_a_single_step_is_no_steady_decode():
    with pytest.raises(NoDecodeSteps):
        labelled(step())
