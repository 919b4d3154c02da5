from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from step_noise import baseline_of

from tracebook.cli import main
from tracebook.compare.baseline import load, write

FIXTURE = Path(__file__).parents[2] / "fixtures" / "full-recipe" / "trace.sqlite"
REPORT = {"trace": {"gpu": "NVIDIA GB10", "capture_mode": "node"}, "run": {"batch": 1}}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Saved runs by name: base, same, slower, hot, few, other."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(12)
    other = {"trace": {"gpu": "NVIDIA H200", "capture_mode": "node"}, "run": {"batch": 1}}
    for name, steps, change in (
        ("base", 60, {}),
        ("same", 60, {}),
        ("third", 60, {}),
        ("slower", 60, {"slower": {"drafter_layers": 1.06}}),
        ("hot", 60, {"everything": 1.12}),
        ("few", 9, {}),
        ("other", 60, {"report": other}),
    ):
        run = baseline_of(rng, steps, **{"report": REPORT, **change})
        write(run, tmp_path / f"{name}.json", packed=False)
    return tmp_path


@pytest.mark.parametrize(
    ("run", "status", "said"),
    [
        ("same", 0, "Passed: No regression"),
        ("slower", 3, "Regression: Slower in the drafter layers"),
        ("hot", 4, "Machine state (clock, power, thermal)"),
        ("few", 4, "9 steady steps; 20 are needed"),
        ("other", 4, "NVIDIA GB10 in the baseline, NVIDIA H200"),
    ],
)
def test_exit_status_and_reason(saved, capsys, run, status, said):
    assert main(["check", f"{run}.json", "--baseline", "base.json"]) == status
    streams = capsys.readouterr()
    assert said in " ".join(streams.out.split())
    assert streams.out.isascii()
    assert bool(streams.err) == (status != 0)


def test_gates_by_flag(saved, capsys):
    check = ["check", "slower.json", "--baseline", "base.json"]
    assert main([*check, "--phase", "drafter_layers=10%", "--phase", "step=5%"]) == 0
    assert main([*check, "--gate", "0.1"]) == 0
    assert main([*check, "--min-ms", "1"]) == 0
    assert main([*check, "--gate", "1%"]) == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gate", "2"], "2% or 0.02"),
        (["--gate", "much"], "2% or 0.02"),
        (["--phase", "drafter=1%"], "drafter_layers"),
        (["--phase", "drafter_layers"], "drafter_layers=1%"),
        (["--min-ms", "-1"], "0 ms or more"),
        (["--min-steps", "3"], "At least 8 steps"),
    ],
)
def test_gates_that_cannot_be(saved, capsys, flags, said):
    assert main(["check", "same.json", "--baseline", "base.json", *flags]) == 2
    assert said in capsys.readouterr().err


