"""`tracebook export`: a report of nsys as SQLite, or labelled kernels for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import description_options, replacing


@click.command(
    "export",
    epilog="Example: tracebook export fixtures/full-recipe/trace.sqlite --perfetto run.pftrace",
)
@click.argument("report", metavar="RUN", type=click.Path(path_type=Path))
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
@click.option(
    "--perfetto",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write phases, layers, matrices and kernels for Perfetto: .pftrace or .json.",
)
@description_options
def export_command(
    report: Path, output: Path | None, nsys: Path | None, perfetto: Path | None, **options: Any
) -> None:
    """Export a .nsys-rep through nsys as SQLite, or any trace for Perfetto's viewer.

    Other commands take a .nsys-rep directly; the first form is for keeping the SQLite file,
    made once for each content. The second form labels the kernels as `tracebook report`
    does, with the same options; ui.perfetto.dev and chrome://tracing open the file.
    """
    if perfetto is not None:
        _for_perfetto(report, perfetto, options)
        return
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        raise click.UsageError(f"{', '.join(given)} goes with --perfetto only.")
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


def _for_perfetto(trace: Path, output: Path, options: dict[str, Any]) -> None:
    if output.suffix not in (".json", ".pftrace"):
        raise click.UsageError(f"--perfetto {output} must end in .pftrace or .json.")
    from tracebook.analysis import examine_in_words
    from tracebook.opening import PERFETTO_BYTES_PER_KERNEL
    from tracebook.perfetto import to_json, to_pftrace, tracks_of

    found = tracks_of(examine_in_words(trace, PERFETTO_BYTES_PER_KERNEL, **options))
    binary = output.suffix == ".pftrace"
    with replacing(output, source=trace) as draft:
        draft.write_bytes(to_pftrace(found) if binary else to_json(found).encode())
