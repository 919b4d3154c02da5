"""Write a capture as an Nsight Systems SQLite export.

In: a `Capture` and the schema version. Out: the file. Schema and small tables go
through sqlite-utils, the many rows through executemany on its connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_utils

from tracebook.errors import RunDescriptionError
from tracebook.synth.settings import SynthSettings
from tracebook.synth.timeline import MAIN_STREAM as STREAM
from tracebook.synth.timeline import ApiCall, Capture, Copy, KernelEvent
from tracebook.synth.vocabulary import read_data

#: Serialized ids as nsys lays them out: machine, process, thread.
_MACHINE = 1 << 48
_PID, _TID = 4711, 4711
GLOBAL_PID = _MACHINE | _PID << 24
GLOBAL_TID = GLOBAL_PID | _TID

#: Kernel rows come in buffers of this size, and some buffers arrive late.
_BUFFER_ROWS = 256
_BUFFERS_IN_FLIGHT = 3

_KERNEL, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"


def schema_versions() -> tuple[str, ...]:
    """Versions of the export schema that can be written."""
    return tuple(read_data("nsys_tables.toml")["versions"])


def file_order(kernels: int, rng: np.random.Generator) -> list[int]:
    """Order in which kernel rows stand in the file: by buffer, not by time."""
    buffers = [range(i, min(i + _BUFFER_ROWS, kernels)) for i in range(0, kernels, _BUFFER_ROWS)]
    order: list[int] = []
    for first in range(0, len(buffers), _BUFFERS_IN_FLIGHT):
        arrived = buffers[first : first + _BUFFERS_IN_FLIGHT]
        for index in rng.permutation(len(arrived)):
            order.extend(arrived[index])
    return order


def write_export(
    capture: Capture, path: Path, settings: SynthSettings, order: Sequence[int]
) -> None:
    """Write the export.

    Args:
        capture: All events.
        path: The file to make; must not exist.
        settings: Schema version and the model named in the command line.
        order: Kernel rows in the order of the file, from `file_order`.

    Raises:
        RunDescriptionError: The schema version is not one that can be written.
    """
    version = settings.schema
    if version not in schema_versions():
        raise RunDescriptionError(
            f"The export schema {version} cannot be written.",
            f"One of: {', '.join(schema_versions())}.",
        )
    data = read_data("nsys_tables.toml")
    database = sqlite_utils.Database(path)
    try:
        columns = {
            name: _create(database, name, table, version) for name, table in data["tables"].items()
        }
        strings = _Strings()
        ordered = [(index, capture.kernels[index]) for index in order]
        _fill(database, _KERNEL, columns[_KERNEL], _kernel_rows(ordered, strings, version))
        _fill(database, _RUNTIME, columns[_RUNTIME], _call_rows(capture.calls, strings))
        _fill(database, _MEMCPY, columns[_MEMCPY], _copy_rows(capture.copies, version))
        for name, rows in _small_tables(capture, settings, data["versions"][version]).items():
            database.table(name).insert_all(rows)
        database.table("StringIds").insert_all(strings.rows())
        database.conn.commit()
        database.vacuum()
    except sqlite3.Error as error:
        raise OSError(None, f"SQLite says: {error}") from error
    finally:
        database.close()


def _create(
    database: sqlite_utils.Database, name: str, table: dict[str, Any], version: str
) -> list[str]:
    """Make one table; return its columns."""
    declared = [*table["columns"], *table.get("added", {}).get(version, ())]
    parts = [column.split(" ", 2) for column in declared]
    database.table(name).create(
        {part[0]: int if part[1] == "INTEGER" else str for part in parts},
        not_null=[part[0] for part in parts if len(part) == 3],
        pk="id" if name == "StringIds" or name.startswith("ENUM_") else None,
    )
    names = [part[0] for part in parts]
    if "rows" in table:
        database.table(name).insert_all(dict(zip(names, row, strict=True)) for row in table["rows"])
    return names


def _fill(
    database: sqlite_utils.Database,
    table: str,
    columns: Sequence[str],
    rows: Iterable[dict[str, Any]],
) -> None:
    """Insert many rows; columns that a row does not name stay NULL."""
    marks = ", ".join("?" * len(columns))
    with database.conn:
        database.conn.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})',
            ([row.get(column) for column in columns] for row in rows),
        )


class _Strings:
    """The export's table of strings: equal texts share an id."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids) + 1)

    def rows(self) -> list[dict[str, Any]]:
        return [{"id": number, "value": text} for text, number in self._ids.items()]


