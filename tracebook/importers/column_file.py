"""Columns in one file that is mapped into memory, not read: opening it costs next to nothing.

The values of each column lie in the file as the processor has them, and where some are
missing a byte a row behind them. A column of one value takes no room. Where things lie is
told beside the file, with what a reader checks before it maps anything: a file that is
shorter than its map would end the program.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.columns import is_constant, parts
from tracebook.importers.kernel_columns import KEYS, NUMPY, Column, frame_of
from tracebook.scratch import Scratch
from tracebook.trace import KERNEL_SCHEMA

_ALIGNED_BYTES = 4096


def write_columns(frame: pl.DataFrame, path: Path) -> dict[str, Any]:
    """Write a frame in KERNEL_SCHEMA; no more than a part of a column is held.

    Returns:
        What `read_columns` needs to know, as JSON can hold it.

    Raises:
        OSError: The file cannot be written.
    """
    columns: dict[str, dict[str, int | None]] = {}
    with path.open("xb") as file:
        for name in KERNEL_SCHEMA:
            series = frame[name]
            if name not in KEYS and is_constant(series):
                columns[name] = {"value": series[0]}
                continue
            columns[name] = {"at": _write(file, series)}
            if series.null_count():
                columns[name]["missing_at"] = _write(file, series, missing=True)
        size = file.tell()
    return {"rows": frame.height, "size": size, "order": sys.byteorder, "columns": columns}


def _write(file: IO[bytes], series: pl.Series, *, missing: bool = False) -> int:
    """Write values, or where they are missing; return where in the file that begins."""
    file.write(bytes(-file.tell() % _ALIGNED_BYTES))
    begin = file.tell()
    for rows in parts(len(series)):
        part = series[rows]
        file.write((part.is_null() if missing else part.fill_null(0)).to_numpy().tobytes())
    return begin


def read_columns(path: Path, told: dict[str, Any], scratch: Scratch) -> pl.DataFrame:
    """The frame that was written, over the mapped file.

    Args:
        path: The file.
        told: What `write_columns` returned.
        scratch: Where columns of one value are written out, see `frame_of`.

    Raises:
        OSError: The file cannot be opened.
        ValueError: File and `told` do not fit together, or it is of another machine.
        KeyError: Something is not told.
    """
    rows = told["rows"]
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size != told["size"] or told["order"] != sys.byteorder or rows < 1:
            raise ValueError(f"{path} is not what was written")
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)

    def held(at: int | None, dtype: type) -> NDArray[Any] | None:
        return None if at is None else np.frombuffer(mapped, dtype, rows, at)

    columns = {}
    for name, dtype in KERNEL_SCHEMA.items():
        where = told["columns"][name]
        columns[name] = Column(
            dtype,
            values=held(where.get("at"), NUMPY[dtype]),
            missing=held(where.get("missing_at"), np.bool_),
            value=where.get("value"),
        )
    return frame_of(columns, rows, scratch)
