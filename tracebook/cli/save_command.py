"""`tracebook save`: a run with the times of every step, to compare others with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.options import description_options, replacing, strict_option


@click.command(
    "save",
    epilog="Example: tracebook save fixtures/full-recipe/trace.sqlite -o baseline.json",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; a name that ends in .gz is packed.",
)
@click.option("--keep-paths", is_flag=True, help="Keep paths as the report has them.")
@strict_option
@description_options
def save_command(
    runs: tuple[str, ...], output: Path, keep_paths: bool, strict: bool, **options: Any
) -> None:
    """Save one RUN, or several captures of one build, as a baseline.

    The file holds the report, the time of each phase in every step, and the kernels by
    role. It holds no time stamp, no host and, unless asked, no path.
    """
    from tracebook.compare.baseline import write
    from tracebook.compare.sides import side
    from tracebook.units import counted

    found = side(runs, {**options, "keep_paths": keep_paths or None})
    if strict:
        from tracebook.notices import Notice
        from tracebook.warning_codes import refuse_alarms

        told = (entry for run in found.runs for entry in run.report["warnings"])
        refuse_alarms(Notice(**entry) for entry in told)
    with replacing(output, source=Path(runs[0])) as draft:
        write(found, draft, packed=output.suffix == ".gz")
    steps = " + ".join(counted(run.steps, "step") for run in found.runs)
    click.echo(f"Saved {output}: {steps}.", err=True)
