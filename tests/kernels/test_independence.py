"""Nothing in the classifier may know the synthesizer, neither its code nor its words."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = sorted((ROOT / "tracebook" / "kernels").rglob("*.py"))
SYNTH = ROOT / "tracebook" / "synth"
TABLES = sorted((ROOT / "tracebook" / "data" / "synth").rglob("*.toml"))
RULES = sorted((ROOT / "tracebook" / "data" / "rules").glob("*.toml"))
#: Shorter texts are words ("norm", "qkv"), not kernel names.
NAME_CHARACTERS = 12
#: What CUTLASS calls all of its kernels, whoever uses it.
PUBLIC = {"device_kernel"}


def texts(node):
    """Every text in a parsed table, keys left out."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)


def literals(path):
    """Texts in the code, docstrings left out."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


@cache
def vocabulary():
    found = {t for path in TABLES for t in texts(tomllib.loads(path.read_text("utf-8")))}
    return {text for text in found if len(text) >= NAME_CHARACTERS and " " not in text.strip()}


def test_there_is_a_vocabulary_to_compare():
    assert len(vocabulary()) > 20


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_no_name_of_the_synthesizer_stands_in_the_code(path):
    said = "\n".join(literals(path))
    shared = {text for text in vocabulary() if text in said}
    assert not shared - PUBLIC


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_no_module_reaches_for_the_synthesizer(path):
    names = {
        name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not {name for name in names if "synth" in name}
    assert not {text for text in literals(path) if "synth" in text}


def test_neither_side_reads_a_data_file_of_the_other():
    files = {path.name for path in RULES} | {"data/rules"}
    for path in sorted(SYNTH.rglob("*.py")):
        assert not {text for text in literals(path) for file in files if file in text}, path
    tables = {path.name for path in TABLES}
    for path in KERNELS:
        assert not {text for text in literals(path) for file in tables if file in text}, path
