"""Kernel classes from names: ordered rules in data files, matched once per distinct name.

Patterns run on polars' regular expression engine, whose time is linear in the text,
so that neither a user's rule nor a hostile name can make it hang.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import polars as pl

from tracebook.errors import RuleError

#: Everything a rule may say. `unknown` is what remains.
CLASSES = (
    "gemm",
    "splitk_reduce",
    "attention",
    "gdn",
    "conv",
    "norm",
    "quantize",
    "activation",
    "kv_write",
    "embed",
    "sample",
    "verify",
    "select",
    "draft_prepare",
    "prepare",
    "replay",
    "copy",
    "fill",
    "comm",
    "moe",
    "elementwise",
    "unknown",
)
#: Those that only occur where tokens are chosen.
CHOOSES = ("sample", "verify", "select")
MARKERS = ("autotune", "prefill", "step", "train")
#: Names longer than this are cut before matching: template arguments go on for pages.
MATCHED_CHARACTERS = 4000

#: One row per distinct name: the first rule that matches. `marker` is null for most.
CLASS_SCHEMA: dict[str, pl.DataType] = {
    "name_id": pl.Int64(),
    "kernel_class": pl.String(),
    "marker": pl.String(),
    "rule": pl.String(),
}


@dataclass(frozen=True)
class Rule:
    """One pattern and what it says; `origin` is file and number, for messages."""

    kernel_class: str
    pattern: str
    example: str
    marker: str | None
    origin: str


@cache
def builtin_rules() -> tuple[Rule, ...]:
    """The rules shipped with the package, in the order of their file names."""
    folder = resources.files("tracebook") / "data" / "rules"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(rule for f in files for rule in parse_rules(f.read_text("utf-8"), f.name))


def load_rules(user_file: Path | None) -> tuple[Rule, ...]:
    """The user's rules, if any, in front of the shipped ones.

    Args:
        user_file: TOML with `[[rule]]` tables, or the JSON object of vLLM's gputrc2graph
            (`{engine: {model: {regex: class}}}` or `{regex: class}`), or None.

    Raises:
        RuleError: The file cannot be read or a rule is wrong.
    """
    if user_file is None:
        return builtin_rules()
    try:
        text = user_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"Cannot read the rules in {user_file}: {error}.") from error
    parse = parse_json_rules if user_file.suffix == ".json" else parse_rules
    rules = parse(text, user_file.name)
    check_examples(rules)
    return rules + builtin_rules()


def parse_rules(text: str, origin: str) -> tuple[Rule, ...]:
    """Read `[[rule]]` tables: class, pattern, example, and perhaps marker."""
    try:
        tables = tomllib.loads(text).get("rule", [])
    except (ValueError, RecursionError) as error:
        raise RuleError(f"{origin} is not valid TOML: {error}.") from error
    rules = []
    if not isinstance(tables, list):
        raise RuleError(f"{origin}: `rule` is not a list of tables.", "Begin each with [[rule]].")
    for number, table in enumerate(tables, start=1):
        where = f"{origin}, rule {number}"
        if not isinstance(table, dict) or not all(type(v) is str for v in table.values()):
            raise RuleError(
                f"{where}: not a table of texts.", "Put class, pattern and example in quotes."
            )
        unknown = set(table) - {"class", "pattern", "example", "marker"}
        missing = {"class", "pattern", "example"} - set(table)
        if unknown or missing:
            wrong = ", ".join(sorted(unknown or missing))
            what = "unknown key" if unknown else "missing key"
            raise RuleError(
                f"{where}: {what} {wrong}.",
                "A rule has class, pattern, example and perhaps marker.",
            )
        rules.append(_checked(table, where))
    return tuple(rules)


def _checked(table: dict[str, str], where: str) -> Rule:
    """A rule whose class, marker and pattern are valid."""
    if table["class"] not in CLASSES:
        raise RuleError(f"{where}: no class {table['class']!r}.", f"Classes: {', '.join(CLASSES)}.")
    marker = table.get("marker")
    if marker is not None and marker not in MARKERS:
        raise RuleError(f"{where}: no marker {marker!r}.", f"Markers: {', '.join(MARKERS)}.")
    try:
        pl.Series([""]).str.contains(f"(?i){table['pattern']}")
    except pl.exceptions.ComputeError as error:
        raise RuleError(
            f"{where}: the pattern is not a valid regular expression: {table['pattern']!r}.",
            "Look-around and back-references are not available.",
        ) from error
    return Rule(table["class"], table["pattern"], table["example"], marker, where)


#: Categories of vLLM's gputrc2graph in our terms, by a word that its category contains.
_JSON_CLASSES = {
    "gemm": "gemm",
    "attn": "attention",
    "attention": "attention",
    "moe": "moe",
    "norm": "norm",
    "quant": "quantize",
    "comm": "comm",
    "nccl": "comm",
    "sampl": "sample",
    "activation": "activation",
    "copy": "copy",
    "elementwise": "elementwise",
}


def parse_json_rules(text: str, origin: str) -> tuple[Rule, ...]:
    """Read the nested JSON object of vLLM's gputrc2graph; categories we lack are left out."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RuleError(f"{origin} is not valid JSON: {error}.") from error
    rules: list[Rule] = []

    def walk(node: object, path: str) -> None:
        if not isinstance(node, dict):
            return
        for key, value in node.items():
            if isinstance(value, str):
                word = next((w for w in _JSON_CLASSES if w in value.lower()), None)
                if word is not None:
                    table = {"class": _JSON_CLASSES[word], "pattern": key, "example": ""}
                    rules.append(_checked(table, f"{path}, {key!r}"))
            else:
                walk(value, f"{path}/{key}")

    walk(data, origin)
    if not rules:
        raise RuleError(
            f"{origin} holds no rule.", "Expected {engine: {model: {regex: category}}}."
        )
    return tuple(rules)


