"""Options that `diff` and `check` share: thresholds and the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tracebook.compare.gates import Gates

_F = TypeVar("_F", bound=Callable[..., Any])

_GATE_OPTIONS = (
    click.option(
        "--gate",
        default="2%",
        show_default=True,
        metavar="PART",
        help="Change of a phase that counts, as 2% or 0.02; 0.3 of it holds for the step.",
    ),
    click.option(
        "--phase",
        "phases",
        multiple=True,
        metavar="PHASE=PART",
        help="Another gate for one phase, for idle or for step, as drafter_layers=1%.",
    ),
    click.option(
        "--min-ms",
        default=0.05,
        show_default=True,
        metavar="MS",
        help="Smallest change that counts.",
    ),
    click.option(
        "--min-steps",
        default=20,
        show_default=True,
        metavar="N",
        help="Fewest steps of a side that are compared.",
    ),
)

store_option = click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    default=".tracebook",
    show_default=True,
    help="Directory that keeps baselines under names.",
)


def gate_options(command: _F) -> _F:
    """Add the thresholds."""
    for decorate in reversed(_GATE_OPTIONS):
        command = decorate(command)
    return command


def gates_of(gate: str, phases: tuple[str, ...], min_ms: float, min_steps: int) -> Gates:
    """The thresholds that were given, looked at."""
    from tracebook.compare.gates import make_gates, parse_fraction

    single = {}
    for entry in phases:
        name, equals, value = entry.partition("=")
        if not equals:
            raise click.BadParameter(
                f"{entry!r} must be as drafter_layers=1%.", param_hint="--phase"
            )
        single[name.strip()] = parse_fraction(value)
    return make_gates(
        gate=parse_fraction(gate), per_quantity=single, min_ms=min_ms, min_steps=min_steps
    )
