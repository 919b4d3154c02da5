"""The truth's own laws: time, bytes, counts, calibration."""

from __future__ import annotations

import polars as pl
import pytest

from tracebook.synth import synthesize
from tracebook.synth.truth import step_walls

#: Medians in ms from the article's profile (full recipe, plain) or chosen (see about.toml).
WANTED_MS = {
    "plain-nvfp4": {"target_layers": 81.5, "output_layer": 5.6, "step": 88.0},
    "plain-fp8": {"target_layers": 112.4, "output_layer": 11.8, "step": 125.0},
    "mtp3": {"draft_head": 16.7, "drafter_layers": 11.7, "step": 117.8},
    "full-recipe": {
        "target_layers": 84.8,
        "output_layer": 5.6,
        "drafter_layers": 5.7,
        "draft_head": 2.3,
        "replay": 0.7,
    },
}


def union_ns(rows):
    """Time in which at least one of the intervals runs."""
    total, reached = 0, 0
    for start, end in sorted(rows):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def one_step(made, name):
    return made[name].truth.filter(pl.col("step_id") == 0).sort("start_ns")


@pytest.mark.parametrize("name", WANTED_MS)
def test_phases_and_idle_fill_each_step(made, name):
    truth = made[name].truth
    walls = step_walls(truth).rows()
    assert len(walls) == made[name].settings.steps
    for step_id, start, end in walls:
        inside = truth.filter(pl.col("step_id") == step_id)
        by_phase = [
            union_ns(group.select("start_ns", "end_ns").rows())
            for _, group in inside.group_by("phase")
        ]
        ordered = sorted(inside.select("start_ns", "end_ns").rows())
        starts = [row[0] for row in ordered[1:]] + [end]
        idle = sum(max(0, nxt - row[1]) for row, nxt in zip(ordered, starts, strict=True))
        assert ordered[0][0] == start
        assert sum(by_phase) + idle == end - start


@pytest.mark.parametrize(
    ("name", "phase"), [(name, phase) for name, phases in WANTED_MS.items() for phase in phases]
)
def test_median_times_are_the_wanted_ones(made, name, phase):
    truth = made[name].truth
    if phase == "step":
        walls = step_walls(truth)
        median_ns = (walls["end_ns"] - walls["start_ns"]).median()
    else:
        inside = truth.filter((pl.col("kind") == "decode") & (pl.col("phase") == phase))
        per_step = [
            union_ns(group.select("start_ns", "end_ns").rows())
            for _, group in inside.group_by("step_id")
        ]
        median_ns = pl.Series(per_step).median()
    assert median_ns / 1e6 == pytest.approx(WANTED_MS[name][phase], rel=0.002)


@pytest.mark.parametrize("name", WANTED_MS)
def test_a_target_pass_has_305_gemms_48_recurrences_and_16_attentions(made, name):
    step = one_step(made, name)
    target = step.filter(pl.col("phase").is_in(["target_layers", "output_layer"]))
    assert target.filter(pl.col("matrix").is_not_null()).height == 305
    layers = step.filter(pl.col("phase") == "target_layers")
    assert layers.filter(pl.col("op").str.starts_with("recurrence")).height == 48
    assert layers.filter(pl.col("op") == "attention")["layer"].to_list() == list(range(3, 64, 4))
    assert layers.filter(pl.col("op") == "conv_update").height == 48


def test_weight_bytes_of_a_step_are_those_of_the_headers(made):
    # Matrices with an own kernel: 17,831,778,688 bytes of the layers less norms, convolutions
    # and per-head vectors; the output layer with its scale.
    layers = one_step(made, "plain-nvfp4").filter(pl.col("phase") == "target_layers")
    norms = 64 * 2 * 10_240 + 16 * 2 * 512 + 16 * 2 * 2
    gdn_small = 48 * (10_240 * 4 * 2 + 2 * 96 + 256)
    assert layers["weight_bytes"].sum() == 17_831_778_688 - norms - gdn_small
    head = one_step(made, "plain-nvfp4").filter(pl.col("phase") == "output_layer")
    assert head["weight_bytes"].sum() == 1_271_895_040


