"""The main job on every saved run: trace and checkpoint in, the truth out.

Expected values come from the truth beside each trace and from published figures; neither
passes through the classifier or the account.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import tracebook
from tracebook.report import Report

ROOT = Path(__file__).parents[1]
RUNS = sorted(path.parent for path in (ROOT / "fixtures").glob("*/truth.csv.gz"))
PHASES = ("target_layers", "output_layer", "drafter_layers", "draft_head", "replay")

over_runs = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


@cache
def reported(run: Path) -> Report:
    return tracebook.analyze(run / "trace.sqlite")


@cache
def truth(run: Path) -> pl.DataFrame:
    table = gzip.decompress((run / "truth.csv.gz").read_bytes())
    types = {"layer": pl.Int32, "matrix": pl.String, "op": pl.String}
    return pl.read_csv(io.BytesIO(table), schema_overrides=types)


@cache
def labelled(run: Path) -> pl.DataFrame:
    """Labels beside the truth, kernels of kept steps only."""
    from tracebook.kernel_table import kernel_table

    rows = kernel_table(run / "trace.sqlite").rows
    return rows.filter(pl.col("step_id").is_not_null()).join(
        truth(run), on="kernel_id", how="left", suffix="_true", validate="1:1"
    )


def true_phase_ms(run: Path) -> dict[str, float]:
    """Median over the steps that were kept of the sum of durations per phase."""
    kept = labelled(run)["step_id_true"].unique().drop_nulls()
    per_step = (
        truth(run)
        .filter(pl.col("step_id").is_in(kept.implode()))
        .group_by("phase", "step_id")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .group_by("phase")
        .agg(pl.col("ns").median())
    )
    return {phase: ns / 1e6 for phase, ns in per_step.iter_rows()}


@over_runs
def test_phase_times_are_those_of_the_truth(run):
    expected = true_phase_ms(run)
    found = {row.phase: row.ms.median for row in reported(run).phase_rows}
    for phase in PHASES:
        assert found.get(phase, 0) == pytest.approx(expected.get(phase, 0), rel=0.005), phase


@over_runs
def test_each_phase_is_found_whole_and_pure(run):
    rows = labelled(run).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    for phase in set(PHASES) & set(rows["phase_true"].unique()):
        found = rows.filter(pl.col("phase") == phase)["ns"].sum()
        true = rows.filter(pl.col("phase_true") == phase)["ns"].sum()
        both = rows.filter((pl.col("phase") == phase) & (pl.col("phase_true") == phase))["ns"].sum()
        assert both / found >= 0.99, phase
        assert both / true >= 0.99, phase


@over_runs
def test_weight_readers_get_their_layer_and_matrix(run):
    readers = labelled(run).filter(pl.col("weight_bytes_true") > 0)
    right = readers.filter(
        (pl.col("matrix") == pl.col("matrix_true"))
        & pl.col("layer").eq_missing(pl.col("layer_true"))
    )
    assert right.height / readers.height >= 0.995


@over_runs
def test_weight_bytes_are_those_that_were_read(run):
    """Bytes of the matrices by the truth; norms and the like are at most 0.2 % on top."""
    steps = truth(run).filter(pl.col("kind") == "decode")
    one = steps.filter(pl.col("step_id") == steps["step_id"].max())
    expected = dict(one.group_by("phase").agg(pl.col("weight_bytes").sum()).iter_rows())
    for row in reported(run).phase_rows:
        true_bytes = expected.get(row.phase, 0)
        assert true_bytes <= row.weight_bytes <= 1.002 * true_bytes, row.phase
        if true_bytes:
            rate = row.weight_bytes / (row.ms.median * 1e6)
            assert row.weight_gbps == pytest.approx(rate)


@over_runs
def test_both_laws_hold_in_the_report(run):
    document = json.loads(reported(run).to_json())
    steps = document["steps"]
    for part in ("phases", "layers", "matrices"):
        total = sum(row["ms"]["mean"] for row in document[part]) + steps["idle_ms"]["mean"]
        assert total == pytest.approx(steps["wall_ms"]["mean"], abs=1e-3)
    assert (
        sum(row["weight_bytes"] for row in document["phases"])
        == (document["total"]["weight_bytes"])
    )


@over_runs
def test_nothing_but_the_synthesis_is_warned_of(run):
    assert [warning.code for warning in reported(run).warnings] == ["synthetic"]


@over_runs
def test_the_trace_stays_as_it_was(run):
    before = hashlib.sha256((run / "trace.sqlite").read_bytes()).hexdigest()
    names = sorted(path.name for path in run.iterdir())
    tracebook.analyze(run / "trace.sqlite")
    assert hashlib.sha256((run / "trace.sqlite").read_bytes()).hexdigest() == before
    assert sorted(path.name for path in run.iterdir()) == names


#: The published profile: ms per phase, and what follows from it.
PUBLISHED = {
    "plain-nvfp4": {"target_layers": 81.5},
    "mtp3": {"draft_head": 16.7},
    "dflash2-k10": {"target_layers": 87.7, "output_layer": 5.6, "drafter_layers": 16.7,
                    "draft_head": 5.6},
    "dflash2-k10-nvfp4-drafter": {"drafter_layers": 5.7},
    "full-recipe": {"target_layers": 84.8, "output_layer": 5.6, "drafter_layers": 5.7,
                    "draft_head": 2.3, "replay": 0.7},
}  # fmt: skip


@over_runs
def test_published_times_come_out(run):
    found = {row.phase: row.ms.median for row in reported(run).phase_rows}
    for phase, ms in PUBLISHED.get(run.name, {}).items():
        assert round(found[phase], 1) == ms


def test_the_plain_run_reads_as_published():
    run = ROOT / "fixtures" / "plain-nvfp4"
    layers = next(row for row in reported(run).phase_rows if row.phase == "target_layers")
    assert round(layers.weight_bytes / 1e9, 2) == 17.83
    assert round(layers.weight_gbps) == 219
    total = reported(run).total
    assert round(100 * total.weight_gbps / 273) == 80
    assert round(total.weight_bytes / 273e6, 1) == 70.0
    assert round(273e9 / total.weight_bytes, 1) == 14.3


def test_traffic_beyond_weights_explains_the_verify_pass():
    """203 GB/s by weights alone, 213 to 214 with twelve states moved (18,737,748,352 bytes)."""
    rows = {row.phase: row for row in reported(ROOT / "fixtures" / "dflash2-k10").phase_rows}
    layers = rows["target_layers"]
    assert round(layers.weight_gbps) == 203
    moved = {(m.name, m.direction): m.bytes for m in layers.traffic}
    assert moved["recurrent_state", "read"] == 75_497_472
    assert moved["recurrent_state", "write"] == 830_472_192
    states = moved["recurrent_state", "read"] + moved["recurrent_state", "write"]
    final_norm = 10_240
    assert layers.weight_bytes - final_norm + states == 18_737_748_352
    assert round((layers.weight_bytes + states) / (layers.ms.median * 1e6), 1) == 213.7
    assert round(layers.traffic_gbps) == 214
    assert layers.roofline_pct == pytest.approx(100 * layers.traffic_gbps / 273)


def test_replay_moves_one_commit_and_the_verify_pass_no_snapshots():
    rows = {row.phase: row for row in reported(ROOT / "fixtures" / "full-recipe").phase_rows}
    verify = {(m.name, m.direction): m.bytes for m in rows["target_layers"].traffic}
    assert verify["recurrent_state", "read"] == 75_497_472
    assert ("recurrent_state", "write") not in verify
    replay = {(m.name, m.direction): m.bytes for m in rows["replay"].traffic}
    assert replay["recurrent_state", "write"] == 75_497_472
    # 48 layers, 11 tokens: k 16 x 128, v 48 x 128, decay and beta of 48 heads, in BF16.
    assert replay["replay_inputs", "read"] == 48 * 11 * (2048 + 6144 + 96) * 2
    assert verify["replay_inputs", "write"] == replay["replay_inputs", "read"]


@over_runs
def test_traffic_is_the_sum_of_its_movements(run):
    rows = reported(run).phase_rows
    for row in rows:
        assert (row.traffic_bytes or 0) == sum(m.bytes for m in row.traffic)
        assert sum(m.bytes for m in row.traffic if m.name == "weights") == row.weight_bytes
        assert {m.phase for m in row.traffic} <= {row.phase}
    assert reported(run).total.traffic_bytes == sum(row.traffic_bytes or 0 for row in rows)
