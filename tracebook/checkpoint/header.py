"""A checkpoint as its headers tell it: which tensors, how many bytes. No weight is loaded.

In: a directory, a .safetensors file or a header bundle.
Out: a `Checkpoint` with one row per tensor, bytes from `data_offsets` alone.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tracebook.checkpoint.bundle import read_bundle, write_bundle
from tracebook.checkpoint.directory import read_config_beside, read_directory
from tracebook.checkpoint.gguf import read_gguf
from tracebook.checkpoint.hub import is_remote, read_remote
from tracebook.checkpoint.safetensors_header import (
    FileHeader,
    TensorColumns,
    check_entries,
    read_file_header,
)
from tracebook.config import REMOTE
from tracebook.errors import BadHeader, CheckpointError
from tracebook.notices import Notice

#: One row per tensor, in file order.
TENSOR_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.String(),
    "name": pl.String(),
    "dtype": pl.String(),
    "shape": pl.List(pl.Int64()),
    "bytes": pl.Int64(),
}


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of a checkpoint.

    Attributes:
        name: Directory, file or bundle name without its endings, for messages.
        source: `directory`, `file`, `bundle`, `gguf` or `hub`.
        tensors: TENSOR_SCHEMA.
        config: Content of config.json, None where absent.
        warnings: What is odd about the files.
        total_size: `metadata.total_size` of the index, None where absent. Often wrong
            (sum of file sizes, or 0), so it is shown but never used.
    """

    name: str
    source: str
    tensors: pl.DataFrame
    config: dict[str, Any] | None = None
    warnings: tuple[Notice, ...] = field(default_factory=tuple)
    total_size: int | None = None

    @property
    def payload_bytes(self) -> int:
        """Bytes of tensor data."""
        return int(self.tensors["bytes"].sum())


@dataclass(frozen=True)
class _Source:
    kind: str
    files: tuple[FileHeader, ...] = ()
    columns: tuple[tuple[str, TensorColumns], ...] = ()
    config: dict[str, Any] | None = None
    index: dict[str, Any] | None = None
    notices: tuple[Notice, ...] = ()


def read_checkpoint(source: str | Path) -> Checkpoint:
    """Read all headers of a checkpoint.

    Args:
        source: A directory (index first, else every .safetensors file), one
            .safetensors or .gguf file, a header bundle (.json.gz or .json), or
            `hub://owner/name`, whose headers are read from the Hugging Face hub.

    Returns:
        The checkpoint; a tensor found in two files counts once.

    Raises:
        CheckpointError: Nothing there that can be read.
        BadHeader: A file breaks the format.
    """
    with _collector_paused():
        opened = _opened(source)
        columns = [(file.name, check_entries(file)) for file in opened.files]
        columns += opened.columns
        tensors, repeated = _without_repeats(_frame(columns))
    if tensors.is_empty():
        raise CheckpointError(f"{_display_name(source)}: the headers list no tensors.")
    notices = [*opened.notices, *(notice for _, column in columns for notice in column.notices)]
    if opened.index is not None:
        notices.extend(_index_notices(opened.index, tensors))
    total_size = ((opened.index or {}).get("metadata") or {}).get("total_size")
    return Checkpoint(
        name=_display_name(source),
        source=opened.kind,
        tensors=tensors,
        config=opened.config,
        warnings=(*notices, *repeated),
        total_size=total_size if type(total_size) is int else None,
    )


def save_bundle(source: str | Path, path: str | Path, *, compress: bool | None = None) -> None:
    """Write the headers of a checkpoint into one header bundle.

    Args:
        source: Anything `read_checkpoint` accepts.
        path: Where to write.
        compress: Whether to gzip; by default unless `path` ends in .json.

    Raises:
        CheckpointError: The source cannot be read or the bundle not written.
    """
    opened = _opened(source)
    if opened.columns:
        raise CheckpointError(
            f"{source}: a header bundle holds safetensors headers, not GGUF.",
            "Copy the first part of the file instead: a GGUF cut off after its header is read.",
        )
    for file in opened.files:
        check_entries(file)
    if compress is None:
        compress = Path(path).suffix != ".json"
    write_bundle(Path(path), opened.files, opened.config, opened.index, compress=compress)


def _opened(source: str | Path) -> _Source:
    if isinstance(source, str) and is_remote(source):
        remote = read_remote(source)
        return _Source("hub", remote.files, (), remote.config, remote.index, remote.notices)
    return _open(Path(source))


