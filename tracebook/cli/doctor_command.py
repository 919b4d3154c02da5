"""`tracebook doctor`: what a capture is fit for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import format_option, run_options
from tracebook.printable import printable

_MARKS = {"good": "ok", "doubtful": "??", "bad": "NO"}


@click.command("doctor", epilog="Example: tracebook doctor fixtures/full-recipe/trace.sqlite")
@run_options
@click.option(
    "--overhead",
    type=click.Path(path_type=Path),
    metavar="GRAPHRUN",
    help="A capture of the same run with --cuda-graph-trace=graph, to see what tracing cost.",
)
@click.option(
    "--secrets", is_flag=True, help="Count what should not be shared, by kind; nothing is shown."
)
@format_option(["text", "json"], "How the findings are written.")
@click.pass_context
def doctor_command(
    ctx: click.Context,
    /,
    trace: Path,
    overhead: Path | None,
    secrets: bool,
    format_name: str,
    **options: Any,
) -> None:
    """Judge the capture TRACE: mode, lost events, tables, window, steps, cost of tracing.

    With --secrets only tell what it holds that should not be shared, by kind and count.
    Leaves with 0 where an account can be made, with 1 where it cannot.
    """
    if secrets:
        _count_secrets(trace, format_name)
        return
    from dataclasses import asdict

    from tracebook.doctor import diagnose

    found = diagnose(trace, overhead, **options)
    if format_name == "json":
        findings = [asdict(finding) for finding in found.findings]
        click.echo(
            json.dumps({"path": trace.name, "fit": found.fit, "findings": findings}, indent=1)
        )
    else:
        width = max(len(finding.topic) for finding in found.findings)
        for finding in found.findings:
            click.echo(f"{_MARKS[finding.state]}  {finding.topic:<{width}}  {finding.text}")
            if finding.hint:
                click.echo(f"    {'':<{width}}  -> {finding.hint}")
    if not found.fit:
        ctx.exit(1)


def _count_secrets(trace: Path, format_name: str) -> None:
    from dataclasses import asdict

    from tracebook.secrets import secrets_of

    held = secrets_of(trace)
    if format_name == "json":
        rows = [asdict(entry) for entry in held]
        click.echo(json.dumps({"path": trace.name, "secrets": rows}, indent=1))
        return
    if not held:
        click.echo("Nothing was found that should not be shared.")
        return
    width = max(len(entry.kind) for entry in held)
    for entry in held:
        click.echo(f"{entry.kind:<{width}}  {entry.count:>9,}  {printable(entry.table)}")
    click.echo("Hint: `tracebook trim RUN -o slim.sqlite` writes a trace without them.", err=True)
