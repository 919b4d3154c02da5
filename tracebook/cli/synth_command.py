"""`tracebook synth`: make a synthetic trace from a run description."""

from __future__ import annotations

from pathlib import Path

import click

from tracebook.cli.options import replacing


@click.command(
    "synth", epilog="Example: tracebook synth fixtures/mtp3/run.toml -o made.sqlite --steps 2"
)
@click.argument("run_file", metavar="RUN.TOML", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="SQLite file to make; it must not exist.",
)
@click.option(
    "--truth",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write what each kernel really is (.csv or .parquet).",
)
@click.option("--steps", type=click.IntRange(min=1), help="Steady decode steps.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of all random numbers.")
@click.option("--schema", help="Version of the export schema, such as 3.25.0.")
def synth_command(
    run_file: Path,
    output: Path,
    truth: Path | None,
    steps: int | None,
    seed: int | None,
    schema: str | None,
) -> None:
    """Make an Nsight Systems export of a run that never happened.

    The run is described as for `report`, with an optional [synth] table for times, gaps
    and steps. The file says inside that it is synthetic.
    """
    from tracebook.errors import RunDescriptionError
    from tracebook.synth import synthesize
    from tracebook.synth.truth import check_truth_path, write_truth
    from tracebook.units import counted

    if truth is not None:
        check_truth_path(truth)
    if output.is_file() or output.is_dir():
        raise RunDescriptionError(f"{output} exists already.", "Remove it or give another name.")
    with replacing(output, source=run_file) as draft:
        made = synthesize(run_file, draft, steps=steps, seed=seed, schema=schema)
        if truth is not None:
            with replacing(truth, source=run_file) as truth_draft:
                write_truth(made.truth, truth_draft)
    click.echo(
        f"{output}: {counted(made.truth.height, 'kernel')}, "
        f"{counted(made.settings.steps, 'step')}.",
        err=True,
    )
