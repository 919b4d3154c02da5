"""Writes rows as an Nsight Systems SQLite export of one schema, with the truth beside it."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .timeline import Machine, Row

VM = 281474976710656


@cache
def schemas() -> dict:
    return json.loads(Path(__file__).with_name("schemas.json").read_text())


def global_pid(pid: int) -> int:
    return VM + (pid << 24)


@dataclass
class Strings:
    """StringIds: one id a text."""

    ids: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 17)


def write_trace(
    path: Path, schema: str, rows: list[Row], api, copies, machine: Machine, devices: int
) -> None:
    """The SQLite file: tables and columns of that schema, rows in the order given."""
    plan, text = schemas()[schema], Strings()
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        for table, columns in plan["tables"].items():
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        put = lambda table, found: _insert(db, plan["tables"], table, found)  # noqa: E731
        put("CUPTI_ACTIVITY_KIND_KERNEL", (_kernel(row, text, schema) for row in rows))
        put("CUPTI_ACTIVITY_KIND_RUNTIME", (_runtime(call, text) for call in api))
        put("CUPTI_ACTIVITY_KIND_MEMCPY", map(_copy, copies))
        for table, found in _facts(plan, schema, machine, devices, rows):
            put(table, found)
        text("synthetic trace of an accuracy test")
        put("StringIds", ({"id": number, "value": value} for value, number in text.ids.items()))


def _insert(db: sqlite3.Connection, tables: dict, table: str, found) -> None:
    if table not in tables:
        return
    columns = [column.split() for column in tables[table]]
    blank = tuple(_blank(column) for column in columns)
    names = [column[0] for column in columns]
    marks = ", ".join("?" * len(names))
    values = (tuple(row.get(n, b) for n, b in zip(names, blank, strict=True)) for row in found)
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", values)


def _blank(column: list[str]):
    if "NOT" not in column:
        return None
    return "" if column[1] == "TEXT" else 0


def _kernel(row: Row, text: Strings, schema: str) -> dict:
    kernel = row.kernel
    out = {
        "start": row.start, "end": row.end, "deviceId": row.device, "contextId": 1,
        "streamId": row.stream, "correlationId": row.correlation, "globalPid": global_pid(row.pid),
        "demangledName": text(kernel.name), "shortName": text(kernel.short),
        "mangledName": text(kernel.name), "registersPerThread": 64 + len(kernel.name) % 64,
        "launchType": 0, "gridId": row.correlation, "graphNodeId": row.node, "graphId": row.graph,
        "sharedMemoryExecuted": 102400, "sharedMemoryLimitConfig": 0,
        "tensorSizeMinusOneElements": "",
    }  # fmt: skip
    out |= dict(zip(("gridX", "gridY", "gridZ"), kernel.grid, strict=True))
    return out | dict(zip(("blockX", "blockY", "blockZ"), kernel.block, strict=True))


def _runtime(call, text: Strings) -> dict:
    start, end, name, correlation, pid = call
    return {
        "start": start, "end": end, "eventClass": 0 if name.startswith("cuda") else 1,
        "globalTid": global_pid(pid) + pid, "correlationId": correlation, "nameId": text(name),
    }  # fmt: skip


def _copy(copy) -> dict:
    start, end, size, kind, stream, correlation, device, pid = copy
    return {
        "start": start, "end": end, "deviceId": device, "contextId": 1, "streamId": stream,
        "correlationId": correlation, "globalPid": global_pid(pid), "bytes": size, "copyKind": kind,
        "srcKind": 1 if kind == 1 else 2, "dstKind": 2 if kind == 1 else 1, "copyCount": 1,
    }  # fmt: skip


def _facts(plan: dict, schema: str, machine: Machine, devices: int, rows: list[Row]):
    version = [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", plan["nsys"]),
        ("EXPORT_SCHEMA_VERSION", schema),
        ("SYNTHETIC", "written by tests.accuracy, not by a profiler"),
    ]
    pairs = [{"name": name, "value": value} for name, value in version]
    yield ("EXPORT_META_DATA" if schema.startswith("2") else "META_DATA_EXPORT"), pairs
    prefix = "" if schema == "3.25.0" else "PROCESS_0:"
    mode = [{"name": f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Node"}]
    yield "META_DATA_CAPTURE", mode
    # the GB10's export states twice its real bandwidth
    claimed = machine.peak_gbps * (2 if machine.key == "gb10" else 1) * 1e9
    gpu = {
        "vmId": VM,
        "name": machine.gpu,
        "memoryBandwidth": int(claimed),
        "smCount": machine.sms,
        "isDiscrete": 1,
    }
    yield "TARGET_INFO_GPU", [gpu | {"id": i, "deviceId": i} for i in reversed(range(devices))]
    last = max(row.end for row in rows)
    yield (
        "ANALYSIS_DETAILS",
        [{"globalVid": VM, "duration": last, "startTime": 0, "stopTime": last}],
    )
    yield "TARGET_INFO_SESSION_START_TIME", [{"utcEpochNs": 1790000000000000000}]


TRUTH = (
    "kernel_id",
    "step_id",
    "kind",
    "phase",
    "layer",
    "op",
    "matrix",
    "weight_bytes",
    "lane",
    "start_ns",
    "end_ns",
)


def write_truth(path: Path, rows: list[Row]) -> None:
    """One line a kernel; `step_id` only in steady whole steps, phases only there."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(TRUTH)
        for number, row in enumerate(rows, 1):
            steady, op = row.step is not None, row.op
            layer = op.layer if steady and op.layer is not None else ""
            matrix = "+".join(op.matrix) if steady and row.weight_bytes else ""
            out.writerow(
                (
                    number, row.step if steady else "", row.kind, op.phase if steady else "", layer,
                    op.op if steady else "", matrix, row.weight_bytes if steady else 0,
                    f"{row.device}/{row.pid}", row.start, row.end,
                )
            )  # fmt: skip
