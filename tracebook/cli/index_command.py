"""`tracebook index`: make the next report of a large trace start at once."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("index", epilog="Example: tracebook index run.sqlite")
@click.argument("trace", type=click.Path(path_type=Path))
def index_command(trace: Path) -> None:
    """Keep the kernels of TRACE as columns in the cache directory.

    Nothing is written beside the trace. Every command that opens it then takes the columns,
    as long as the trace is the same.
    """
    from tracebook.importers.sidecar import make_sidecar
    from tracebook.units import size_text

    made = make_sidecar(trace)
    size_bytes = sum(part.stat().st_size for part in made.iterdir())
    click.echo(f"Indexed {trace}: {size_text(size_bytes)} in {made}", err=True)
