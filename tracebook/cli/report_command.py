"""`tracebook report`: the account of a decode step."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracebook.cli.options import (
    description_options,
    format_option,
    output_option,
    replacing,
    strict_option,
)
from tracebook.render import DETAILS, FORMATS

if TYPE_CHECKING:
    from tracebook.notices import Notice
    from tracebook.ranks import Ranks
    from tracebook.report import Report


@click.command(
    "report",
    epilog="Example: tracebook report fixtures/full-recipe/trace.sqlite --detail layers",
)
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True)
@description_options
@format_option(FORMATS, "How the report is written.")
@output_option
@click.option(
    "--detail",
    type=click.Choice(DETAILS),
    default="phases",
    show_default=True,
    help="Rows to show. json holds all but the single steps; html holds all.",
)
@click.option("--all-ranks", is_flag=True, help="A report for each rank: device and process.")
@click.option("--verify", is_flag=True, help="Compare kernel counts and times with nsys stats.")
@click.option(
    "--verify-against",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Compare with a CSV of nsys stats or a folder of the recipe cuda_gpu_kern_sum.",
)
@strict_option
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Traces at once, here.")
@click.option("--dask", metavar="ADDRESS", help="Dask scheduler that shares many traces out.")
def report_command(
    traces: tuple[str, ...],
    format_name: str,
    output: Path | None,
    detail: str,
    all_ranks: bool,
    verify: bool,
    verify_against: Path | None,
    strict: bool,
    jobs: int | None,
    dask: str | None,
    **options: Any,
) -> None:
    """Tell where a decode step spends its time: TRACE in, GB/s per phase out.

    TRACE is an Nsight Systems export (.sqlite), a .nsys-rep, or a report that was
    saved as JSON. What is not given as an option is read from run.toml beside it.
    Several traces, or a pattern such as 'runs/*.sqlite', give one row each.
    """
    trace = Path(traces[0])
    if len(traces) > 1 or jobs or dask or (not trace.exists() and glob.has_magic(traces[0])):
        if strict or verify or verify_against is not None or detail != "phases" or all_ranks:
            raise click.UsageError(
                "--verify, --detail, --strict and --all-ranks go with one trace."
            )
        _report_many(traces, format_name, output, options, jobs or 1, dask)
        return
    if verify and verify_against is None:
        _refuse_without_nsys()
    write, warnings = _written(trace, options, format_name, detail, all_ranks)
    if output is None or str(output) == "-":
        click.echo(write(terminal=sys.stdout.isatty()), nl=False)
    else:
        with replacing(output, source=trace) as draft:
            draft.write_text(write(terminal=False), encoding="utf-8")
    if format_name in ("json", "csv"):
        for warning in warnings:
            click.echo(f"Warning: {warning.message}", err=True)
    if verify or verify_against is not None:
        _verify(trace, verify_against, options.get("max_memory_bytes"))
    if strict:
        from tracebook.warning_codes import refuse_alarms

        refuse_alarms(warnings)


def _written(
    trace: Path, options: dict[str, Any], format_name: str, detail: str, all_ranks: bool
) -> tuple[Callable[..., str], tuple[Notice, ...]]:
    """What writes the report, or those of all ranks, and the warnings in it."""
    from tracebook.ranks import is_saved_ranks

    if all_ranks or is_saved_ranks(trace):
        from tracebook.render.ranks import FORMATS as RANK_FORMATS
        from tracebook.render.ranks import render_ranks

        if format_name not in RANK_FORMATS:
            raise click.UsageError(f"--format {format_name} holds one rank: leave --all-ranks out.")
        ranks = ranks_of(trace, options)
        return partial(render_ranks, ranks, format_name, detail=detail), ranks.warnings
    from tracebook.render import render

    report = report_of(trace, options)
    return partial(render, report, format_name, detail=detail), report.warnings


def _report_many(
    patterns: tuple[str, ...],
    format_name: str,
    output: Path | None,
    options: dict[str, Any],
    jobs: int,
    dask: str | None,
) -> None:
    """One row for each trace; what failed is told, and the exit status says so."""
    from tracebook.errors import TraceError
    from tracebook.progress import Bar
    from tracebook.render.sweep import FORMATS as TABLES
    from tracebook.render.sweep import render_sweep
    from tracebook.sweep import expand, sweep
    from tracebook.units import counted

    if format_name not in TABLES:
        raise click.UsageError(
            f"--format {format_name} goes with one trace. For several there are `tracebook plot "
            "--kind breakdown` and, for two, `tracebook diff`."
        )
    paths = expand(patterns)
    if not any(path.exists() for path in paths) and all(glob.has_magic(str(p)) for p in paths):
        raise TraceError(f"No file matches {', '.join(patterns)}.", "Check the pattern.")
    rows = []
    with Bar("Traces", len(paths)) as bar:
        for row in sweep(paths, options, jobs=jobs, dask=dask):  # type: ignore[arg-type]
            rows.append(row)
            bar.advance(1)
    text = render_sweep(rows, format_name)
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        with replacing(output, source=paths[0]) as draft:
            draft.write_text(text, encoding="utf-8")
    failed = [row for row in rows if row.error is not None]
    if failed:
        hint = next((row.hint for row in failed if row.hint), None)
        raise TraceError(f"{len(failed)} of {counted(len(rows), 'trace')} failed.", hint)


def _refuse_without_nsys() -> None:
    """Tell before a report is made that it cannot be verified."""
    from tracebook.errors import NsysError
    from tracebook.nsys import find_nsys

    try:
        find_nsys()
    except NsysError as error:
        raise NsysError(
            f"--verify runs nsys. {error.message}",
            f"Give what nsys stats wrote elsewhere with --verify-against. {error.hint}",
        ) from error


def _verify(trace: Path, against: Path | None, max_memory_bytes: int | None) -> None:
    """Hold the kernels of the whole capture against nsys's own sums."""
    from tracebook.errors import TraceError
    from tracebook.render.verification import verification_text
    from tracebook.verify import verify

    found = verify(trace, against, max_memory_bytes=max_memory_bytes)
    click.echo(verification_text(found), nl=False, err=True)
    if not found.differing.is_empty():
        raise TraceError(
            f"The kernels of {trace} are not those of {found.source}.",
            "Check that both are of the same capture; else please report this with both files.",
        )


def report_of(trace: Path, options: dict[str, Any]) -> Report:
    """Analyse a trace, or load a report that was saved."""
    from tracebook.report import Report, is_saved_report

    if is_saved_report(trace):
        _refuse_options(trace, options)
        return Report.load(trace)
    from tracebook.analysis import analyze

    return analyze(trace, **options)


def ranks_of(trace: Path, options: dict[str, Any]) -> Ranks:
    """Analyse all ranks of a trace, or load their reports."""
    from tracebook.ranks import Ranks, analyze_ranks
    from tracebook.report import is_saved_report

    if is_saved_report(trace):
        _refuse_options(trace, options)
        return Ranks.from_json(trace.read_text(encoding="utf-8"))
    return analyze_ranks(trace, **options)


def _refuse_options(trace: Path, options: dict[str, Any]) -> None:
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        raise click.UsageError(
            f"{trace} is a saved report: {', '.join(given)} cannot change it. "
            "Give the trace instead."
        )
