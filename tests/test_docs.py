"""What README and docs show is what the program prints."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from tracebook.cli import COMMANDS, cli, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What a make target that docs show does.
TARGETS = {"make report": "tracebook report fixtures/full-recipe/trace.sqlite"}


def shown_commands():
    """(page, command, output) of every console block; `...` in it stands for lines left out."""
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield page.name, command, output


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A working directory with the saved runs, where files of earlier commands stay."""
    here = tmp_path_factory.mktemp("desk")
    (here / "fixtures").symlink_to(ROOT / "fixtures")
    return here


@pytest.mark.parametrize(("page", "command", "output"), list(shown_commands()))
def test_shown_output_is_real(page, command, output, desk, monkeypatch, capsys):
    if command == "make test":  # its closing line tells the time it took
        return
    if command in TARGETS:
        recipe = TARGETS[command].replace("tracebook", "@$(BIN)/tracebook", 1)
        assert recipe in (ROOT / "Makefile").read_text()
        command = TARGETS[command]
    monkeypatch.chdir(desk)
    monkeypatch.setenv("COLUMNS", "80")
    program, *args = shlex.split(command)
    assert program == "tracebook"
    assert main(args) == 0
    real = capsys.readouterr().out
    pieces = [piece.strip("\n") for piece in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE)]
    position = 0
    for piece in pieces:
        assert piece in real[position:]
        position = real.index(piece, position) + len(piece)


def told_commands():
    """(page, command) of the other commands: lines that are indented and begin with tracebook."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for line in re.findall(r"^    (tracebook .*)$", text, re.MULTILINE):
            yield page.name, line


@pytest.mark.parametrize(("page", "line"), list(told_commands()))
def test_told_commands_are_valid(page, line, tmp_path, monkeypatch):
    """They name files of the reader, so that only their options can be checked."""
    words = shlex.split(re.sub(r"\[|\]|\.\.\.", "", line), comments=True)
    if "OPTIONS" in words or (page == "cli.md" and words[1] != "export"):
        return  # a usage line, or an example that tests/cli/test_examples.py runs
    monkeypatch.chdir(tmp_path)
    for name in ("rules.toml", "mine.toml"):
        (tmp_path / name).touch()
    parent = click.Context(cli, info_name="tracebook", obj={})
    command = cli.get_command(parent, words[1])
    assert command is not None, line
    command.make_context(words[1], words[2:], parent=parent)


def test_the_python_of_the_tour_runs(desk, monkeypatch):
    monkeypatch.chdir(desk)
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tour.md").read_text(), re.S):
        exec(compile(block, "docs/tour.md", "exec"), {})
    assert (desk / "layers.png").stat().st_size > 10_000


def test_the_example_report_is_real(monkeypatch, request):
    """`pytest --accept` writes it anew."""
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "example-report.md"
    written = runpy.run_path(str(ROOT / "scripts" / "make_example_report.py"))["example"]()
    if request.config.getoption("--accept"):
        page.write_text(written, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == written


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme(name):
    assert f"tracebook {name}" in (ROOT / "README.md").read_text()


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_format_and_family_is_in_its_table():
    """The tables of docs/formats.md list what the data files hold, in their order."""
    import tomllib

    text = (ROOT / "docs" / "formats.md").read_text()
    data = ROOT / "tracebook" / "data"
    formats = tomllib.loads((data / "formats.toml").read_text())["format"]
    listed = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", text, re.MULTILINE)
    expected = [(entry["key"], entry["title"]) for entry in formats]
    assert listed[: len(expected)] == expected
    families = [key for key, _ in listed[len(expected) :]]
    assert set(families) >= {path.stem for path in (data / "families").glob("*.toml")}
