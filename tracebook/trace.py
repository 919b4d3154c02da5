"""The trace as every later stage sees it: facts about the capture and typed frames.

Importers produce a `Trace`; nothing right of them knows about SQLite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

from tracebook.notices import Notice
from tracebook.scratch import MEMORY, Scratch

CaptureMode = Literal["node", "graph", "unknown"]

#: One row per kernel execution, sorted by (start_ns, end_ns, kernel_id). Times in
#: ns since the start of the capture. `kernel_id` is the rowid in
#: CUPTI_ACTIVITY_KIND_KERNEL. `name_id` points into `NAME_SCHEMA`. Everything
#: nullable is null where the export lacks the column or the value.
KERNEL_SCHEMA: dict[str, pl.DataType] = {
    "kernel_id": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "device": pl.Int32(),
    "pid": pl.Int64(),  # nullable
    "stream": pl.Int64(),  # nullable
    "correlation_id": pl.Int64(),  # nullable
    "name_id": pl.Int64(),
    "grid_x": pl.Int32(),  # nullable, as the five below
    "grid_y": pl.Int32(),
    "grid_z": pl.Int32(),
    "block_x": pl.Int32(),
    "block_y": pl.Int32(),
    "block_z": pl.Int32(),
    "graph_node_id": pl.Int64(),  # nullable, opaque
    "graph_id": pl.Int64(),  # nullable
}

#: One row per distinct kernel name. `name` is the demangled name (the short one
#: where the export has no other), `short_name` the base name.
NAME_SCHEMA: dict[str, pl.DataType] = {
    "name_id": pl.Int64(),
    "name": pl.String(),
    "short_name": pl.String(),
}


@dataclass(frozen=True)
class Gpu:
    """One GPU as TARGET_INFO_GPU lists it; `bandwidth_gbps` is what the export claims."""

    device: int | None
    name: str
    bandwidth_gbps: float | None
    sm_count: int | None


@dataclass(frozen=True)
class TraceInfo:
    """Facts about a capture. Never holds environment values, user or host names.

    `model_hint` is the model named in the captured command line, or None.
    `synthetic` is True only where the file itself says so. `notices` tell what was wrong
    with the rows, `notes` are their sentences.
    """

    path: Path
    nsys_version: str | None = None
    schema_version: str | None = None
    capture_mode: CaptureMode = "unknown"
    gpus: tuple[Gpu, ...] = ()
    synthetic: bool = False
    model_hint: str | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences of `notices`."""
        return tuple(notice.message for notice in self.notices)


@dataclass(frozen=True)
class Trace:
    """A capture: `info`, `kernels` (KERNEL_SCHEMA) and `names` (NAME_SCHEMA).

    `scratch` is where later stages put arrays of one value per kernel.
    """

    info: TraceInfo
    kernels: pl.DataFrame
    names: pl.DataFrame
    scratch: Scratch = field(default=MEMORY, compare=False, repr=False)
