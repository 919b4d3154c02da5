"""Header bundles: all headers of a checkpoint in one small file, without weights.

A bundle is gzip-compressed JSON (plain JSON is read as well)::

    {"files": {NAME: {"size": bytes of the file, "header": {...}}},
     "config": config.json or null, "index": model.safetensors.index.json or null}

Written deterministically (gzip time stamp 0, no file name), so that equal
checkpoints give equal bundles.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from tracebook.checkpoint.safetensors_header import FileHeader, parse_header
from tracebook.errors import BadHeader, CheckpointError

#: Upper limit of the uncompressed JSON, bytes: a guard against decompression bombs.
MAX_BUNDLE_BYTES = 1_000_000_000


def read_bundle(
    path: Path,
) -> tuple[tuple[FileHeader, ...], dict[str, Any] | None, dict[str, Any] | None]:
    """Read a header bundle.

    Returns:
        Headers in the order of the bundle, the config and the index (None where absent).

    Raises:
        BadHeader: Not a bundle, or damaged.
    """
    content = parse_header(_decompressed(path), path.name)
    files = content.get("files")
    config, index = content.get("config"), content.get("index")
    if not isinstance(files, dict) or not all(_is_file_entry(entry) for entry in files.values()):
        raise BadHeader(
            f"{path.name}: JSON, but not a header bundle.",
            "A bundle has `files` with `size` and `header` each; "
            "write one with `tracebook bytes CHECKPOINT --save NAME.headers.json.gz`.",
        )
    if not isinstance(config, dict | None) or not isinstance(index, dict | None):
        raise BadHeader(f"{path.name}: `config` and `index` of a bundle are objects or null.")
    headers = (FileHeader(name, e["size"], None, e["header"]) for name, e in files.items())
    return tuple(headers), config, index


def write_bundle(
    path: Path,
    files: tuple[FileHeader, ...],
    config: dict[str, Any] | None,
    index: dict[str, Any] | None,
    *,
    compress: bool = True,
) -> None:
    """Write a bundle, as gzip or as plain JSON.

    Raises:
        CheckpointError: The file cannot be written.
    """
    content = {
        "files": {f.name: {"size": f.size_bytes, "header": f.entries} for f in files},
        "config": config,
        "index": index,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    try:
        path.write_bytes(_compressed(text) if compress else text)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror}).") from error


def _compressed(text: bytes) -> bytes:
    """Gzip that is the same everywhere: no time stamp, no name, operating system unknown (255)."""
    raw = gzip.compress(text, compresslevel=9, mtime=0)
    return raw[:9] + b"\xff" + raw[10:]


def _is_file_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("size")) is int
        and isinstance(entry.get("header"), dict)
    )


def _decompressed(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        if not raw.startswith(b"\x1f\x8b"):
            return raw
        decoder = zlib.decompressobj(wbits=31)
        text = decoder.decompress(raw, MAX_BUNDLE_BYTES)
    except OSError as error:
        raise BadHeader(f"{path.name}: cannot be read ({error.strerror}).") from error
    except zlib.error as error:
        raise BadHeader(f"{path.name}: damaged gzip file ({error}).") from error
    if decoder.unconsumed_tail:
        raise BadHeader(f"{path.name}: more than {MAX_BUNDLE_BYTES:,} bytes of JSON.")
    if not decoder.eof:
        raise BadHeader(f"{path.name}: the gzip file is cut off.", "Copy it again.")
    return text
