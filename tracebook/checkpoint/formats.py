"""How a module's weights are stored: decided by its sibling tensors, never by the config.

In: the siblings of one module (suffix, dtype, shape). Out: format and logical shape.
The rules are data (`data/formats.toml`), the arithmetic of layouts is in `layouts`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tracebook.checkpoint.layouts import LAYOUTS, Logical, Shape, Sibling
from tracebook.errors import RuleError

#: Suffix of a tensor that is a module by itself (`A_log`, `d2t`).
BARE = ""
UNKNOWN = "unknown"

_KEYS = {"key", "title", "layout", "require", "optional", "shapes"}


@dataclass(frozen=True)
class Stored:
    """How a module is stored.

    Attributes:
        format: Key of formats.toml; the dtype for plain tensors; `unknown` where no
            rule fits.
        rows: Output features n, None where unknown or not a matrix.
        cols: Input features k, None likewise.
        params: Logical number of weights, biases included, scales not; None where the
            headers cannot tell.
    """

    format: str
    rows: int | None
    cols: int | None
    params: int | None


@dataclass(frozen=True)
class Format:
    """One rule of formats.toml; suffixes carry their joint (`.weight`, `_blocks`)."""

    key: str
    title: str
    rule: str
    main: str
    options: Mapping[str, Any]
    require: Mapping[str, tuple[str, ...]]
    optional: frozenset[str]
    shapes: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def load_formats() -> tuple[Format, ...]:
    """Read and validate formats.toml.

    Raises:
        RuleError: A rule is malformed.
    """
    text = files("tracebook").joinpath("data/formats.toml").read_text(encoding="utf-8")
    return parse_formats(text)


def parse_formats(text: str) -> tuple[Format, ...]:
    """Read and validate the text of a formats file.

    Raises:
        RuleError: A rule is malformed (the message names it).
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"formats.toml: {error}.") from error
    return tuple(_format(entry) for entry in content.get("format", []))


def _format(entry: dict[str, Any]) -> Format:
    key = entry.get("key", "?")
    if extra := set(entry) - _KEYS:
        raise RuleError(f"formats.toml: format {key!r} has unknown keys {sorted(extra)}.")
    try:
        options = dict(entry["layout"])
        rule, title = options.pop("rule"), entry["title"]
        main = options["main"] = _joined(options["main"])
        require = {_joined(suffix): tuple(kinds) for suffix, kinds in entry["require"].items()}
    except KeyError as error:
        raise RuleError(f"formats.toml: format {key!r} lacks {error}.") from error
    if rule not in LAYOUTS:
        raise RuleError(f"formats.toml: format {key!r} has the unknown layout {rule!r}.")
    if main not in require:
        raise RuleError(f"formats.toml: the main tensor {main!r} of {key!r} is not required.")
    optional = frozenset(_joined(suffix) for suffix in entry.get("optional", []))
    shapes = {_joined(suffix): tuple(s) for suffix, s in entry.get("shapes", {}).items()}
    return Format(key, title, rule, main, options, require, optional, shapes)


def _joined(suffix: str) -> str:
    return suffix if suffix.startswith(("_", ".")) else f".{suffix}"


@lru_cache(maxsize=1)
def known_suffixes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all suffixes, longest first, and those of main tensors."""
    suffixes: set[str] = set()
    mains: dict[str, None] = {}
    for rule in load_formats():
        suffixes |= set(rule.require) | rule.optional
        mains[rule.main] = None
    return tuple(sorted(suffixes, key=lambda s: (-len(s), s))), tuple(mains)


def split_names(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Split tensor names into module and suffix.

    A suffix counts only beside a main tensor (`weight`, `weight_packed`, ...), so that
    `linear_attn.dt_bias` or `self_attn.k_scale` stay modules of their own.

    Args:
        names: Tensor names, or patterns of them.

    Returns:
        Name -> (module, suffix with its joint); suffix `BARE` where it stands alone.
    """
    all_names = set(names)
    suffixes, mains = known_suffixes()
    result = {}
    for name in all_names:
        result[name] = (name, BARE)
        for suffix in suffixes:
            if not name.endswith(suffix) or name == suffix:
                continue
            module = name.removesuffix(suffix)
            if suffix in mains or any(module + main in all_names for main in mains):
                result[name] = (module, suffix)
                break
    return result


def decide(siblings: tuple[Sibling, ...], config: Mapping[str, Any] | None = None) -> Stored:
    """Decide the format of a module by the set of its tensors.

    Args:
        siblings: All tensors of the module.
        config: config.json, for bits and group sizes that no header states; may be None.

    Returns:
        Format and logical shape; format `unknown` with all else None where no rule fits.
    """
    by_suffix = {sibling.suffix: sibling for sibling in siblings}
    if BARE in by_suffix:
        tensor = by_suffix[BARE]
        rows, cols = _matrix(tensor.shape)
        return Stored(tensor.dtype, rows, cols, math.prod(tensor.shape))
    for rule in load_formats():
        stored = _try(rule, by_suffix, config or {})
        if stored is not None:
            return stored
    return Stored(UNKNOWN, None, None, None)


def _matrix(shape: Shape) -> tuple[int | None, int | None]:
    return (shape[0], math.prod(shape[1:])) if len(shape) >= 2 else (None, None)


def _try(rule: Format, tensors: dict[str, Sibling], config: Mapping[str, Any]) -> Stored | None:
    for suffix, dtypes in rule.require.items():
        if suffix not in tensors or not {"*", tensors[suffix].dtype} & set(dtypes):
            return None
    if set(tensors) - set(rule.require) - rule.optional:
        return None
    logical = LAYOUTS[rule.rule](tensors, rule.options, config)
    if logical is None:
        return None
    for suffix, allowed in rule.shapes.items():
        if suffix in tensors and not _shape_fits(tensors[suffix].shape, allowed, logical):
            return None
    weights = logical.weights
    biases = sum(math.prod(tensors[s].shape) for s in (".bias", "_bias") if s in tensors)
    return Stored(
        tensors[rule.main].dtype if rule.rule == "plain" else rule.key,
        logical.n,
        logical.k,
        None if weights is None else weights + biases,
    )


def _shape_fits(shape: Shape, allowed: tuple[str, ...], logical: Logical) -> bool:
    """Compare a stored shape with expressions like "n,k/16"; a stack has one more dimension."""
    for expression in allowed:
        if expression == "1":
            if math.prod(shape) in (1, logical.count):
                return True
            continue
        wanted = tuple(_dimension(part, logical) for part in expression.split(","))
        if shape == wanted or (logical.count > 1 and shape == (logical.count, *wanted)):
            return True
    return False


def _dimension(part: str, logical: Logical) -> int:
    name, _, divisor = part.partition("/")
    value = {"n": logical.n, "k": logical.k}.get(name)
    if value is None:
        return int(name) if name.isdigit() else -1
    return math.ceil(value / int(divisor)) if divisor else value
