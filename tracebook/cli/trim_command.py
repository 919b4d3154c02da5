"""`tracebook trim`: a slim trace that is safe to share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import replacing, run_options


@click.command(
    "trim",
    epilog="Example: tracebook trim fixtures/full-recipe/trace.sqlite -o slim.sqlite --steps 2",
)
@run_options
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="SQLite file to write.",
)
@click.option(
    "--keep-command-line",
    is_flag=True,
    help="Keep the recorded command line, which may hold paths and keys.",
)
def trim_command(trace: Path, output: Path, keep_command_line: bool, **options: Any) -> None:
    """Write a slim copy of TRACE that is safe to share.

    It holds the kernels of the steady steps (--steps N: the first N) and what the tool reads
    beside them. Environment, user, host, paths, command line and the texts of scopes are not
    in it; kernel and GPU names are. A report on it has the figures of the original, which is
    checked before it is written.
    """
    from tracebook.trim import trim
    from tracebook.units import counted, size_text

    with replacing(output, source=trace) as draft:
        made = trim(trace, draft, keep_command_line=keep_command_line, **options)
        size_bytes = draft.stat().st_size
    click.echo(
        f"Wrote {output}: {counted(made.steps, 'step')}, {counted(made.kernels, 'kernel')}, "
        f"{size_text(size_bytes)}.",
        err=True,
    )
    if made.found > made.steps:
        click.echo(
            f"Hint: {made.found - made.steps} more follow them, without which they are not "
            f"found: `tracebook report {output} --steps {made.steps}` leaves them out.",
            err=True,
        )
    if not keep_command_line:
        click.echo(
            "Hint: the model is no longer named in it: give --checkpoint, or its run.toml.",
            err=True,
        )
