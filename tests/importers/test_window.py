"""Windows in percent, and pages: how a trace is cut must not show in what is read."""

from __future__ import annotations

import pytest
from polars.testing import assert_frame_equal

from tracebook.cli.options import capture_time
from tracebook.errors import TraceError
from tracebook.importers import folder_source, open_trace, sqlite_source
from tracebook.importers.window import Percent

from .exports import kernel, write

TIMES = range(0, 1000, 10)


@pytest.fixture
def trace(tmp_path):
    rows = [kernel(t, t + 10, graphNodeId=t) for t in TIMES]
    rows += [kernel(5000, 2**63 - 1), kernel(-(2**63), 0), kernel("x", 1)]  # no part of the time
    return write(tmp_path / "run.sqlite", kernels=rows)


@pytest.mark.parametrize(
    ("begin", "end", "first", "count"),
    [(25.0, 75.0, 250, 50), (0, 100, 0, 100), (99.5, 100, None, 0), (0, 0.1, 0, 1),
     (50.0, 50.1, 500, 1)],
)  # fmt: skip
def test_percents_are_of_the_time_with_kernels(trace, begin, end, first, count):
    if not count:
        with pytest.raises(TraceError, match="no kernel in the window"):
            open_trace(trace, from_ns=Percent(begin), to_ns=Percent(end))
        return
    starts = open_trace(trace, from_ns=Percent(begin), to_ns=Percent(end)).kernels["start_ns"]
    assert (starts[0], len(starts)) == (first, count)


def test_percents_and_times_go_together(trace):
    starts = open_trace(trace, from_ns=200, to_ns=Percent(30.0)).kernels["start_ns"].to_list()
    assert starts == list(range(200, 300, 10))


@pytest.mark.parametrize("value", [-1, 101, float("nan")])
def test_no_place_in_a_capture(value):
    with pytest.raises(TraceError):
        Percent(value)


@pytest.mark.parametrize(
    ("text", "place"), [("25%", Percent(25.0)), ("2s", 2 * 10**9), ("12.5%", Percent(12.5))]
)
def test_how_places_are_written(text, place):
    assert capture_time(text) == place


@pytest.mark.parametrize("page", [1, 7, 100, 103])
@pytest.mark.parametrize("parallel", [1, 10**9])
def test_pages_and_threads_do_not_show(trace, monkeypatch, page, parallel):
    whole = open_trace(trace)
    part = open_trace(trace, from_ns=300, to_ns=500)
    monkeypatch.setattr(sqlite_source, "PAGE_ROWS", page)
    monkeypatch.setattr(sqlite_source, "_PARALLEL_ROWS", parallel)
    paged = open_trace(trace)
    assert_frame_equal(paged.kernels, whole.kernels)
    assert paged.info.notices == whole.info.notices
    assert_frame_equal(open_trace(trace, from_ns=300, to_ns=500).kernels, part.kernels)


@pytest.mark.parametrize("page", [1, 7, 103])
def test_pages_of_a_directory_do_not_show(trace, tmp_path, monkeypatch, page):
    import sqlite3
    from contextlib import closing

    import polars as pl

    place = tmp_path / "pqtdir"
    place.mkdir()
    with closing(sqlite3.connect(trace)) as db:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"):
            where = "WHERE typeof(start) = 'integer'" if table != "StringIds" else ""
            frame = pl.read_database(f"SELECT * FROM {table} {where}", db)
            frame.write_parquet(place / f"{table}.parquet")
    whole = open_trace(place)
    monkeypatch.setattr(folder_source, "PAGE_ROWS", page)
    assert_frame_equal(open_trace(place).kernels, whole.kernels)
    assert open_trace(place, from_ns=Percent(25.0)).kernels["start_ns"][0] == 250
