"""NVTX scopes of serving engines, and the CUDA calls that were made inside them.

In: an opened export. Out: which launch (process and correlation id) was made inside
which scope. A kernel runs after the range has closed on the CPU, and with asynchronous
scheduling a step later, so nothing here looks at the time of kernels.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import polars as pl

from tracebook.errors import RuleError
from tracebook.importers.columns import column_map, pick
from tracebook.importers.source import Source
from tracebook.phases import Phase

Kind = Literal["phases", "step", "absent", "layer"]

#: One row per launch and scope that it was made in. `scope` is the number of the scope in
#: `scope_rules()`, `range_id` the number of the range it stands for.
LAUNCH_SCHEMA: dict[str, pl.DataType] = {
    "pid": pl.Int64(),
    "correlation_id": pl.Int64(),
    "scope": pl.Int64(),
    "range_id": pl.Int64(),
    "layer": pl.Int64(),  # nullable
}

EVENTS, CALLS = "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
#: Values of NVTX_EVENTS.eventType: ranges by push and pop, and by start and end.
RANGES = (59, 60)
EVENT_COLUMNS: dict[str, tuple[str, ...]] = {
    "start_ns": ("start",),
    "end_ns": ("end",),
    "thread": ("globalTid",),
    "end_thread": ("endGlobalTid",),
    "kind": ("eventType",),
    "text_id": ("textId",),
}
CALL_COLUMNS: dict[str, tuple[str, ...]] = {
    "start_ns": ("start",),
    "end_ns": ("end",),
    "thread": ("globalTid",),
    "correlation_id": ("correlationId",),
}
#: Longer texts are of no engine, and a pattern may need the square of a length.
_LONGEST_TEXT = 20_000
_MOST_DIGITS = 6  # of a layer's index
_PID_SHIFT, _PID_MASK = 24, 0xFF_FFFF


@dataclass(frozen=True)
class ScopeRule:
    """One scope of `data/nvtx.toml`, where the fields are described."""

    name: str
    starts: tuple[str, ...]
    pattern: re.Pattern[str]
    kind: Kind
    phases: frozenset[str]
    example: str


@cache
def scope_rules() -> tuple[ScopeRule, ...]:
    """Read and check `data/nvtx.toml`; raises RuleError as `parse_scopes` does."""
    text = resources.files("tracebook.data").joinpath("nvtx.toml").read_text(encoding="utf-8")
    return parse_scopes(tomllib.loads(text))


def parse_scopes(raw: Mapping[str, Any]) -> tuple[ScopeRule, ...]:
    """Check the content of `nvtx.toml`.

    Raises:
        RuleError: A scope lacks a key, has a pattern that is none, an unknown kind or
            phase, or does not take its own example.
    """
    rules: list[ScopeRule] = []
    for entry in raw.get("scopes", ()):
        try:
            rule = ScopeRule(
                name=entry["name"],
                starts=tuple(entry["starts"]),
                pattern=re.compile(entry["pattern"], re.DOTALL),
                kind=entry["kind"],
                phases=frozenset(entry.get("phases", ())),
                example=entry["example"],
            )
        except KeyError as missing:
            raise RuleError(f"nvtx.toml: scope {len(rules) + 1} lacks {missing}.") from missing
        except re.error as error:
            raise RuleError(f"nvtx.toml: {entry['name']}: bad pattern: {error}.") from error
        if rule.kind not in get_args(Kind) or rule.phases - set(Phase):
            raise RuleError(f"nvtx.toml: {rule.name} has an unknown kind or phase.")
        rules.append(rule)
    for rule in rules:
        found = _scope_of(rule.example, tuple(rules))
        if found is None or rules[found[0]] is not rule:
            raise RuleError(f"nvtx.toml: {rule.name} does not take its own example.")
    return tuple(rules)


def read_scopes(source: Source) -> pl.DataFrame | None:
    """Tell which launches were made inside which scope.

    Args:
        source: An opened export.

    Returns:
        LAUNCH_SCHEMA; None where the export holds no scope that is known, no CUDA calls,
        or no columns to link them by. Ranges that never end, or end on another thread, do
        not tell what was launched inside and are left out.
    """
    columns = pick(CALL_COLUMNS, source.tables.get(CALLS, ()))
    ranges = scope_ranges(source) if len(columns) == len(CALL_COLUMNS) else None
    if ranges is None or ranges.is_empty():
        return None
    threads = ranges["thread"].unique().to_list()
    calls = source.integers(CALLS, columns, threads, columns["thread"]).drop_nulls()
    calls = calls.select(
        "thread", "correlation_id", pl.col("start_ns").alias("call_ns"), call_end_ns="end_ns"
    ).sort("call_ns")
    pid = (pl.col("thread") // (1 << _PID_SHIFT)) & _PID_MASK
    linked = [_inside(calls, part) for part in ranges.partition_by("scope", maintain_order=True)]
    return pl.concat(linked).select(pid.alias("pid"), *list(LAUNCH_SCHEMA)[1:])


def _inside(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Each call that lies wholly inside a range of its own thread, with that range."""
    nearest = calls.join_asof(
        ranges,
        left_on="call_ns",
        right_on="start_ns",
        by="thread",
        strategy="backward",
        check_sortedness=False,  # both are sorted by time; `by` makes the check impossible
    )
    return nearest.filter(pl.col("call_end_ns") <= pl.col("end_ns"))


