"""Dataclasses from JSON values, and as rows of a frame.

In: values as `json.loads` gives them, or dataclasses. Out: dataclasses, each value checked
against its annotation, or a frame whose columns are the fields in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import polars as pl

from tracebook.stats import Summary

_T = TypeVar("_T")


def decode(kind: type[_T], value: dict[str, Any]) -> _T:
    """Build a dataclass from JSON values; keys that it does not know pass by."""
    hints = get_type_hints(kind)
    known = {name: _typed(hints[name], value[name]) for name in hints if name in value}
    return kind(**known)


def _typed(hint: Any, value: Any) -> Any:
    """Turn one JSON value into what the annotation says."""
    if get_origin(hint) in (Union, UnionType):
        inner = [arm for arm in get_args(hint) if arm is not type(None)]
        return None if value is None else _typed(inner[0], value)
    if get_origin(hint) is tuple:
        return tuple(_typed(get_args(hint)[0], item) for item in value)
    if hasattr(hint, "__dataclass_fields__"):
        return decode(hint, value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise TypeError(f"{value!r} is none of {get_args(hint)}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = get_origin(hint) or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise TypeError(f"{value!r} is not {expected.__name__}")
    return value


_FRAME_TYPES: dict[Any, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    float: pl.Float64(),
}
_SUMMARY_SCHEMA: dict[str, pl.DataType] = {
    "": pl.Float64(),
    "_mean": pl.Float64(),
    "_p05": pl.Float64(),
    "_p95": pl.Float64(),
    "_ci95_lo": pl.Float64(),
    "_ci95_hi": pl.Float64(),
}


def frame(kind: type, rows: Sequence[Any]) -> pl.DataFrame:
    """Rows as a typed frame, summaries spread over columns, dictionaries and lists left out."""
    schema: dict[str, pl.DataType] = {}
    for name, hint in get_type_hints(kind).items():
        if hint is Summary:
            schema |= {f"{name}{suffix}": dtype for suffix, dtype in _SUMMARY_SCHEMA.items()}
        elif get_origin(hint) not in (dict, tuple):
            arms = [arm for arm in get_args(hint) or (hint,) if arm is not type(None)]
            schema[name] = _FRAME_TYPES[arms[0]]
    return pl.DataFrame([_flat(row) for row in rows], schema=schema, orient="row")


def _flat(row: Any) -> list[Any]:
    """The values of a row in the order of its frame's columns."""
    values: list[Any] = []
    for value in (getattr(row, name) for name in row.__dataclass_fields__):
        if isinstance(value, Summary):
            low, high = value.ci95 or (None, None)
            values += [value.median, value.mean, value.p05, value.p95, low, high]
        elif not isinstance(value, dict | tuple):
            values.append(value)
    return values
