"""Options that several commands share, and how they write what they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from tracebook.config import DTYPES, DraftMethod
from tracebook.drafts import draft_of
from tracebook.errors import TracebookError

if TYPE_CHECKING:
    from tracebook.importers.window import Percent

_F = TypeVar("_F", bound=Callable[..., Any])

_NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def capture_time(text: str) -> int | Percent:
    """Read a time with its unit (1.5s, 200ms) as ns since the capture began, or a percent."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s|%)", text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} needs a number and a unit, as in 1.5s, 200ms or 25%.")
    if match[2] == "%":
        from tracebook.importers.window import Percent

        try:
            return Percent(float(match[1]))
        except TracebookError as error:
            raise click.BadParameter(f"{error.message} {error.hint}") from error
    return round(float(match[1]) * _NS_PER_UNIT[match[2]])


_BYTES_PER_UNIT = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


def memory_size(text: str) -> int:
    """Read an amount of memory with its unit (8GB, 512MiB) as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(MB|GB|MiB|GiB)", text.strip())
    if match is None:
        raise click.BadParameter(
            f"{text!r} needs a number and one of the units MB, GB, MiB and GiB, as in 8GB."
        )
    return round(float(match[1]) * _BYTES_PER_UNIT[match[2]])


def tokens_or_file(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Read tokens per step as a number, or from a benchmark result or metrics scrape."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        from tracebook.acceptance import read_acceptance

        return read_acceptance(text).tokens_per_step


_RUN_OPTIONS = (
    click.argument("trace", type=click.Path(path_type=Path)),
    click.option("--checkpoint", metavar="PATH", help="Target: directory, file, bundle or hub id."),
    click.option("--drafter", metavar="PATH", help="Checkpoint of the drafter."),
    click.option(
        "--draft-method", type=click.Choice(get_args(DraftMethod)), help="How tokens are drafted."
    ),
    click.option("--draft-tokens", type=int, metavar="K", help="Tokens drafted per step."),
    click.option("--draft-head", metavar="PATH", help="Checkpoint of the drafter's own head."),
    click.option("--bandwidth", type=float, metavar="GBPS", help="Published peak, in GB/s."),
    click.option("--machine", metavar="NAME", help="Name in the machine table."),
    click.option("--ceiling-gbps", type=float, metavar="GBPS", help="Measured read ceiling."),
    click.option("--context-tokens", type=int, metavar="N", help="Tokens in the context."),
    click.option("--kv-dtype", type=click.Choice(DTYPES), help="Dtype of the KV cache."),
    click.option("--gdn-dtype", type=click.Choice(DTYPES), help="Dtype of recurrent state."),
    click.option(
        "--replay/--no-replay",
        default=None,
        help="Whether recurrent state is replayed, not stored at each position.",
    ),
    click.option(
        "--batch",
        type=int,
        metavar="N",
        help="Sequences decoded at once; takes the steps of that batch where there are several.",
    ),
    click.option(
        "--signature",
        metavar="HASH",
        help="Account for this kind of step (as listed among those left out).",
    ),
    click.option(
        "--tokens-per-step",
        callback=tokens_or_file,
        metavar="N|FILE",
        help="Tokens a step yields, or a vLLM benchmark or metrics file.",
    ),
    click.option("--tensor-parallel", type=int, metavar="N", help="Ranks that share the matrices."),
    click.option("--device", type=int, metavar="N", help="Device to examine."),
    click.option("--pid", type=int, metavar="N", help="Process to examine."),
    click.option(
        "--from", "from_ns", type=capture_time, metavar="TIME", help="Begin at: 2s or 25%."
    ),
    click.option("--to", "to_ns", type=capture_time, metavar="TIME", help="Stop before."),
    click.option(
        "--steps",
        type=click.IntRange(min=1),
        metavar="N",
        help="Account for the first N steady steps, reading no more than that.",
    ),
    click.option(
        "--max-memory",
        "max_memory_bytes",
        type=memory_size,
        metavar="SIZE",
        help="Memory to use, as 8GB (default: half of all); larger traces go to files.",
    ),
    click.option(
        "--rules",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Kernel rules of your own, tried first.",
    ),
    click.option(
        "--run",
        "run_file",
        type=click.Path(path_type=Path),
        help="Run description (default: run.toml beside the trace).",
    ),
)


output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File instead of stdout."
)


def format_option(choices: Iterable[str], help_text: str) -> Callable[[_F], _F]:
    """The format that a command writes; text where none is said."""
    return click.option(
        "--format",
        "format_name",
        type=click.Choice(list(choices)),
        default="text",
        show_default=True,
        help=help_text,
    )


strict_option = click.option(
    "--strict", is_flag=True, help="Leave with 1 where a warning is an alarm (docs/warnings.md)."
)


def run_options(command: _F) -> _F:
    """Add the trace and everything that can be said about its run."""
    for decorate in reversed(_RUN_OPTIONS):
        command = decorate(command)
    return command


def description_options(command: _F) -> _F:
    """Add what can be said about a run, for commands that name their runs themselves."""
    for decorate in reversed(_RUN_OPTIONS[1:]):
        command = decorate(command)
    return command


@contextmanager
def replacing(path: Path, *, source: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` that takes its place when all went well.

    Args:
        path: Where the result shall be.
        source: The input, which must not be written over.

    Raises:
        TracebookError: The result would replace the input, or cannot be written.
    """
    if path.exists() and source.exists() and path.samefile(source):
        raise TracebookError(
            f"The output {path} is the input itself.", "Give another path with --output."
        )
    try:
        with draft_of(path) as draft:
            yield draft
    except OSError as error:
        raise TracebookError(
            f"{path} cannot be written: {error.strerror or error}.",
            "Check that the directory exists and has room.",
        ) from error
