"""Which files of a directory make up the checkpoint: the index first, strays left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tracebook.checkpoint.safetensors_header import FileHeader, read_file_header
from tracebook.errors import BadHeader, CheckpointError
from tracebook.notices import Notice
from tracebook.printable import printable

_LONGEST_NAME = 1_000
INDEX_NAME = "model.safetensors.index.json"

#: Where huggingface_hub leaves unfinished downloads: in its cache, and beside a local copy.
_UNFINISHED = ("blobs/*.incomplete", ".cache/huggingface/download/**/*.incomplete")


def read_directory(
    path: Path,
) -> tuple[
    tuple[FileHeader, ...], dict[str, Any] | None, dict[str, Any] | None, tuple[Notice, ...]
]:
    """Read all headers of a checkpoint directory.

    With an index, the files it names are the checkpoint; other .safetensors files are
    other copies (`consolidated`, `original`) and are left out with a warning. Without
    one, every .safetensors file of the directory counts.

    Returns:
        Headers, config, index (None where absent) and warnings.

    Raises:
        CheckpointError: No checkpoint there, a shard is missing, or a link is broken.
        BadHeader: A header breaks the format.
    """
    present = sorted(file.name for file in path.glob("*.safetensors"))
    index_path = path / INDEX_NAME
    if not index_path.is_file():
        others = sorted(path.glob("*.safetensors.index.json"))
        index_path = others[0] if len(others) == 1 else index_path
    index = _read_json(index_path) if index_path.is_file() else None
    notices: tuple[Notice, ...] = ()
    if index is None:
        wanted = present
    else:
        wanted = indexed_files(index, index_path.name)
        notices = stray_notices(sorted(set(present) - set(wanted)))
    if not wanted:
        raise _nothing_found(path)
    wanted, copies = _without_copies(path, wanted)
    headers = tuple(read_file_header(_existing(path, name), name) for name in wanted)
    config_path = path / "config.json"
    config = _read_json(config_path) if config_path.is_file() else None
    return headers, config, index, (*notices, *copies)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name}: not valid JSON ({error}).") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name}: JSON, but not an object.")
    return content


def read_config_beside(path: Path) -> dict[str, Any] | None:
    """Return the config.json in the directory of a single file, None where absent."""
    config_path = path.with_name("config.json")
    return _read_json(config_path) if config_path.is_file() else None


def indexed_files(index: dict[str, Any], name: str) -> list[str]:
    """The files that an index names.

    Raises:
        CheckpointError: It names none, or one outside the checkpoint.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{name}: the index has no weight_map.")
    for file in weight_map.values():
        if not _is_name_below(file):
            raise CheckpointError(
                f"{name}: the index names {str(file)[:80]!r}, which is not a file here.",
                "The index is damaged, or not of this checkpoint: fetch it again.",
            )
    return list(dict.fromkeys(weight_map.values()))


def _is_name_below(file: Any) -> bool:
    """A file outside the directory is never what a checkpoint means."""
    if not isinstance(file, str) or not 0 < len(file) <= _LONGEST_NAME or printable(file) != file:
        return False
    return not Path(file).is_absolute() and ".." not in Path(file).parts


def stray_notices(strays: list[str]) -> tuple[Notice, ...]:
    """Say which files beside the index are left out."""
    if not strays:
        return ()
    return (
        Notice(
            "stray_files",
            f"Not in the index and left out: {', '.join(strays)}.",
            "Name such a file itself to count it.",
        ),
    )


def _without_copies(path: Path, wanted: list[str]) -> tuple[list[str], tuple[Notice, ...]]:
    """Drop names that resolve to a file already taken (links to one blob)."""
    seen: dict[Path, str] = {}
    notices = []
    for name in wanted:
        real = Path(os.path.realpath(path / name))  # unlike resolve(), takes links in a circle
        if real in seen:
            notices.append(
                Notice("same_file", f"{name} and {seen[real]} are one file; counted once.")
            )
        else:
            seen[real] = name
    return list(seen.values()), tuple(notices)


def _existing(path: Path, name: str) -> Path:
    file = path / name
    if file.is_file():
        return file
    if file.is_symlink():
        raise BadHeader(
            f"{name}: a broken link; the file it points at is not there.",
            "In a Hugging Face cache this is an unfinished or pruned download: fetch it again.",
        )
    raise CheckpointError(
        f"{name}: named by the index but not in the directory.",
        "The download is incomplete: fetch the missing file.",
    )


def _nothing_found(path: Path) -> CheckpointError:
    if any(any(path.glob(pattern)) for pattern in _UNFINISHED):
        return CheckpointError(
            f"{path}: only an unfinished download, no .safetensors file.",
            "Finish the download.",
        )
    if any(path.glob("*.bin")) or any(path.glob("*.pth")):
        return CheckpointError(
            f"{path}: only pickled weights (.bin, .pth), which have no header to read.",
            "Convert the checkpoint to safetensors.",
        )
    return CheckpointError(
        f"{path}: no .safetensors file in this directory.",
        "Give the directory that holds model.safetensors or its index, "
        "a single file, or a header bundle.",
    )
