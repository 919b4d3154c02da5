"""Each study gives the result that is committed, and the result holds the published figures."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "analyses").glob("*/study.py"))


@pytest.fixture(autouse=True)
def _at_root(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(ROOT)


@cache
def computed(name):
    return importlib.import_module(f"analyses.{name}.study").compute()


def saved(name):
    return json.loads((ROOT / "analyses" / name / "result.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STUDIES)
def test_the_result_is_the_committed_one(name, request):
    result, text = computed(name)
    folder = ROOT / "analyses" / name
    if request.config.getoption("--accept"):
        importlib.import_module("analyses.common").write(folder, result, text)
    assert json.loads(json.dumps(result)) == saved(name)
    assert text == (folder / "result.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_question_and_an_answer(name):
    text = (ROOT / "analyses" / name / "README.md").read_text(encoding="utf-8")
    assert "**Question.**" in text
    assert "**Answer.**" in text
    assert f"[{name}]({name}/README.md)" in (ROOT / "analyses" / "README.md").read_text()


def test_studies_use_public_modules_only():
    for path in (ROOT / "analyses").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import _" not in text
        assert "shared" not in text


def test_six_stages_by_the_published_figures():
    result = saved("six_stages")
    stages = {row["stage"]: row for row in result["stages"]}
    mtp, full = stages["MTP, 3 drafts"], stages["full recipe"]
    assert round(mtp["weights_only_ms"]) == 117
    assert (mtp["profile_ms"], mtp["benchmark_ms"]) == (117.8, 119.7)
    alphas = [round(row["alpha"], 3) for row in result["stages"] if row["alpha"]]
    assert alphas == [0.873, 0.845, 0.841, 0.839, 0.839]
    assert round(result["tokens_at_10_from_alpha_at_7"], 2) == 5.45
    assert round(full["weighted_tokens_per_s"], 1) == 54.3
    for row in result["stages"]:
        parts = sum(row["residual_by_phase_ms"].values())
        assert parts == pytest.approx(row["residual_ms"], abs=2e-3)
        assert abs(row["residual_ms"]) < 0.03 * row["benchmark_ms"]


def test_the_last_stage_is_explained_phase_by_phase():
    last, both = saved("six_stages")["savings"][-2:]
    assert round(last["benchmark_ms"], 1) == 7.1
    assert round(last["explained_ms"], 1) == 5.5  # 3.3 by the head, 2.9 - 0.7 by replay
    assert round(last["remains_ms"], 1) == 1.6
    assert abs(both["remains_ms"]) < 0.2


def test_rates_of_the_verify_pass_and_the_drafter():
    result = saved("roofline")
    assert round(result["verify_pass"]["weight_gbps"]) == 203
    assert round(result["verify_pass"]["traffic_gbps"]) == 214
    stock = result["drafters"][0]
    assert round(stock["whole_file_gbps"]) == 230
    assert round(stock["without_gather_tables_gbps"]) == 215


def test_three_published_figures_do_not_follow():
    result = saved("article_audit")
    odd = [row for row in result["figures"] if not row["agrees"]]
    assert [row["published"] for row in odd] == [27.9, 53, 5.6]
    assert [round(row["counted"], 2) for row in odd] == [26.93, 51.25, 5.86]
    assert round(result["story_cache_gb"], 2) == 2.23


def test_mixing_across_tokens_reads_no_weights():
    for rows in saved("layer_flow").values():
        mixing = [row for row in rows if row["class"] in ("gdn", "attention")]
        assert mixing
        assert sum(row["weight_bytes"] for row in mixing) == 0
        assert sum(row["state_bytes"] for row in mixing) > 1_000_000
        order = [row["op"] for row in rows if row["weight_bytes"]]
        assert order[-2:] == ["gate+up", "down"]
    gdn = saved("layer_flow")["Gated DeltaNet"]
    # The bytes of one layer, less its norms and vectors: counted from the headers.
    assert sum(row["weight_bytes"] for row in gdn) == 266_774_552
