from __future__ import annotations

from pathlib import Path

import pytest

import tracebook
from tracebook.analysis import examine, plan_of_step
from tracebook.config import RunDescription
from tracebook.errors import CheckpointError, RunDescriptionError
from tracebook.options import Options, describe

ROOT = Path(__file__).parents[1]
HEADERS = ROOT / "fixtures" / "headers"
TARGET = str(HEADERS / "target-nvfp4.headers.json.gz")
DRAFTER = str(HEADERS / "drafter-nvfp4.headers.json.gz")
FULL = ROOT / "fixtures" / "full-recipe" / "trace.sqlite"


@pytest.fixture
def no_description(tmp_path):
    """An empty run description, so that the one beside the trace is left alone."""
    path = tmp_path / "empty.toml"
    path.write_text("")
    return path


def codes(report):
    return [warning.code for warning in report.warnings]


def test_every_option_but_the_selection_reaches_the_description(tmp_path):
    options = Options(
        checkpoint=Path("t"),
        drafter="d",
        draft_method="dflash2",
        draft_tokens=3,
        draft_head="h",
        bandwidth=1.0,
        machine="m",
        ceiling_gbps=2.0,
        context_tokens=4,
        batch=5,
        tokens_per_step=6.0,
        device=7,
    )
    assert describe(tmp_path / "x.sqlite", options) == RunDescription(
        target=str(Path.cwd() / "t"),
        drafter=str(Path.cwd() / "d"),
        draft_method="dflash2",
        draft_tokens=3,
        draft_head=str(Path.cwd() / "h"),
        bandwidth_gbps=1.0,
        machine="m",
        ceiling_gbps=2.0,
        context_tokens=4,
        batch=5,
        tokens_per_step=6.0,
    )


def test_the_drafters_config_tells_its_method():
    run, plan, *_ = plan_of_step(RunDescription(target=TARGET, drafter=DRAFTER), None)
    assert run.draft_method == "dflash2"
    assert {"draft", "draft_head"} <= {block.name for block in plan.blocks}


def test_a_drafter_that_does_not_tell_its_method_is_refused():
    with pytest.raises(RunDescriptionError, match="does not tell its method") as caught:
        plan_of_step(RunDescription(target=TARGET, drafter=TARGET), None)
    assert "--draft-method" in caught.value.hint


@pytest.mark.parametrize("field", ["draft_tokens", "draft_head"])
def test_drafting_without_a_method_is_refused(field):
    value = 3 if field == "draft_tokens" else DRAFTER
    with pytest.raises(RunDescriptionError, match="not how tokens are drafted"):
        plan_of_step(RunDescription(target=TARGET, **{field: value}), None)


def test_the_model_of_the_command_line_is_looked_up(monkeypatch):
    monkeypatch.setattr("tracebook.analysis.find_in_hf_cache", lambda _name: Path(TARGET))
    run, plan, notices, _ = plan_of_step(RunDescription(), "org/model")
    assert run.target == "org/model"
    assert sum(r.weight_bytes for r in plan.reads if r.phase == "output_layer") == 1_271_895_040
    assert [notice.code for notice in notices] == ["model_from_command_line"]


def test_a_named_checkpoint_comes_before_the_command_line(monkeypatch):
    monkeypatch.setattr("tracebook.analysis.find_in_hf_cache", pytest.fail)
    run, _, notices, _ = plan_of_step(RunDescription(target=TARGET), "org/model")
    assert run.target == TARGET
    assert notices == ()


def test_a_model_that_is_not_cached_is_told(monkeypatch):
    monkeypatch.setattr("tracebook.analysis.find_in_hf_cache", lambda _name: None)
    run, plan, notices, _ = plan_of_step(RunDescription(), "org/model")
    assert (run.target, plan) == (None, None)
    assert "org/model" in notices[0].message
    with pytest.raises(CheckpointError, match="neither a path nor in the local"):
        plan_of_step(RunDescription(target="org/model"), None)


def test_without_a_checkpoint_there_are_times(no_description, monkeypatch):
    monkeypatch.setattr("tracebook.analysis.find_in_hf_cache", lambda _name: None)
    report = tracebook.analyze(FULL, run_file=no_description)
    assert report.steps.wall_ms.median == pytest.approx(99.6, rel=0.01)
    assert report.total.weight_bytes is None
    assert {"no_checkpoint", "model_not_cached"} <= set(codes(report))


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint": HEADERS / "target-fp8.headers.json.gz"},  # same shapes, other bytes
        {"drafter": HEADERS / "drafter-bf16.headers.json.gz"},
        {"draft_head": HEADERS / "target-nvfp4.headers.json.gz"},  # the full vocabulary
    ],
    ids=["target", "drafter", "head"],
)
def test_a_wrong_checkpoint_is_called_out(wrong):
    report = tracebook.analyze(FULL, **wrong)
    assert set(codes(report)) - {"synthetic"}


def test_a_forgotten_drafter_is_called_out(no_description):
    report = tracebook.analyze(FULL, run_file=no_description, checkpoint=TARGET)
    assert {"products_without_plan", "phases_untrusted"} & set(codes(report))


def test_a_wrong_draft_length_is_contradicted_by_the_kernels():
    report = tracebook.analyze(ROOT / "fixtures/mtp3/trace.sqlite", draft_tokens=4)
    assert "plan_contradicted" in codes(report)
    assert report.run.draft_tokens == 3
    assert report.total.weight_bytes == 25_467_565_440  # three drafts, not four
    written = [m for r in report.phase_rows for m in r.traffic if m.name == "recurrent_state"]
    assert sum(m.bytes for m in written if m.direction == "write") == 4 * 75_497_472


def test_folders_of_an_absolute_path_are_not_told(monkeypatch):
    trace = ROOT / "fixtures" / "mtp3" / "trace.sqlite"
    monkeypatch.chdir(ROOT / "fixtures")
    assert tracebook.analyze(trace).trace.path == "trace.sqlite"
    assert tracebook.analyze(Path("mtp3/trace.sqlite")).trace.path == "mtp3/trace.sqlite"


def test_the_selection_reaches_the_trace():
    examined = examine(FULL, from_ns=400_000_000, to_ns=900_000_000)
    rows = examined.labelled.rows
    assert rows["start_ns"].min() >= 400_000_000
    assert rows["start_ns"].max() < 900_000_000
    assert examined.labelled.steps.height in (3, 4)