def scope_ranges(source: Source) -> pl.DataFrame | None:
    """Whole ranges of known scopes, by time: thread, start_ns, end_ns, scope, layer, range_id.

    Of ranges of one scope that lie inside each other on one thread the outermost is kept.
    """
    present = source.tables.get(EVENTS, ())
    columns = pick(EVENT_COLUMNS, present)
    if not {"start_ns", "end_ns", "thread", "kind"} <= columns.keys():
        return None
    found = []
    if "text_id" in columns:
        ids = _scopes_of_texts(_interned(source))
        if not ids.is_empty():
            rows = source.integers(EVENTS, columns, ids["id"].to_list(), columns["text_id"])
            found.append(rows.join(ids, left_on="text_id", right_on="id"))
    if "text" in present:
        ids = _scopes_of_texts(source.texts_starting(EVENTS, "text", _starts()))
        if not ids.is_empty():
            rows = source.integers(EVENTS, columns, ids["id"].to_list())
            found.append(rows.join(ids, left_on="row_id", right_on="id").drop("row_id"))
    if not found:
        return None
    return _whole(pl.concat(found, how="diagonal"))


def _whole(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges that tell what was launched inside them."""
    kept = pl.col("kind").is_in(RANGES) & (pl.col("end_ns") >= pl.col("start_ns"))
    if "end_thread" in ranges.columns:
        # 0 or NULL where the range was popped, so ended on the thread that it began on.
        elsewhere = pl.col("end_thread") != pl.col("thread")
        kept &= ~(elsewhere & (pl.col("end_thread") != 0)).fill_null(value=False)
    before = pl.col("end_ns").cum_max().shift(1).over("thread", "scope")
    return (
        ranges.filter(kept & pl.col("thread").is_not_null())
        .sort("start_ns", "end_ns", descending=[False, True])
        .filter(before.is_null() | (pl.col("end_ns") > before))
        .with_row_index("range_id")
        .select("thread", "start_ns", "end_ns", "scope", "layer", pl.col("range_id").cast(pl.Int64))
    )


def _interned(source: Source) -> dict[int, str]:
    """Texts of StringIds that may be scopes."""
    mapping = column_map()
    columns = pick(mapping.strings, source.tables.get(mapping.string_table, ()))
    if len(columns) < 2:
        return {}
    return source.texts_starting(mapping.string_table, columns["value"], _starts(), columns["id"])


@cache
def _starts() -> tuple[str, ...]:
    return tuple(dict.fromkeys(start for rule in scope_rules() for start in rule.starts))


def _scopes_of_texts(texts: Mapping[int, str]) -> pl.DataFrame:
    """id, scope and layer of the texts that are a scope; each distinct text is tried once."""
    rules = scope_rules()
    known: dict[str, tuple[int, int | None] | None] = {}
    rows = []
    for id_, text in texts.items():
        if text not in known:
            known[text] = _scope_of(text, rules)
        if (scope := known[text]) is not None:
            rows.append((id_, *scope))
    schema = {"id": pl.Int64(), "scope": pl.Int64(), "layer": pl.Int64()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def scope_text(scope: int, layer: int | None) -> str:
    """A text that stands for a scope, without anything of the one that was recorded."""
    rule = scope_rules()[scope]
    match = rule.pattern.fullmatch(rule.example)
    if layer is None or match is None:
        return rule.example
    return f"{rule.example[: match.start('layer')]}{layer}{rule.example[match.end('layer') :]}"


def _scope_of(text: str, rules: tuple[ScopeRule, ...]) -> tuple[int, int | None] | None:
    """Number of the scope that a text names, and its layer."""
    if len(text) > _LONGEST_TEXT:
        return None
    for number, rule in enumerate(rules):
        match = rule.pattern.fullmatch(text) if text.startswith(rule.starts) else None
        if match is not None:
            layer = match.groupdict().get("layer")
            if layer is not None and len(layer) > _MOST_DIGITS:
                return None
            return number, None if layer is None else int(layer)
    return None
