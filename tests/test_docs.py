"""What README and docs show is what the program prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tracebook.cli import COMMANDS, main

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


@pytest.mark.parametrize(("page", "command", "output"), list(shown_commands()))
def test_shown_output_is_real(page, command, output, monkeypatch, capsys):
    if command == "make test":  # its closing line tells the time it took
        return
    if command in TARGETS:
        recipe = TARGETS[command].replace("tracebook", "@$(BIN)/tracebook", 1)
        assert recipe in (ROOT / "Makefile").read_text()
        command = TARGETS[command]
    monkeypatch.chdir(ROOT)
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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme(name):
    assert f"tracebook {name}" in (ROOT / "README.md").read_text()


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
