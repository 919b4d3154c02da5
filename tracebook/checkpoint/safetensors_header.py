"""The header of one safetensors file, read strictly: 8 bytes, JSON, checks.

Only the header is read, never a weight. Strict where the format is
(https://huggingface.co/docs/safetensors, "Format") and where the reference
reader is lax: a duplicate key is refused instead of letting the last one win.
Lax where refusing would lose a file that can be counted: a truncated data area
is a warning, an unknown dtype is counted by its offsets.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from operator import le
from pathlib import Path
from typing import Any

from tracebook.errors import BadHeader
from tracebook.notices import Notice
from tracebook.printable import printable

#: Bits per element of every dtype that safetensors 0.8 defines.
DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}

#: The limit of the reference reader, bytes.
MAX_HEADER_BYTES = 100_000_000

#: Sizes are 64-bit in the format.
_LARGEST = 2**63 - 1

#: The most that any framework gives a tensor; products of many more would take hours.
_MOST_SIZES = 64

_LFS_START = b"version https://git-lfs"
_ENTRY_KEYS = ("dtype", "shape", "data_offsets")


@dataclass(frozen=True)
class FileHeader:
    """One safetensors file without its data.

    Attributes:
        name: File name relative to the checkpoint.
        size_bytes: Size of the whole file as it is (or was, for a bundle).
        data_start: Offset of the data area, bytes; None where it is not known.
        entries: Header entries in file order, `__metadata__` included.
    """

    name: str
    size_bytes: int
    data_start: int | None
    entries: dict[str, Any]


@dataclass(frozen=True)
class TensorColumns:
    """Checked entries of one file as columns of equal length, in file order."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    bytes: list[int]
    data_bytes: int
    notices: tuple[Notice, ...]


