"""Scopes against labels: small hand-made cases, and generated captures with scopes added."""

from __future__ import annotations

import csv
import itertools
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace

import polars as pl
import pytest
from accuracy.cases import make
from accuracy.family import CASES
from handmade import make_trace

import tracebook
from tracebook.importers.nvtx import LAUNCH_SCHEMA, scope_rules
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA, Labelled, LabelledKernels
from tracebook.kernels.nvtx import compare_scopes
from tracebook.report import Report

SCOPE = {rule.name: number for number, rule in enumerate(scope_rules())}
PID = 41


def compare(rows, launches, pid=PID):
    """Scopes against labels.

    rows: (correlation id, step id, phase, layer, duration in ns), one kernel each.
    launches: (correlation id, scope name, range id, layer) or with the pid first.
    """
    records, at = [], 0
    for number, (_, step, phase, layer, duration) in enumerate(rows):
        record = dict.fromkeys(ROW_SCHEMA) | {
            "kernel_id": number,
            "step_id": step,
            "phase": phase,
            "layer": layer,
            "kernel_class": "gemm",
            "start_ns": at,
            "end_ns": at + duration,
            "evidence": "alignment",
            "name_id": 0,
        }
        records.append(record)
        at += duration
    labelled = Labelled(
        kernels=LabelledKernels.of(pl.DataFrame(records, schema=pl.Schema(ROW_SCHEMA))),
        steps=pl.DataFrame(schema=pl.Schema(STEP_SCHEMA)),
        found=1,
        dropped=(),
        source="hand",
        verdict=None,
        plan=None,
        device=0,
        pid=pid,
    )
    trace = make_trace()
    kernels = [(number, row[0]) for number, row in enumerate(rows)]
    schema = {"kernel_id": pl.Int64, "correlation_id": pl.Int64}
    trace = replace(trace, kernels=pl.DataFrame(kernels, schema=schema, orient="row"))
    full = [row if len(row) == 5 else (PID, *row) for row in launches]
    listed = [(p, correlation, SCOPE[name], r, layer) for p, correlation, name, r, layer in full]
    frame = pl.DataFrame(listed, schema=pl.Schema(LAUNCH_SCHEMA), orient="row")
    return compare_scopes(labelled, trace, frame)


def shares(agreement):
    return {scope.scope: scope.agreement for scope in agreement.scopes}


def test_each_scope_is_judged_by_time():
    rows = [
        (1, 0, "target_layers", 0, 600),
        (2, 0, "target_layers", 1, 300),
        (3, 0, "drafter_layers", 0, 100),
        (4, 0, "sampling", None, 50),
    ]
    launches = [(c, "forward", 1, None) for c in (1, 2, 3)] + [(4, "sample", 2, None)]
    agreement, notices = compare(rows, launches)
    assert shares(agreement) == {"forward": 0.9, "sample": 1.0}
    assert [(s.kernels, s.ms) for s in agreement.scopes] == [(3, 0.001), (1, 0.00005)]
    assert agreement.agreement == pytest.approx(950 / 1050, abs=1e-6)
    (notice,) = notices
    assert notice.code == "nvtx_conflict"
    assert "10.0 % of the kernel time of 'forward'" in notice.message
    assert "drafter_layers" in notice.message
    assert "sample" not in notice.message


def test_one_launch_holds_all_kernels_of_a_graph():
    rows = [(9, 0, "target_layers", layer, 100) for layer in range(4)]
    agreement, notices = compare(rows, [(9, "forward", 1, None)])
    assert (agreement.scopes[0].kernels, agreement.agreement, notices) == (4, 1.0, ())


def test_kernels_without_a_phase_are_not_judged():
    rows = [(1, 0, "target_layers", 0, 100), (2, 0, "unclassified", None, 900)]
    agreement, notices = compare(rows, [(1, "forward", 1, None), (2, "forward", 1, None)])
    assert (shares(agreement), notices) == ({"forward": 1.0}, ())
    agreement, notices = compare(rows, [(2, "forward", 1, None)])
    assert (agreement.agreement, notices) == (None, ())


