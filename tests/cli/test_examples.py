"""The example that the help of each command carries does what it says."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest

from tracebook.cli import COMMANDS, cli, main
from tracebook.compare.baseline import Baseline, load, write

ROOT = Path(__file__).parents[2]

#: Examples that need a program which is not part of the project, and where they are tested.
ELSEWHERE = {"recipe": "tests/test_real_nsys.py"}
#: A check of few steps can say nothing, and leaves with 4.
STATUS = {"check": {0, 4}}


def examples():
    """(name, example) of the group and all commands."""
    parent = click.Context(cli, info_name="tracebook")
    yield "tracebook", cli.epilog
    for name in COMMANDS:
        yield name, cli.get_command(parent, name).epilog


EXAMPLES = list(examples())


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A working directory with what examples name: the fixtures, a trace, saved runs."""
    here = tmp_path / "desk"
    here.mkdir()
    (here / "fixtures").symlink_to(ROOT / "fixtures")
    (tmp_path / "headers").symlink_to(ROOT / "fixtures" / "headers")
    for name in ("trace.sqlite", "run.toml"):
        target = here / name.replace("trace", "run")
        shutil.copyfile(ROOT / "fixtures" / "plain-nvfp4" / name, target)
    for number, name in enumerate(("before", "after", "a", "b", "c", "baseline")):
        saved = "after" if name == "after" else "before"
        (run,) = load(ROOT / "fixtures" / "comparison" / f"{saved}.json.gz").runs
        # Other captures of one build: no two hold the same steps.
        other = replace(run, wall_ns=run.wall_ns + number, idle_ns=run.idle_ns + number)
        write(Baseline((other,)), here / f"{name}.json", packed=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return here


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[n for n, _ in EXAMPLES])
def test_each_example_runs(name, example, desk, capsys):
    assert example, f"{name} has no example"
    words = shlex.split(example.removeprefix("Example: "))
    assert words[0] == "tracebook"
    if name in ELSEWHERE:
        pytest.skip(f"needs nsys; see {ELSEWHERE[name]}")
    assert main(words[1:]) in STATUS.get(name, {0}), capsys.readouterr().err
    streams = capsys.readouterr()
    made = set(desk.iterdir()) - {desk / "fixtures"}
    assert streams.out or streams.err or made


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_fits_80_columns(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example: tracebook" in " ".join(shown.split())
    # A path in an example may not be broken, so that it can be copied.
    assert max(len(line) for line in shown.splitlines()) <= 80
