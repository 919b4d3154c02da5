"""The header of a GGUF file: key-value pairs and tensor list, no weights.

An own reader, because the `gguf` package takes 15 s for a vocabulary of 250,000
tokens and refuses files without data. Layout (ggml's docs/gguf.md)::

    "GGUF", version u32, tensors u64, pairs u64
    pair:   key, value type u32, value
    tensor: name, dimensions u32, sizes u64 each (innermost first), type u32, offset u64

Long arrays (the vocabulary) are skipped, not kept.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tracebook.checkpoint.safetensors_header import TensorColumns
from tracebook.errors import BadHeader, CheckpointError
from tracebook.notices import Notice

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
#: Arrays longer than this are skipped: only vocabularies are.
_KEPT_VALUES = 4096
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_MAX_DIMENSIONS = 8


@dataclass(frozen=True)
class GgmlType:
    """A tensor type: `block` values are stored in `size` bytes."""

    name: str
    block: int
    size: int


@dataclass(frozen=True)
class GgufHeader:
    """One GGUF file: its pairs (long arrays left out) and its tensors as columns."""

    pairs: dict[str, Any]
    columns: TensorColumns


@lru_cache(maxsize=1)
def ggml_types() -> dict[int, GgmlType]:
    """Return type number -> type."""
    text = files("tracebook").joinpath("data/ggml_types.toml").read_text(encoding="utf-8")
    return {
        entry["id"]: GgmlType(name, entry["block"], entry["bytes"])
        for name, entry in tomllib.loads(text).items()
    }


def read_gguf(path: Path) -> tuple[list[tuple[str, TensorColumns]], dict[str, Any]]:
    """Read the headers of a GGUF file and of the parts it is split into.

    Args:
        path: A .gguf file; with a name like `x-00001-of-00003.gguf`, all three are read.

    Returns:
        File name and columns of each part, and the model's facts under the names that
        config.json gives them.

    Raises:
        CheckpointError: A part is missing.
        BadHeader: A file is no GGUF or breaks the format.
    """
    parts = _parts(path)
    headers = [(part.name, read_gguf_header(part)) for part in parts]
    return [(name, header.columns) for name, header in headers], _config(headers[0][1].pairs)


def _parts(path: Path) -> list[Path]:
    match = _SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    stem, _, count = match.groups()
    parts = [path.with_name(f"{stem}-{n:05d}-of-{count}.gguf") for n in range(1, int(count) + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise CheckpointError(
            f"{path.name}: {len(missing)} of {len(parts)} parts are missing (first: {missing[0]}).",
            "Put all parts into one directory.",
        )
    return parts


def read_gguf_header(path: Path) -> GgufHeader:
    """Read one GGUF file's pairs and tensors; bytes from type and shape.

    Raises:
        BadHeader: No GGUF, a version or byte order that is not known, or cut off.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
            _check_start(start, path.name)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(data, path.name).header()
    except OSError as error:
        raise BadHeader(f"{path.name}: cannot be read ({error.strerror}).") from error
    except (struct.error, IndexError) as error:
        raise BadHeader(
            f"{path.name}: the GGUF header is cut off.", "The download stopped early."
        ) from error


def _check_start(start: bytes, name: str) -> None:
    if start.startswith(b"version "):
        raise BadHeader(
            f"{name}: a git-lfs pointer, not the file itself.",
            "Fetch the content with `git lfs pull`.",
        )
    if not start:
        raise BadHeader(f"{name}: the file is empty.", "Download it again.")
    if start[:4] != b"GGUF" or len(start) < 8:
        raise BadHeader(f"{name}: not a GGUF file (it does not begin with GGUF).")
    version = int.from_bytes(start[4:8], "little")
    if version not in (2, 3):
        swapped = int.from_bytes(start[4:8], "big") in (2, 3)
        what = "is big-endian" if swapped else f"has version {version}"
        raise BadHeader(f"{name}: this GGUF file {what}; little-endian 2 and 3 are read.")


