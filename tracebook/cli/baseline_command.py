"""`tracebook baseline`: baselines under names, in a SQLite file of the project's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.comparison_options import store_option
from tracebook.cli.options import description_options, format_option


@click.group("baseline", epilog="Example: tracebook baseline tag main run.sqlite")
def baseline_command() -> None:
    """Keep baselines under names.

    They lie with their history in baselines.db below --store, a SQLite file that other
    programs can read as well (datasette, sqlite-utils).
    """


@baseline_command.command("tag")
@click.argument("name")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@store_option
@description_options
def tag_command(name: str, runs: tuple[str, ...], store: Path, **options: Any) -> None:
    """Put a RUN, or several captures of one build, under NAME."""
    from tracebook.compare.sides import side
    from tracebook.compare.store import Store
    from tracebook.units import counted

    tag = Store(store).tag(name, side(runs, options))
    steps = counted(tag.steps, "step")
    click.echo(f"Tagged {tag.name}: {steps}, {tag.step_ms:.2f} ms a step.", err=True)


@baseline_command.command("list")
@store_option
def list_command(store: Path) -> None:
    """List names with their latest baseline."""
    from tracebook.compare.store import Store, listed

    click.echo(listed(Store(store).latest()), nl=False)


@baseline_command.command("show")
@click.argument("name")
@format_option(
    ["text", "json"], "The history as a table, or the latest baseline as it would be saved."
)
@store_option
def show_command(name: str, format_name: str, store: Path) -> None:
    """Show the history of NAME, newest first."""
    from tracebook.compare.store import Store, listed

    kept = Store(store)
    if format_name == "json":
        from tracebook.compare.baseline import to_json

        click.echo(to_json(kept.get(name)), nl=False)
    else:
        click.echo(listed(kept.history(name)), nl=False)


@baseline_command.command("rm")
@click.argument("name")
@store_option
def rm_command(name: str, store: Path) -> None:
    """Remove NAME with its history."""
    from tracebook.compare.store import Store

    removed = Store(store).remove(name)
    click.echo(f"Removed {name}: {removed} baseline{'s' if removed > 1 else ''}.", err=True)
