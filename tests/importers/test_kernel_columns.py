"""Pages of kernels as columns: any order, any gap, in memory and in files, nothing held twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tracebook import columns
from tracebook.importers import kernel_columns, merge
from tracebook.importers.column_file import read_columns, write_columns
from tracebook.importers.kernel_columns import KernelColumns
from tracebook.scratch import MEMORY, Scratch
from tracebook.trace import KERNEL_SCHEMA

number = st.one_of(st.none(), st.integers(0, 2))
row = st.tuples(st.integers(0, 30), st.integers(0, 9), number, number, st.integers(0, 1))
pages = st.lists(st.tuples(st.lists(row, min_size=1, max_size=6), st.integers(0, 3)), max_size=7)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(columns, "CHUNK", 3)
    monkeypatch.setattr(merge, "_CHUNK_ROWS", 4)
    monkeypatch.setattr(merge, "_SAMPLED", 2)


def page_of(rows, first_id):
    frame = pl.DataFrame(
        {
            "kernel_id": range(first_id, first_id + len(rows)),
            "start_ns": [start for start, *_ in rows],
            "end_ns": [start + length for start, length, *_ in rows],
            "device": [0] * len(rows),
            "stream": [stream for *_, stream, _, _ in rows],
            "graph_node_id": [node for *_, node, _ in rows],
            "grid_x": [grid for *_, grid in rows],
        }
    )
    return frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in KERNEL_SCHEMA.items()
    ).sort("start_ns", "end_ns", "kernel_id")


def placed(listed):
    """Pages with their places, a gap behind each, and how many places there are."""
    made, at = [], 0
    for rows, gap in listed:
        made.append((page_of(rows, at + 1), at))
        at += len(rows) + gap
    return made, at


def whole_of(made):
    frames = [page for page, _ in made] or [pl.DataFrame(schema=KERNEL_SCHEMA)]
    return pl.concat(frames).sort("start_ns", "end_ns", "kernel_id")


@given(pages, st.randoms(), st.booleans())
def test_the_frame_is_the_sorted_whole(listed, dice, in_files):
    made, room = placed(listed)
    with tempfile.TemporaryDirectory() as folder:
        columns = KernelColumns(Scratch(Path(folder)) if in_files else MEMORY)
        for page, at in dice.sample(made, len(made)):
            columns.put(page, at, room)
        assert_frame_equal(columns.frame(), whole_of(made))
        assert list(Path(folder).iterdir()) == []


@given(pages.filter(bool))
def test_a_file_of_columns_gives_the_frame_back(listed):
    frame = whole_of(placed(listed)[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.columns"
        told = json.loads(json.dumps(write_columns(frame, path)))
        assert_frame_equal(read_columns(path, told, MEMORY), frame)
        assert_frame_equal(read_columns(path, told, Scratch(Path(folder) / "s")), frame)


def test_columns_are_taken_as_they_are():
    """Values are in the frame where they were put, also where some are missing."""
    values = np.arange(10)
    column = kernel_columns.Column(pl.Int64(), values, np.arange(10) % 2 == 0)
    frame = kernel_columns.frame_of({"stream": column}, 10, MEMORY)
    values[1] = 77
    assert frame["stream"].to_list() == [None, 77, None, 3, None, 5, None, 7, None, 9]


@pytest.mark.parametrize("spoil", [{"size": 1}, {"order": "middle"}, {"rows": 0}, {"rows": 10**6}])
def test_a_file_that_does_not_fit_is_not_mapped(tmp_path, spoil):
    frame = page_of([(5, 1, None, 2, 1), (1, 1, 7, 2, 0)], 1)
    told = write_columns(frame, tmp_path / "kernels.columns")
    with pytest.raises(ValueError):
        read_columns(tmp_path / "kernels.columns", told | spoil, MEMORY)


def test_all_rows_move_where_processes_follow_one_another():
    """Two processes that ran at once and lie behind one another in the file."""
    rows = [[(t, 1, pid, None, 0) for t in range(100)] for pid in (1, 2, 3)]
    made, room = placed([(part, 0) for part in rows])
    columns = KernelColumns(MEMORY)
    for page, at in made:
        columns.put(page, at, room)
    assert_frame_equal(columns.frame(), whole_of(made))