def check_examples(rules: Sequence[Rule]) -> None:
    """Every rule with an example must be the first of `rules` to match it.

    Raises:
        RuleError: Naming the rule and the one that takes its example.
    """
    with_example = [rule for rule in rules if rule.example]
    names = pl.DataFrame(
        {
            "name_id": pl.Series(range(len(with_example)), dtype=pl.Int64),
            "name": [rule.example for rule in with_example],
            "short_name": [rule.example for rule in with_example],
        }
    )
    winners = classify_names(names, rules)["rule"].to_list()
    for rule, winner in zip(with_example, winners, strict=True):
        if winner != rule.origin:
            taken = f"is taken by {winner}" if winner else "is not matched by it"
            raise RuleError(f"{rule.origin}: the example {rule.example!r} {taken}.")


def classify_names(names: pl.DataFrame, rules: Sequence[Rule]) -> pl.DataFrame:
    """Give each distinct name the class of the first rule that matches it.

    Args:
        names: NAME_SCHEMA.
        rules: In order of precedence.

    Returns:
        CLASS_SCHEMA, one row per name, in the order of `names`.
    """
    text = names["name"].fill_null("").str.slice(0, MATCHED_CHARACTERS)
    distinct = text.unique(maintain_order=True)
    winner = pl.Series([None] * len(distinct), dtype=pl.Int32)
    for number, rule in enumerate(rules):
        open_rows = winner.is_null()
        if not open_rows.any():
            break
        hit = open_rows & distinct.str.contains(f"(?i){rule.pattern}")
        if hit.any():
            winner = winner.scatter(hit.arg_true(), number)
    chosen = [None if w is None else rules[w] for w in winner.to_list()]
    found = pl.DataFrame(
        {
            "text": distinct,
            "kernel_class": [r.kernel_class if r else "unknown" for r in chosen],
            "marker": pl.Series([r.marker if r else None for r in chosen], dtype=pl.String),
            "rule": pl.Series([r.origin if r else None for r in chosen], dtype=pl.String),
        }
    )
    joined = pl.DataFrame({"name_id": names["name_id"], "text": text}).join(
        found, on="text", how="left", maintain_order="left"
    )
    return joined.select(list(CLASS_SCHEMA)).cast(pl.Schema(CLASS_SCHEMA))
