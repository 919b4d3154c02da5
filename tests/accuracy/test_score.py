"""The scoring itself: right labels score 1, known mistakes cost what they must."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from .cases import make
from .family import CASES
from .score import compare, modules, read_truth


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> pl.DataFrame:
    out = tmp_path_factory.mktemp("score")
    case = next(case for case in CASES if case.name == "hybrid-vllm-dflash2-full-recipe")
    make(replace(case, steps=5), out, seed=4)
    return read_truth(out / case.name / "truth.csv")


def labels(truth: pl.DataFrame) -> pl.DataFrame:
    columns = ("matrix", "op", "layer", "step_id")
    first_reading = pl.col("phase").str.split("|").list.first().fill_null("").alias("tool_phase")
    return truth.select(
        "kernel_id", first_reading, *(pl.col(c).alias(f"tool_{c}") for c in columns)
    )


def test_right_labels_score_one(truth):
    found = compare(truth, labels(truth))
    for key in ("phase_time", "layer_time", "matrices", "covered"):
        assert found[key] == 1
    assert found["wrong_time"] == 0
    assert (found["steps"], found["exact"], found["near"], found["extra"]) == (4, 4, 0, 0)


def test_a_swapped_head_costs_precision_and_recall(truth):
    said = labels(truth).with_columns(
        tool_phase=pl.col("tool_phase").replace("draft_head", "output_layer")
    )
    found = compare(truth, said)
    assert found["phases"]["draft_head"] == [None, 0]
    precision, recall = found["phases"]["output_layer"]
    assert recall == 1
    assert 0.6 < precision < 0.75  # 5.5 of 7.9 ms
    assert found["wrong_time"] == pytest.approx(1 - found["phase_time"])


def test_unclassified_is_missed_but_not_wrong(truth):
    found = compare(truth, labels(truth).with_columns(tool_phase=pl.lit("unclassified")))
    assert found["phase_time"] == 0
    assert found["wrong_time"] == 0


def test_a_step_cut_one_kernel_late_is_near(truth):
    first = (
        truth.filter(pl.col("step_id") != "")
        .sort("start_ns")
        .group_by("step_id")
        .agg(pl.col("kernel_id").first())["kernel_id"]
    )
    late = pl.when(pl.col("kernel_id").is_in(first.to_list())).then(pl.lit(""))
    said = labels(truth).with_columns(tool_step_id=late.otherwise(pl.col("tool_step_id")))
    found = compare(truth, said)
    assert (found["exact"], found["near"]) == (0, 4)


def test_matrices_compare_as_sets_of_modules():
    assert modules("mlp.gate_proj+mlp.up_proj") == modules("mlp.up_proj+mlp.gate_proj")
    assert modules("mlp.experts.#.up_proj") == modules("mlp.experts.7.up_proj")
    assert modules("model.embed_tokens") == modules("embed_tokens.weight")
    assert modules("mlp.gate_proj") != modules("mlp.gate_proj+mlp.up_proj")
