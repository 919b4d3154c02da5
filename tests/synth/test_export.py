"""The export as a file: schema, launches, graph nodes, order of rows, what it says of itself."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import subprocess
from itertools import pairwise

import polars as pl
import pytest

from tracebook.errors import RunDescriptionError
from tracebook.synth import synthesize

from .exports import FIXTURES, query

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def columns(path, table):
    return [row[1] for row in query(path, f"PRAGMA table_info({table})")]


@pytest.mark.parametrize(("schema", "count"), [("3.7.2", 28), ("3.20.3", 28), ("3.25.0", 40)])
def test_schema_has_the_columns_of_real_exports(dense_run, tmp_path, schema, count):
    made = synthesize(dense_run, tmp_path / "out.sqlite", steps=2, schema=schema)
    names = columns(made.path, KERNEL)
    assert len(names) == count
    assert names[:3] == ["start", "end", "deviceId"]
    assert names[27] == "sharedMemoryLimitConfig"
    assert ("graphId" in names) == (schema == "3.25.0")
    said = dict(query(made.path, "SELECT name, value FROM META_DATA_EXPORT"))
    assert said["EXPORT_SCHEMA_VERSION"] == schema
    assert said["TRACEBOOK_SYNTHETIC"] == "true"
    captured = dict(query(made.path, "SELECT name, value FROM META_DATA_CAPTURE"))
    prefix = "" if schema == "3.25.0" else "PROCESS_0:"
    assert captured[f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE"] == "Node"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("schema", "real"),
    [("3.20.3", "fuser-3.17.1-h200-pytest"), ("3.25.0", "nsys-ai-3.25.0-h100-2gpu")],
)
def test_declared_columns_are_those_of_a_real_export(dense_run, tmp_path, schema, real):
    path = FIXTURES.parents[1] / "shared" / "traces" / f"{real}.sqlite"
    if not path.is_file():
        pytest.skip(f"no real export at {path}")
    made = synthesize(dense_run, tmp_path / "out.sqlite", steps=1, schema=schema)
    for table in (KERNEL, "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY"):
        declared = [row[1:4] for row in query(made.path, f"PRAGMA table_info({table})")]
        assert declared == [row[1:4] for row in query(path, f"PRAGMA table_info({table})")]


def test_rows_are_not_in_time_order(made):
    starts = [row[0] for row in query(made["plain-nvfp4"].path, f"SELECT start FROM {KERNEL}")]
    inversions = sum(later < earlier for earlier, later in pairwise(starts))
    assert inversions >= 5


def test_truth_describes_the_rows_of_the_file(made):
    trace = made["full-recipe"]
    rows = query(trace.path, f"SELECT rowid, start, end FROM {KERNEL} ORDER BY rowid")
    assert rows == trace.truth.select("kernel_id", "start_ns", "end_ns").rows()


def test_nodes_of_a_graph_launch_share_a_correlation_id_of_its_own(made):
    trace = made["full-recipe"]
    decode = trace.truth.filter(pl.col("kind") == "decode")
    steps = dict(decode.select("kernel_id", "step_id").rows())
    launches: dict[int, set] = {}
    eager: list[int] = []
    for rowid, correlation, node in query(
        trace.path, f"SELECT rowid, correlationId, graphNodeId FROM {KERNEL}"
    ):
        if rowid not in steps:
            continue
        if node is None:
            eager.append(correlation)
        else:
            launches.setdefault(correlation, set()).add((steps[rowid], node >> 32))
    # Target and drafter graph, once a step each.
    assert len(launches) == 2 * trace.settings.steps
    assert all(len(owners) == 1 for owners in launches.values())
    assert len(set(eager)) == len(eager)
    assert not set(eager) & set(launches)
    names = dict(
        query(
            trace.path,
            "SELECT correlationId, value FROM CUPTI_ACTIVITY_KIND_RUNTIME "
            "JOIN StringIds ON id = nameId",
        )
    )
    assert {names[correlation] for correlation in launches} == {"cudaGraphLaunch_v10000"}


def test_graph_nodes_keep_their_id_from_replay_to_replay(made):
    trace = made["full-recipe"]
    nodes = dict(query(trace.path, f"SELECT rowid, graphNodeId FROM {KERNEL}"))
    decode = trace.truth.filter(pl.col("kind") == "decode").sort("start_ns")
    sequences = {
        tuple((op, layer, nodes[rowid]) for op, layer, rowid in group)
        for group in (
            frame.select("op", "layer", "kernel_id").rows()
            for _, frame in decode.group_by("step_id", maintain_order=True)
        )
    }
    assert len(sequences) == 1
    (sequence,) = sequences
    inside = [node for _, _, node in sequence if node is not None]
    assert len(set(inside)) == len(inside)
    assert 990 < len(inside) < 1_110


def test_output_layer_and_sampler_run_eagerly_and_the_draft_head_in_a_graph(made):
    trace = made["full-recipe"]
    nodes = pl.DataFrame(
        query(trace.path, f"SELECT rowid, graphNodeId FROM {KERNEL}"),
        schema={"kernel_id": pl.Int64, "node": pl.Int64},
        orient="row",
    )
    step = trace.truth.filter(pl.col("step_id") == 0).join(nodes, on="kernel_id")
    in_graph = dict(step.group_by("phase").agg(pl.col("node").is_not_null().mean()).rows())
    assert in_graph["target_layers"] == 1
    assert in_graph["output_layer"] == in_graph["sampling"] == in_graph["replay"] == 0
    head = step.filter((pl.col("phase") == "draft_head") & (pl.col("op") == "head"))
    assert head["node"].null_count() == 0


def test_each_kernel_has_an_earlier_api_call_of_the_same_process(made):
    for trace in made.values():
        late = query(
            trace.path,
            f"SELECT count(*) FROM {KERNEL} k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24 "
            "WHERE r.end IS NULL OR r.end > k.start",
        )
        assert late == [(0,)]


def test_outputs_are_copied_to_the_host_on_another_stream(made):
    path = made["plain-nvfp4"].path
    copies = query(path, "SELECT DISTINCT copyKind, streamId FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    (stream,) = query(path, f"SELECT DISTINCT streamId FROM {KERNEL}")
    to_host = [stream_id for kind, stream_id in copies if kind == 2]
    assert len(to_host) == 1
    assert to_host != list(stream)


def test_the_gpu_is_described_as_a_real_gb10_export_does(made):
    (gpu,) = query(
        made["plain-nvfp4"].path, "SELECT name, memoryBandwidth, smCount FROM TARGET_INFO_GPU"
    )
    assert gpu == ("NVIDIA GB10", 546_112_000_000, 48)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(dense_run, tmp_path):
    digests = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        made = synthesize(dense_run, tmp_path / f"{name}.sqlite", steps=2, seed=seed)
        digests.append(hashlib.sha256(made.path.read_bytes()).hexdigest())
    assert digests[0] == digests[1] != digests[2]


def test_launch_eager_gives_no_graph_node(dense_run, tmp_path):
    dense_run.write_text(dense_run.read_text() + '[synth]\nlaunch = "eager"\n')
    made = synthesize(dense_run, tmp_path / "out.sqlite", steps=2)
    assert query(made.path, f"SELECT count(graphNodeId) FROM {KERNEL}") == [(0,)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[synth]\nstep = 3\n", "no key 'step'"),
        ("[synth]\nsteps = 0\n", "above 0"),
        ('[synth]\nschema = "9.9.9"\n', "9.9.9 cannot be written"),
        ("[synth.phases_ms]\ntarget = 3\n", "no phase 'target'"),
        ("[synth.phases_ms]\nreplay = 3\n", "no such kernel"),
        ("[synth]\nstep_ms = 0.01\n", "too short"),
        ('[synth]\nstate_commit = "replay"\n', "no recurrent layer"),
        ("[workload]\nbatch = 2\n", "batch = 2"),
        ('[machine]\nname = "h100"\n', "'h100'"),
    ],
)
def test_what_cannot_be_made_is_refused(dense_run, tmp_path, table, message):
    dense_run.write_text(dense_run.read_text() + table)
    with pytest.raises(RunDescriptionError, match=message):
        synthesize(dense_run, tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()


def test_an_existing_file_is_left_alone(dense_run, tmp_path):
    output = tmp_path / "out.sqlite"
    output.write_text("mine")
    with pytest.raises(RunDescriptionError, match="exists already"):
        synthesize(dense_run, output)
    assert output.read_text() == "mine"


def test_nsys_stats_agrees(made):
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("nsys is not on PATH")
    path = made["plain-nvfp4"].path
    command = [nsys, "stats", "-q", "-r", "cuda_gpu_kern_sum", "-f", "csv", "-o", "-", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    table = run.stdout[run.stdout.index("Time (%)") :]
    rows = list(csv.DictReader(io.StringIO(table)))
    ((count, total),) = query(path, f"SELECT count(*), sum(end - start) FROM {KERNEL}")
    assert sum(int(row["Instances"]) for row in rows) == count
    assert sum(int(row["Total Time (ns)"]) for row in rows) == total