def test_kernels_outside_kept_steps_are_not_judged():
    rows = [(1, None, "drafter_layers", 0, 900), (2, 0, "target_layers", 0, 100)]
    agreement, notices = compare(rows, [(1, "forward", 1, None), (2, "forward", 2, None)])
    assert (agreement.scopes[0].kernels, agreement.agreement, notices) == (1, 1.0, ())


def test_nothing_launched_inside_a_scope_is_none():
    assert compare([(1, 0, "target_layers", 0, 100)], [(5, "forward", 1, None)]) == (None, ())


def test_ids_of_other_processes_do_not_count():
    rows = [(1, 0, "target_layers", 0, 100)]
    assert compare(rows, [(PID + 1, 1, "draft", 1, None)]) == (None, ())
    both = [(PID, 1, "forward", 1, None), (PID + 1, 1, "draft", 2, None)]
    assert shares(compare(rows, both)[0]) == {"forward": 1.0}
    # Kernels that do not tell their process cannot be linked where there are several.
    assert compare(rows, both, pid=None) == (None, ())
    assert shares(compare(rows, both[:1], pid=None)[0]) == {"forward": 1.0}


def test_a_kernel_in_several_scopes_must_fit_all_of_them():
    rows = [(1, 0, "target_layers", 3, 100), (2, 0, "target_layers", 4, 100)]
    launches = [(c, "forward", 1, None) for c in (1, 2)]
    launches += [(c, "layer modules", 2, 3) for c in (1, 2)]
    agreement, notices = compare(rows, launches)
    assert shares(agreement) == {"forward": 1.0, "layer modules": 0.5}
    assert agreement.agreement == 0.5
    assert "another layer" in notices[0].message


def test_layer_modules_judge_layers_of_the_target_only():
    rows = [
        (1, 0, "target_layers", 3, 100),
        (2, 0, "target_layers", None, 100),  # glue without a layer
        (3, 0, "communication", None, 100),
        (4, 0, "drafter_layers", 0, 100),  # its modules are numbered by themselves
        (5, 0, "output_layer", None, 100),
    ]
    agreement, _ = compare(rows, [(c, "layer modules", 1, 3) for c in range(1, 6)])
    assert shares(agreement) == {"layer modules": 0.5}


def test_prefill_inside_steps_is_a_conflict():
    rows = [(1, None, "prefill", None, 300), (2, 0, "target_layers", 0, 100)]
    agreement, notices = compare(rows, [(1, "step, prefill", 1, None)])
    assert (shares(agreement), notices) == ({"step, prefill": 1.0}, ())
    launches = [(c, "step, prefill", 1, None) for c in (1, 2)]
    agreement, notices = compare(rows, launches)
    assert shares(agreement) == {"step, prefill": 0.75}
    assert "steady decode steps" in notices[0].message


@pytest.mark.parametrize(
    ("steps", "ranges", "expected"),
    [
        ((0, 0, 1, 1), (1, 1, 2, 2), 1.0),
        ((0, 0, 0, 0), (1, 1, 2, 2), None),  # two ranges in a step: half at most can fit
        ((0, 1, 2, 3), (1, 1, 2, 2), None),  # each range cut into two steps
        ((0, 0, 0, 1), (1, 1, 1, 1), 0.75),
    ],
)
def test_steps_and_ranges_match_one_to_one(steps, ranges, expected):
    rows = [(c, step, "target_layers", 0, 100 + c) for c, step in enumerate(steps)]
    launches = [(c, "step, decode", r, None) for c, r in enumerate(ranges)]
    agreement, notices = compare(rows, launches)
    share = agreement.scopes[0].agreement
    if expected is None:
        assert share < 0.6
    else:
        assert share == pytest.approx(expected, abs=0.01)
    assert bool(notices) == (expected != 1.0)


