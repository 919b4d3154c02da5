"""`tracebook report --all-ranks` on generated captures of several ranks and processes."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from accuracy.cases import make
from accuracy.family import CASES

from tracebook.cli import main
from tracebook.errors import NoDecodeSteps
from tracebook.opening import BASE_BYTES
from tracebook.ranks import Ranks, analyze_ranks

BY_NAME = {case.name: case for case in CASES}
TWO = "llama70-fp8-vllm-tp2"
PAIRS = [(0, 4211), (1, 4214)]  # as the generator numbers devices and processes


def made(out: Path, name: str, **changes: object) -> Path:
    make(replace(BY_NAME[name], steps=10, **changes), out, seed=5)
    return out / name / "trace.sqlite"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks; run.toml says tensor_parallel = 2."""
    return made(tmp_path_factory.mktemp("two"), TWO)


@pytest.fixture(scope="module")
def unsaid(tmp_path_factory):
    """The same without the number of ranks in run.toml."""
    out = tmp_path_factory.mktemp("unsaid")
    return made(out, TWO, told={"workload.tensor_parallel": None})


def bytes_by_truth(trace):
    """Weight bytes per phase and step of each lane, from the generator."""
    lanes = defaultdict(lambda: defaultdict(int))
    steps = defaultdict(set)
    with (trace.parent / "truth.csv").open() as file:
        for row in csv.DictReader(file):
            if row["step_id"]:
                device, pid = (int(part) for part in row["lane"].split("/"))
                lanes[device, pid][row["phase"]] += int(row["weight_bytes"])
                steps[device, pid].add(row["step_id"])
    return {
        lane: {phase: total / len(steps[lane]) for phase, total in phases.items()}
        for lane, phases in lanes.items()
    }


def told(capsys, *args):
    assert main(["report", *(str(arg) for arg in args)]) == 0
    return capsys.readouterr().out


def test_ranks_of_a_trace_that_is_larger_than_the_memory_allowed(two):
    whole = analyze_ranks(two).to_json(steps=True)
    assert analyze_ranks(two, max_memory_bytes=BASE_BYTES).to_json(steps=True) == whole


def test_each_rank_has_a_report_with_its_own_bytes(two, capsys):
    document = json.loads(told(capsys, two, "--all-ranks", "--format", "json"))
    assert document["schema"] == "tracebook.reports/1"
    ranks = document["ranks"]
    assert [(r["trace"]["device"], r["trace"]["pid"]) for r in ranks] == PAIRS
    assert [rank["schema"] for rank in ranks] == ["tracebook.report/1"] * 2
    truth = bytes_by_truth(two)
    for rank, lane in zip(ranks, PAIRS, strict=True):
        assert rank["run"]["tensor_parallel"] == 2
        found = {row["phase"]: row["weight_bytes"] for row in rank["phases"]}
        for phase in ("target_layers", "output_layer"):
            assert found[phase] == pytest.approx(truth[lane][phase], rel=0.001)


def test_the_reports_are_those_of_device_and_pid(two, capsys):
    document = json.loads(told(capsys, two, "--all-ranks", "--format", "json"))
    device, pid = PAIRS[1]
    one = json.loads(told(capsys, two, "--device", device, "--pid", pid, "--format", "json"))
    assert document["ranks"][1]["phases"] == one["phases"]
    assert document["ranks"][1]["steps"] == one["steps"]


def test_the_spread_is_that_of_the_reports(two, capsys):
    document = json.loads(told(capsys, two, "--all-ranks", "--format", "json"))
    work = [
        sum(row["ms"]["median"] for row in rank["phases"] if row["phase"] != "communication")
        for rank in document["ranks"]
    ]
    spread = document["spread"]
    assert spread["slowest"] == work.index(max(work))
    assert spread["work_ms"] == pytest.approx([min(work), max(work)])
    assert spread["spread_pct"] == pytest.approx(100 * (max(work) / min(work) - 1), abs=1e-4)


