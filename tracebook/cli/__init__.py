"""The command line: a group of commands that are imported when they are run.

Each command is one module with one click command and no arithmetic. Errors meet here,
in one place: what a user can cause is told in a sentence with a hint, anything else
is told as a fault of the program.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from tracebook import __version__
from tracebook.errors import TracebookError
from tracebook.printable import printable

#: Command, where it lives, and the line that `tracebook --help` shows for it: the help
#: of the group then needs no command's module.
COMMANDS: dict[str, tuple[str, str]] = {
    "report": (
        "tracebook.cli.report_command:report_command",
        "Time, bytes and GB/s of each phase of a decode step.",
    ),
    "plot": (
        "tracebook.cli.plot_command:plot_command",
        "Pictures: roofline, breakdown, timeline and others.",
    ),
    "kernels": (
        "tracebook.cli.kernels_command:kernels_command",
        "Every kernel with its phase, layer and matrix.",
    ),
    "bytes": (
        "tracebook.cli.bytes_command:bytes_command",
        "What a checkpoint holds and what one step reads of it.",
    ),
    "save": (
        "tracebook.cli.save_command:save_command",
        "Save runs with the times of every step, to compare with.",
    ),
    "diff": (
        "tracebook.cli.diff_command:diff_command",
        "What changed between two runs, and what is behind it.",
    ),
    "check": (
        "tracebook.cli.check_command:check_command",
        "Fail where a run is slower than its baseline.",
    ),
    "calibrate": (
        "tracebook.cli.calibrate_command:calibrate_command",
        "Learn the noise between runs of one build.",
    ),
    "baseline": (
        "tracebook.cli.baseline_command:baseline_command",
        "Keep baselines under names: tag, list, show, rm.",
    ),
    "predict": (
        "tracebook.cli.predict_command:predict_command",
        "A decode step before it is run, and the best number of drafts.",
    ),
    "synth": (
        "tracebook.cli.synth_command:synth_command",
        "Make a synthetic trace from a run description.",
    ),
    "record": (
        "tracebook.cli.record_command:record_command",
        "The nsys command that records a decode run.",
    ),
    "doctor": (
        "tracebook.cli.doctor_command:doctor_command",
        "What a capture is fit for, and what is wrong with it.",
    ),
    "export": (
        "tracebook.cli.export_command:export_command",
        "A .nsys-rep as SQLite, or any trace for Perfetto.",
    ),
    "trim": (
        "tracebook.cli.trim_command:trim_command",
        "A slim copy of a trace that is safe to share.",
    ),
    "recipe": (
        "tracebook.cli.recipe_command:recipe_command",
        "Run an nsys recipe, or read what one wrote.",
    ),
    "index": (
        "tracebook.cli.index_command:index_command",
        "Make the next report of a large trace start at once.",
    ),
    "cache": (
        "tracebook.cli.cache_command:cache_command",
        "Exports and indexes that are kept.",
    ),
}

#: Exit status of a program that was stopped by SIGINT or SIGTERM, and of one whose reader left.
_INTERRUPTED, _TERMINATED, _READER_LEFT = 130, 143, 141


class _Terminated(BaseException):
    """SIGTERM came: drafts are removed on the way out."""


@contextmanager
def _stopped_in_order() -> Iterator[None]:
    """Let SIGTERM raise, where nobody else has a use for it, as SIGINT does."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _remember_debug(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.obj["debug"] = True


#: Accepted before and after the command.
_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the stack trace of an error.",
)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: D102
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: D102
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            if near and not ctx.resilient_parsing:
                ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near[0]}'?")
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        if _DEBUG not in command.params:
            command.params.append(_DEBUG)
        return command

    def format_commands(  # noqa: D102
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; leave quietly when the reader of a pipe has left."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout once more at exit: give it somewhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(_READER_LEFT) from None
        return result


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tracebook report fixtures/full-recipe/trace.sqlite",
)
@click.version_option(__version__, prog_name="tracebook")
def cli() -> None:
    """Where one LLM decode step spends its time, from an Nsight Systems trace."""


cli.params.append(_DEBUG)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (the one error boundary)."""
    state = {"debug": False}
    try:
        with _stopped_in_order():
            status = cli.main(
                args=None if args is None else list(args),
                prog_name="tracebook",
                obj=state,
                standalone_mode=False,
            )
    except _Terminated:
        return _TERMINATED
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        return _INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TracebookError as error:
        _tell(error.message, error.hint, debug=state["debug"])
        return error.exit_code
    except OSError as error:  # a full disk behind stdout, a file that went away
        what = error.filename if isinstance(error.filename, str) else "A file or the output"
        sentence = f"{what} cannot be used: {error.strerror or error}."
        _tell(sentence, "Check that it is there and that the disk has room.", debug=state["debug"])
        return 1
    except MemoryError:
        _tell(
            "There is not enough memory.", "Look at a part with --steps 200.", debug=state["debug"]
        )
        return 1
    except Exception as error:
        sentence = f"This is a fault in tracebook: {type(error).__name__}: {error}."
        _tell(sentence, "Run `tracebook --debug ...` and report the trace.", debug=state["debug"])
        return 1
    return status if isinstance(status, int) else 0


#: Names that come from a file can be a megabyte long.
_LONGEST_MESSAGE = 2_000


def _shortened(text: str) -> str:
    cut = len(text) - _LONGEST_MESSAGE
    return (
        text
        if cut <= 0
        else f"{text[: _LONGEST_MESSAGE // 2]} ... {text[-_LONGEST_MESSAGE // 2 :]}"
    )


def _tell(message: str, hint: str | None, *, debug: bool) -> None:
    """Print an error for people."""
    message, hint = _shortened(message), hint and _shortened(hint)
    if debug:
        click.echo(printable(traceback.format_exc(), lines=True), err=True, nl=False)
    click.echo(f"Error: {printable(message, lines=True)}", err=True)
    if hint:
        click.echo(f"Hint: {printable(hint, lines=True)}", err=True)
