"""Ways to break a trace: each takes a path and dice, and changes the file in place."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
Mutation = Callable[[Path, random.Random], None]

COLUMNS = (
    *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName"),
    *("shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "graphNodeId", "graphId"),
)
VALUES = (
    *(None, 0, 1, -1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), -(10**9), 1.5, 1e300),
    *(float("inf"), "", "text", "7", b"\xff\x00", "9" * 400),
)
NAMES = (
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "[bold red]markup[/] [link=file:///etc/passwd]x[/link] [/]",
    "\u202egnp.exe\u2066 \x9b31m",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0,\"quoted\"\r\nnew,row",
    "|pipe|table|`code`\n# heading",
    "\ud7ff\ufffe\U0010ffff",
    "{}%s%n${HOME}$(id)`id`",
    "A" * 1_000_000,
    "(" * 50_000 + ")" * 50_000,
    "cuda" * 100_000,
    "",
)


def _sql(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement, values in statements:
            connection.execute(statement, values)
        connection.commit()


def _loose(path: Path) -> None:
    """Make the kernel table take any value: nsys declares NOT NULL and types."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({KERNEL})")]
        listed = ", ".join(f'"{name}"' for name in names)
        connection.execute(f"CREATE TABLE loose ({listed})")
        connection.execute(f"INSERT INTO loose SELECT {listed} FROM {KERNEL} ORDER BY rowid")
        connection.execute(f"DROP TABLE {KERNEL}")
        connection.execute(f"ALTER TABLE loose RENAME TO {KERNEL}")
        connection.commit()


def _column(path: Path, dice: random.Random) -> str:
    with closing(sqlite3.connect(path)) as connection:
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({KERNEL})")}
    return dice.choice([column for column in COLUMNS if column in there])


def any_value(path: Path, dice: random.Random) -> None:
    """Some or all rows of a column hold a value that is none."""
    _loose(path)
    for _ in range(dice.randint(1, 3)):
        column, share = _column(path, dice), dice.choice([3, 50, 100])
        _sql(
            path,
            (
                f"UPDATE {KERNEL} SET {column} = ? WHERE rowid % 100 < ?",
                (dice.choice(VALUES), share),
            ),
        )


def arithmetic(path: Path, dice: random.Random) -> None:
    """Times moved, turned round, stretched, squeezed, or all alike."""
    _loose(path)
    change = dice.choice(
        [
            "start = end, end = start",
            "end = start",
            "end = start - 1",
            "start = -start, end = -end",
            "start = start - 9000000000000000000, end = end - 9000000000000000000",
            "start = start + 4611686018427387903, end = end + 4611686018427387903",
            "start = start * 1000000, end = end * 1000000",
            "start = start / 1000000, end = end / 1000000",
            "start = 5, end = 10",
            "end = end + 1000000000",
            "start = start - start % 1000000000",
            "start = 0",
            "correlationId = 7",
            "correlationId = rowid",
            "graphNodeId = NULL",
            "graphNodeId = 1",
            "demangledName = rowid % 3",
            "demangledName = demangledName + 1000000, shortName = shortName + 1000000",
            "deviceId = rowid % 7",
            "globalPid = globalPid + (rowid % 5) * 16777216",
            "streamId = rowid",
            "gridX = 0, gridY = 0, gridZ = 0",
            "gridX = 2147483647, gridY = 2147483647, gridZ = 2147483647",
        ]
    )
    rows = dice.choice(["", " WHERE rowid % 2", " WHERE rowid % 97 = 0", " WHERE rowid > 5000"])
    _sql(path, (f"UPDATE {KERNEL} SET {change}{rows}", ()))


def rows_lost_or_doubled(path: Path, dice: random.Random) -> None:
    """Rows deleted, doubled or in another order."""
    _loose(path)
    statement = dice.choice(
        [
            f"DELETE FROM {KERNEL} WHERE rowid % 3 = 0",
            f"DELETE FROM {KERNEL} WHERE rowid % 10",
            f"DELETE FROM {KERNEL} WHERE rowid > 20",
            f"DELETE FROM {KERNEL} WHERE rowid > 1",
            f"DELETE FROM {KERNEL}",
            f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}",
            f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL} WHERE rowid % 5 = 0",
            f"UPDATE {KERNEL} SET rowid = -rowid",
            f"UPDATE {KERNEL} SET rowid = rowid * 90000000000000",
            f"DELETE FROM {KERNEL} WHERE rowid % 2 AND rowid < 4000",
        ]
    )
    _sql(path, (statement, ()))


