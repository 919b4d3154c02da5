"""`tracebook record`: the nsys command that records a decode run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tracebook.record import Recording


@click.command(
    "record",
    context_settings={"ignore_unknown_options": True},
    epilog="Example: tracebook record -- vllm serve org/model",
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-o", "--output", default="decode", show_default=True, help="Name of the report.")
@click.option(
    "--capture-range/--no-capture-range",
    default=None,
    help="Whether the program calls cudaProfilerStart (default: by the engine).",
)
@click.option(
    "--delay", type=click.IntRange(min=0), default=60, help="Seconds to wait without a range."
)
@click.option(
    "--duration", type=click.IntRange(min=1), default=30, help="Seconds to record without a range."
)
@click.option("--run", is_flag=True, help="Run it instead of printing it.")
def record_command(
    command: tuple[str, ...],
    output: str,
    capture_range: bool | None,
    delay: int,
    duration: int,
    run: bool,
) -> None:
    """Print the nsys command that records COMMAND decoding, with the reason for each flag."""
    from tracebook.record import recording

    nsys = "nsys"
    if run:
        from tracebook.nsys import find_nsys

        nsys = str(find_nsys())
    planned = recording(
        command,
        output=output,
        nsys=nsys,
        capture_range=capture_range,
        delay_s=delay,
        duration_s=duration,
    )
    _explain(planned, to_stderr=run)
    if run:
        from tracebook.nsys import profile

        profile(planned.words)


def _explain(planned: Recording, *, to_stderr: bool) -> None:
    width = max(len(flag) for flag, _ in planned.reasons)
    own = planned.words[2 + len(planned.reasons) :]
    click.echo(f"{shlex.join(planned.words[:2])} \\", err=to_stderr)
    for flag, _ in planned.reasons:
        click.echo(f"  {shlex.quote(flag)} \\", err=to_stderr)
    click.echo(f"  {shlex.join(own)}", err=to_stderr)
    click.echo("", err=to_stderr)
    for flag, reason in planned.reasons:
        click.echo(f"# {flag:<{width}}  {reason}", err=to_stderr)
    for argument in planned.added:
        click.echo(
            f"# {argument:<{width}}  {planned.engine} then obeys the capture range", err=to_stderr
        )
    for number, step in enumerate(planned.steps, start=1):
        click.echo(f"# {number}. {step}", err=to_stderr)
