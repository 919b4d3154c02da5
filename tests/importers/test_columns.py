from __future__ import annotations

import tomllib
from importlib import resources

import pytest

from tracebook.errors import RuleError
from tracebook.importers.columns import column_map, parse_columns, pick
from tracebook.trace import KERNEL_SCHEMA


def raw():
    text = resources.files("tracebook.data").joinpath("columns.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def test_every_column_of_the_schema_has_an_origin():
    mapping = column_map()
    mapped = {*mapping.required, *mapping.optional}
    # kernel_id is the row's number, pid is cut out of global_pid, name_id out of the names
    assert mapped - {"global_pid"} == KERNEL_SCHEMA.keys() - {"kernel_id", "pid", "name_id"}


def test_the_first_candidate_that_is_there_is_taken():
    choices = {"device": ("id", "deviceId"), "name": ("name",)}
    assert pick(choices, ("deviceId", "id")) == {"device": "id"}
    assert pick(choices, ("deviceId", "name")) == {"device": "deviceId", "name": "name"}


@pytest.mark.parametrize("section", ["kernels", "strings", "gpus", "metadata"])
def test_a_missing_section_is_named(section):
    content = raw()
    del content[section]
    with pytest.raises(RuleError, match=section):
        parse_columns(content)


@pytest.mark.parametrize("wrong", ["start", [1], {"from": "start"}])
def test_candidates_must_be_lists_of_names(wrong):
    content = raw()
    content["kernels"]["required"]["start_ns"] = wrong
    with pytest.raises(RuleError, match="start_ns"):
        parse_columns(content)