def read_file_header(path: Path, name: str, max_header_bytes: int = MAX_HEADER_BYTES) -> FileHeader:
    """Read the header of `path` and nothing else.

    Args:
        path: A .safetensors file.
        name: How messages and frames call it.
        max_header_bytes: Refuse headers longer than this.

    Returns:
        The header, its JSON parsed and free of duplicate keys, its entries unchecked.

    Raises:
        BadHeader: Empty file, git-lfs pointer, bad length field, bad JSON, duplicate key.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(max(8, len(_LFS_START)))
            length = header_length(start, size_bytes, name, max_header_bytes)
            file.seek(8)
            raw = file.read(length)
    except OSError as error:
        raise BadHeader(f"{name}: cannot be read ({error.strerror}).") from error
    return FileHeader(name, size_bytes, 8 + length, parse_header(raw, name))


def header_length(start: bytes, size_bytes: int, name: str, max_header_bytes: int) -> int:
    """The length that a file's first bytes give for its header, checked against its size.

    Raises:
        BadHeader: Empty file, git-lfs pointer, or a length that cannot be.
    """
    if size_bytes == 0:
        raise BadHeader(f"{name}: the file is empty.", "Download it again.")
    if start.startswith(_LFS_START):
        raise BadHeader(
            f"{name}: a git-lfs pointer, not the file itself.",
            "Fetch the content with `git lfs pull`, or download the file from the hub.",
        )
    if size_bytes < 8:
        raise BadHeader(f"{name}: {size_bytes} bytes, too short for a safetensors file.")
    length = int.from_bytes(start[:8], "little")
    if length > max_header_bytes:
        raise BadHeader(
            f"{name}: the header would be {length:,} bytes, above the limit of "
            f"{max_header_bytes:,}; probably not a safetensors file.",
        )
    if 8 + length > size_bytes:
        raise BadHeader(
            f"{name}: the header needs {8 + length:,} bytes, the file has {size_bytes:,}: "
            "truncated inside the header.",
            "The download stopped early; fetch the file again.",
        )
    return length


def parse_header(raw: bytes, name: str) -> dict[str, Any]:
    """Parse the JSON of a header, refusing duplicate keys.

    Raises:
        BadHeader: Not JSON, not an object, or a key twice.
    """
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadHeader(f"{name}: the header is not JSON ({error}).") from error
    if not isinstance(parsed, dict):
        raise BadHeader(f"{name}: the header is JSON but not an object.")
    # Each pair has one colon outside strings, so equal counts prove that no pair was lost to
    # a duplicate. Hooking into the parser for that would double the time of large headers.
    pairs = len(parsed) + sum(len(entry) for entry in parsed.values() if isinstance(entry, dict))
    if raw.count(b":") != pairs:
        refuse_duplicate_keys(raw, name)
    return parsed


def refuse_duplicate_keys(raw: bytes, name: str) -> None:
    """Raise BadHeader where any object of the JSON text has a key twice."""

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in result if keys.count(key) > 1)
            raise BadHeader(
                f"{name}: the key {twice!r} occurs twice in the header; "
                "which one counts is undefined.",
            )
        return result

    json.loads(raw, object_pairs_hook=check)


def check_entries(file: FileHeader) -> TensorColumns:
    """Check the entries of a header against the format and against each other.

    Args:
        file: A parsed header.

    Returns:
        Columns in file order. `bytes` comes from `data_offsets` alone.

    Raises:
        BadHeader: Malformed entry, overlap, hole, first offset not 0, or a size that
            dtype and shape contradict.
    """
    entries = [(key, entry) for key, entry in file.entries.items() if key != "__metadata__"]
    try:
        names = [key for key, _ in entries]
        dtypes = [entry["dtype"] for _, entry in entries]
        shapes = [entry["shape"] for _, entry in entries]
        begins = [entry["data_offsets"][0] for _, entry in entries]
        ends = [entry["data_offsets"][1] for _, entry in entries]
        well_formed = (
            all(len(shape) <= _MOST_SIZES for shape in shapes)
            and all(
                type(value) is int and 0 <= value <= _LARGEST for shape in shapes for value in shape
            )
            and all(type(value) is int for value in begins)
            and all(type(value) is int and value <= _LARGEST for value in ends)
            and all(type(value) is str for value in dtypes)
            and all(len(entry["data_offsets"]) == 2 for _, entry in entries)
        )
    except (KeyError, TypeError, IndexError):
        well_formed = False
    if not well_formed:
        raise _malformed(file.name, entries)
    if printable(everything := "".join(names)) != everything:
        odd = next(name for name in names if printable(name) != name)
        raise BadHeader(f"{file.name}: the name of tensor {odd[:80]!r} has control characters.")
    _check_layout(file.name, names, begins, ends)
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    unknown = _check_sizes(file.name, names, dtypes, shapes, sizes)
    data_bytes = max(ends, default=0)
    notices = (*_unknown_dtypes(file.name, unknown), *_check_file_size(file, data_bytes))
    return TensorColumns(names, dtypes, shapes, sizes, data_bytes, notices)


def _malformed(name: str, entries: list[tuple[str, Any]]) -> BadHeader:
    for key, entry in entries:
        if not isinstance(entry, dict) or any(part not in entry for part in _ENTRY_KEYS):
            return BadHeader(f"{name}: tensor {key!r} lacks dtype, shape or data_offsets.")
        values = [*_as_list(entry["shape"]), *_as_list(entry["data_offsets"])]
        numbers = all(type(value) is int and 0 <= value <= _LARGEST for value in values)
        pair = len(_as_list(entry["data_offsets"])) == 2
        many = len(_as_list(entry["shape"])) > _MOST_SIZES
        if many:
            return BadHeader(f"{name}: tensor {key!r} has more than {_MOST_SIZES} sizes.")
        if not numbers or not pair or type(entry["dtype"]) is not str:
            return BadHeader(
                f"{name}: tensor {key!r} has a malformed entry: shape {entry['shape']!r}, "
                f"data_offsets {entry['data_offsets']!r}, dtype {entry['dtype']!r}."
            )
    return BadHeader(f"{name}: the header has a malformed entry.")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _check_layout(name: str, names: list[str], begins: list[int], ends: list[int]) -> None:
    """Tensors must tile the data area from 0 without hole or overlap."""
    if begins == [0, *ends[:-1]] and all(map(le, begins, ends)):
        return  # the usual case: header order is file order
    order = sorted(range(len(names)), key=lambda index: (begins[index], ends[index]))
    reached = 0
    for index in order:
        begin, end = begins[index], ends[index]
        if begin == reached and end >= begin:
            reached = end
            continue
        if end < begin:
            raise BadHeader(f"{name}: tensor {names[index]!r} ends before it begins.")
        what = "overlaps the one before it" if begin < reached else "leaves a hole before it"
        raise BadHeader(
            f"{name}: tensor {names[index]!r} begins at {begin:,} where {reached:,} was "
            f"expected; it {what}.",
        )


def _check_sizes(
    name: str, names: list[str], dtypes: list[str], shapes: list[list[int]], sizes: list[int]
) -> dict[str, int]:
    """Compare sizes with shape times dtype; return unknown dtypes with their tensor counts."""
    unknown: dict[str, int] = {}
    for tensor, dtype, shape, size in zip(names, dtypes, shapes, sizes, strict=True):
        bits = DTYPE_BITS.get(dtype)
        if bits is None:
            if not dtype.isidentifier():
                raise BadHeader(f"{name}: tensor {tensor!r} has the malformed dtype {dtype!r}.")
            unknown[dtype] = unknown.get(dtype, 0) + 1
        elif math.prod(shape) * bits != size * 8:
            elements = math.prod(shape)
            if elements * bits % 8:
                raise BadHeader(
                    f"{name}: tensor {tensor!r} of {dtype} {shape} does not end on a byte."
                )
            raise BadHeader(
                f"{name}: tensor {tensor!r} of {dtype} {shape} should be "
                f"{elements * bits // 8:,} bytes, its offsets say {size:,}.",
            )
    return unknown


def _unknown_dtypes(name: str, unknown: dict[str, int]) -> tuple[Notice, ...]:
    return tuple(
        Notice(
            "unknown_dtype",
            f"{name}: {count} tensors of the unknown dtype {dtype}; counted by their offsets.",
        )
        for dtype, count in unknown.items()
    )


def _check_file_size(file: FileHeader, data_bytes: int) -> tuple[Notice, ...]:
    if file.data_start is None:
        return ()
    expected = file.data_start + data_bytes
    if file.size_bytes < expected:
        return (
            Notice(
                "truncated",
                f"{file.name}: {file.size_bytes:,} bytes where the header promises "
                f"{expected:,}; the file is incomplete. Bytes are counted from the header.",
                "Fine for counting; download the file again to run the model.",
            ),
        )
    if file.size_bytes > expected:
        return (
            Notice(
                "trailing_bytes",
                f"{file.name}: {file.size_bytes - expected:,} bytes after the last tensor "
                f"({file.size_bytes:,} instead of {expected:,}); they are not counted.",
            ),
        )
    return ()
