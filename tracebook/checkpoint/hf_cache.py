"""Find a hub model in the local Hugging Face cache. Nothing is downloaded.

Layout (huggingface_hub documentation, "Understand caching")::

    <cache>/models--ORG--NAME/refs/main               a commit
    <cache>/models--ORG--NAME/snapshots/<commit>/x    link to ../../blobs/<hash>
    <cache>/models--ORG--NAME/blobs/<hash>.incomplete an unfinished download
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tracebook.config import REMOTE
from tracebook.errors import CheckpointError

_MODEL_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.gguf")


def cache_folder() -> Path:
    """Return the folder of the Hugging Face cache, as huggingface_hub chooses it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(value).expanduser()
    if value := os.environ.get("HF_HOME"):
        return Path(value).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def find_in_hf_cache(model_id: str) -> Path | None:
    """Return the directory that holds a model's files.

    Args:
        model_id: `org/name` or `name`, with `@revision` for another one than main.

    Returns:
        The snapshot; where weights were only begun to be downloaded, the model's cache
        folder, so that reading it says so. None where the cache has no weights of it.
    """
    name, _, revision = model_id.partition("@")
    if not _MODEL_ID.fullmatch(name) or ".." in name:
        return None
    model = cache_folder() / f"models--{name.replace('/', '--')}"
    if not model.is_dir():
        return None
    snapshot = _snapshot(model, revision or "main")
    if snapshot is not None and any(any(snapshot.glob(pattern)) for pattern in _WEIGHTS):
        return snapshot
    return model if not revision and any(model.glob("blobs/*.incomplete")) else None


def _snapshot(model: Path, revision: str) -> Path | None:
    """The snapshot of a revision; without a ref, the only one there is."""
    if not re.fullmatch(r"[\w.-]+", revision) or ".." in revision:
        return None
    ref = model / "refs" / revision
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    named = model / "snapshots" / commit
    if named.is_dir():
        return named
    if ref.is_file() or revision != "main":
        return None
    present = [path for path in model.glob("snapshots/*") if path.is_dir()]
    return present[0] if len(present) == 1 else None


def locate(source: str) -> Path | str:
    """Return where a checkpoint lies: a path or `hub://` id as it is, a hub id in the cache.

    Raises:
        CheckpointError: It is neither.
    """
    if source.startswith(REMOTE):
        return source
    path = Path(source)
    if path.exists() or path.is_symlink():
        return path
    found = find_in_hf_cache(source)
    if found is not None:
        return found
    if _MODEL_ID.fullmatch(source.partition("@")[0]) and not path.suffix:
        raise CheckpointError(
            f"{source} is neither a path nor a model with weights in the local Hugging Face cache.",
            f"Give a directory, a file or a header bundle, or {REMOTE}{source} to read its "
            "headers from the hub.",
        )
    raise CheckpointError(
        f"{source}: no such file or directory.",
        "Give a checkpoint directory, a .safetensors file or a header bundle.",
    )
