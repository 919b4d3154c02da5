"""Baselines under names, with their history, in a SQLite file of the project's own.

The tables are made to be read by others as well (`datasette .tracebook/baselines.db`):
`tags` has one row for each time that a run was tagged, `phases` what its phases took,
and the view `baselines` the latest row of each name. Every change is one transaction,
so two processes do not harm each other.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_utils

from tracebook.compare.baseline import Baseline, Run, from_json, to_json
from tracebook.errors import TracebookError
from tracebook.units import ms

FILE = "baselines.db"
#: How long to wait for another process, in s.
_PATIENCE = 30.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_TAGS = {
    "id": int,
    "name": str,
    "tagged_at": str,
    "gpu": str,
    "target": str,
    "draft_method": str,
    "draft_tokens": int,
    "batch": int,
    "runs": int,
    "steps": int,
    "step_ms": float,
    "document": bytes,
}
_PHASES = {"tag_id": int, "phase": str, "ms": float, "traffic_bytes": int, "traffic_gbps": float}
_LATEST = "select * from tags where id in (select max(id) from tags group by name)"


class StoreError(TracebookError):
    """The store cannot be used, or does not have what is asked for."""


@dataclass(frozen=True)
class Tag:
    """One row of the store, without the runs themselves."""

    id: int
    name: str
    tagged_at: str
    gpu: str | None
    target: str | None
    draft_method: str | None
    draft_tokens: int | None
    batch: int | None
    runs: int
    steps: int
    step_ms: float


class Store:
    """Baselines by name in a directory."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / FILE

    def tag(self, name: str, baseline: Baseline) -> Tag:
        """Put a baseline under a name; what had the name before stays in the history.

        Raises:
            StoreError: The name cannot be one, or the store cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise StoreError(
                f"{name!r} cannot be the name of a baseline.",
                "Use letters, digits, dots, dashes and underscores, as in main or v1.2.",
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store {self.path.parent} cannot be made: {error.strerror}.",
                "Name a directory that can be written with --store.",
            ) from error
        row = _row(name, baseline)
        with self._open() as db, _transaction(db):
            columns = ", ".join(row)
            marks = ", ".join(f":{column}" for column in row)
            done = db.execute(f"insert into tags ({columns}) values ({marks})", row)
            row["id"] = done.lastrowid
            for phase in _phase_rows(row["id"], baseline.runs[0]):
                db.execute("insert into phases values (?, ?, ?, ?, ?)", phase)
        del row["document"]
        return Tag(**row)

    def get(self, name: str) -> Baseline:
        """The baseline that was last tagged with a name.

        Raises:
            StoreError: There is none.
        """
        if self.path.exists():
            with self._open() as db:
                for row in db.query(f"select document from ({_LATEST}) where name = ?", [name]):
                    try:
                        text = gzip.decompress(row["document"]).decode()
                    except (OSError, EOFError, ValueError, TypeError) as error:
                        raise StoreError(
                            f"The baseline {name} is damaged.", "Tag it anew."
                        ) from error
                    return from_json(text, source=f"baseline {name}")
        raise self._missing(name)

    def latest(self) -> tuple[Tag, ...]:
        """The latest row of each name, by name."""
        return self._rows(f"{_LATEST} order by name")

    def history(self, name: str) -> tuple[Tag, ...]:
        """Every row of a name, newest first.

        Raises:
            StoreError: There is none.
        """
        rows = self._rows("select * from tags where name = ? order by id desc", [name])
        if not rows:
            raise self._missing(name)
        return rows

    def remove(self, name: str) -> int:
        """Remove a name with its history; return how many rows it had.

        Raises:
            StoreError: There is none.
        """
        if not self.path.exists():
            raise self._missing(name)
        with self._open() as db, _transaction(db):
            db.execute(
                "delete from phases where tag_id in (select id from tags where name = ?)", [name]
            )
            removed = db.execute("delete from tags where name = ?", [name]).rowcount
        if not removed:
            raise self._missing(name)
        return int(removed)

    def _rows(self, sql: str, values: list[str] | None = None) -> tuple[Tag, ...]:
        if not self.path.exists():
            return ()
        with self._open() as db:
            kept = Tag.__dataclass_fields__
            return tuple(
                Tag(**{key: value for key, value in row.items() if key in kept})
                for row in db.query(sql, values or [])
            )

    def _missing(self, name: str) -> StoreError:
        names = [tag.name for tag in self.latest()]
        known = f"It has: {', '.join(names)}." if names else "It is empty."
        return StoreError(
            f"{name!r} is neither a file nor a baseline in {self.path.parent}. {known}",
            f"Make one with `tracebook baseline tag {name} RUN`, or give the path of a saved run.",
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite_utils.Database]:
        """The database with its tables; transactions are begun by hand."""
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                db = sqlite_utils.Database(connection)
                if not {"tags", "phases", "baselines"} <= {*db.table_names(), *db.view_names()}:
                    with _transaction(db):
                        _make_tables(db)
                yield db
        except sqlite3.Error as error:
            raise StoreError(
                f"The store {self.path} cannot be used: {error}.",
                "Check the file and its directory, or name another one with --store.",
            ) from error


def _make_tables(db: sqlite_utils.Database) -> None:
    """Make what is missing, within the transaction that is open."""
    for name, columns, rest in (
        ("tags", _TAGS, "primary key (id)"),
        ("phases", _PHASES, "foreign key (tag_id) references tags (id)"),
    ):
        kinds = {int: "integer", str: "text", float: "float", bytes: "blob"}
        listed = ", ".join(f"{column} {kinds[kind]}" for column, kind in columns.items())
        db.execute(f"create table if not exists {name} ({listed}, {rest})")
    db.execute("create index if not exists tags_by_name on tags (name)")
    shown = ", ".join(column for column in _TAGS if column != "document")
    db.execute(
        f"create view if not exists baselines as select {shown} from tags "
        "where id in (select max(id) from tags group by name)"
    )


@contextmanager
def _transaction(db: sqlite_utils.Database) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def _row(name: str, baseline: Baseline) -> dict[str, Any]:
    first = baseline.runs[0]
    return {
        "name": name,
        "tagged_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": first.fact("trace", "gpu"),
        "target": first.fact("run", "target"),
        "draft_method": first.fact("run", "draft_method"),
        "draft_tokens": first.fact("run", "draft_tokens"),
        "batch": first.fact("run", "batch"),
        "runs": len(baseline.runs),
        "steps": sum(run.steps for run in baseline.runs),
        "step_ms": ms(float(np.mean([np.median(run.wall_ns) for run in baseline.runs]))),
        "document": gzip.compress(to_json(baseline).encode(), mtime=0),
    }


def _phase_rows(tag_id: int, run: Run) -> list[tuple[Any, ...]]:
    facts = {row.get("phase"): row for row in run.report.get("phases") or ()}
    return [
        (
            tag_id,
            phase,
            ms(float(np.median(values))),
            facts.get(phase, {}).get("traffic_bytes"),
            facts.get(phase, {}).get("traffic_gbps"),
        )
        for phase, values in run.phases_ns.items()
    ]


def listed(tags: Sequence[Tag]) -> str:
    """Rows of the store as a table."""
    if not tags:
        return "The store has no baselines; `tracebook baseline tag NAME RUN` makes one.\n"
    headings = ("name", "tagged", "steps", "step ms", "gpu", "target", "drafting")
    rows = [headings] + [
        (
            tag.name,
            tag.tagged_at,
            f"{tag.steps}" + (f" in {tag.runs} runs" if tag.runs > 1 else ""),
            f"{tag.step_ms:.2f}",
            tag.gpu or "-",
            tag.target or "-",
            f"{tag.draft_method or '-'}" + (f" {tag.draft_tokens}" if tag.draft_tokens else ""),
        )
        for tag in tags
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(headings))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(lines) + "\n"
