"""The real exports: counts and sums as their index gives them and as plain SQL counts them."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tracebook.errors import MissingTable
from tracebook.importers import open_trace

SHARED = Path(__file__).parents[2].parent / "shared" / "traces"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason="the real exports are not here"),
]

#: file: (kernels, distinct names, sum of durations in ms, schema, capture mode)
READABLE = {
    "extrap-2021-no-metadata.sqlite": (6, 5, 0.03, None, "unknown"),
    "extrap-2.9.1-windows-concurrent.sqlite": (9, 5, 271.71, "2.9.1", "unknown"),
    "extrap-2.9.1-windows-profile16.sqlite": (12, 6, 895.65, "2.9.1", "unknown"),
    "pipit-2.9.1-saxpy.sqlite": (5, 1, 88.57, "2.9.1", "unknown"),
    "pipit-3.13.2-cloverleaf.sqlite": (1312, 102, 294.40, "3.13.2", "unknown"),
    "rodinia-3.0.0-gaussian.sqlite": (8190, 2, 717.00, "3.0.0", "unknown"),
    "fuser-3.16.1-h200-matmul.sqlite": (19, 15, 0.39, "3.16.1", "graph"),
    "fuser-3.17.1-h200-pytest.sqlite": (18, 16, 10.17, "3.17.1", "graph"),
    "nsys-ai-3.24.14-mock.sqlite": (2, 2, None, "3.24.14", "graph"),
    "nsys-ai-3.25.0-h100-2gpu.sqlite": (3442, 41, 44.83, "3.25.0", "graph"),
    "nsys-ai-3.25.0-mfu-before.sqlite": (4010, 27, 535.20, "3.25.0", "graph"),
    "nsys-ai-3.25.0-mfu-after.sqlite": (3587, 27, 488.84, "3.25.0", "graph"),
}

#: file: a phrase that its refusal must contain
REFUSED = {
    "centerformer-3.0.0-nvtx-only.sqlite": "no RUNTIME rows",
    "jacc-3.25.0-no-kernel-table.sqlite": "no RUNTIME rows",
    "lightgemm-3.17.2-no-kernel-table.sqlite": "RUNTIME has rows",
}


def plain(path, query):
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def durations(trace):
    return int((trace.kernels["end_ns"] - trace.kernels["start_ns"]).sum())


def test_every_export_in_the_folder_is_covered():
    there = {path.name for path in SHARED.glob("*.sqlite")}
    assert there == READABLE.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READABLE)
def test_kernels_and_their_total_time(name):
    kernels, names, sum_ms, schema, mode = READABLE[name]
    trace = open_trace(SHARED / name)
    assert (trace.kernels.height, trace.names.height) == (kernels, names)
    if sum_ms is not None:
        assert round(durations(trace) / 1e6, 2) == sum_ms
    counted = plain(
        SHARED / name, 'SELECT count(*), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
    )
    assert counted == [(trace.kernels.height, durations(trace))]
    assert (trace.info.schema_version, trace.info.capture_mode) == (schema, mode)
    assert not trace.info.synthetic


@pytest.mark.parametrize("name", READABLE)
def test_rows_are_those_of_the_table_in_time_order(name):
    trace = open_trace(SHARED / name)
    rows = plain(
        SHARED / name,
        'SELECT start, "end", rowid, deviceId, (globalPid >> 24) & 16777215, streamId, '
        "correlationId, gridX, blockX, (SELECT value FROM StringIds WHERE id = demangledName) "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    ours = trace.kernels.join(trace.names, on="name_id", maintain_order="left").select(
        "start_ns", "end_ns", "kernel_id", "device", "pid", "stream", "correlation_id",
        "grid_x", "block_x", "name",
    )  # fmt: skip
    assert ours.rows() == sorted(rows)


@pytest.mark.parametrize("name", REFUSED)
def test_exports_without_kernels_are_refused(name):
    with pytest.raises(MissingTable) as caught:
        open_trace(SHARED / name)
    assert REFUSED[name] in caught.value.message
    assert "nsys profile" in caught.value.hint
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", [*READABLE, *REFUSED])
def test_nothing_is_changed_or_written_beside(name, tmp_path):
    source = SHARED / name
    copy = tmp_path / name
    copy.write_bytes(source.read_bytes())
    before = hashlib.sha256(copy.read_bytes()).digest()
    with suppress(MissingTable):
        open_trace(copy)
    assert hashlib.sha256(copy.read_bytes()).digest() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_gpus_are_in_id_order_with_what_the_export_claims():
    trace = open_trace(SHARED / "pipit-3.13.2-cloverleaf.sqlite")
    assert [gpu.device for gpu in trace.info.gpus] == [0, 1, 2, 3]
    assert {gpu.bandwidth_gbps for gpu in trace.info.gpus} == {2039.04}
    windows = open_trace(SHARED / "extrap-2.9.1-windows-concurrent.sqlite")
    assert [gpu.bandwidth_gbps for gpu in windows.info.gpus] == [192.192, None, None]


def test_two_devices_and_processes_can_be_told_apart():
    path = SHARED / "nsys-ai-3.25.0-h100-2gpu.sqlite"
    whole = open_trace(path)
    parts = [open_trace(path, device=device) for device in (0, 1)]
    assert sum(part.kernels.height for part in parts) == whole.kernels.height
    pids = whole.kernels["pid"].unique().to_list()
    assert len(pids) == 2
    assert open_trace(path, pid=pids[0]).kernels["pid"].unique().to_list() == [pids[0]]
