"""From raw pages to the kernels of a trace: each page is cleaned, selected and stored.

Pages come from several threads. What is to be known of all rows, whether they are selected
or not, is taken down on the way: no later stage could go over them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from threading import Lock

import polars as pl

from tracebook.columns import is_constant
from tracebook.errors import TraceError
from tracebook.importers.clean import clean_page, left_out
from tracebook.importers.kernel_columns import KernelColumns
from tracebook.importers.source import RawKernels
from tracebook.importers.window import Selection
from tracebook.notices import Notice
from tracebook.scratch import Scratch
from tracebook.trace import KERNEL_SCHEMA

#: Start, end and id of a kernel, and the id of its short name.
_Named = tuple[int, int, int, int | None]


class Gathering:
    """Kernels of the device and process of a selection, and what was met on the way.

    Attributes:
        rows: Usable rows of any device and process.
        nodes_seen: Whether one of them carries a graph node.
    """

    def __init__(self, selection: Selection, scratch: Scratch) -> None:
        self._selection = selection
        self._columns = KernelColumns(scratch)
        self._owners: set[tuple[int, int | None]] = set()
        self._dropped: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._first: dict[int, _Named] = {}
        self._lock = Lock()
        self.rows = 0
        self.nodes_seen = False

    def take(self, raw: RawKernels) -> None:
        """Clean a page and store what is wanted of it."""
        page = clean_page(raw)
        kept = self.store(page.frame, raw.at, raw.room)
        names = kept.unique("name_id", keep="first")
        named = names.select("name_id", "start_ns", "end_ns", "kernel_id", "short_id").rows()
        with self._lock:
            self._dropped.update(page.dropped)
            self._lost.update(page.lost)
            self.nodes_seen |= page.frame["graph_node_id"].null_count() < page.frame.height
            for name_id, *kernel in named:
                first: _Named = tuple(kernel)
                if name_id not in self._first or first[:3] < self._first[name_id][:3]:
                    self._first[name_id] = first

    def store(self, page: pl.DataFrame, at: int, room: int) -> pl.DataFrame:
        """Store what is wanted of rows in KERNEL_SCHEMA, sorted by time, and return it."""
        owners, height = _owners(page), page.height
        for column, wanted in (("device", self._selection.device), ("pid", self._selection.pid)):
            if wanted is not None:
                page = page.filter(pl.col(column) == wanted)
        self._columns.put(page.select(*KERNEL_SCHEMA), at, room)
        with self._lock:
            self.rows += height
            self._owners |= owners
        return page

    def kernels(self, path: Path) -> pl.DataFrame:
        """The kernels in KERNEL_SCHEMA, sorted by (start_ns, end_ns, kernel_id); once only.

        Raises:
            TraceError: None is of the device or process asked for.
        """
        device, pid = self._selection.device, self._selection.pid
        there = {(d, p) for d, p in self._owners if device in (None, d)}
        if not there:
            raise _no_kernel_of(path, "device", device, {d for d, _ in self._owners})
        if not any(pid in (None, p) for _, p in there):
            raise _no_kernel_of(path, "process", pid, {p for _, p in there})
        return self._columns.frame()

    def short_ids(self) -> dict[int, int | None]:
        """Of each name_id, ascending, the id of the short name, as its first kernel has it."""
        return {name_id: self._first[name_id][-1] for name_id in sorted(self._first)}

    def notices(self) -> tuple[Notice, ...]:
        """What was left out of the rows."""
        return left_out(self._dropped, self._lost)


def _owners(page: pl.DataFrame) -> set[tuple[int, int | None]]:
    """The pairs of device and process of a page: mostly one, which is told fast."""
    device, pid = page["device"], page["pid"]
    if page.is_empty():
        return set()
    if is_constant(device) and is_constant(pid):
        return {(device[0], pid[0])}
    return set(page.select("device", "pid").unique().iter_rows())


def _no_kernel_of(
    path: Path, word: str, wanted: int | None, there: Collection[int | None]
) -> TraceError:
    listed = ", ".join(str(value) for value in sorted(v for v in there if v is not None))
    return TraceError(
        f"{path} has no kernel of {word} {wanted}.",
        f"Its {word} numbers: {listed or 'not recorded'}.",
    )
