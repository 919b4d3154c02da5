"""Labels told once for all kernels that share one."""

from __future__ import annotations

import polars as pl

from tracebook.kernels.labels import ROW_SCHEMA, LabelledKernels

ROWS = pl.DataFrame(
    [
        (1, 0, "target_layers", 3, "down", "down_proj", "gemm", 0, 5, 99, "alignment", None, 7, 0),
        (2, 0, "sampling", None, None, None, "sample", 5, 8, None, "name", None, None, 1),
        (3, 4, "target_layers", 3, "down", "down_proj", "gemm", 8, 9, 99, "alignment", None, 7, 0),
        (4, None, "warmup", None, None, None, "sample", 9, 12, None, "none", None, 7, 1),
    ],
    schema=ROW_SCHEMA,
    orient="row",
)


def test_rows_come_back_as_they_were():
    kernels = LabelledKernels.of(ROWS)
    assert kernels.labels.height == 3
    assert kernels.rows.equals(ROWS)
    assert dict(kernels.rows.schema) == ROW_SCHEMA
    some = ["phase", "step_id", "start_ns"]
    assert kernels.select(*some).equals(ROWS.select(some))
    assert kernels.select("end_ns").equals(ROWS.select("end_ns"))


def test_a_part_of_the_kernels():
    part = LabelledKernels.of(ROWS).during(8, 12)
    assert len(part) == 2
    assert part.rows.equals(ROWS[2:])
