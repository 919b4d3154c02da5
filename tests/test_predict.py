"""Predictions against the article's figures, and against bytes counted by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tracebook.cli import main
from tracebook.config import RunDescription, load_run
from tracebook.errors import RunDescriptionError
from tracebook.predict import predict
from tracebook.report import Report

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "fixtures"


@cache
def plain() -> Report:
    return Report.load(RUNS / "plain-nvfp4" / "expected.json")


def described(name, **changes):
    return replace(load_run(RUNS / name / "run.toml"), **changes)


def test_the_plain_step_has_the_published_floor():
    found = predict(described("plain-nvfp4"))
    assert found.weight_bytes == 19_103_683_968
    assert round(found.weight_bytes / 273e6, 1) == 70.0
    # Beside the weights: 512 tokens of cache, two states, convolution, a row, logits twice.
    more = 513 * 65_536 + 2 * 75_497_472 + 2 * 2_949_120 + 10_240 + 2 * 496_640
    assert found.traffic_bytes == 19_103_683_968 + more
    assert found.step_ms("peak") == pytest.approx(found.traffic_bytes / 273e6)
    assert found.speculation is None
    assert [step.at for step in found.steps] == ["peak", "ceiling"]


def test_mtp_at_the_speed_of_the_plain_run_is_117_ms():
    found = predict(described("mtp3"), learn_from=plain())
    assert found.weight_bytes == 25_467_565_440
    assert round(found.step_ms("learnt, weights only")) == 117
    # With three of four snapshots counted and phase by phase it is the profile's 117.8.
    assert found.step_ms("learnt, by phase") == pytest.approx(117.8, abs=0.1)
    assert round(found.speculation.alpha, 3) == 0.873


@pytest.mark.parametrize(
    ("name", "measured_ms"),
    [
        ("mtp3", 117.8), ("dflash2-k7", 112.1), ("dflash2-k10", 114.5),
        ("dflash2-k10-nvfp4-drafter", 105.0), ("full-recipe", 97.9),
    ],
)  # fmt: skip
def test_all_stages_within_three_percent_of_the_benchmark(name, measured_ms):
    found = predict(described(name), learn_from=plain())
    assert found.step_ms("learnt, by phase") == pytest.approx(measured_ms, rel=0.03)


def test_a_report_predicts_its_own_step():
    found = predict(described("plain-nvfp4"), learn_from=plain())
    for at in ("learnt, weights only", "learnt, whole step", "learnt, by phase"):
        assert found.step_ms(at) == pytest.approx(plain().steps.wall_ms.median, rel=1e-6)


def test_tokens_per_second_are_tokens_over_the_step():
    found = predict(described("full-recipe"), learn_from=plain())
    last = found.steps[-1]
    assert last.tokens_per_s == pytest.approx(5.32 / last.ms * 1e3, abs=1e-3)
    two = predict(described("full-recipe", batch=2, tokens_per_step=2 * 5.32))
    assert two.speculation.alpha == pytest.approx(found.speculation.alpha)


def test_rates_carry_over_to_a_faster_machine():
    found = predict(described("plain-nvfp4", machine=None, bandwidth_gbps=546.0),
                    learn_from=plain())  # fmt: skip
    here = predict(described("plain-nvfp4"), learn_from=plain())
    assert found.learnt.scale == 2.0
    assert found.step_ms("learnt, whole step") * 2 == pytest.approx(
        here.step_ms("learnt, whole step")
    )


def test_the_machine_of_the_report_serves_where_none_is_named():
    found = predict(described("plain-nvfp4", machine=None), learn_from=plain())
    assert found.machine.bandwidth_gbps == 273
    without = predict(described("plain-nvfp4", machine=None))
    assert without.steps == ()
    assert "no_rate" in [warning.code for warning in without.warnings]


def test_mtp_has_a_best_length_and_a_block_drafter_wants_long_drafts():
    mtp = predict(described("mtp3"), learn_from=plain(), sweep=True)
    steps = [row.step_ms for row in mtp.sweep]
    growth = [b - a for a, b in pairwise(steps)]
    assert max(growth) == pytest.approx(min(growth), rel=0.01)  # linear in K
    assert mtp.speculation.best_draft_tokens == 8
    block = predict(described("dflash2-k10"), learn_from=plain(), sweep=True)
    assert block.sweep[16].step_ms < 1.05 * block.sweep[1].step_ms  # nearly flat
    assert block.speculation.best_draft_tokens == 16
    assert [row.draft_tokens for row in block.sweep] == list(range(17))
    assert block.sweep[0].speedup == 1.0


def test_alpha_can_be_given_and_else_stays_unknown():
    run = described("dflash2-k10", tokens_per_step=None)
    unknown = predict(run, sweep=True)
    assert unknown.speculation.alpha is None
    assert {row.tokens_per_s for row in unknown.sweep[1:]} == {None}
    given = predict(run, alpha=0.841)
    assert round(given.speculation.tokens_per_step, 2) == 5.35


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"target": None}, {}, "needs a checkpoint"),
        ({"draft_method": "dflash2", "drafter": str(RUNS / "headers/drafter-bf16.headers.json.gz")},
         {}, "not known"),
        ({}, {"sweep": True}, "Nothing is drafted"),
        ({}, {"alpha": 0.5}, "Nothing is drafted"),
        ({"draft_method": "mtp", "draft_tokens": 3}, {"alpha": 1.5}, "0 to 1"),
        ({"draft_method": "mtp", "draft_tokens": 3, "tokens_per_step": 5.0}, {}, "between 1 and 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted_is_refused(changes, options, said):
    with pytest.raises(RunDescriptionError, match=said):
        predict(described("plain-nvfp4", **({"draft_method": None, "tokens_per_step": None}
                                            | changes)), **options)  # fmt: skip


def test_a_report_without_bytes_teaches_nothing(report):
    bare = replace(report, total=replace(report.total, traffic_gbps=None))
    with pytest.raises(RunDescriptionError, match="no bytes"):
        predict(described("plain-nvfp4"), learn_from=bare)


def test_assumptions_are_named():
    found = predict(RunDescription(target=described("plain-nvfp4").target))
    assert "batch 1" in found.assumed
    codes = [warning.code for warning in found.warnings]
    assert {"context_unknown", "state_dtype_unsure", "no_rate"} <= set(codes)


COMMAND = ["predict", "fixtures/mtp3/run.toml", "--from", "fixtures/plain-nvfp4/expected.json"]


@pytest.fixture(autouse=True)
def _at_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")


def test_the_command_shows_each_rate_and_the_best_length(capsys):
    assert main([*COMMAND, "--sweep"]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    assert "learnt, weights only  217.2  117.3" in text
    assert "The best number of drafts up to 16 is 8." in " ".join(text.split())


def test_json_holds_the_traffic(capsys):
    assert main([*COMMAND, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tracebook.prediction/1"
    for phase in document["phases"]:
        assert phase["traffic_bytes"] == sum(m["bytes"] for m in phase["traffic"])


def test_markdown_goes_to_a_file(tmp_path, capsys):
    out = tmp_path / "p.md"
    assert main([*COMMAND, "--format", "markdown", "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert "| learnt, whole step |" in out.read_text()


def test_flags_win_over_the_file(capsys):
    flags = ["--draft-tokens", "2", "--alpha", "0.5", "--context-tokens", "34000", "--kv-dtype",
             "fp8", "--bandwidth", "100"]  # fmt: skip
    assert main([*COMMAND[:2], *flags, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokens_per_step"] == 1.75
    assert document["machine"]["bandwidth_gbps"] == 100
    cache = [m for m in document["phases"][0]["traffic"] if m["name"] == "kv_cache"]
    assert cache[0]["bytes"] == 34_000 * 65_536 // 2
