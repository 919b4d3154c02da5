"""The index of a trace: its cleaned kernels as columns in the cache directory.

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

import polars as pl

from tracebook.cache import cached, find_cached
from tracebook.drafts import write_parquet
from tracebook.errors import TraceError
from tracebook.importers.sniff import Kind, sniff
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA, Gpu, Trace, TraceInfo

#: Raise it whenever cleaning, naming or the files below change.
_VERSION = 1
_FOLDER, _SUFFIX = "index", ".index"
_BLOCKS, _BLOCK_BYTES = 64, 4096
_ROW_GROUP = 262_144


def make_sidecar(path: Path) -> Path:
    """Index a trace, once for each content.

    Returns:
        The folder in the cache: kernels.parquet, names.parquet and info.json.

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
        trace = read_trace(path)
        folder.mkdir()
        write_parquet(
            trace.kernels,
            folder / "kernels.parquet",
            compression="zstd",
            compression_level=1,
            row_group_size=_ROW_GROUP,
        )
        write_parquet(trace.names, folder / "names.parquet")
        (folder / "info.json").write_text(_info_text(trace.info), encoding="utf-8")

    return cached(_FOLDER, path, _SUFFIX, make, key=sidecar_key(path))


def find_sidecar(path: Path) -> Path | None:
    """The index of a trace, None where none was made of this content."""
    return find_cached(_FOLDER, sidecar_key(path), _SUFFIX)


def read_sidecar(folder: Path, path: Path) -> Trace | None:
    """The whole trace from its index, None where the index cannot be read.

    Args:
        folder: What `find_sidecar` found.
        path: The trace, for messages.
    """
    try:
        kernels = _read_columns(folder / "kernels.parquet")
        names = pl.read_parquet(folder / "names.parquet", glob=False)
        info = _info_of((folder / "info.json").read_text(encoding="utf-8"), path)
    except (OSError, ValueError, TypeError, KeyError, pl.exceptions.PolarsError):
        return None  # deleted meanwhile, or damaged: the trace itself is there
    if kernels.schema != pl.Schema(KERNEL_SCHEMA) or names.schema != pl.Schema(NAME_SCHEMA):
        return None
    return Trace(info, kernels, names)


def _read_columns(path: Path) -> pl.DataFrame:
    """A Parquet file, column by column.

    Row groups come as chunks, which every later stage would put together for itself: done at
    once here, and so that only one column is held twice.
    """
    names = pl.read_parquet_schema(path)
    return pl.DataFrame(
        [pl.read_parquet(path, columns=[name], glob=False).to_series().rechunk() for name in names]
    )


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


def _info_text(info: TraceInfo) -> str:
    """Facts as JSON, without the path, which may change."""
    facts = {name: value for name, value in asdict(info).items() if name != "path"}
    return json.dumps(facts)


def _info_of(text: str, path: Path) -> TraceInfo:
    facts = json.loads(text)
    facts["gpus"] = tuple(Gpu(**gpu) for gpu in facts["gpus"])
    facts["notices"] = tuple(Notice(**notice) for notice in facts["notices"])
    return TraceInfo(path=path, **facts)
