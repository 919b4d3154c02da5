"""Reading exports in tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def query(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()