def strings(path: Path, dice: random.Random) -> None:
    """Names missing, doubled, of another type, or hostile."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT id, value FROM StringIds").fetchall()
        connection.execute("DROP TABLE StringIds")
        connection.execute("CREATE TABLE StringIds (id, value)")
        for key, text in rows:
            fate = dice.random()
            if fate < 0.1:
                continue
            if fate < 0.3:
                text = dice.choice([*NAMES, *VALUES])
            if fate > 0.9:
                connection.execute("INSERT INTO StringIds VALUES (?, ?)", (key, "twice"))
            connection.execute("INSERT INTO StringIds VALUES (?, ?)", (key, text))
        connection.commit()


def hostile_names(path: Path, dice: random.Random) -> None:
    """One kernel's name is hostile; the rest of the trace is sound."""
    name = dice.choice(NAMES)
    _sql(
        path,
        (
            f"UPDATE StringIds SET value = ? WHERE id = (SELECT demangledName FROM {KERNEL} "
            "GROUP BY 1 ORDER BY count(*) DESC LIMIT 1 OFFSET ?)",
            (name, dice.randrange(6)),
        ),
        ("UPDATE TARGET_INFO_GPU SET name = ?", (name,))
        if dice.random() < 0.3
        else ("SELECT 1", ()),
    )


def small_tables(path: Path, dice: random.Random) -> None:
    """Facts about the capture are anything."""
    with closing(sqlite3.connect(path)) as connection:
        for table, key in (
            *(("META_DATA_CAPTURE", "value"), ("META_DATA_EXPORT", "value")),
            *(("TARGET_INFO_GPU", "memoryBandwidth"), ("TARGET_INFO_GPU", "name")),
            *(("TARGET_INFO_GPU", "id"), ("TARGET_INFO_GPU", "smCount")),
            *(("META_DATA_CAPTURE", "name"), ("ANALYSIS_DETAILS", "duration")),
        ):
            if dice.random() < 0.4:
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                listed = ", ".join(f'"{name}"' for name in names)
                connection.execute(f"CREATE TABLE loose ({listed})")
                connection.execute(f"INSERT INTO loose SELECT * FROM {table}")
                connection.execute(f"DROP TABLE {table}")
                connection.execute(f"ALTER TABLE loose RENAME TO {table}")
                value = dice.choice([*VALUES, *NAMES])
                connection.execute(f"UPDATE {table} SET {key} = ?", (value,))
        connection.commit()


