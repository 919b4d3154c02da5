"""`tracebook plot`: pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracebook.cli.options import description_options, replacing

if TYPE_CHECKING:
    from tracebook.config import RunDescription
    from tracebook.report import Report

#: Kinds are told here too, so that the help needs no plots (a test compares the two).
KINDS = ("breakdown", "roofline", "steps", "timeline", "layers", "flow", "sweep")
_SEVERAL = ("breakdown", "sweep")
_FORMATS = (".png", ".svg", ".pdf")
_NARROWEST_IN, _WIDEST_IN = 5.0, 40.0


@click.command(
    "plot",
    epilog="Example: tracebook plot fixtures/full-recipe/trace.sqlite --kind roofline -o roof.svg",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What to draw.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="A .png, .svg or .pdf file.",
)
@click.option(
    "--width",
    "width_in",
    type=click.FloatRange(_NARROWEST_IN, _WIDEST_IN),
    default=9.0,
    show_default=True,
    metavar="INCHES",
    help="Width; the height follows.",
)
@description_options
def plot_command(
    runs: tuple[Path, ...], kind: str, output: Path, width_in: float, **options: Any
) -> None:
    """Draw RUN, a trace or a report that was saved as JSON.

    breakdown and sweep draw several runs at once; the others take one. steps, timeline and
    flow need a trace, or a report saved with --detail steps.
    """
    if output.suffix not in _FORMATS:
        raise click.UsageError(f"--output {output} must end in {', '.join(_FORMATS)}.")
    if len(runs) > 1 and kind not in _SEVERAL:
        raise click.UsageError(
            f"--kind {kind} takes one RUN; {' and '.join(_SEVERAL)} take several."
        )
    from tracebook.cli.report_command import report_of
    from tracebook.plots import plot
    from tracebook.plots.canvas import saved

    reports = tuple(report_of(run, options) for run in runs)
    more = {"runs": _descriptions(runs, reports, options)} if kind == "sweep" else {}
    figure = plot(kind, reports, width_in=width_in, **more)
    with replacing(output, source=runs[0]) as draft:
        draft.write_bytes(saved(figure, output.suffix.removeprefix(".")))


def _descriptions(
    runs: tuple[Path, ...], reports: tuple[Report, ...], options: dict[str, Any]
) -> list[RunDescription]:
    """What was run: said about a trace, else as a saved report has it."""
    from tracebook.options import describe
    from tracebook.plots.sweep import described
    from tracebook.report import is_saved_report

    return [
        described(report) if is_saved_report(run) else describe(run, options)  # type: ignore[arg-type]
        for run, report in zip(runs, reports, strict=True)
    ]
