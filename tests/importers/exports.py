"""Small nsys-like SQLite files for tests, written with the standard library only."""

from __future__ import annotations

import sqlite3
from contextlib import closing

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
PID = 0x1234
GLOBAL_PID = (1 << 48) | (PID << 24)

#: Columns as three generations of nsys write them (the ones that matter here).
OLD = [
    *("start", "end", "deviceId", "streamId", "correlationId", "globalPid"),
    *("demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    "graphNodeId",
]
MIDDLE = [*OLD, "mangledName", "greenContextId"]
NEW = [*MIDDLE, "graphId", "clusterX"]

NAMES = {1: "void gemm<float>(float*)", 2: "gemm", 3: "_Z4gemmPf", 4: "softmax(int)", 5: "softmax"}


def kernel(start=1000, end=2000, **other):
    """One kernel row; names are ids of NAMES."""
    row = {
        "start": start,
        "end": end,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 11,
        "globalPid": GLOBAL_PID,
        "demangledName": 1,
        "shortName": 2,
        "mangledName": 3,
        "gridX": 8,
        "gridY": 4,
        "gridZ": 1,
        "blockX": 128,
        "blockY": 1,
        "blockZ": 1,
        "graphNodeId": None,
        "graphId": None,
        "greenContextId": None,
        "clusterX": 0,
    }
    return row | other


def write(path, *, kernels=None, columns=MIDDLE, names=NAMES, tables=None, script=""):
    """Write an export.

    kernels: rows of `kernel()`; None for no kernel table.
    tables: {name: (columns, rows)} for the rest.
    script: SQL run at the end.
    """
    everything = dict(tables or {})
    if kernels is not None:
        everything[KERNEL] = (columns, [[row.get(c) for c in columns] for row in kernels])
    with closing(sqlite3.connect(path)) as connection:
        if names is not None:
            connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            connection.executemany("INSERT INTO StringIds VALUES (?, ?)", list(names.items()))
        for name, (its_columns, rows) in everything.items():
            listed = ", ".join(f'"{c}" {_type_of(c)}' for c in its_columns)
            connection.execute(f'CREATE TABLE "{name}" ({listed})')
            marks = ", ".join("?" * len(its_columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        connection.executescript(script)
        connection.commit()
    return path


def _type_of(column):
    return "TEXT" if column in ("name", "value", "text") else "INTEGER"


def capture(*rows):
    """A META_DATA_CAPTURE table."""
    return {"META_DATA_CAPTURE": (["name", "value"], rows)}
