"""The saved runs are under check themselves: their reports are what was last accepted.

A change of any figure or warning shows here. `pytest --accept` takes it over; the
difference is then part of the change and is read with it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from goldens import check_golden

import tracebook
from tracebook.compare.baseline import load
from tracebook.compare.comparison import compare
from tracebook.compare.outcome import judge
from tracebook.render import render
from tracebook.render.comparison import render as render_comparison
from tracebook.report import Report

ROOT = Path(__file__).parents[1]
RUNS = sorted(path.parent for path in (ROOT / "fixtures").glob("*/trace.sqlite"))


@pytest.fixture
def accept(request):
    return request.config.getoption("--accept")


@pytest.fixture
def found(request, monkeypatch) -> Report:
    """The report of a saved run, its paths as seen from the root of the project."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    return tracebook.analyze(request.param.relative_to(ROOT) / "trace.sqlite")


over_runs = pytest.mark.parametrize(
    ("found", "run"), [(run, run) for run in RUNS], ids=[run.name for run in RUNS],
    indirect=["found"],
)  # fmt: skip


@over_runs
def test_the_report_is_the_expected_one(found, run, accept):
    check_golden(run / "expected.json", found.to_json(), accept=accept)
    nameless = replace(found, trace=replace(found.trace, path="trace.sqlite"))
    assert Report.load(run / "expected.json") == nameless  # folders are not saved


@over_runs
def test_the_text_is_the_expected_one(found, run, accept):
    check_golden(run / "expected.txt", render(found, "text"), accept=accept)


@pytest.mark.parametrize("format_name", ["json", "text", "markdown", "junit", "github"])
def test_the_comparison_is_the_expected_one(format_name, monkeypatch, accept):
    """Saved runs before and after a drafter that is 6 % slower, as a check tells it."""
    monkeypatch.setenv("COLUMNS", "80")
    place = ROOT / "fixtures" / "comparison"
    found = compare(load(place / "before.json.gz"), load(place / "after.json.gz"))
    text = render_comparison(found, judge(found), format_name)
    ending = {"text": "txt", "markdown": "md", "junit": "xml", "github": "log"}
    check_golden(place / f"expected.{ending.get(format_name, format_name)}", text, accept=accept)


def test_every_saved_run_is_under_check():
    assert {run.name for run in RUNS} >= {"plain-fp8", "plain-nvfp4", "mtp3", "dflash2-k7",
                                          "dflash2-k10", "dflash2-k10-nvfp4-drafter",
                                          "full-recipe"}  # fmt: skip


def test_drift_fails_and_shows_itself(tmp_path):
    expected = tmp_path / "expected.txt"
    expected.write_text("one\ntwo\n")
    with pytest.raises(AssertionError, match=r"(?s)-two.*\+three"):
        check_golden(expected, "one\nthree\n", accept=False)
    assert (tmp_path / "expected.txt.got").read_text() == "one\nthree\n"
    assert expected.read_text() == "one\ntwo\n"
    check_golden(expected, "one\nthree\n", accept=True)
    assert expected.read_text() == "one\nthree\n"
    assert not (tmp_path / "expected.txt.got").exists()


def test_a_missing_expectation_fails(tmp_path):
    with pytest.raises(AssertionError, match="--accept"):
        check_golden(tmp_path / "expected.txt", "one\n", accept=False)