class _Cursor:
    """A position in a GGUF header."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 8

    def header(self) -> GgufHeader:
        """Read everything before the data area."""
        tensors, pairs = self.number("<Q"), self.number("<Q")
        if max(tensors, pairs) > len(self.data):
            raise BadHeader(f"{self.name}: the GGUF header counts more entries than bytes.")
        content = {}
        for _ in range(pairs):
            key = self.text()
            content[key] = self.value(self.number("<I"))
        columns = self.tensors(tensors, int(content.get("general.alignment") or 32))
        return GgufHeader(content, columns)

    def number(self, layout: str) -> Any:
        """Read one scalar."""
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def text(self) -> str:
        """Read one string."""
        length = self.number("<Q")
        raw = self.data[self.at : self.at + length]
        if len(raw) < length:
            raise IndexError(length)
        self.at += length
        return raw.decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Read one value; None for an array that is too long to keep."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise BadHeader(f"{self.name}: the GGUF header has the unknown value type {kind}.")
        inner, count = self.number("<I"), self.number("<Q")
        if inner == _STRING and count > _KEPT_VALUES:
            return self.skip_texts(count)
        if inner in _SCALARS and count > _KEPT_VALUES:
            self.at += count * struct.calcsize(_SCALARS[inner])
            return None
        if count > len(self.data):
            raise IndexError(count)
        return [self.value(inner) for _ in range(count)]

    def skip_texts(self, count: int) -> None:
        """Step over an array of strings, the vocabulary."""
        data, at, length = self.data, self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length(data, at)[0]
        self.at = at

    def tensors(self, count: int, alignment: int) -> TensorColumns:
        """Read the list of tensors and check it against the file's size."""
        names, kinds, shapes, offsets = [], [], [], []
        for _ in range(count):
            names.append(self.text())
            dimensions = self.number("<I")
            if dimensions > _MAX_DIMENSIONS:
                raise BadHeader(f"{self.name}: {names[-1]!r} has {dimensions} dimensions.")
            sizes = struct.unpack_from(f"<{dimensions}Q", self.data, self.at)
            self.at += 8 * dimensions
            kinds.append(self.number("<I"))
            offsets.append(self.number("<Q"))
            # Innermost first in the file; rows first everywhere else in the program.
            shapes.append(list(reversed(sizes)))
        types = ggml_types()
        unknown = sorted({kind for kind in kinds if kind not in types})
        if unknown:
            raise BadHeader(
                f"{self.name}: tensors of the unknown ggml type {unknown[0]}; "
                "their bytes cannot be told.",
                "Add the type to data/ggml_types.toml.",
            )
        sizes_bytes = [
            self._size(name, types[kind], shape)
            for name, kind, shape in zip(names, kinds, shapes, strict=True)
        ]
        end = max((at + size for at, size in zip(offsets, sizes_bytes, strict=True)), default=0)
        expected = -(-self.at // alignment) * alignment + end
        dtypes = [types[kind].name for kind in kinds]
        notices = _size_notices(self.name, len(self.data), expected)
        return TensorColumns(names, dtypes, shapes, sizes_bytes, end, notices)

    def _size(self, name: str, kind: GgmlType, shape: list[int]) -> int:
        """Bytes of a tensor: whole blocks along the innermost dimension."""
        if shape and shape[-1] % kind.block:
            raise BadHeader(
                f"{self.name}: {name!r} has rows of {shape[-1]}, not whole {kind.name} blocks "
                f"of {kind.block}."
            )
        size = math.prod(shape) // kind.block * kind.size
        if size >= 2**63:
            raise BadHeader(f"{self.name}: {name!r} is larger than any file.")
        return size


def _size_notices(name: str, actual: int, expected: int) -> tuple[Notice, ...]:
    if actual >= expected:
        return ()
    return (
        Notice(
            "truncated",
            f"{name}: {actual:,} bytes where the header promises {expected:,}; the file is "
            "incomplete. Bytes are counted from the header.",
            "Fine for counting; download the file again to run the model.",
        ),
    )


def _config(pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the model under the names that config.json gives them."""
    architecture = pairs.get("general.architecture")
    names = {
        "block_count": "num_hidden_layers",
        "embedding_length": "hidden_size",
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "nextn_predict_layers": "num_nextn_predict_layers",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.sliding_window": "sliding_window",
        "attention.indexer.top_k": "index_topk",
        "full_attention_interval": "full_attention_interval",
        "vocab_size": "vocab_size",
        # One set of keys serves Mamba and Gated DeltaNet (llama.cpp, llama-arch.cpp); the
        # kind of layer tells which of the two names counts.
        "ssm.state_size": "ssm_state_size",
        "ssm.group_count": "n_groups",
        "ssm.time_step_rank": "mamba_num_heads",
    }
    config: dict[str, Any] = {"model_type": architecture}
    for key, name in names.items():
        value = pairs.get(f"{architecture}.{key}")
        if value is not None:
            config[name] = value
    config |= _recurrent_sizes(config, pairs.get(f"{architecture}.ssm.inner_size"))
    behind = config.get("num_nextn_predict_layers")
    if isinstance(behind, int) and isinstance(config.get("num_hidden_layers"), int):
        config["num_hidden_layers"] -= behind  # ggml counts the MTP layers in
    return config


def _recurrent_sizes(config: Mapping[str, Any], inner: Any) -> dict[str, Any]:
    """Sizes of recurrent layers that follow from the width of all heads together."""
    heads = config.get("mamba_num_heads")
    if not isinstance(inner, int) or not isinstance(heads, int) or heads < 1 or inner % heads:
        return {}
    return {
        "mamba_head_dim": inner // heads,
        "linear_num_value_heads": heads,
        "linear_value_head_dim": inner // heads,
        "linear_num_key_heads": config.get("n_groups"),
        "linear_key_head_dim": config.get("ssm_state_size"),
    }