def _kernel_rows(
    kernels: Iterable[tuple[int, KernelEvent]], strings: _Strings, version: str
) -> Iterable[dict[str, Any]]:
    for index, event in kernels:
        node = event.node
        row: dict[str, Any] = {
            "start": event.start_ns,
            "end": event.end_ns,
            "deviceId": 0,
            "contextId": 1,
            "streamId": STREAM,
            "correlationId": event.correlation_id,
            "globalPid": GLOBAL_PID,
            "demangledName": strings.id_of(node.name),
            "shortName": strings.id_of(node.short),
            "launchType": 1,
            "registersPerThread": node.registers,
            "gridX": node.grid[0],
            "gridY": node.grid[1],
            "gridZ": node.grid[2],
            "blockX": node.block[0],
            "blockY": node.block[1],
            "blockZ": node.block[2],
            "staticSharedMemory": 0,
            "dynamicSharedMemory": node.shared_bytes,
            "localMemoryPerThread": 0,
            "localMemoryTotal": 0,
            "gridId": index + 1,
            "graphNodeId": event.graph_node_id,
        }
        if version == "3.25.0":
            row |= {"graphId": event.graph, "tensorSizeMinusOneElements": "[]"}
        yield row


def _call_rows(calls: Iterable[ApiCall], strings: _Strings) -> Iterable[dict[str, Any]]:
    for call in calls:
        yield {
            "start": call.start_ns,
            "end": call.end_ns,
            "eventClass": 0 if call.name.startswith("cuda") else 1,
            "globalTid": GLOBAL_TID,
            "correlationId": call.correlation_id,
            "nameId": strings.id_of(call.name),
            "returnValue": 0,
        }


def _copy_rows(copies: Iterable[Copy], version: str) -> Iterable[dict[str, Any]]:
    for copy in copies:
        yield {
            "start": copy.start_ns,
            "end": copy.end_ns,
            "deviceId": 0,
            "contextId": 1,
            "streamId": copy.stream,
            "correlationId": copy.correlation_id,
            "globalPid": GLOBAL_PID,
            "bytes": copy.size_bytes,
            "copyKind": copy.kind,
            "srcKind": copy.source_kind,
            "dstKind": copy.target_kind,
            "copyCount": 1 if version == "3.25.0" else None,
        }


def _small_tables(
    capture: Capture, settings: SynthSettings, version: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    major, minor, micro = settings.schema.split(".")
    export = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": version["product"],
        "EXPORT_PRODUCT_DATE": version["date"],
        "EXPORT_SCHEMA_VERSION": settings.schema,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "EXPORT_SCHEMA_VERSION_MICRO": micro,
        "EXPORT_PLATFORM": "linux-desktop",
        "EXPORT_ARCH": "aarch64",
        "EXPORT_PARAM_LAZY": "true",
        "EXPORT_PARAM_TIME_NORMALIZE": "false",
        "EXPORT_PARAM_TIME_SHIFT": "0",
        "TRACEBOOK_SYNTHETIC": "true",
    }
    captured = {
        "CAPTURE_EVENT_TYPE": "Cuda",
        version["mode_key"]: "Node",
        "PROCESS_0:COMMAND": "vllm",
        "PROCESS_0:ARGUMENT_0": "serve",
        "PROCESS_0:ARGUMENT_1": settings.model,
    }
    return {
        "META_DATA_EXPORT": _named(export),
        "META_DATA_CAPTURE": _named(captured),
        "ANALYSIS_DETAILS": [
            {
                "globalVid": _MACHINE,
                "duration": capture.end_ns,
                "startTime": 0,
                "stopTime": capture.end_ns,
            }
        ],
        "TARGET_INFO_SESSION_START_TIME": [
            {"utcEpochNs": 0, "utcTime": "1970-01-01T00:00:00", "localTime": "1970-01-01T00:00:00"}
        ],
        "TARGET_INFO_GPU": [read_data("gb10.toml")],
    }


def _named(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