def other_tables(path: Path, dice: random.Random) -> None:
    """Calls, scopes and samples are anything."""
    _sql(path, (f"DROP TABLE IF EXISTS {RUNTIME}", ()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {RUNTIME} (start, end, globalTid, correlationId, nameId)")
        connection.execute(
            "CREATE TABLE NVTX_EVENTS "
            "(start, end, globalTid, endGlobalTid, eventType, textId, text)"
        )
        connection.execute("CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, metricId, metricName)")
        connection.execute("CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value)")
        connection.execute("CREATE TABLE DIAGNOSTIC_EVENT (text)")
        texts = (
            *("execute_context_0(0)_generation_4(4)", "step[DECODE bs=8]"),
            *("{'Module': 'top.model.layers.99999999999999999999.mlp'}", "execute_" * 9000),
            "{'Module': 'layers." + "layers.1 " * 9000,
            "execute_context_0(" + ")_generation_1(" * 1200,
        )
        some = [
            *connection.execute(f"SELECT start, end, correlationId FROM {KERNEL} LIMIT 4000"),
        ]
        for start, end, correlation in some[:: dice.randint(1, 9)]:
            row = [start - 500, end, 77, correlation, 3]
            if dice.random() < 0.2:
                row[dice.randrange(5)] = dice.choice(VALUES)
            connection.execute(f"INSERT INTO {RUNTIME} VALUES (?, ?, ?, ?, ?)", row)
            event = [start - 600, end + 10, 77, None, 59, None, dice.choice(texts)]
            if dice.random() < 0.3:
                event[dice.randrange(7)] = dice.choice(VALUES)
            connection.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", event)
            sample = [start, 256, 1, 1.5e9]
            if dice.random() < 0.3:
                sample[dice.randrange(4)] = dice.choice(VALUES)
            connection.execute("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", sample)
        metric = [256, 1, dice.choice(["GPC Clock Frequency [MHz]", "gpc clock " * 9000 + "freq"])]
        if dice.random() < 0.5:
            metric[dice.randrange(3)] = dice.choice(VALUES)
        connection.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?)", metric)
        for text in (dice.choice(NAMES), dice.choice(VALUES)):
            connection.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (?)", (text,))
        connection.commit()


def no_plain_tables(path: Path, dice: random.Random) -> None:
    """Views, virtual tables, triggers, generated columns and endless queries."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
    script = dice.choice(
        [
            f"ALTER TABLE {KERNEL} RENAME TO k; CREATE VIEW {KERNEL} AS SELECT * FROM k",
            f"DROP TABLE {KERNEL}; CREATE VIEW {KERNEL} AS {endless} i AS start, i AS end, "
            "0 AS deviceId, 1 AS demangledName FROM n",
            "DROP TABLE StringIds; "
            f"CREATE VIEW StringIds AS {endless} i AS id, 'x' AS value FROM n",
            "DROP TABLE StringIds; CREATE VIRTUAL TABLE StringIds USING fts4(id, value)",
            f"DROP TABLE {KERNEL}; CREATE VIRTUAL TABLE {KERNEL} USING rtree(id, start, end)",
            f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN DELETE FROM {KERNEL}; END",
            "DROP TABLE META_DATA_CAPTURE; CREATE VIEW META_DATA_CAPTURE AS "
            "SELECT load_extension('x') AS name, readfile('/etc/passwd') AS value",
            f"ALTER TABLE {KERNEL} ADD COLUMN bomb AS (length(zeroblob(900000000)))",
            f"CREATE INDEX bomb ON {KERNEL} (length(hex(zeroblob(1000000 + start % 2))))"
            if dice.random() < 0.1
            else f"CREATE INDEX i ON {KERNEL} (start DESC)",
            f'CREATE TABLE "{chr(27)}[31m" (x); CREATE TABLE "a""b;--" ("c""d", "[bold]")',
            f"DROP TABLE {KERNEL}; CREATE TABLE {KERNEL} ("
            + ", ".join(f"c{i}" for i in range(1500))
            + ", start, end, deviceId, demangledName)",
        ]
    )
    with closing(sqlite3.connect(path)) as connection:
        try:
            connection.executescript(script)
        except sqlite3.Error:  # this SQLite lacks the module; then the file is as it was
            connection.rollback()
        connection.commit()


def _pages(path: Path) -> tuple[bytearray, int]:
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    return content, 65_536 if size == 1 else size


def pages_overwritten(path: Path, dice: random.Random) -> None:
    """Whole pages are noise, nothing, or another page."""
    content, page = _pages(path)
    pages = len(content) // page
    for _ in range(dice.choice([1, 2, 5, 40])):
        at, other = dice.randrange(pages) * page, dice.randrange(pages) * page
        content[at : at + page] = dice.choice(
            [dice.randbytes(page), bytes(page), bytes(content[other : other + page])]
        )
    path.write_bytes(content)


def bytes_changed(path: Path, dice: random.Random) -> None:
    """Single bytes are others, in the header, the schema or anywhere."""
    content, page = _pages(path)
    most = dice.choice([100, page, 4 * page, len(content)])
    for _ in range(dice.choice([1, 5, 50, 2000])):
        content[dice.randrange(most)] = dice.randrange(256)
    path.write_bytes(content)


def truncated(path: Path, dice: random.Random) -> None:
    """The end is missing, with or without a header that knows."""
    content, page = _pages(path)
    length = dice.choice(
        [
            dice.randrange(200),
            dice.randrange(len(content)),
            dice.randrange(len(content)) // page * page,
        ]
    )
    del content[length:]
    if len(content) > 100 and dice.random() < 0.5:
        content[28:32] = (len(content) // page).to_bytes(4, "big")
    path.write_bytes(content)


def endless_tree(path: Path, _dice: random.Random) -> None:
    """Interior pages whose children are all the same claim rows beyond all counting."""
    content, page = _pages(path)
    for at in range(page, len(content), page):
        cells = int.from_bytes(content[at + 3 : at + 5], "big")
        if content[at] == 5 and 1 < cells < page:
            first = int.from_bytes(content[at + 12 : at + 14], "big")
            child = bytes(content[at + first : at + first + 4])
            for cell in range(cells):
                place = int.from_bytes(content[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
                content[at + place : at + place + 4] = child
            content[at + 8 : at + 12] = child
    path.write_bytes(content)


MUTATIONS: tuple[Mutation, ...] = (
    any_value,
    arithmetic,
    rows_lost_or_doubled,
    strings,
    hostile_names,
    small_tables,
    other_tables,
    no_plain_tables,
    pages_overwritten,
    bytes_changed,
    truncated,
    endless_tree,
)
