"""The index of a trace: its cleaned kernels as columns in the cache directory.

The columns are mapped, not read (`column_file`): an index takes the room of the trace itself,
and opening it takes no time.

The key stands for the content without reading all of it: the size, the time of the last
change, and 64 blocks of 4 KiB spread over the file, of which the first holds SQLite's change
counter. A trace that is changed in place by anything that keeps all of these is not
noticed; nsys never changes an export. The version below is part of the key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from tracebook.cache import cache_dir, cached, find_cached
from tracebook.drafts import write_parquet
from tracebook.errors import TraceError
from tracebook.importers.column_file import read_columns, write_columns
from tracebook.importers.sniff import Kind, sniff
from tracebook.notices import Notice
from tracebook.scratch import MEMORY, Scratch
from tracebook.trace import NAME_SCHEMA, Gpu, Trace, TraceInfo

#: Raise it whenever cleaning, naming or the files below change.
_VERSION = 2
_FOLDER, _SUFFIX = "index", ".index"
_BLOCKS, _BLOCK_BYTES = 64, 4096
#: What reading an index can raise.
_UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError),
    pl.exceptions.PolarsError,
)
_KERNELS, _NAMES, _INFO = "kernels.columns", "names.parquet", "info.json"


def make_sidecar(path: Path) -> Path:
    """Index a trace, once for each content.

    Returns:
        The folder in the cache: kernels.columns, names.parquet and info.json.

    Raises:
        TraceError: The trace cannot be read, or is a directory export, which is columnar.
        TracebookError: The cache directory cannot be used.
    """
    from tracebook.importers import read_trace

    if sniff(path) is Kind.FOLDER:
        raise TraceError(
            f"{path} is a directory export: its columns are there already.",
            "Give it to the other commands as it is.",
        )

    def make(folder: Path) -> None:
        # In files, since they become files: memory then holds pages, however long the trace is.
        trace = read_trace(path, scratch=Scratch(cache_dir() / "scratch"))
        folder.mkdir()
        columns = write_columns(trace.kernels, folder / _KERNELS)
        write_parquet(trace.names, folder / _NAMES)
        (folder / _INFO).write_text(_info_text(trace.info, columns), encoding="utf-8")

    return cached(_FOLDER, path, _SUFFIX, make, key=sidecar_key(path))


def find_sidecar(path: Path) -> Path | None:
    """The index of a trace, None where none was made of this content."""
    return find_cached(_FOLDER, sidecar_key(path), _SUFFIX)


def read_sidecar(folder: Path, path: Path, scratch: Scratch = MEMORY) -> Trace | None:
    """The whole trace from its index, None where the index cannot be read.

    Args:
        folder: What `find_sidecar` found.
        path: The trace, for messages.
        scratch: Where later stages put their arrays.
    """
    try:
        info, columns = _info_of((folder / _INFO).read_text(encoding="utf-8"), path)
        kernels = read_columns(folder / _KERNELS, columns, scratch)
        names = pl.read_parquet(folder / _NAMES, glob=False)
    except _UNREADABLE:
        return None  # deleted meanwhile, or damaged: the trace itself is there
    if names.schema != pl.Schema(NAME_SCHEMA):
        return None
    return Trace(info, kernels, names, scratch)


def sidecar_key(path: Path) -> str:
    """What stands for the content of a trace, see above.

    Raises:
        TraceError: It cannot be read.
    """
    try:
        status = path.stat()
        digest = hashlib.blake2b(digest_size=20)
        digest.update(f"{_VERSION} {status.st_size} {status.st_mtime_ns}".encode())
        last = max(0, status.st_size - _BLOCK_BYTES)
        with path.open("rb") as file:
            for number in range(_BLOCKS):
                file.seek(last * number // (_BLOCKS - 1))
                digest.update(file.read(_BLOCK_BYTES))
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error
    return digest.hexdigest()


def _info_text(info: TraceInfo, columns: dict[str, Any]) -> str:
    """Facts and the places of columns as JSON, without the path, which may change."""
    facts = {name: value for name, value in asdict(info).items() if name != "path"}
    return json.dumps({"info": facts, "kernels": columns})


def _info_of(text: str, path: Path) -> tuple[TraceInfo, dict[str, Any]]:
    told = json.loads(text)
    facts = told["info"]
    facts["gpus"] = tuple(Gpu(**gpu) for gpu in facts["gpus"])
    facts["notices"] = tuple(Notice(**notice) for notice in facts["notices"])
    return TraceInfo(path=path, **facts), told["kernels"]