def test_every_step_has_the_same_kernels_in_the_same_order(made):
    decode = made["full-recipe"].truth.filter(pl.col("kind") == "decode").sort("start_ns")
    ops = decode.group_by("step_id", maintain_order=True).agg("phase", "op", "layer", "matrix")
    assert ops.select("phase", "op", "layer", "matrix").n_unique() == 1


def test_mtp_reads_the_output_layer_once_a_pass(made):
    step = one_step(made, "mtp3")
    heads = step.filter((pl.col("phase") == "draft_head") & (pl.col("op") == "head"))
    assert heads["weight_bytes"].to_list() == [1_271_895_040] * 3
    drafter = step.filter((pl.col("phase") == "drafter_layers") & (pl.col("weight_bytes") > 0))
    assert drafter["matrix"].to_list().count("fc") == 3
    assert not drafter["op"].str.contains("recurrence").any()


def test_the_full_recipe_has_the_parts_of_dflash2(made):
    step = one_step(made, "full-recipe")
    counts = dict(step.group_by("op").len().rows())
    assert counts["fc"] == counts["kv_copy"] == counts["selector_walk"] == 1
    assert counts["attention_conv"] == counts["mlp_conv"] == counts["drafter_attention"] == 5
    assert counts["block_conv"] == 20
    # Five cache writes for the context, five for the queries, sixteen of the target.
    assert counts["cache_write"] == 26
    assert counts["vocabulary_fill"] == counts["vocabulary_scatter"] == 1
    assert step.filter(pl.col("phase") == "replay").height == 3
    head = step.filter((pl.col("phase") == "draft_head") & (pl.col("op") == "head"))
    assert head["weight_bytes"].to_list() == [512_363_904]


def test_snapshots_make_recurrences_longer_and_weight_reads_hardly(made):
    def mean_us(name, pattern, phase="target_layers"):
        rows = one_step(made, name).filter(
            (pl.col("phase") == phase) & pl.col("op").str.contains(pattern)
        )
        return (rows["end_ns"] - rows["start_ns"]).mean() / 1e3

    plain, verify = (mean_us(name, "^recurrence") for name in ("plain-nvfp4", "mtp3"))
    assert verify > 1.8 * plain
    assert mean_us("mtp3", "^down$") == pytest.approx(mean_us("plain-nvfp4", "^down$"), rel=0.03)


def test_what_lies_outside_steady_steps_is_said(made):
    truth = made["full-recipe"].truth
    kinds = truth.group_by("kind").agg(
        pl.col("step_id").null_count() == pl.len(), pl.col("phase").n_unique()
    )
    found = {kind: (outside, phases) for kind, outside, phases in kinds.rows()}
    assert found["decode"][0] is False
    assert found["warmup"] == (True, 1)
    assert found["prefill"] == (True, 1)
    assert found["cut"] == (True, 2)
    prefill = truth.filter(pl.col("kind") == "prefill")
    assert prefill.filter(pl.col("op") == "chunk_state").height == 48
    assert truth.filter(pl.col("op") == "delay")["kind"].unique().to_list() == ["warmup"]


def test_a_dense_model_without_drafter(dense_run, tmp_path):
    made = synthesize(dense_run, tmp_path / "dense.sqlite", steps=3)
    step = made.truth.filter(pl.col("step_id") == 1)
    assert step.filter(pl.col("matrix").is_not_null()).height == 4 * 4 + 1
    # Four layers of 30,408,704 bytes in matrices, and an output layer of 65,536,000.
    assert step["weight_bytes"].sum() == 4 * 30_408_704 + 65_536_000
    assert not step["op"].str.contains("recurrence|gate$|quantize").any()