def test_text_has_a_table_for_each_rank_and_a_closing_line(two, capsys):
    text = told(capsys, two, "--all-ranks")
    assert text.isascii()
    assert text.count("target layers") >= 2
    for number, (device, pid) in enumerate(PAIRS):
        assert f"== rank {number} (device {device}, pid {pid}) ==" in text
    flat = " ".join(text.split())
    assert "one of 2 ranks, its own bytes only" in flat
    assert "2 ranks decode; the slowest is rank" in flat
    assert "left out; this is device" not in flat  # none of the ranks is


def test_markdown_and_csv_tell_the_ranks_apart(two, capsys):
    text = told(capsys, two, "--all-ranks", "--format", "markdown")
    assert text.count("# rank") == 2
    rows = list(csv.DictReader(io.StringIO(told(capsys, two, "--all-ranks", "--format", "csv"))))
    assert {(row["rank"], row["device"], row["pid"]) for row in rows} == {
        (str(number), str(device), str(pid)) for number, (device, pid) in enumerate(PAIRS)
    }
    assert {row["phase"] for row in rows} >= {"target_layers", "communication", "idle"}


def test_saved_reports_are_shown_again(two, tmp_path, capsys):
    saved = tmp_path / "ranks.json"
    shown = told(capsys, two, "--all-ranks")
    told(capsys, two, "--all-ranks", "--format", "json", "-o", saved)
    assert told(capsys, saved) == shown
    assert told(capsys, saved, "--all-ranks") == shown
    assert main(["report", str(saved), "--batch", "2"]) == 2


def test_a_number_of_ranks_that_was_not_said_is_assumed_and_told(unsaid, two):
    ranks, known = analyze_ranks(unsaid), analyze_ranks(two)
    for report, other in zip(ranks.reports, known.reports, strict=True):
        assert "tensor_parallel_assumed" in [warning.code for warning in report.warnings]
        assert "tensor parallelism over 2 ranks" in report.run.assumed
        assert report.total.weight_bytes == other.total.weight_bytes
    assert "tensor_parallel_assumed" not in [warning.code for warning in known.warnings]


def test_a_number_that_was_said_wins(unsaid):
    ranks = analyze_ranks(unsaid, tensor_parallel=2)
    assert "tensor_parallel_assumed" not in [warning.code for warning in ranks.warnings]


def test_too_few_ranks_for_the_number_said_are_told(two):
    ranks = analyze_ranks(two, device=1)
    assert [(r.trace.device, r.trace.pid) for r in ranks.reports] == [PAIRS[1]]
    assert "ranks_missing" in [warning.code for warning in ranks.warnings]


def test_a_process_that_does_not_decode_is_left_out_with_a_reason(tmp_path, capsys):
    trace = made(tmp_path, "llama8-vllm-foreign-process")
    document = json.loads(told(capsys, trace, "--all-ranks", "--format", "json"))
    (rank,) = document["ranks"]
    assert rank["trace"]["pid"] == PAIRS[0][1]
    (left,) = document["left_out"]
    assert left["pid"] != rank["trace"]["pid"]
    assert left["reason"]
    assert f"pid {left['pid']}" in told(capsys, trace, "--all-ranks")


def test_where_none_decodes_there_is_no_report(tmp_path, capsys):
    name = next(case.name for case in CASES if case.expect == "refuse")
    trace = made(tmp_path, name)
    with pytest.raises(NoDecodeSteps, match="No device and process"):
        analyze_ranks(trace)
    assert main(["report", str(trace), "--all-ranks"]) == 1


def test_the_first_steps_are_those_of_each_rank(two):
    ranks = analyze_ranks(two, steps=4)
    assert [report.steps.kept for report in ranks.reports] == [4, 4]


def test_formats_of_one_page_and_several_traces_are_refused(two, capsys):
    assert main(["report", str(two), "--all-ranks", "--format", "html"]) == 2
    assert main(["report", str(two), str(two), "--all-ranks"]) == 2


def test_json_reads_back(two):
    ranks = analyze_ranks(two)
    assert Ranks.from_json(ranks.to_json()) == ranks
