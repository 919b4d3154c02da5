"""`tracebook diff`: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracebook.cli.comparison_options import gate_options, gates_of, store_option
from tracebook.cli.options import description_options, format_option, output_option, replacing
from tracebook.render.comparison import DIFF_FORMATS


@click.command("diff", epilog="Example: tracebook diff before.json after.json")
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@gate_options
@store_option
@format_option(DIFF_FORMATS, "How the comparison is written.")
@output_option
@description_options
def diff_command(
    old: str,
    new: str,
    gate: str,
    phases: tuple[str, ...],
    min_ms: float,
    min_steps: int,
    store: Path,
    format_name: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Tell what changed from A to B: each phase, and the kernels behind its change.

    A and B are traces, saved runs, or names in the store. Options that describe a run
    hold for both traces.
    """
    from tracebook.compare.comparison import compare
    from tracebook.compare.sides import both
    from tracebook.render.comparison import render

    gates = gates_of(gate, phases, min_ms, min_steps)
    found = compare(*both(old, [new], options, store), gates)
    text = render(found, None, format_name)
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        with replacing(output, source=Path(old)) as draft:
            draft.write_text(text, encoding="utf-8")
