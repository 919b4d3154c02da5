"""Small safetensors files, made without the program's own tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Written out here, so that tests do not share the program's table.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "I64": 64, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64,
}  # fmt: skip

Tensors = Mapping[str, tuple[str, list[int]]]


def header_of(tensors: Tensors) -> dict[str, Any]:
    """A header that lays tensors one after the other."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        bits = BITS[dtype]
        for size in shape:
            bits *= size
        assert bits % 8 == 0
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + bits // 8]}
        end += bits // 8
    return header


def write_header(path: Path, header: Mapping[str, Any] | bytes, size: int | None = None) -> Path:
    """Write a file with this header and a hole for data (full size unless given)."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = 0
    if not isinstance(header, bytes):
        entries = [e for k, e in header.items() if k != "__metadata__"]
        data = max((e["data_offsets"][1] for e in entries), default=0)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + data if size is None else size)
    return path
