"""`tracebook calibrate`: learn the noise between runs of one build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import description_options, replacing


@click.command("calibrate", epilog="Example: tracebook calibrate a.json b.json c.json -o base.json")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Baseline to write; a name that ends in .gz is packed.",
)
@description_options
def calibrate_command(runs: tuple[str, ...], output: Path, **options: Any) -> None:
    """Learn from three RUNs or more of one build what runs differ by.

    The baseline holds all of them and their noise; a check against it then asks for a
    change that stands out from both, the noise of steps and that of runs.
    """
    from tracebook.compare.baseline import write
    from tracebook.compare.calibrate import calibrate, told
    from tracebook.compare.sides import side

    found = calibrate(side(runs, options))
    with replacing(output, source=Path(runs[0])) as draft:
        write(found, draft, packed=output.suffix == ".gz")
    click.echo(told(found), nl=False)
    click.echo(f"Saved {output}.", err=True)
