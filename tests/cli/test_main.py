"""The group, its error boundary, and what starting costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import click
import pytest

from tracebook import __version__
from tracebook.cli import COMMANDS, cli, main
from tracebook.errors import NotComparable, TracebookError


@pytest.fixture
def command(monkeypatch):
    """Put a command that does as it is told in place of `report`."""

    def install(action):
        @click.command("report")
        def told():
            action()

        monkeypatch.setitem(sys.modules, "told_module", SimpleNamespace(told=told))
        monkeypatch.setitem(COMMANDS, "report", ("told_module:told", ""))

    return install


def raising(error):
    def action():
        raise error

    return action


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, line) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_says_what_the_list_says(name, capsys):
    assert main([name, "--help"]) == 0
    assert "Usage: tracebook " + name in capsys.readouterr().out
    assert cli.get_command(click.Context(cli), name).name == name


def test_version(capsys):
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_a_wrong_command_is_usage(capsys):
    assert main(["repotr"]) == 2
    assert "Did you mean 'report'?" in capsys.readouterr().err


def test_no_command_is_usage(capsys):
    assert main([]) == 2
    streams = capsys.readouterr()
    assert "Commands:" in streams.out + streams.err


def test_an_error_is_a_sentence_and_a_hint_on_stderr(command, capsys):
    command(raising(TracebookError("It is broken.", "Mend it.")))
    assert main(["report"]) == 1
    streams = capsys.readouterr()
    assert streams.err == "Error: It is broken.\nHint: Mend it.\n"
    assert streams.out == ""


def test_an_error_sets_the_exit_status(command, capsys):
    command(raising(NotComparable("Two machines.")))
    assert main(["report"]) == 4
    assert capsys.readouterr().err == "Error: Two machines.\n"


def test_a_fault_is_told_without_a_stack_trace(command, capsys):
    command(raising(ZeroDivisionError("oops")))
    assert main(["report"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: This is a fault in tracebook: ZeroDivisionError: oops.")
    assert "Traceback" not in err
    assert "--debug" in err


@pytest.mark.parametrize("args", [["--debug", "report"], ["report", "--debug"]])
def test_debug_shows_the_stack_trace(command, args, capsys):
    command(raising(TracebookError("It is broken.")))
    assert main(args) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_leaves_with_130(command, capsys):
    command(raising(KeyboardInterrupt()))
    assert main(["report"]) == 130
    assert "Interrupted" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error():
    """`tracebook ... | head`: no message, and the status that shells know."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    program = (
        "import click, sys, tracebook.cli as c\n"
        "@click.command('report')\n"
        "def told(): click.echo('x' * 100_000)\n"
        "type(c.cli).get_command = lambda *_: told\n"
        "sys.exit(c.main(['report']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode == 141


HEAVY = ("polars", "numpy", "matplotlib", "rich", "sqlite_utils", "adbc_driver_manager", "sqlite3")


@pytest.mark.parametrize("args", [["--help"], ["report", "--help"], ["kernels", "--help"]])
def test_help_imports_nothing_heavy(args):
    """What `tracebook --help` costs is what it imports (the time itself is in docs/method.md)."""
    program = (
        f"import sys, tracebook.cli as c\nc.main({args!r})\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr.decode().strip() == "[]"
