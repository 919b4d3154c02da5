"""Make a decode trace of any size: the steady steps of a saved run, again and again.

    python benchmarks/decode_trace.py 1000000 build/bench/1m.sqlite

Each repetition is shifted in time and in correlation ids, so it is what a longer capture of
the same run would hold. The kernel and runtime tables grow, everything else stays.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tracebook.analysis import examine

ROOT = Path(__file__).parents[1]
SAVED_RUN = ROOT / "fixtures" / "full-recipe"
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def make(kernels: int, path: Path, saved_run: Path = SAVED_RUN) -> int:
    """Write a trace of about `kernels` kernels with its run.toml; return how many it has."""
    steps = examine(saved_run / "trace.sqlite").labelled.steps
    first, last = int(steps["start_ns"].min()), int(steps["end_ns"].max())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    shutil.copyfile(saved_run / "trace.sqlite", path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -400000")
        steady = f"start >= {first} AND start < {last}"
        ids = f"SELECT DISTINCT correlationId FROM {KERNEL} WHERE {steady}"
        span = db.execute(
            f"SELECT min(correlationId), max(correlationId), count(*) FROM {KERNEL} WHERE {steady}"
        ).fetchone()
        again = max(0, round((kernels - count(db)) / span[2]))
        shift, id_shift = last - first, span[1] - span[0] + 1
        for table, where in (
            (KERNEL, steady),
            (RUNTIME, f"correlationId IN ({ids})"),
        ):
            repeat(db, table, where, last, again, shift, id_shift)
        db.commit()
        made = count(db)
    run = (saved_run / "run.toml").read_text().replace("../", f"{saved_run.parent.resolve()}/")
    path.with_name("run.toml").write_text(run)
    return made


def repeat(db, table, where, last, again, shift, id_shift):
    """Copy rows `again` times behind themselves; what came after them stays the end."""
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    moved = {"start": "start + {t}", "end": '"end" + {t}', "correlationId": "correlationId + {c}"}
    listed = ", ".join(f'"{column}"' for column in columns)
    db.execute(f"CREATE TEMP TABLE tail AS SELECT * FROM {table} WHERE start >= {last}")
    db.execute(f"CREATE TEMP TABLE block AS SELECT * FROM {table} WHERE {where}")
    db.execute(f"DELETE FROM {table} WHERE start >= {last}")
    for source, numbers in (("block", range(1, again + 1)), ("tail", [again])):
        for number in numbers:
            values = ", ".join(moved.get(c, f'"{c}"') for c in columns)
            values = values.format(t=number * shift, c=number * id_shift)
            db.execute(f"INSERT INTO {table} ({listed}) SELECT {values} FROM {source}")
    db.execute("DROP TABLE tail")
    db.execute("DROP TABLE block")


def count(db) -> int:
    return db.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=int)
    parser.add_argument("path", type=Path)
    given = parser.parse_args()
    print(f"{given.path}: {make(given.kernels, given.path):,} kernels")
