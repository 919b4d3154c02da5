"""What is depended on has a reason, is locked, and is not imported before it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


def declared() -> dict[str, set[str]]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    return {
        "At run time": {plain(name) for name in PROJECT["project"]["dependencies"]},
        "On request": {plain(name) for extra in extras for name in extra},
        "For development": {plain(name) for name in PROJECT["dependency-groups"]["dev"]},
    }


def test_each_has_its_reason_and_no_other_is_named():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    for heading, names in declared().items():
        section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        told = {plain(name) for row in rows for name in re.findall(r"`([\w.-]+)` \|", row)}
        assert told - {"hub", "dask"} == names, heading
        assert all(len(row.split("|")[-2].strip()) > 3 for row in rows)


def test_the_lock_file_pins_all_of_it():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", pin) for pin in pins)
    locked = {plain(pin.split("==")[0]): pin.split("==")[1] for pin in pins}
    assert len(locked) == len(pins)
    needed = declared()
    assert (needed["At run time"] | needed["For development"]) - locked.keys() == set()
    for requirement in PROJECT["project"]["dependencies"]:
        least = re.search(r">=([\d.]+)", requirement)[1]
        version = locked[plain(requirement)]
        assert [int(n) for n in version.split(".")[:2]] >= [int(n) for n in least.split(".")[:2]]


def test_a_report_needs_neither_matplotlib_nor_scipy():
    script = """
import sys
for name in ("matplotlib", "scipy", "safetensors", "huggingface_hub", "distributed", "pandas"):
    sys.modules[name] = None  # importing it fails
import tracebook
from tracebook.cli import main
sys.exit(main(["report", "fixtures/mtp3/trace.sqlite", "--format", "json"]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('{\n "schema"')


def test_the_package_alone_imports_nothing_heavy():
    script = "import sys, tracebook; print(sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    for name in ("matplotlib", "scipy", "numpy", "polars", "rich", "sqlite_utils"):
        assert f"'{name}'" not in done.stdout
