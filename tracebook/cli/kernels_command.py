"""`tracebook kernels`: the table of kernels behind a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import replacing, run_options, strict_option
from tracebook.drafts import write_parquet


@click.command(
    "kernels",
    epilog="Example: tracebook kernels fixtures/full-recipe/trace.sqlite -o rows.parquet",
)
@run_options
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    help="A .csv or .parquet file; '-' is CSV on stdout (the default).",
)
@strict_option
@click.option("--unclassified", is_flag=True, help="Print unknown names as rules to paste.")
def kernels_command(
    trace: Path, output: str, strict: bool, unclassified: bool, **options: Any
) -> None:
    """Write every kernel of TRACE with its phase, layer, matrix and evidence.

    Where the trace holds no decode step, kernels still get their class.
    """
    if output != "-" and Path(output).suffix not in (".csv", ".parquet"):
        raise click.UsageError(f"--output {output} must end in .csv or .parquet, or be '-'.")
    from tracebook.kernel_table import kernel_table, unknown_rules

    table = kernel_table(trace, **options)
    for notice in table.notices:
        click.echo(f"Warning: {notice.message}", err=True)
        if notice.hint:
            click.echo(f"Hint: {notice.hint}", err=True)
    if unclassified:
        click.echo(unknown_rules(table), nl=False)
    elif output == "-":
        click.echo(table.rows.write_csv(), nl=False)
    else:
        with replacing(Path(output), source=trace) as draft:
            if output.endswith(".csv"):
                table.rows.write_csv(draft)
            else:
                write_parquet(table.rows, draft)
    if strict:
        from tracebook.warning_codes import refuse_alarms

        refuse_alarms(table.notices)
