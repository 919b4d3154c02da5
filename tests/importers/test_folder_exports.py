"""Directory exports: the same rows in Parquet and Arrow give the same trace as in SQLite."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tracebook.errors import CaptureIncomplete, MissingTable, TraceError
from tracebook.importers import open_trace

from .exports import KERNEL, MIDDLE, NAMES, RUNTIME, kernel, write

ROWS = [
    kernel(30, 40, graphNodeId=5),
    kernel(10, 20, demangledName=4, shortName=5, deviceId=1),
    kernel(10, 15, demangledName=99, shortName=98, mangledName=None),
    kernel(9, 3),
]
META = [("EXPORT_SCHEMA_VERSION", "3.24.14"), ("TRACEBOOK_SYNTHETIC", "true")]


def kernel_frame(rows=ROWS):
    return pl.DataFrame(
        [[row.get(c) for c in MIDDLE] for row in rows],
        schema=dict.fromkeys(MIDDLE, pl.Int64()),
        orient="row",
    )


TABLES = {
    KERNEL: kernel_frame(),
    "StringIds": pl.DataFrame({"id": list(NAMES), "value": list(NAMES.values())}),
    "META_DATA_EXPORT": pl.DataFrame(META, schema=["name", "value"], orient="row"),
    "TARGET_INFO_GPU": pl.DataFrame({"id": [0], "name": ["NVIDIA L4"]}),
}

WRITERS = {
    "parquet": lambda frame, path: frame.write_parquet(path.with_suffix(".parquet")),
    "arrow file": lambda frame, path: frame.write_ipc(path.with_suffix(".arrow")),
    "arrow stream": lambda frame, path: frame.write_ipc_stream(path.with_suffix(".arrow")),
}


@pytest.fixture(params=WRITERS)
def folder(request, tmp_path):
    place = tmp_path / "run_pqtdir"
    place.mkdir()

    def make(tables):
        for name, frame in tables.items():
            WRITERS[request.param](frame, place / name)
        return place

    return make


def test_the_trace_is_that_of_the_sqlite_export(folder, tmp_path):
    place = folder(TABLES)
    sqlite = write(
        tmp_path / "run.sqlite",
        kernels=ROWS,
        tables={
            "META_DATA_EXPORT": (["name", "value"], META),
            "TARGET_INFO_GPU": (["id", "name"], [(0, "NVIDIA L4")]),
        },
    )
    for window in ({}, {"from_ns": 5, "to_ns": 30}, {"device": 1}):
        ours, theirs = open_trace(place, **window), open_trace(sqlite, **window)
        assert_frame_equal(ours.kernels, theirs.kernels)
        assert_frame_equal(ours.names, theirs.names)
        assert ours.info.notices == theirs.info.notices
        assert ours.info.gpus == theirs.info.gpus
        assert (ours.info.schema_version, ours.info.synthetic) == ("3.24.14", True)


def test_nothing_is_written_into_it(folder):
    place = folder(TABLES)
    before = {entry.name: entry.read_bytes() for entry in place.iterdir()}
    open_trace(place)
    assert {entry.name: entry.read_bytes() for entry in place.iterdir()} == before


def test_narrow_and_unsigned_integers_are_fine(folder):
    narrow = kernel_frame(ROWS[:2]).with_columns(
        pl.col("deviceId").cast(pl.UInt32), pl.col("gridX").cast(pl.Int16)
    )
    assert open_trace(folder(TABLES | {KERNEL: narrow})).kernels["grid_x"].to_list() == [8, 8]


def test_columns_of_another_type_are_counted(folder):
    odd = kernel_frame(ROWS[:2]).with_columns(streamId=pl.lit("seven"))
    trace = open_trace(folder(TABLES | {KERNEL: odd}))
    assert trace.kernels["stream"].null_count() == 2
    assert [notice.code for notice in trace.info.notices] == ["values_dropped"]


def test_no_kernel_table(folder):
    tables = {name: frame for name, frame in TABLES.items() if name != KERNEL}
    with pytest.raises(MissingTable):
        open_trace(folder(tables))


def test_graph_level(folder):
    strings = pl.DataFrame({"id": [9], "value": ["cudaGraphLaunch_v10000"]})
    launches = pl.DataFrame({"start": [1], "nameId": [9]})
    with pytest.raises(CaptureIncomplete):
        open_trace(
            folder(
                TABLES | {KERNEL: kernel_frame(ROWS[1:2]), "StringIds": strings, RUNTIME: launches}
            )
        )


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("content", [b"not a table", b"PAR1", b"ARROW1\x00\x00", bytes(100)])
def test_a_damaged_table_is_refused(tmp_path, suffix, content):
    (tmp_path / f"{KERNEL}.{suffix}").write_bytes(content)
    with pytest.raises(TraceError) as caught:
        open_trace(tmp_path)
    assert caught.value.hint