def test_a_short_scope_that_mostly_disagrees_is_told_and_a_stray_kernel_is_not():
    long = (1, 0, "target_layers", 0, 10_000)
    forward = (1, "forward", 1, None)
    short = [(2, 0, "output_layer", None, 60), (3, 0, "sampling", None, 20)]
    told = compare([long, *short], [forward, (2, "bookkeep", 2, None), (3, "bookkeep", 2, None)])
    assert "'bookkeep'" in told[1][0].message
    stray = compare([long, (2, 0, "output_layer", None, 60)], [forward, (2, "forward", 1, None)])
    assert stray[1] == ()
    assert stray[0].agreement == pytest.approx(10_000 / 10_060, abs=1e-6)


# -- whole captures ----------------------------------------------------------------------

SCOPE_OF_PHASE = {
    "target_layers": "forward",
    "communication": "forward",
    "output_layer": "postprocess",
    "sampling": "sample",
    "drafter_layers": "draft",
    "draft_head": "draft",
    "prepare": "preprocess",
}


def capture(out, name, texts=SCOPE_OF_PHASE):
    """A generated capture, with the scopes that vLLM would have opened by its truth.

    Every run of calls whose kernels are mostly of one phase gets the range of that phase.
    """
    case = next(case for case in CASES if case.name == name)
    make(replace(case, steps=10), out, seed=5)
    path = out / name / "trace.sqlite"
    with (out / name / "truth.csv").open() as file:
        phase_of = {int(row["kernel_id"]): row["phase"] for row in csv.DictReader(file)}
    with closing(sqlite3.connect(path)) as db:
        phases = defaultdict(Counter)
        for row, correlation, process, ns in db.execute(
            "SELECT rowid, correlationId, globalPid >> 24, end - start "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ):
            phases[process, correlation][phase_of[row]] += ns
        calls = db.execute(
            "SELECT globalTid, start, end, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME "
            "ORDER BY globalTid, start"
        ).fetchall()
        scoped = []
        for tid, start, end, correlation in calls:
            found = phases.get((tid >> 24, correlation))
            if found:
                scoped.append((tid, texts.get(found.most_common(1)[0][0]), start, end))
        db.execute(
            "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, "
            "textId INT, globalTid INT, endGlobalTid INT, domainId INT)"
        )
        for (tid, scope), run in itertools.groupby(scoped, key=lambda call: call[:2]):
            if scope:
                part = list(run)
                text = f"gpu_model_runner: {scope}"
                values = (part[0][2] - 1, part[-1][3] + 1, 59, text, None, tid, None, 0)
                db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        db.commit()
    return path


@pytest.mark.parametrize(
    "name", ["llama8-vllm-eagle3-k3", "qwen8-vllm-piecewise", "llama70-fp8-vllm-tp2"]
)
def test_right_labels_agree_with_the_engine(tmp_path, name):
    report = tracebook.analyze(capture(tmp_path, name))
    found = {scope.scope: scope.agreement for scope in report.nvtx.scopes}
    assert found["forward"] >= 0.99
    assert found["postprocess"] >= 0.99
    assert report.nvtx.agreement >= 0.99
    assert ("draft" in found) == ("eagle3" in name)
    assert "nvtx_conflict" not in [warning.code for warning in report.warnings]
    assert Report.from_json(report.to_json()) == report


def test_scopes_that_say_otherwise_are_a_conflict(tmp_path):
    crossed = SCOPE_OF_PHASE | {"drafter_layers": "forward", "draft_head": "forward"}
    report = tracebook.analyze(capture(tmp_path, "llama8-vllm-eagle3-k3", crossed))
    (conflict,) = [warning for warning in report.warnings if warning.code == "nvtx_conflict"]
    assert "'forward'" in conflict.message
    drafting = sum(
        row.ms.mean for row in report.phase_rows if row.phase in ("drafter_layers", "draft_head")
    )
    target = next(row.ms.mean for row in report.phase_rows if row.phase == "target_layers")
    forward = next(scope for scope in report.nvtx.scopes if scope.scope == "forward")
    assert forward.agreement == pytest.approx(target / (target + drafting), abs=0.02)


def test_a_capture_without_scopes_has_no_such_key(tmp_path):
    report = tracebook.analyze(capture(tmp_path, "qwen06-tied-vllm", texts={}))
    assert report.nvtx is None
    assert '"nvtx"' not in report.to_json()
