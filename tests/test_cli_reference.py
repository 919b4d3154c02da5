"""docs/cli.md says what the commands say; `pytest --accept` writes it anew."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracebook.cli import COMMANDS, cli

ROOT = Path(__file__).parents[1]


def test_the_reference_is_that_of_the_commands(request):
    script = runpy.run_path(str(ROOT / "scripts" / "make_cli_reference.py"))
    page = ROOT / "docs" / "cli.md"
    written = script["reference"]()
    if request.config.getoption("--accept"):
        page.write_text(written, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == written, "pytest --accept writes it anew"
    for name in COMMANDS:
        assert f"\n## tracebook {name}\n" in written


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_completion_works(shell):
    assert f"_TRACEBOOK_COMPLETE={shell}_source tracebook" in (
        (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    )
    asked = {"_TRACEBOOK_COMPLETE": f"{shell}_source"}
    result = CliRunner().invoke(cli, prog_name="tracebook", env=asked)
    assert "tracebook" in result.output
    assert result.exit_code == 0


def test_completion_knows_commands_and_choices():
    asked = {
        "_TRACEBOOK_COMPLETE": "bash_complete",
        "COMP_WORDS": "tracebook re",
        "COMP_CWORD": "1",
    }
    assert "plain,report" in CliRunner().invoke(cli, prog_name="tracebook", env=asked).output
    asked |= {"COMP_WORDS": "tracebook plot --kind ro", "COMP_CWORD": "3"}
    assert "plain,roofline" in CliRunner().invoke(cli, prog_name="tracebook", env=asked).output
