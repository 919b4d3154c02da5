"""Write docs/cli.md from the commands themselves: python scripts/make_cli_reference.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from tracebook.cli import COMMANDS, cli

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

_HEAD = """# Commands

Written by `scripts/make_cli_reference.py` from the commands; `tracebook COMMAND --help` says the
same. Results go to stdout, warnings and progress to stderr.

| exit status | meaning |
| ---: | --- |
| 0 | fine |
| 1 | the input or the environment is at fault; message and hint tell how |
| 2 | wrong usage |
| 3 | a regression was found |
| 4 | two runs cannot be compared |

`--debug`, before or after the command, shows the stack trace of an error.
"""

_COMPLETION = """
## Completion in the shell

    eval "$(_TRACEBOOK_COMPLETE=bash_source tracebook)"       # bash, in ~/.bashrc
    eval "$(_TRACEBOOK_COMPLETE=zsh_source tracebook)"        # zsh, in ~/.zshrc
    _TRACEBOOK_COMPLETE=fish_source tracebook | source        # fish, in config.fish

Commands, options and their choices are then completed by the tab key.
"""


def reference() -> str:
    """The whole page."""
    parent = click.Context(cli, info_name="tracebook")
    blocks = [_HEAD]
    for name in COMMANDS:
        command = cli.get_command(parent, name)
        assert command is not None
        blocks += _command(command, click.Context(command, info_name=name, parent=parent))
    return "\n".join(blocks).rstrip() + "\n" + _COMPLETION


def _command(command: click.Command, context: click.Context, level: int = 2) -> Iterator[str]:
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece]
    yield f"{'#' * level} {context.command_path}\n"
    yield f"    {' '.join([context.command_path, *pieces])}\n"
    help_text = (command.help or "").replace("\b", "").strip()
    yield "\n".join(line.strip() for line in help_text.splitlines()) + "\n"
    rows = [_option(option, context) for option in command.params if _listed(option)]
    if rows:
        yield "| option | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    if command.epilog:
        yield f"    {command.epilog.removeprefix('Example: ')}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            inner = click.Context(child, info_name=name, parent=context)
            yield from _command(child, inner, level + 1)


def _listed(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and "--debug" not in parameter.opts


def _option(option: click.Parameter, context: click.Context) -> str:
    assert isinstance(option, click.Option)
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    taken = "" if option.is_flag or option.count else f" `{option.make_metavar(context)}`"
    shown = option.help or ""
    default = option.default
    if option.show_default and default is not None and not callable(default):
        shown += f" Default: {default}."
    if option.required:
        shown += " Needed."
    cells = [f"{names}{taken}", shown]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
