"""`tracebook export`: a report of nsys as SQLite."""

from __future__ import annotations

from pathlib import Path

import click

from tracebook.cli.options import replacing


@click.command("export", epilog="Example: tracebook export run.nsys-rep -o run.sqlite")
@click.argument("report", metavar="REPORT", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="SQLite file to write; without it the path in the cache is printed.",
)
@click.option(
    "--nsys",
    type=click.Path(path_type=Path),
    help="The nsys binary (default: TRACEBOOK_NSYS, PATH, the usual folders).",
)
def export_command(report: Path, output: Path | None, nsys: Path | None) -> None:
    """Export REPORT (.nsys-rep) through nsys, once for each content.

    Other commands take a .nsys-rep directly; this one is for keeping the SQLite file.
    """
    import shutil

    from tracebook.importers.sniff import Kind, sniff
    from tracebook.nsys import export

    if sniff(report) is not Kind.REPORT:
        raise click.UsageError(f"{report} is no nsys report: there is nothing to export.")
    made = export(report, nsys=nsys)
    if output is None:
        click.echo(made)
        return
    with replacing(output, source=report) as draft:
        shutil.copyfile(made, draft)
    click.echo(f"Exported {output}.", err=True)
