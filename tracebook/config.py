"""The run description: run.toml and the flags that mean the same (flags win).

In: a TOML file beside the trace (or named by `--run`) and values given as flags.
Out: a `RunDescription`. Nothing is guessed: an unknown key, a wrong type or two
settings that contradict each other are refused with the place and the remedy.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tracebook.errors import FlagError, RunDescriptionError

DraftMethod = Literal["none", "mtp", "eagle3", "dflash", "dflash2", "draft_model"]

#: Name of the file that is looked for beside a trace.
RUN_FILE = "run.toml"

#: What a checkpoint's name begins with where its headers are to be read from the hub.
REMOTE = "hub://"

#: No file system takes a longer path, and asking it fails.
_LONGEST_PATH = 4_096
_METHODS: tuple[str, ...] = get_args(DraftMethod)
DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3", "float8_e5m2", "fp8", "int8")


@dataclass(frozen=True)
class RunDescription:
    """What the user knows about the run; None means not said.

    Paths are absolute strings or hub ids. `tokens_per_step` is measured by the
    user's benchmark and counts the tokens of all sequences of the batch.
    `tensor_parallel` is the number of ranks. `replay` says whether recurrent state is
    replayed after verification instead of stored at each position.
    """

    machine: str | None = None
    bandwidth_gbps: float | None = None
    ceiling_gbps: float | None = None
    target: str | None = None
    drafter: str | None = None
    draft_method: DraftMethod | None = None
    draft_tokens: int | None = None
    draft_head: str | None = None
    gdn_dtype: str | None = None
    kv_dtype: str | None = None
    context_tokens: int | None = None
    batch: int | None = None
    tokens_per_step: float | None = None
    tensor_parallel: int | None = None
    replay: bool | None = None


@dataclass(frozen=True)
class _Key:
    """One key of run.toml: the field it sets and what its value must be."""

    field: str
    kind: Literal["text", "path", "count", "amount", "choice", "switch"]
    choices: tuple[str, ...] = ()


#: The keys of run.toml. The flag of the same meaning is listed in `FLAGS`.
_TABLES: dict[str, dict[str, _Key]] = {
    "machine": {
        "name": _Key("machine", "text"),
        "bandwidth_gbps": _Key("bandwidth_gbps", "amount"),
        "ceiling_gbps": _Key("ceiling_gbps", "amount"),
    },
    "target": {"checkpoint": _Key("target", "path")},
    "drafter": {
        "method": _Key("draft_method", "choice", _METHODS),
        "checkpoint": _Key("drafter", "path"),
        "draft_tokens": _Key("draft_tokens", "count"),
    },
    "draft_head": {"checkpoint": _Key("draft_head", "path")},
    "state": {
        "gdn_dtype": _Key("gdn_dtype", "choice", DTYPES),
        "kv_dtype": _Key("kv_dtype", "choice", DTYPES),
        "context_tokens": _Key("context_tokens", "count"),
        "replay": _Key("replay", "switch"),
    },
    "workload": {
        "batch": _Key("batch", "count"),
        "tokens_per_step": _Key("tokens_per_step", "amount"),
        "tensor_parallel": _Key("tensor_parallel", "count"),
    },
}

#: Tables that belong to other commands and are passed over here.
_FOREIGN_TABLES = ("synth",)

#: The flag that sets each field, for messages; fields without one are set in run.toml only.
FLAGS: dict[str, str] = {
    "machine": "--machine",
    "bandwidth_gbps": "--bandwidth",
    "ceiling_gbps": "--ceiling-gbps",
    "target": "--checkpoint",
    "drafter": "--drafter",
    "draft_method": "--draft-method",
    "draft_tokens": "--draft-tokens",
    "draft_head": "--draft-head",
    "gdn_dtype": "--gdn-dtype",
    "kv_dtype": "--kv-dtype",
    "context_tokens": "--context-tokens",
    "replay": "--replay",
    "batch": "--batch",
    "tokens_per_step": "--tokens-per-step",
    "tensor_parallel": "--tensor-parallel",
}


def describe_run(
    trace: Path, *, run_file: Path | None = None, flags: Mapping[str, Any] | None = None
) -> RunDescription:
    """Join run.toml and flags into one description.

    Args:
        trace: The trace; `run.toml` in its directory is used where `run_file` is None.
        run_file: A run description to use instead.
        flags: Field name to value; None means the flag was not given. Flags win.
            Relative paths are relative to the working directory.

    Raises:
        RunDescriptionError: A value cannot be, or two contradict each other.
    """
    if run_file is None:
        beside = trace.parent / RUN_FILE
        run_file = beside if beside.is_file() else None
    described = load_run(run_file) if run_file is not None else RunDescription()
    described = replace(described, **_checked_flags(flags or {}))
    _refuse_contradictions(described)
    return described


def load_run(path: Path) -> RunDescription:
    """Read a run description.

    Args:
        path: A TOML file. Relative paths in it are relative to its directory.

    Raises:
        RunDescriptionError: The file is missing or not TOML, a table or key is
            unknown (the nearest known name is given), or a value has the wrong type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunDescriptionError(
            f"The run description {path} cannot be read: {error.strerror}.",
            "Check the path: a run description is a TOML file.",
        ) from error
    except UnicodeDecodeError as error:
        raise RunDescriptionError(
            f"The run description {path} is no TOML text, but binary.",
            "Check the path: a run description is a TOML file.",
        ) from error
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise RunDescriptionError(
            f"The run description {path} is not valid TOML: {error}.",
            "Correct the line named, or describe the run with flags.",
        ) from error
    values: dict[str, Any] = {}
    for table, content in document.items():
        if table in _FOREIGN_TABLES:
            continue
        if table not in _TABLES:
            raise RunDescriptionError(
                f"{path}: no table is called [{table}].", _did_you_mean(table, _TABLES)
            )
        if not isinstance(content, dict):
            raise RunDescriptionError(
                f"{path}: {table} must be a table, not a value.", f"Write it as [{table}]."
            )
        values |= _table_values(path, table, content)
    described = RunDescription(**values)
    _refuse_contradictions(described, f"{path}: ")
    return described


