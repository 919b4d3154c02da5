"""`tracebook predict`: a decode step before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracebook.cli.options import format_option, output_option, replacing, tokens_or_file
from tracebook.config import DTYPES

if TYPE_CHECKING:
    from tracebook.report import Report


@click.command(
    "predict",
    epilog="Example: tracebook predict fixtures/mtp3/run.toml "
    "--from fixtures/plain-nvfp4/expected.json --sweep",
)
@click.argument("run_file", metavar="RUN.TOML", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "learn_from",
    type=click.Path(path_type=Path),
    metavar="REPORT.JSON",
    help="A saved report whose speed is to be reached again.",
)
@click.option("--sweep", is_flag=True, help="Look at other numbers of drafts too.")
@click.option(
    "--most-drafts",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="How far the sweep goes.",
)
@click.option("--alpha", type=click.FloatRange(0, 1), help="Acceptance per position, 0 to 1.")
@click.option(
    "--tokens-per-step",
    callback=tokens_or_file,
    metavar="N|FILE",
    help="Tokens a step yields, or a vLLM benchmark or metrics file.",
)
@click.option("--draft-tokens", type=int, metavar="K", help="Tokens drafted per step.")
@click.option("--context-tokens", type=int, metavar="N", help="Tokens in the context.")
@click.option("--kv-dtype", type=click.Choice(DTYPES), help="Dtype of the KV cache.")
@click.option("--gdn-dtype", type=click.Choice(DTYPES), help="Dtype of recurrent state.")
@click.option("--replay/--no-replay", default=None, help="Whether recurrent state is replayed.")
@click.option("--batch", type=int, metavar="N", help="Sequences decoded at once.")
@click.option("--machine", metavar="NAME", help="Name in the machine table.")
@click.option(
    "--bandwidth", "bandwidth_gbps", type=float, metavar="GBPS", help="Published peak, in GB/s."
)
@click.option("--ceiling-gbps", type=float, metavar="GBPS", help="Measured read ceiling.")
@format_option(["text", "json", "markdown"], "How the prediction is written.")
@output_option
def predict_command(
    run_file: Path,
    learn_from: Path | None,
    sweep: bool,
    most_drafts: int,
    alpha: float | None,
    format_name: str,
    output: Path | None,
    **flags: Any,
) -> None:
    """Predict the decode step that RUN.TOML describes; no trace is needed.

    Bytes come from the checkpoint's headers, times from the machine's peak, its measured
    ceiling, and with --from from what a saved report reached.
    """
    if alpha is not None and flags["tokens_per_step"] is not None:
        raise click.UsageError("--alpha and --tokens-per-step say the same: give one of them.")
    from tracebook.config import describe_run
    from tracebook.predict import predict
    from tracebook.render.prediction import render_prediction

    run = describe_run(run_file, run_file=run_file, flags=flags)
    prediction = predict(
        run,
        learn_from=_report(learn_from),
        learnt_name=None if learn_from is None else _shown(learn_from),
        alpha=alpha,
        sweep=sweep,
        most_drafts=most_drafts,
    )
    text = render_prediction(prediction, format_name)
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        with replacing(output, source=run_file) as draft:
            draft.write_text(text, encoding="utf-8")


def _shown(path: Path) -> str:
    """A path as it was typed where it is relative, else without its folders."""
    return path.name if path.is_absolute() else str(path)


def _report(path: Path | None) -> Report | None:
    from tracebook.report import Report

    return None if path is None else Report.load(path)