def _open(path: Path) -> _Source:
    gguf = _gguf_of(path)
    if gguf is not None:
        parts, facts = read_gguf(gguf)
        return _Source("gguf", columns=tuple(parts), config=facts)
    if path.is_dir():
        files, config, index, notices = read_directory(path)
        return _Source("directory", files, config=config, index=index, notices=notices)
    if not path.is_file():
        if path.is_symlink():
            raise BadHeader(f"{path}: a broken link.", "Fetch the file it should point at.")
        raise CheckpointError(
            f"{path}: no such file or directory.",
            "Give a checkpoint directory, a .safetensors file or a header bundle.",
        )
    if path.name.endswith((".json", ".json.gz")):
        files, config, index = read_bundle(path)
        return _Source("bundle", files, config=config, index=index)
    header = read_file_header(path, path.name)
    return _Source("file", (header,), config=read_config_beside(path))


def _gguf_of(path: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the only model of a directory without others."""
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    models = [file for file in sorted(path.glob("*.gguf")) if not file.name.startswith("mmproj")]
    firsts = [file for file in models if "-of-" not in file.name or "-00001-of-" in file.name]
    if len(firsts) > 1:
        raise CheckpointError(
            f"{path}: {len(firsts)} GGUF models in this directory.",
            f"Name one of them, as {firsts[0].name}.",
        )
    return firsts[0] if firsts else None


def _display_name(source: str | Path) -> str:
    if isinstance(source, str) and is_remote(source):
        return source.removeprefix(REMOTE)
    path = Path(source).absolute()
    if path.parent.name == "snapshots" and path.parents[1].name.startswith("models--"):
        # In a Hugging Face cache the directory is named by its commit.
        return path.parents[1].name.removeprefix("models--").replace("--", "/")
    name = Path(os.path.realpath(path)).name
    for ending in (".gz", ".json", ".headers", ".safetensors", ".gguf"):
        name = name.removesuffix(ending)
    return name


def _frame(columns: list[tuple[str, TensorColumns]]) -> pl.DataFrame:
    """Join the columns of all files into one frame."""
    frame = pl.DataFrame(
        {
            "file": [name for name, column in columns for _ in column.names],
            "name": [value for _, column in columns for value in column.names],
            "dtype": [value for _, column in columns for value in column.dtypes],
            "bytes": [value for _, column in columns for value in column.bytes],
        },
        schema={name: kind for name, kind in TENSOR_SCHEMA.items() if name != "shape"},
    )
    shapes = [tuple(shape) for _, column in columns for shape in column.shapes]
    # Models have few distinct shapes: building a list per row would take most of the time.
    place = {shape: index for index, shape in enumerate(dict.fromkeys(shapes))}
    distinct = pl.Series("shape", [list(shape) for shape in place], dtype=TENSOR_SCHEMA["shape"])
    rows = pl.Series([place[shape] for shape in shapes], dtype=pl.UInt32)
    return frame.with_columns(distinct.gather(rows)).select(*TENSOR_SCHEMA)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: it would walk 100,000 new dicts again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _without_repeats(tensors: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Keep the first of tensors with one name, and say which files held them twice."""
    if tensors["name"].n_unique() == tensors.height:
        return tensors, ()
    twice = tensors.filter(pl.col("name").is_duplicated())
    first = twice.unique("name", keep="first", maintain_order=True)
    notices = [
        Notice(
            "repeated_tensor",
            f"{first.height} tensors are in more than one file and count once "
            f"(first: {first['name'][0]}).",
        )
    ]
    unlike = twice.unique(["name", "dtype", "shape"]).filter(pl.col("name").is_duplicated())
    if not unlike.is_empty():
        notices.append(
            Notice(
                "repeated_tensor_differs",
                f"Tensor {unlike['name'].sort()[0]} has another dtype or shape in a second file; "
                "the first one counts.",
                "Files of two checkpoints are mixed here: give the index or one file.",
            )
        )
    return tensors.unique("name", keep="first", maintain_order=True), tuple(notices)


def _index_notices(index: dict[str, Any], tensors: pl.DataFrame) -> list[Notice]:
    """Compare the names of the index with those of the headers, both ways."""
    indexed = set(index.get("weight_map") or {})
    found = set(tensors["name"])
    notices = []
    if missing := sorted(indexed - found):
        notices.append(
            Notice(
                "index_names_missing",
                f"The index names {len(missing)} tensors that no header has (first: {missing[0]}).",
                "The index belongs to another version of the files.",
            )
        )
    if extra := sorted(found - indexed):
        notices.append(
            Notice(
                "not_in_index",
                f"{len(extra)} tensors are in the files but not in the index (first: {extra[0]}); "
                "they are counted.",
            )
        )
    return notices
