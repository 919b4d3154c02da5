"""The mapping from an export's columns to ours, read from `data/columns.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tracebook.errors import RuleError

Choices = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class ColumnMap:
    """Which raw columns to look for; every value lists candidates, best first.

    Attributes:
        kernel_table: Name of the kernel table.
        required: Columns that a row cannot do without.
        names: StringIds columns `full`, `short` and `mangled`.
        optional: Columns that may be absent or NULL.
        string_table: Name of the string table, and its columns `id` and `value`.
        gpu_table: Name of the GPU table, and its columns.
        metadata_tables: Tables of facts about the export (name, value).
        capture_table: Table of facts about the capture (name, value).
    """

    kernel_table: str
    required: Choices
    names: Choices
    optional: Choices
    string_table: str
    strings: Choices
    gpu_table: str
    gpus: Choices
    metadata_tables: tuple[str, ...]
    capture_table: str


def pick(choices: Choices, present: Collection[str]) -> dict[str, str]:
    """For each of our columns the first candidate that the table has; absent ones are left out."""
    found = {}
    for ours, candidates in choices.items():
        for raw in candidates:
            if raw in present:
                found[ours] = raw
                break
    return found


@cache
def column_map() -> ColumnMap:
    """Read and check `data/columns.toml`; raises RuleError as `parse_columns` does."""
    text = resources.files("tracebook.data").joinpath("columns.toml").read_text(encoding="utf-8")
    return parse_columns(tomllib.loads(text))


def parse_columns(raw: Mapping[str, Any]) -> ColumnMap:
    """Check the content of `columns.toml`.

    Raises:
        RuleError: It lacks a table, or holds something other than lists of names.
    """
    try:
        kernels = raw["kernels"]
        return ColumnMap(
            kernel_table=kernels["table"],
            required=_choices(kernels["required"], "kernels.required"),
            names=_choices(kernels["names"], "kernels.names"),
            optional=_choices(kernels["optional"], "kernels.optional"),
            string_table=raw["strings"]["table"],
            strings=_choices(_without_table(raw["strings"]), "strings"),
            gpu_table=raw["gpus"]["table"],
            gpus=_choices(_without_table(raw["gpus"]), "gpus"),
            metadata_tables=tuple(raw["metadata"]["tables"]),
            capture_table=raw["metadata"]["capture_table"],
        )
    except KeyError as missing:
        raise RuleError(f"columns.toml lacks {missing}.") from missing


def _without_table(section: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in section.items() if key != "table"}


def _choices(section: Mapping[str, object], where: str) -> dict[str, tuple[str, ...]]:
    choices = {}
    for ours, candidates in section.items():
        if not isinstance(candidates, list) or not all(isinstance(c, str) for c in candidates):
            raise RuleError(f"columns.toml: {where}.{ours} must be a list of column names.")
        choices[ours] = tuple(candidates)
    return choices
