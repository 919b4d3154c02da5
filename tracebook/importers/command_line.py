"""The model named in the captured command line, and nothing else of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

_MODEL_FLAGS = ("--model", "--model-path", "--model_path", "--model-dir")
_SERVE = re.compile(r"(?:^|/)(vllm|trtllm-serve|sglang)$")
#: A hub id or a path. A URL could carry credentials, so it is no candidate.
_MODEL = re.compile(r"[\w./~][\w./~+@=: -]{0,500}")
_COMMAND_KEY = re.compile(r"(?:^|:)(COMMAND|ARGUMENT_(\d+))$")


def model_of(capture_rows: Iterable[tuple[object, object]]) -> str | None:
    """Find the model in META_DATA_CAPTURE rows (name, value).

    Only COMMAND and ARGUMENT_n rows are looked at; environment rows never are.

    Returns:
        The id or path after `vllm serve`, `--model`, `--model-path` or `-m FILE.gguf`,
        or None.
    """
    words: dict[str, list[tuple[int, str]]] = {}
    for name, value in capture_rows:
        key = _COMMAND_KEY.search(str(name))
        if key and is_command(str(name)):
            process = str(name)[: key.start()]
            place = -1 if key[2] is None else int(key[2])
            words.setdefault(process, []).append((place, str(value)))
    for process in sorted(words):
        found = _model_in([word for _, word in sorted(words[process])])
        if found:
            return found
    return None


def is_command(name: str) -> bool:
    """Whether a META_DATA_CAPTURE row of this name holds a word of the command line."""
    return bool(_COMMAND_KEY.search(name)) and "ENVIRONMENT" not in name.upper()


def _model_in(words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        flag, _, joined = word.partition("=")
        if flag in _MODEL_FLAGS and _is_model(joined or following):
            return joined or following
        if word == "-m" and following.endswith(".gguf") and _is_model(following):
            return following
        if _SERVE.search(word):
            candidate = words[at + 2] if following == "serve" and at + 2 < len(words) else ""
            if following != "serve" and word.endswith("trtllm-serve"):
                candidate = following
            if _is_model(candidate):
                return candidate
        if word == "-c" or (" " in word and "serve" in word):
            found = _inside_shell(following if word == "-c" else word)
            if found:
                return found
    return None


def _inside_shell(script: str) -> str | None:
    try:
        words = shlex.split(script)
    except ValueError:
        return None
    return _model_in(words) if len(words) > 1 else None


def _is_model(word: str) -> bool:
    return "://" not in word and bool(_MODEL.fullmatch(word))