def _table_values(path: Path, table: str, content: dict[str, Any]) -> dict[str, Any]:
    """Fields set by one table of the file."""
    keys = _TABLES[table]
    values = {}
    for name, value in content.items():
        if name not in keys:
            raise RunDescriptionError(
                f"{path}: [{table}] has no key {name!r}.", _did_you_mean(name, keys)
            )
        where = f"{path}: [{table}] {name}"
        values[keys[name].field] = _checked(where, keys[name], value, path.parent)
    return values


def _checked_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, held to the same rules as the file."""
    known = {key.field: key for keys in _TABLES.values() for key in keys.values()}
    try:
        return {
            field: _checked(FLAGS.get(field, field), known[field], value, Path.cwd())
            for field, value in flags.items()
            if value is not None
        }
    except RunDescriptionError as error:
        raise FlagError(error.message, error.hint) from error


def _checked(where: str, key: _Key, value: Any, base: Path) -> Any:
    """Hold a value against its kind; return it as the description keeps it."""
    if key.kind in ("text", "path", "choice"):
        if not isinstance(value, str) or not value.strip():
            raise RunDescriptionError(
                f"{where} must be a text, not {value!r}.", "Put the value in quotes."
            )
        if key.kind == "choice" and value not in key.choices:
            raise RunDescriptionError(
                f"{where} cannot be {value!r}.", _did_you_mean(value, key.choices)
            )
        if key.kind == "path" and (len(value) > _LONGEST_PATH or "\0" in value):
            raise RunDescriptionError(
                f"{where} cannot be a path: {value[:40]!r}, {len(value):,} letters.",
                "Give a checkpoint's directory, file, header bundle or hub id.",
            )
        return resolve_source(value, base) if key.kind == "path" else value
    if key.kind == "switch":
        if not isinstance(value, bool):
            raise RunDescriptionError(
                f"{where} must be true or false, not {value!r}.", "Write it without quotes."
            )
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunDescriptionError(
            f"{where} must be a number, not {value!r}.", "Write the number without quotes."
        )
    if key.kind == "count":
        least = 0 if key.field == "context_tokens" else 1
        if not isinstance(value, int) or value < least:
            raise RunDescriptionError(
                f"{where} must be a whole number, {least} or more, not {value}."
            )
        return value
    if not math.isfinite(value) or value <= 0:
        raise RunDescriptionError(f"{where} must be a number above 0, not {value}.")
    return float(value)


def resolve_source(value: str, base: Path) -> str:
    """Make a checkpoint's name absolute, unless it is a hub id.

    What exists below `base` is a path; `owner/name` that does not exist there is
    left as a hub id, as is `hub://owner/name`; everything else is a path that its reader
    will miss by name.
    """
    if value.startswith(REMOTE):
        return value
    path = os.path.abspath(base / Path(value).expanduser())  # noqa: PTH100  folds ".." away
    return value if is_hub_id(value) and not Path(path).exists() else path


def is_hub_id(value: str) -> bool:
    """Whether a text has the form `owner/name` of a hub id."""
    owner, slash, name = value.partition("/")
    plain = all(
        part and not part.startswith((".", "~")) and "/" not in part for part in (owner, name)
    )
    return bool(slash) and plain and not name.endswith((".gz", ".json", ".safetensors", ".gguf"))


def _refuse_contradictions(run: RunDescription, where: str = "") -> None:
    """Refuse settings that cannot hold together."""
    if run.draft_method == "none":
        extra = [
            FLAGS[name]
            for name in ("drafter", "draft_tokens", "draft_head")
            if getattr(run, name) is not None
        ]
        if extra:
            raise RunDescriptionError(
                f"{where}the draft method is 'none', yet {', '.join(extra)} is given.",
                "Name the method with --draft-method, or leave the drafter out.",
            )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
