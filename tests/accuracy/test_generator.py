"""Laws that every generated trace must obey, checked on a few small cases."""

from __future__ import annotations

import csv
import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace

import pytest

from . import zoo
from .cases import make
from .family import CASES
from .models import given

BY_NAME = {case.name: case for case in CASES}
SMALL = ("hybrid-vllm-dflash2-full-recipe", "hybrid-vllm-mtp3", "qwen8-vllm-piecewise")


@pytest.fixture(scope="module", params=SMALL)
def made(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("acc")
    case = replace(BY_NAME[request.param], steps=6)
    make(case, out, seed=3)
    with (out / case.name / "truth.csv").open() as file:
        truth = list(csv.DictReader(file))
    return case, out / case.name, truth


def test_one_truth_line_for_each_kernel_in_file_order(made):
    _, folder, truth = made
    with closing(sqlite3.connect(folder / "trace.sqlite")) as db:
        rows = db.execute("SELECT rowid, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    assert rows == [(int(t["kernel_id"]), int(t["start_ns"]), int(t["end_ns"])) for t in truth]


def test_steady_steps_are_whole_and_apart(made):
    case, _, truth = made
    spans = defaultdict(list)
    for t in truth:
        if t["step_id"]:
            spans[int(t["step_id"])].append((int(t["start_ns"]), int(t["end_ns"])))
    assert len(spans) == case.steps - 1  # the last is cut
    ordered = sorted((min(s)[0], max(e for _, e in s)) for s in spans.values())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))


def test_bytes_of_each_step_are_those_of_the_headers(made):
    """Every matrix of the target layers is read once a step."""
    case, _, truth = made
    net = zoo.net(case.target)
    expected = Counter()
    for i in range(len(net.kinds)):
        prefix = net.prefix.format(i=i)
        for module in {name.rpartition(".")[0] for name in net.ckpt.tensors}:
            if module.startswith(prefix) and module.endswith(("_proj", "qkv", "_z", "_a", "_b")):
                expected[(i, module.removeprefix(prefix))] = net.ckpt.module_bytes(module)
    steps = defaultdict(Counter)
    for t in truth:
        if t["step_id"] and t["phase"] == "target_layers" and int(t["weight_bytes"]):
            parts = t["matrix"].split("+")
            total = sum(expected[(int(t["layer"]), part)] for part in parts)
            assert total == int(t["weight_bytes"])
            steps[t["step_id"]].update((int(t["layer"]), part) for part in parts)
    for seen in steps.values():
        assert seen == dict.fromkeys(expected, 1)


def test_weight_kernels_run_below_the_peak(made):
    _, _, truth = made
    peak = {"qwen8-vllm-piecewise": 3352}.get(made[0].name, 273)
    for t in truth:
        if int(t["weight_bytes"]) > 20e6:
            assert int(t["weight_bytes"]) / (int(t["end_ns"]) - int(t["start_ns"])) < peak


def test_every_nanosecond_of_a_step_has_one_owner(made):
    """Exclusive times of the phases and idle time add up to the step's wall time."""
    _, _, truth = made
    rows = sorted(
        (int(t["start_ns"]), int(t["end_ns"]), t["phase"], t["step_id"])
        for t in truth
        if t["step_id"]
    )
    for step in {row[3] for row in rows}:
        mine = [row for row in rows if row[3] == step]
        wall = max(row[1] for row in mine) - mine[0][0]
        reached, idle, owned = mine[0][0], 0, Counter()
        for start, end, phase, _ in mine:
            idle += max(0, start - reached)
            owned[phase] += max(0, end - max(start, reached))
            reached = max(reached, end)
        assert sum(owned.values()) + idle == wall
        assert owned["target_layers"] > wall // 2


def test_rows_of_one_graph_launch_share_a_correlation_and_keep_their_nodes(made):
    case, folder, _ = made
    with closing(sqlite3.connect(folder / "trace.sqlite")) as db:
        rows = db.execute(
            "SELECT correlationId, graphNodeId, demangledName, gridX "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ).fetchall()
    node_of, launches = {}, defaultdict(set)
    for correlation, node, name, grid in rows:
        launches[correlation].add(node)
        if node is not None:
            assert node_of.setdefault(node, (name, grid)) == (name, grid)
    assert all(len(nodes) == 1 or None not in nodes for nodes in launches.values())
    graphs = sum(None not in nodes for nodes in launches.values())
    assert graphs >= case.steps * (30 if case.launch == "piecewise" else 1)


@pytest.mark.parametrize("name", [case.name for case in CASES if case.machine == "h100"][:6])
def test_other_cases_can_be_made(name, tmp_path):
    make(replace(BY_NAME[name], steps=3), tmp_path, seed=2)
    assert (tmp_path / name / "run.toml").read_text().startswith("[machine]")


def test_same_seed_same_trace(tmp_path):
    case = replace(BY_NAME["hybrid-vllm-plain"], steps=4)
    for name in "ab":
        make(case, tmp_path / name, seed=1) if (tmp_path / name).mkdir() is None else None
    first, second = ((tmp_path / name / case.name / "truth.csv").read_bytes() for name in "ab")
    assert first == second


def test_names_of_cases_are_unique_and_bundles_sum_up():
    assert len(BY_NAME) == len(CASES)
    bundle = zoo.net("llama8").ckpt.bundle()
    for file in bundle["files"].values():
        spans = sorted(e["data_offsets"] for n, e in file["header"].items() if n != "__metadata__")
        assert spans[0][0] == 0
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
        text = json.dumps(file["header"], separators=(",", ":"))
        assert file["size"] == 8 + (len(text) + 7) // 8 * 8 + spans[-1][1]
    # Llama 3 8B has 8,030,261,248 parameters
    assert (
        sum(map(zoo.net("llama8").ckpt.tensor_bytes, zoo.net("llama8").ckpt.tensors)) == 16060522496
    )


@pytest.mark.shared
@pytest.mark.parametrize("fmt", ["nvfp4", "fp8", "bf16"])
def test_hybrid_from_shapes_is_the_published_one(fmt):
    published = given(f"target-{fmt}")
    if published is None:
        pytest.skip("the shared header bundles are not here")
    net = zoo.built27(fmt)
    for i in (0, 3, 56, 63):
        for module in {n.rpartition(".")[0] for n in net.ckpt.tensors}:
            if module.startswith(net.prefix.format(i=i)) and "_proj" in module:
                assert net.ckpt.module_bytes(module) == published.module_bytes(module)
    assert net.ckpt.module_bytes("lm_head") == published.module_bytes("lm_head")
