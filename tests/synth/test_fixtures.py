"""The saved fixtures are those that their run descriptions give, and small."""

from __future__ import annotations

import gzip
import io
import tomllib

import polars as pl
import pytest

from tracebook.config import load_run
from tracebook.synth import synthesize
from tracebook.synth.truth import TRUTH_SCHEMA, step_walls

from .exports import FIXTURES, query

NAMES = (
    "plain-nvfp4",
    "plain-fp8",
    "mtp3",
    "dflash2-k7",
    "dflash2-k10",
    "dflash2-k10-nvfp4-drafter",
    "full-recipe",
)


def saved_truth(name):
    table = gzip.decompress((FIXTURES / name / "truth.csv.gz").read_bytes())
    return pl.read_csv(io.BytesIO(table), schema=TRUTH_SCHEMA)


@pytest.mark.parametrize("name", NAMES)
def test_fixture_is_complete_small_and_says_what_it_is(name):
    folder = FIXTURES / name
    assert (folder / "trace.sqlite").stat().st_size <= 1_000_000
    assert load_run(folder / "run.toml").target is not None
    about = tomllib.loads((folder / "about.toml").read_text())
    assert about["synthetic"] is True
    assert {item["source"] for item in about["numbers"].values()} <= {
        "article",
        "derived",
        "chosen",
    }
    marked = query(
        folder / "trace.sqlite",
        "SELECT value FROM META_DATA_EXPORT WHERE name = 'TRACEBOOK_SYNTHETIC'",
    )
    assert marked == [("true",)]


@pytest.mark.parametrize("name", NAMES)
def test_about_agrees_with_the_saved_truth(name):
    truth = saved_truth(name)
    numbers = tomllib.loads((FIXTURES / name / "about.toml").read_text())["numbers"]
    walls = step_walls(truth)
    assert (walls["end_ns"] - walls["start_ns"]).median() / 1e6 == pytest.approx(
        numbers["step_ms"]["value"], rel=0.002
    )
    per_step = (
        truth.filter(pl.col("kind") == "decode")
        .group_by("step_id", "phase")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    )
    medians = dict(per_step.group_by("phase").agg(pl.col("ns").median()).rows())
    stated = {k.removesuffix("_ms"): n["value"] for k, n in numbers.items() if k.endswith("_ms")}
    for phase, milliseconds in stated.items():
        if phase != "step":
            assert medians[phase] / 1e6 == pytest.approx(milliseconds, rel=0.002), phase


@pytest.mark.parametrize("name", ["plain-nvfp4", "full-recipe"])
def test_saved_rows_are_those_of_the_run_description(name, tmp_path):
    made = synthesize(FIXTURES / name / "run.toml", tmp_path / "again.sqlite")
    assert made.truth.equals(saved_truth(name))
