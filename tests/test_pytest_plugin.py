"""The plugin in a project of its own: what passes, fails and is skipped there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from step_noise import baseline_of

from tracebook.compare.baseline import write
from tracebook.compare.store import Store

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
INSTALLED = any(entry.name == "tracebook" for entry in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "tracebook.pytest_plugin")

TESTS = """
import pytest

def test_same(trace_check):
    found = trace_check("same.json", baseline="base.json", gate={"drafter_layers": 0.02})
    assert found.step.verdict == "same"

def test_slower(trace_check):
    trace_check("slower.json", baseline="base.json")

def test_slower_within_its_gate(trace_check):
    trace_check("slower.json", baseline="base.json", gate={"drafter_layers": 0.1, "step": 0.1})

@pytest.mark.trace_check(baseline="main", undecided="skip")
def test_by_name_and_marker(trace_check):
    trace_check("same.json")
    trace_check("hot.json")

def test_hot(trace_check):
    trace_check(["hot.json"], baseline="base.json")

def test_wrong_gate(trace_check):
    trace_check("same.json", baseline="base.json", gate={"drafter": 0.02})

def test_no_baseline(trace_check):
    trace_check("same.json", baseline="base.jsn")
"""


def test_outcomes(pytester):
    rng = np.random.default_rng(14)
    runs = {
        name: baseline_of(rng, 60, **change)
        for name, change in (
            ("base", {}),
            ("same", {}),
            ("slower", {"slower": {"drafter_layers": 1.06}}),
            ("hot", {"everything": 1.12}),
        )
    }
    for name, run in runs.items():
        write(run, pytester.path / f"{name}.json", packed=False)
    Store(pytester.path / ".tracebook").tag("main", runs["base"])
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\naddopts = --strict-markers")
    result = pytester.runpytest(*PLUGIN, "-v", "-rs")
    result.assert_outcomes(passed=2, failed=4, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_same PASSED*",
            "*test_slower FAILED*",
            "*test_by_name_and_marker SKIPPED*",
            "*Regression: Slower in the drafter layers*",
            "*Machine state (clock, power, thermal)*",
            "*There is no phase 'drafter' to set a gate for.*",
        ]
    )
    result.stdout.fnmatch_lines(["There is no phase 'drafter'*", "Hint: *"])
    result.stdout.fnmatch_lines(["*base.jsn*", "Hint: *"])
    result.stdout.no_fnmatch_line("*raise *")


def test_the_package_ships_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tracebook": "tracebook.pytest_plugin"}


def test_loading_it_imports_nothing_heavy():
    code = (
        "import sys; import tracebook.pytest_plugin; "
        "print({'numpy', 'polars', 'click', 'rich', 'sqlite_utils'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["trace_check"])
def test_pytest_tells_of_it(pytester, name):
    result = pytester.runpytest(*PLUGIN, "--fixtures", "-q")
    result.stdout.fnmatch_lines([f"{name}*"])