def test_json_tells_the_outcome(saved, capsys):
    assert main(["check", "slower.json", "--baseline", "base.json", "--format", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "tracebook.comparison/1"
    assert found["outcome"]["exit_code"] == 3
    assert found["outcome"]["regressions"] == ["drafter_layers"]
    parts = dict(found["decomposition_ns"])
    assert parts.pop("step") == sum(parts.values())
    phases = {row["phase"]: row for row in found["phases"]}
    assert phases["drafter_layers"]["verdict"] == "worse"
    assert phases["drafter_layers"]["contribution_ns"] == parts["drafter_layers"]


def test_junit_has_a_failure(saved, capsys):
    check = ["--baseline", "base.json", "--format", "junit"]
    assert main(["check", "slower.json", *check]) == 3
    suite = ET.fromstring(capsys.readouterr().out)
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["drafter_layers"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("10", "1", "0")
    assert main(["check", "hot.json", *check]) == 4
    suite = ET.fromstring(capsys.readouterr().out)
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")


def test_github_annotates_and_writes_the_summary(saved, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(saved / "summary.md"))
    assert main(["check", "slower.json", "--baseline", "base.json", "--format", "github"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("::error title=tracebook check::Slower in the drafter layers")
    assert "(+6." in lines[1] and " %25)" in lines[1]  # % is escaped
    summary = (saved / "summary.md").read_text()
    assert summary.startswith("**Regression.**")
    assert "| drafter layers |" in summary


def test_diff_exits_zero_whatever_it_finds(saved, capsys):
    for run in ("slower", "hot", "few", "other"):
        assert main(["diff", "base.json", f"{run}.json"]) == 0
    assert "NVIDIA H200" in capsys.readouterr().out
    assert main(["diff", "base.json", "slower.json", "--format", "markdown", "-o", "d.md"]) == 0
    assert "| drafter layers |" in (saved / "d.md").read_text()
    assert capsys.readouterr().out == ""


def test_calibrate_then_check(saved, capsys):
    runs = ["base.json", "same.json", "third.json"]
    assert main(["calibrate", *runs, "-o", "cal.json.gz"]) == 0
    assert "drafter layers" in capsys.readouterr().out
    learned = load(saved / "cal.json.gz")
    assert (len(learned.runs), learned.noise.runs) == (3, 3)
    assert main(["check", "same.json", "third.json", "--baseline", "cal.json.gz"]) == 0
    assert main(["check", "slower.json", "--baseline", "cal.json.gz"]) == 3
    assert main(["calibrate", "base.json", "other.json", "same.json", "-o", "x.json"]) == 4
    assert not (saved / "x.json").exists()


def test_baselines_by_name(saved, capsys):
    assert main(["baseline", "tag", "main", "base.json"]) == 0
    assert main(["check", "slower.json", "--baseline", "main"]) == 3
    assert main(["diff", "main", "same.json"]) == 0
    capsys.readouterr()
    assert main(["baseline", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("main")
    assert main(["baseline", "show", "main", "--format", "json"]) == 0
    assert capsys.readouterr().out == (saved / "base.json").read_text()
    assert main(["baseline", "rm", "main"]) == 0
    assert main(["check", "same.json", "--baseline", "main"]) == 1
    assert "baseline tag main" in capsys.readouterr().err


def test_saved_runs_take_no_description(saved, capsys):
    assert main(["check", "same.json", "--baseline", "base.json", "--batch", "2"]) == 2
    assert "batch cannot change it" in capsys.readouterr().err


def test_a_saved_report_is_refused_with_the_remedy(saved, capsys):
    (saved / "report.json").write_text('{"schema": "tracebook.report/1"}')
    assert main(["check", "report.json", "--baseline", "base.json"]) == 1
    assert "tracebook save" in capsys.readouterr().err


def test_save_keeps_steps_and_no_paths(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(FIXTURE.parents[2])
    before = hashlib.sha256(FIXTURE.read_bytes()).hexdigest()
    for name, flags in (("one", []), ("two", []), ("paths", ["--keep-paths"])):
        path = FIXTURE.relative_to(Path.cwd())
        assert main(["save", str(path), "-o", str(tmp_path / f"{name}.json"), *flags]) == 0
    assert hashlib.sha256(FIXTURE.read_bytes()).hexdigest() == before
    text = (tmp_path / "one.json").read_text()
    assert text == (tmp_path / "two.json").read_text()
    assert "fixtures/" not in text
    assert "fixtures/full-recipe/trace.sqlite" in (tmp_path / "paths.json").read_text()
    (run,) = load(tmp_path / "one.json").runs
    assert run.fact("trace", "path") == "trace.sqlite"
    assert run.steps == run.fact("steps", "kept")
    assert sum(part.kernels for part in run.parts) == sum(
        row["kernels"] for row in run.report["phases"]
    )
    for row in run.report["phases"]:
        assert np.median(run.phases_ns[row["phase"]]) / 1e6 == pytest.approx(row["ms"]["median"])
    # 100,032 rows of 5,120 FP8 weights, a BF16 scale and an 8-byte index each.
    assert run.checkpoint_bytes["draft_head"] == 100_032 * (5_120 + 2 + 8)
    assert sorted(run.checkpoint_bytes) == ["draft_head", "drafter", "target"]


def test_traces_are_compared_directly(capsys, tmp_path):
    assert main(["check", str(FIXTURE), "--baseline", str(FIXTURE)]) == 4
    assert "7 steady steps; 20 are needed" in " ".join(capsys.readouterr().out.split())
    assert main(["diff", str(FIXTURE), str(FIXTURE), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"] == []
    assert found["step"]["old_bytes"] == found["step"]["new_bytes"] > 20e9


def test_a_check_of_saved_runs_imports_nothing_heavy(saved):
    code = (
        "import sys; from tracebook.cli import main; "
        "status = main(['check', 'same.json', '--baseline', 'base.json']); "
        "heavy = {'polars', 'rich', 'matplotlib', 'sqlite_utils', 'adbc_driver_manager'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=saved, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_saved_run_still_gives_its_report(tmp_path, capsys):
    assert main(["save", str(FIXTURE), "-o", str(tmp_path / "run.json")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run.json")]) == 0
    assert "drafter layers 5.70" in " ".join(capsys.readouterr().out.split())
    both = [str(tmp_path / "run.json")] * 2
    assert main(["save", *both, "-o", str(tmp_path / "two.json")]) == 0
    assert main(["report", str(tmp_path / "two.json")]) == 1
    assert "not a saved report" in capsys.readouterr().err
