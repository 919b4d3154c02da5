"""A trace full of planted secrets: every place of an export where one can lie."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

FIXTURE = Path(__file__).parents[1] / "fixtures" / "full-recipe"
#: Part of every secret, so that one search finds them all.
MARK = "Zq7Plant"
USER, HOST, HOME = f"user{MARK}", f"host{MARK}", f"/home/user{MARK}"
TOKEN = f"hf_{MARK}abcdefgh"

_TABLES = {
    "TARGET_INFO_SYSTEM_ENV": (
        "name TEXT, nameEnum INTEGER, value TEXT, devStateName TEXT, globalVid INTEGER",
        [
            ("HF_TOKEN", 1, TOKEN, "", 0),
            ("Hostname", 2, HOST, "", 0),
            ("USER", 3, USER, HOME, 0),
            ("LD_LIBRARY_PATH", 4, f"{HOME}/lib", "", 0),
        ],
    ),
    "DIAGNOSTIC_EVENT": (
        "timestamp INTEGER, text TEXT",
        [(1, f"Not all CUDA events of {HOME}/run on {HOST} were collected")],
    ),
    "ANALYSIS_FILE": (
        "id INTEGER, filename TEXT, content BLOB",
        [(1, f"{HOME}/r", TOKEN.encode())],
    ),
    "NVTX_EVENTS": (
        "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "endGlobalTid INTEGER, textId INTEGER, jsonText TEXT",
        [
            (1, 9**15, 59, f"request of {USER} with {TOKEN}", 1, None, None, TOKEN),
            (1, 2, 59, None, 1, None, 900_001, None),
        ],
    ),
    "PROFILER_OVERHEAD": ("start INTEGER, note TEXT", [(1, f"{HOST}")]),
}
_CAPTURE = [
    ("PROCESS_0:ENVIRONMENT_VARIABLE_0", f"WANDB_API_KEY={TOKEN}"),
    ("PROCESS_0:WORKING_DIRECTORY", HOME),
    ("PROCESS_1:COMMAND", f"{HOME}/venv/bin/vllm"),
    ("PROCESS_1:ARGUMENT_0", "serve"),
    ("PROCESS_1:ARGUMENT_1", f"{HOME}/models/qwen"),
    ("PROCESS_1:ARGUMENT_2", f"--api-key={TOKEN}"),
]
_EXPORT = [("EXPORT_HOST_NAME", HOST), ("EXPORT_USER_NAME", USER), ("EXPORT_PARAM_OUTPUT", HOME)]
_STRINGS = [
    (900_000, f"{HOME}/train.py:{TOKEN}"),
    (900_001, f"{{'Module': 'top.layers.3.mlp', 'Inputs': '{TOKEN}'}}"),
    (900_002, f"execute_context_0({TOKEN})_generation_1({HOST})"),
]


def plant(folder: Path) -> Path:
    """A copy of a saved run with secrets in it, its run description beside it."""
    trace = folder / "trace.sqlite"
    shutil.copy(FIXTURE / "trace.sqlite", trace)
    text = (FIXTURE / "run.toml").read_text().replace('"../', f'"{FIXTURE.parent}/')
    (folder / "run.toml").write_text(text)
    with closing(sqlite3.connect(trace)) as connection:
        for table, (columns, rows) in _TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        _scope_around_calls(connection)
        connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", _CAPTURE)
        connection.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", _EXPORT)
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", _STRINGS)
        connection.execute("UPDATE TARGET_INFO_GPU SET busLocation = ?", (f"0000:{MARK}",))
        connection.execute(f"CREATE TABLE 'table{MARK}' (name TEXT, value TEXT)")
        connection.commit()
        connection.execute("DELETE FROM StringIds WHERE id = 900000")  # stays in a free page
        connection.commit()
    return trace


def _scope_around_calls(connection: sqlite3.Connection) -> None:
    """Known scopes whose texts hold secrets, around calls that launched kernels."""
    calls = connection.execute(
        "SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start LIMIT 9000"
    ).fetchall()
    rows = [
        (start - 1, end + 1, 59, None, thread, None, 900_002, None)
        for start, end, thread in calls[:: max(1, len(calls) // 50)]
    ]
    connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
