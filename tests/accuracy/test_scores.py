"""The labels on a small family that nobody tuned for, held to what a user may expect.

Every case is generated, reported and scored through the command line, in this process. The
whole family (`make accuracy`) is larger; these are the kinds that differ most.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tracebook.cli import main

from . import score as scoring
from .cases import make
from .family import CASES
from .table import MAIN

SEED = 23
BY_NAME = {case.name: case for case in CASES}

#: Runs with a right plan, and how many steps of them are made.
INFORMATIVE = {
    "hybrid-vllm-dflash2-full-recipe": 10,
    "hybrid-sglang-dflash2-drafter-first": 10,
    "hybrid-vllm-mtp3": 10,
    "qwen8-vllm-piecewise": 12,
    "llama70-fp8-vllm-tp2": 8,
    "llama8-eagle3-renamed": 16,
    "qwen8-split-k-chunked-head": 12,
}
GENERIC = {
    "hybrid-full-generic": 12,
    "llama8-llamacpp-generic-trimmed": 12,
}
STEPS = INFORMATIVE | GENERIC
#: Least precision and recall of a phase, least share of target layers' time in its layer.
BOUNDS = dict.fromkeys(INFORMATIVE, (0.98, 0.99)) | dict.fromkeys(GENERIC, (0.95, 0.97))

#: What a refusal must say, by what the capture holds.
REASONS = {
    "none-training": "training",
    "none-single": "no whole step repeats|no sequence",
    "none-noise": "repeats",
    "none-loop": "no whole step repeats|no sequence",
    "none-autotune": "autotuning",
}

#: Wrong plans, and the steps of their traces.
WRONG = {
    "wrong-fp8-for-nvfp4": 8,
    "wrong-k4-for-k3": 8,
    "wrong-forgotten-drafter": 8,
    "wrong-full-head-for-reduced": 8,
    "wrong-one-rank-for-two": 6,
}


@cache
def run_inside(*args: str) -> tuple[int, str, str, float]:
    """`tracebook` in this process; as `score.tool` otherwise. What was run is not run again."""
    out, err, start = io.StringIO(), io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*args])
    return code, out.getvalue(), err.getvalue(), time.perf_counter() - start


def tool(*args: str) -> tuple[int, str, str, float]:
    """Stands in for `score.tool`; keeps the kernels' table beside the trace."""
    done = run_inside(*args)
    if args[0] == "kernels" and done[0] == 0:
        shutil.copy(args[-1], Path(args[1]).with_name("rows.csv"))
    return done


@pytest.fixture(scope="session")
def scored(tmp_path_factory):
    """Results by name, each made and scored when first asked for."""
    out, known = tmp_path_factory.mktemp("family"), {}

    def result(name: str, steps: int):
        if name not in known:
            case = replace(BY_NAME[name], steps=steps)
            make(case, out, SEED)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(scoring, "tool", tool)
                known[name] = scoring.score(out / name) | {"folder": out / name}
            assert not known[name].get("failed"), known[name]
        return known[name]

    return result


over_right = pytest.mark.parametrize("name", STEPS)


@over_right
def test_each_phase_is_whole_and_pure(scored, name):
    """By time, each phase on its own: the target alone is four fifths of a step."""
    result = scored(name, STEPS[name])
    least, _ = BOUNDS[name]
    for phase in MAIN:
        for value in result["phases"][phase] or []:
            assert value is not None, phase
            assert value >= least, (phase, result["phases"][phase], result["confusion"])


@over_right
def test_layers_of_the_target(scored, name):
    _, least = BOUNDS[name]
    assert scored(name, STEPS[name])["layer_time"] >= least


@over_right
def test_every_boundary_is_within_one_kernel_and_no_step_is_invented(scored, name):
    result = scored(name, STEPS[name])
    assert result["exact"] + result["near"] == result["steps"]
    assert result["extra"] == 0
    assert result["kept"] <= result["steps"]


