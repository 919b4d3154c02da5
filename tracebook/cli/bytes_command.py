"""`tracebook bytes`: what a checkpoint holds, and what one decode step reads of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from tracebook.cli.options import format_option, replacing
from tracebook.config import DraftMethod

if TYPE_CHECKING:
    from tracebook.checkpoint.summary import Summary


@click.command(
    "bytes",
    epilog="Example: tracebook bytes fixtures/headers/target-nvfp4.headers.json.gz --bandwidth 273",
)
@click.argument("checkpoints", metavar="CHECKPOINT...", nargs=-1, required=True)
@format_option(["text", "json"], "How the ledger is written.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="NAME.headers.json.gz",
    help="Save all headers, without weights, as a bundle.",
)
@click.option("--bandwidth", type=float, metavar="GBPS", help="Peak for the ceiling, in GB/s.")
@click.option("--machine", metavar="NAME", help="Name in the machine table, for its peak.")
@click.option(
    "--draft-method", type=click.Choice(get_args(DraftMethod)), help="How tokens are drafted."
)
@click.option("--draft-tokens", type=int, metavar="K", help="Tokens drafted per step.")
@click.option("--drafter", metavar="PATH", help="Checkpoint of the drafter.")
@click.option("--draft-head", metavar="PATH", help="Checkpoint of the drafter's own head.")
def bytes_command(
    checkpoints: tuple[str, ...],
    format_name: str,
    save: Path | None,
    bandwidth: float | None,
    machine: str | None,
    draft_method: str | None,
    draft_tokens: int | None,
    drafter: str | None,
    draft_head: str | None,
) -> None:
    """Tell what CHECKPOINT holds, byte by byte, and what one decode step reads of it.

    CHECKPOINT is a directory, a .safetensors or .gguf file, a header bundle, or a model
    in the local Hugging Face cache, or hub://OWNER/NAME to read its headers from the hub (with
    the extra `hub`). Only headers are read.
    """
    drafting = (draft_method, draft_tokens, drafter, draft_head)
    if len(checkpoints) > 1 and (save or any(value is not None for value in drafting)):
        raise click.UsageError("--save and the drafting options go with one CHECKPOINT.")
    if draft_method is None and any(value is not None for value in drafting):
        raise click.UsageError("Say how tokens are drafted: add --draft-method.")
    from tracebook.checkpoint.header import save_bundle
    from tracebook.checkpoint.hf_cache import locate
    from tracebook.render.ledger import render_json, render_text

    paths = [locate(checkpoint) for checkpoint in checkpoints]
    peak = _peak(bandwidth, machine)
    summaries = [
        _summary(path, draft_method or "none", draft_tokens, drafter, draft_head) for path in paths
    ]
    if save is not None:
        with replacing(save, source=Path(paths[0])) as draft:
            save_bundle(paths[0], draft, compress=save.suffix != ".json")
        click.echo(f"Saved {save}.", err=True)
    if format_name == "json":
        click.echo(render_json(summaries, bandwidth_gbps=peak), nl=False)
    else:
        terminal = sys.stdout.isatty()
        click.echo(render_text(summaries, bandwidth_gbps=peak, terminal=terminal), nl=False)


def _peak(bandwidth: float | None, machine: str | None) -> float | None:
    """The peak by flag or machine table, in GB/s."""
    if bandwidth is None and machine is None:
        return None
    from tracebook.machine import resolve_machine
    from tracebook.trace import TraceInfo

    found = resolve_machine(TraceInfo(Path()), None, name=machine, bandwidth_gbps=bandwidth)
    for notice in found.notices:
        click.echo(f"Warning: {notice.message}", err=True)
    return found.bandwidth_gbps


def _summary(
    path: Path | str,
    method: str,
    draft_tokens: int | None,
    drafter: str | None,
    draft_head: str | None,
) -> Summary:
    from tracebook.checkpoint import build_ledger, build_plan, read_checkpoint
    from tracebook.checkpoint.hf_cache import locate
    from tracebook.checkpoint.summary import summarize

    ledger = build_ledger(read_checkpoint(path))
    if not ledger.is_target and method == "none":
        return summarize(ledger)
    plan = build_plan(
        ledger,
        drafter=build_ledger(read_checkpoint(locate(drafter))) if drafter else None,
        draft_head=build_ledger(read_checkpoint(locate(draft_head))) if draft_head else None,
        method=method,
        draft_tokens=draft_tokens,
    )
    return summarize(ledger, plan)
