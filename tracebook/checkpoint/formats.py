"""How a module's weights are stored: decided by its sibling tensors, never by the config.

In: the siblings of one module (suffix, dtype, shape). Out: format and logical shape.
The rules are data (`data/formats.toml`); only the arithmetic of layouts is here.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tracebook.errors import RuleError

#: Suffix of a tensor that is a module by itself (`A_log`, `d2t`).
BARE = ""
UNKNOWN = "unknown"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sibling:
    """One tensor of a module: its suffix, dtype and stored shape."""

    suffix: str
    dtype: str
    shape: Shape


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
    """One rule of formats.toml."""

    key: str
    title: str
    rule: str
    main: str
    require: dict[str, tuple[str, ...]]
    optional: frozenset[str]
    shapes: dict[str, tuple[str, ...]]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Logical:
    """What a layout rule finds: a stack of `count` matrices of n by k."""

    n: int
    k: int
    count: int = 1


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
    return tuple(_format(entry) for entry in tomllib.loads(text).get("format", []))


def _format(entry: dict[str, Any]) -> Format:
    key = entry.get("key", "?")
    known = {"key", "title", "layout", "require", "optional", "shapes"}
    if extra := set(entry) - known:
        raise RuleError(f"formats.toml: format {key!r} has unknown keys {sorted(extra)}.")
    try:
        layout = dict(entry["layout"])
        rule, main = layout.pop("rule"), layout.pop("main")
        require = {suffix: tuple(dtypes) for suffix, dtypes in entry["require"].items()}
        title = entry["title"]
    except KeyError as error:
        raise RuleError(f"formats.toml: format {key!r} lacks {error}.") from error
    if rule not in LAYOUTS:
        raise RuleError(f"formats.toml: format {key!r} has the unknown layout {rule!r}.")
    if main not in require:
        raise RuleError(f"formats.toml: the main tensor {main!r} of {key!r} is not required.")
    shapes = {suffix: tuple(values) for suffix, values in entry.get("shapes", {}).items()}
    optional = frozenset(entry.get("optional", []))
    return Format(key, title, rule, main, require, optional, shapes, layout)


@lru_cache(maxsize=1)
def known_suffixes() -> tuple[tuple[str, ...], frozenset[str]]:
    """Return all suffixes with their joint, longest first, and those of main tensors."""
    suffixes: set[str] = set()
    mains: set[str] = set()
    for rule in load_formats():
        suffixes |= set(rule.require) | rule.optional
        mains.add(rule.main)
    joined = sorted((_joined(suffix) for suffix in suffixes), key=len, reverse=True)
    return tuple(joined), frozenset(_joined(main) for main in mains)


def _joined(suffix: str) -> str:
    return suffix if suffix.startswith("_") else f".{suffix}"


def split_names(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Split tensor names into module and suffix.

    A suffix counts only beside a main tensor (`weight`, `weight_packed`, ...), so that
    `linear_attn.dt_bias` or `self_attn.k_scale` stay modules of their own.

    Args:
        names: Tensor names, or patterns of them.

    Returns:
        Name -> (module, suffix); suffix `BARE` where the tensor stands alone.
    """
    all_names = set(names)
    suffixes, mains = known_suffixes()
    result = {}
    for name in all_names:
        result[name] = (name, BARE)
        for suffix in suffixes:
            module = name.removesuffix(suffix)
            if module != name and (
                suffix in mains or any(module + main in all_names for main in mains)
            ):
                result[name] = (module, suffix.removeprefix("."))
                break
    return result


def decide(siblings: tuple[Sibling, ...], config: Mapping[str, Any] | None = None) -> Stored:
    """Decide the format of a module by the set of its tensors.

    Args:
        siblings: All tensors of the module.
        config: config.json, for bit widths that no header states; may be None.

    Returns:
        Format and logical shape; format `unknown` with all else None where no rule fits.
    """
    by_suffix = {sibling.suffix: sibling for sibling in siblings}
    if BARE in by_suffix:
        return _bare(by_suffix[BARE])
    for rule in load_formats():
        stored = _try(rule, by_suffix, config or {})
        if stored is not None:
            return stored
    return Stored(UNKNOWN, None, None, None)


def _bare(tensor: Sibling) -> Stored:
    rows, cols = _matrix(tensor.shape)
    return Stored(tensor.dtype, rows, cols, math.prod(tensor.shape))


def _matrix(shape: Shape) -> tuple[int | None, int | None]:
    return (shape[0], math.prod(shape[1:])) if len(shape) >= 2 else (None, None)


def _try(rule: Format, tensors: dict[str, Sibling], config: Mapping[str, Any]) -> Stored | None:
    for suffix, dtypes in rule.require.items():
        if suffix not in tensors or not ({"*", tensors[suffix].dtype} & set(dtypes)):
            return None
    if set(tensors) - set(rule.require) - rule.optional:
        return None
    bias = math.prod(tensors["bias"].shape) if "bias" in tensors else 0
    main = tensors[rule.main]
    if rule.rule == "plain" and not rule.shapes:
        rows, cols = _matrix(main.shape)
        name = main.dtype if rule.key == "plain" else rule.key
        return Stored(name, rows, cols, math.prod(main.shape) + bias)
    logical = LAYOUTS[rule.rule](rule, tensors, config)
    if logical is None:
        # The tensors fit but the shape cannot be told from them: known format, unknown size.
        return Stored(rule.key, None, None, None) if not rule.shapes else None
    if not all(_shape_fits(tensors.get(s), allowed, logical) for s, allowed in rule.shapes.items()):
        return None
    params = logical.n * logical.k * logical.count + bias
    return Stored(rule.key, logical.n, logical.k, params)


def _shape_fits(tensor: Sibling | None, allowed: tuple[str, ...], logical: Logical) -> bool:
    """Compare a stored shape with expressions like "n,k/16"; a stack has one more dimension."""
    if tensor is None:
        return True
    for expression in allowed:
        if expression == "1":
            if math.prod(tensor.shape) in (1, logical.count):
                return True
            continue
        wanted = tuple(_dimension(part, logical) for part in expression.split(","))
        stacked = (logical.count, *wanted)
        if tensor.shape == wanted or (logical.count > 1 and tensor.shape == stacked):
            return True
    return False


def _dimension(part: str, logical: Logical) -> int:
    name, _, divisor = part.partition("/")
    value = {"n": logical.n, "k": logical.k}.get(name)
    if value is None:
        return int(name)
    return math.ceil(value / int(divisor)) if divisor else value


def _plain(rule: Format, tensors: dict[str, Sibling], config: Mapping[str, Any]) -> Logical | None:
    """[n, k], or a stack [..., n, k] of them."""
    shape = tensors[rule.main].shape
    if len(shape) < 2:
        return None
    return Logical(shape[-2], shape[-1], math.prod(shape[:-2]))


def _packed_bytes(
    rule: Format, tensors: dict[str, Sibling], config: Mapping[str, Any]
) -> Logical | None:
    """[..., n, k / per_byte] of bytes."""
    logical = _plain(rule, tensors, config)
    per_byte = int(rule.options["per_byte"])
    return None if logical is None else Logical(logical.n, logical.k * per_byte, logical.count)


LayoutRule = Callable[[Format, dict[str, Sibling], Mapping[str, Any]], Logical | None]
LAYOUTS: dict[str, LayoutRule] = {"plain": _plain, "packed_bytes": _packed_bytes}
