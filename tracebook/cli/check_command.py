"""`tracebook check`: fail where a run is slower than its baseline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tracebook.cli.comparison_options import gate_options, gates_of, store_option
from tracebook.cli.options import description_options, format_option, output_option, replacing
from tracebook.render.comparison import CHECK_FORMATS


@click.command("check", epilog="Example: tracebook check run.sqlite --baseline baseline.json")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--baseline", required=True, metavar="FILE|NAME", help="A saved run, or its name in the store."
)
@gate_options
@store_option
@format_option(CHECK_FORMATS, "How the result is written.")
@output_option
@description_options
def check_command(
    runs: tuple[str, ...],
    baseline: str,
    gate: str,
    phases: tuple[str, ...],
    min_ms: float,
    min_steps: int,
    store: Path,
    format_name: str,
    output: Path | None,
    **options: Any,
) -> int:
    """Compare RUN with a baseline and leave with 0, 3 or 4.

    0: no regression. 3: a phase or the step is slower. 4: the two cannot be compared, or
    the machine was in another state. RUN is a trace or a saved run; several captures of
    one build are pooled.
    """
    from tracebook.compare.comparison import compare
    from tracebook.compare.outcome import judge
    from tracebook.compare.sides import both
    from tracebook.render.comparison import render

    gates = gates_of(gate, phases, min_ms, min_steps)
    found = compare(*both(baseline, runs, options, store), gates)
    outcome = judge(found)
    text = render(found, outcome, format_name)
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        with replacing(output, source=Path(runs[0])) as draft:
            draft.write_text(text, encoding="utf-8")
    if format_name == "github":
        _add_summary(render(found, outcome, "markdown"))
    if outcome.exit_code:
        click.echo(outcome.headline, err=True)
    return outcome.exit_code


def _add_summary(text: str) -> None:
    """Add the tables to the summary of the job, where GitHub says that there is one."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        click.echo(f"Warning: the summary cannot be written: {error.strerror}.", err=True)