@over_right
def test_a_right_plan_raises_no_alarm(scored, name):
    result = scored(name, STEPS[name])
    assert not result["false_alarm"], result["warnings"]


@over_right
def test_bytes_of_each_phase_are_those_that_were_read(scored, name):
    """Norms and vectors, which have no kernel of their own, add at most half a percent."""
    for phase, off in scored(name, STEPS[name])["bytes_off"].items():
        assert -0.001 <= off <= 0.005, phase


def exclusive_ns(rows):
    """Step -> phase -> ns: each instant goes to the running kernel that started first."""
    steps: dict[str, dict[str, int]] = {}
    inside = [row for row in rows if row["step_id"]]  # other ranks and warm-up have no step
    reached = 0
    for row in sorted(inside, key=lambda r: (int(r["start_ns"]), int(r["kernel_id"]))):
        start, end = int(row["start_ns"]), int(row["end_ns"])
        phases = steps.setdefault(row["step_id"], {})
        phases[row["phase"]] = phases.get(row["phase"], 0) + max(0, end - max(start, reached))
        reached = max(reached, end)
    return steps


@over_right
def test_time_is_conserved(scored, name):
    """Phases and idle are the wall time, and the phases are those of the labelled kernels."""
    folder = scored(name, STEPS[name])["folder"]
    _, text, _, _ = run_inside("report", str(folder / "trace.sqlite"), "--format", "json")
    report = json.loads(text)
    said = {row["phase"]: row["ms"]["mean"] for row in report["phases"]}
    wall, idle = (report["steps"][key]["mean"] for key in ("wall_ms", "idle_ms"))
    assert sum(said.values()) + idle == pytest.approx(wall, abs=2e-5)
    text = (folder / "rows.csv").read_text()
    steps = exclusive_ns(list(csv.DictReader(io.StringIO(text))))
    assert len(steps) == report["steps"]["kept"]
    for phase, mean in said.items():
        total = sum(phases.get(phase, 0) for phases in steps.values())
        assert mean == pytest.approx(total / len(steps) / 1e6, abs=2e-6), phase


@over_right
def test_bytes_are_conserved(scored, name):
    """The total is the sum of the phases, in whole bytes."""
    folder = scored(name, STEPS[name])["folder"]
    _, text, _, _ = run_inside("report", str(folder / "trace.sqlite"), "--format", "json")
    report = json.loads(text)
    parts = [row["weight_bytes"] or 0 for row in report["phases"]]
    assert all(isinstance(part, int) for part in parts)
    assert sum(parts) == report["total"]["weight_bytes"]


@pytest.mark.parametrize("name", REASONS)
def test_where_there_is_no_decode_that_is_said(scored, name):
    result = scored(name, 5)
    assert result["exit"] == 1
    assert re.search(REASONS[name], result["message"]), result["message"]


def test_prefill_alone_is_refused(scored):
    assert scored("none-prefill", 5)["exit"] == 1


def test_prefill_alone_is_called_by_its_name(scored):
    assert re.search("prefill|not bound by reading", scored("none-prefill", 5)["message"])


def test_one_graph_a_token_with_the_output_layer_in_it(scored):
    """llama.cpp on the hybrid model: no steady decode is found at all."""
    assert scored("hybrid-llamacpp", 10)["exit"] == 0


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_called_out(scored, name):
    result = scored(name, WRONG[name])
    assert result["called_out"], result["warnings"]


def test_the_trace_is_left_as_it_was(tmp_path):
    case = replace(BY_NAME["llama8-vllm-eagle3-k3"], steps=6)
    make(case, tmp_path, SEED)
    folder = tmp_path / case.name
    before = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    for args in (["report"], ["kernels", "-o", "-"]):
        assert run_inside(args[0], str(folder / "trace.sqlite"), *args[1:])[0] == 0
    assert {path: path.read_bytes() for path in sorted(folder.iterdir())} == before
