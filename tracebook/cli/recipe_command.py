"""`tracebook recipe`: run a recipe of nsys, or read what one wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracebook.cli.options import format_option
from tracebook.errors import TracebookError

if TYPE_CHECKING:
    from tracebook.importers.nsys_results import RecipeResult


class _WithArguments(click.Command):
    """A command whose words behind `--` are kept apart."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["tracebook.passed_on"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(
    "recipe",
    cls=_WithArguments,
    epilog="Example: tracebook recipe gpu_gaps run.nsys-rep -- --gap 1",
)
@click.argument("name", metavar="NAME|FOLDER")
@click.argument("inputs", metavar="[INPUT]... [-- ARGS]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to keep what the recipe wrote; it must not exist.",
)
@click.option("--table", metavar="NAME", help="Print this table only, all its rows.")
@format_option(
    ["text", "json", "csv"], "How tables are written; csv needs --table where there are several."
)
@click.pass_context
def recipe_command(
    ctx: click.Context,
    name: str,
    inputs: tuple[Path, ...],
    output: Path | None,
    table: str | None,
    format_name: str,
) -> None:
    """Run the nsys recipe NAME on INPUT with your nsys and its Python, and read its result.

    INPUT is a .nsys-rep (for `diff` the folders of two finished recipes), and what stands
    behind -- is passed on. With a finished recipe FOLDER alone nothing is run. Nothing is
    written beside a report.
    """
    from tracebook.importers.nsys_results import is_recipe_folder, read_recipe
    from tracebook.render.recipe import render_recipe

    passed_on = ctx.meta["tracebook.passed_on"]
    if not inputs and is_recipe_folder(Path(name)):
        if output is not None or passed_on:
            raise click.UsageError("A finished folder is only read: leave out --output and ARGS.")
        result = read_recipe(Path(name))
        click.echo(render_recipe(result, format_name, table, terminal=_terminal()), nl=False)
        _warn(result)
        return
    if not inputs:
        raise click.UsageError(f"Give the report for the recipe {name}, or a finished folder.")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tracebook-") as spare:
        result = _run(name, inputs, output or Path(spare) / "made", passed_on)
        click.echo(render_recipe(result, format_name, table, terminal=_terminal()), nl=False)
        _warn(result)
    if output is None and result.left:
        click.echo("Hint: --output FOLDER keeps the files that were left.", err=True)


def _run(
    name: str, inputs: tuple[Path, ...], folder: Path, passed_on: tuple[str, ...]
) -> RecipeResult:
    from tracebook.importers.nsys_results import read_recipe
    from tracebook.importers.sniff import Kind, sniff
    from tracebook.nsys import run_recipe

    if folder.exists():
        raise TracebookError(f"{folder} exists already.", "Give another folder with --output.")
    for path in inputs:
        kind = sniff(path)
        if name != "diff" and kind is Kind.SQLITE:
            raise click.UsageError(f"{path}: recipes take a .nsys-rep, not its export.")
    run_recipe(name, inputs, folder, passed_on)
    return read_recipe(folder)


def _warn(result: RecipeResult) -> None:
    for notice in result.notices:
        click.echo(f"Warning: {notice.message}", err=True)
    for path in result.left:
        click.echo(f"Left as it is: {path.name}", err=True)


def _terminal() -> bool:
    return sys.stdout.isatty()
