"""Headers of a model on the Hugging Face hub, by range reads; weights are never fetched.

In: `hub://owner/name` (with `@revision` for another one than main). Out: file headers, config
and index. This is the one place that uses the network, and only where a source begins with
`hub://`: everything else is offline. Needs the extra `hub` (huggingface_hub).

The index is read first and all of its shards are: the library's own metadata reader prefers
`model.safetensors` and so misses shards beside it, such as an MTP head. Files are read at the
commit that the revision points to, so that they belong together. Nothing is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracebook.checkpoint.directory import INDEX_NAME, indexed_files, stray_notices
from tracebook.checkpoint.safetensors_header import (
    MAX_HEADER_BYTES,
    FileHeader,
    header_length,
    parse_header,
)
from tracebook.config import REMOTE
from tracebook.errors import BadHeader, CheckpointError
from tracebook.notices import Notice

#: What is asked for first of each file: most headers fit, and a second request costs more.
_FIRST_BYTES = 100_000

#: Most bytes of an index or a config.
_MOST_JSON_BYTES = 200_000_000

_TIMEOUT_S = 30.0

#: Address of the hub; None leaves it to huggingface_hub (its own, or HF_ENDPOINT).
ENDPOINT: str | None = None


@dataclass(frozen=True)
class Remote:
    """What a remote checkpoint is read into."""

    files: tuple[FileHeader, ...]
    config: dict[str, Any] | None
    index: dict[str, Any] | None
    notices: tuple[Notice, ...]


@dataclass(frozen=True)
class _Part:
    """A part of a remote file, and the size of the whole."""

    content: bytes
    size_bytes: int


def is_remote(source: str | Path) -> bool:
    """Whether a source names a model on the hub rather than one on this machine."""
    return isinstance(source, str) and source.startswith(REMOTE)


def read_remote(source: str) -> Remote:
    """Read the headers of a model on the hub.

    Args:
        source: `hub://owner/name`, with `@revision` if wanted.

    Raises:
        CheckpointError: The extra is not installed, the model cannot be reached, or it holds
            no safetensors files.
        BadHeader: A header breaks the format.
    """
    name, _, revision = source.removeprefix(REMOTE).partition("@")
    commit, present = _listing(name, revision or "main")

    def fetch(file: str, first: int, last: int) -> _Part:
        return _fetch(name, commit, file, first, last)

    weights = sorted(f for f in present if f.endswith(".safetensors") and "/" not in f)
    index = _json(fetch, INDEX_NAME) if INDEX_NAME in present else None
    notices: tuple[Notice, ...] = ()
    wanted = weights
    if index is not None:
        wanted = indexed_files(index, INDEX_NAME)
        notices = stray_notices(sorted(set(weights) - set(wanted)))
    if missing := sorted(set(wanted) - set(present)):
        raise CheckpointError(f"{name}: the index names {missing[0]}, which is not on the hub.")
    if not wanted:
        others = [f for f in present if f.endswith((".gguf", ".bin"))]
        raise CheckpointError(
            f"{name}: no .safetensors file on the hub"
            + (f" (but {others[0]})." if others else "."),
            "Only safetensors headers are read remotely; fetch other formats yourself.",
        )
    return Remote(
        files=tuple(_header(fetch, file) for file in wanted),
        config=_json(fetch, "config.json") if "config.json" in present else None,
        index=index,
        notices=notices,
    )


_Fetch = Callable[[str, int, int], _Part]


def _header(fetch: _Fetch, file: str) -> FileHeader:
    """The header of one file, in one request where it is short."""
    start = fetch(file, 0, _FIRST_BYTES - 1)
    length = header_length(start.content, start.size_bytes, file, MAX_HEADER_BYTES)
    raw = start.content[8 : 8 + length]
    if len(raw) < length:
        raw += fetch(file, 8 + len(raw), 7 + length).content
    if len(raw) < length:
        raise BadHeader(f"{file}: the server sent less of the header than it should.")
    return FileHeader(file, start.size_bytes, 8 + length, parse_header(raw, file))


def _json(fetch: _Fetch, file: str) -> dict[str, Any]:
    part = fetch(file, 0, _MOST_JSON_BYTES - 1)
    return parse_header(part.content, file)


def _library() -> Any:
    """huggingface_hub, which is an optional extra."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError(
            "Reading a model from the hub needs huggingface_hub, which is not installed.",
            "pip install 'nsys-tracebook[hub]', or give a local directory or header bundle.",
        ) from error
    return huggingface_hub


def _listing(name: str, revision: str) -> tuple[str, list[str]]:
    """Commit and file names of a revision."""
    library = _library()
    api = library.HfApi(endpoint=ENDPOINT)
    try:
        info = api.model_info(name, revision=revision, timeout=_TIMEOUT_S)
    except Exception as error:
        # Any of the library's and its transport's own classes; their texts may hold addresses
        # and tokens, so only the kind of failure is told.
        raise _unreachable(name, error) from error
    return info.sha or revision, [entry.rfilename for entry in info.siblings or ()]


def _fetch(name: str, commit: str, file: str, first: int, last: int) -> _Part:
    """Bytes `first` to `last` of a file; refused where the server would send all of it."""
    library = _library()
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    url = library.hf_hub_url(name, file, revision=commit, endpoint=ENDPOINT)
    headers = {**build_hf_headers(), "range": f"bytes={first}-{last}"}
    try:
        with get_session().stream("GET", url, headers=headers, timeout=_TIMEOUT_S) as response:
            if response.status_code >= 400:
                response.read()
                hf_raise_for_status(response)
            size = _whole_size(response.status_code, response.headers)
            whole = response.status_code != 206
            sends_parts = size is not None and not (whole and size > last - first + 1)
            content = response.read() if sends_parts else b""
    except Exception as error:
        raise _unreachable(f"{name}: {file}", error) from error
    if size is None or not sends_parts:
        raise CheckpointError(
            f"{name}: the server does not send parts of {file}.",
            "Range requests are needed, else whole weights would be fetched.",
        )
    return _Part(content, size)


def _whole_size(status: int, headers: Any) -> int | None:
    """Size of the whole file, from `content-range` or, where all of it came, its length."""
    text = headers.get("content-range", "") if status == 206 else headers.get("content-length", "")
    size = text.rpartition("/")[2]
    return int(size) if size.isdecimal() else None


def _unreachable(what: str, error: Exception) -> CheckpointError:
    kind = type(error).__name__
    hints = {
        "RepositoryNotFoundError": "Check the id; a private model needs a token.",
        "RevisionNotFoundError": "Check the revision after @.",
        "GatedRepoError": "Accept the model's terms on the hub, and log in with huggingface_hub.",
        "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set: give a local checkpoint.",
    }
    return CheckpointError(
        f"{what} cannot be read from the hub ({kind}).",
        hints.get(kind, "Check the connection, or give a local checkpoint or header bundle."),
    )
