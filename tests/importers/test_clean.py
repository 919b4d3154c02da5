"""Pages of kernel rows: cleaned one by one, put together in the order of time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tracebook.importers.gather import Gathering
from tracebook.importers.source import RawKernels
from tracebook.importers.window import Selection
from tracebook.scratch import MEMORY

times = st.tuples(st.integers(0, 40), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 3)))
pages = st.lists(st.lists(times, max_size=8), min_size=1, max_size=6)


def page_of(rows: list[tuple[int, int, int | None]], first: int, room: int) -> RawKernels:
    columns = {
        "kernel_id": range(first, first + len(rows)),
        "start_ns": [start for start, _, _ in rows],
        "end_ns": [start + length for start, length, _ in rows],
        "device": [0] * len(rows),
        "full": [7] * len(rows),
        "stream": [stream for _, _, stream in rows],
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    return RawKernels(frame, {}, at=first - 1, room=room)


@given(pages)
def test_pages_come_together_in_the_order_of_time(listed):
    """However their times overlap, with what belongs to a row and what is missing in it."""
    raw, first, room = [], 1, sum(map(len, listed))
    for rows in listed:
        raw.append(page_of(rows, first, room))
        first += len(rows)
    expected = pl.concat([page.frame for page in raw]).sort("start_ns", "end_ns", "kernel_id")
    gathering = Gathering(Selection(), MEMORY)
    for page in raw:
        gathering.take(page)
    joined = gathering.kernels(Path("run.sqlite")) if room else expected
    columns = ["kernel_id", "start_ns", "end_ns", "stream"]
    assert joined.select(columns).equals(expected.select(columns))
    assert gathering.notices() == ()
