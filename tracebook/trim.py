"""A slim trace that is safe to share: some steady steps of a capture, and no more of it.

In: a capture. Out: a new file of which a report on the same steps gives the same figures.
That is not hoped for but checked: the new file is analysed before it is handed over, and
more of the surroundings is kept where the steps are not found again without.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from tracebook.analysis import (
    Examined,
    account_for,
    examine,
    examine_trace,
    keep_first,
    launches_in_scopes,
)
from tracebook.errors import TraceError
from tracebook.importers import open_source, read_trace
from tracebook.importers.slim import write_slim
from tracebook.importers.window import Selection
from tracebook.options import Options
from tracebook.report import Report
from tracebook.step_time import ConservationError

#: What is kept before and after the steps, in median steps. Half a step is seen as cut off
#: and left out by itself, so that the report needs no option to be about the same steps. Few
#: steps are only found among more of them: those come after, so that --steps leaves them out.
_SURROUNDINGS = (
    *((0.5, 0.5), (0.25, 0.25), (0.75, 0.75), (0.0, 0.0)),
    *((0.5, 1.5), (0.5, 2.5), (0.5, 4.5), (0.5, 8.5), (0.5, 32.5)),
)


@dataclass(frozen=True)
class Trimmed:
    """What was kept.

    Attributes:
        steps: Steps that were asked for.
        found: Steps that a report on the file finds; where they are more, the others follow.
        kernels: Kernels in the file.
    """

    steps: int
    found: int
    kernels: int


def trim(
    path: str | Path,
    output: Path,
    *,
    keep_command_line: bool = False,
    **options: Unpack[Options],
) -> Trimmed:
    """Write a slim, scrubbed copy of a capture.

    Args:
        path: The capture.
        output: The SQLite file to make; it must not exist.
        keep_command_line: Keep the recorded command line, which may hold paths and keys.
        **options: As `analyze`; `steps` is how many steady steps are kept (default: all).

    Raises:
        TraceError: The capture cannot be read, has no steady steps, or its steps are not
            found again in what would be kept.
    """
    examined = examine(path, **options)
    steps = examined.labelled.steps
    wanted = figures(account_for(examined))
    length = int((steps["end_ns"] - steps["start_ns"]).median())  # type: ignore[arg-type]
    first, last = int(steps["start_ns"][0]), int(steps["end_ns"][-1])
    for before, after in _SURROUNDINGS:
        window = (first - round(before * length), last + round(after * length))
        output.unlink(missing_ok=True)
        with open_source(Path(path)) as source:
            write_slim(source, output, window, keep_command_line=keep_command_line)
        again = _again(output, examined, options)
        if again is None or again.labelled.steps.height < steps.height:
            continue
        if figures(account_for(keep_first(again, steps.height))) == wanted:
            found = again.labelled.steps.height
            return Trimmed(steps.height, found, again.trace.kernels.height)
    output.unlink(missing_ok=True)
    raise TraceError(
        f"The {steps.height} steps of {path} are not found again without the rest of the capture.",
        "Keep more of them with --steps, or leave it out.",
    )


def figures(report: Report) -> dict[str, Any]:
    """Every figure of a report that is about its kept steps alone."""
    steps = report.steps
    return {
        "steps": (steps.kept, steps.wall_ms, steps.busy_ms, steps.idle_ms, steps.kernel_sum_ms),
        "tokens": (steps.tokens_per_s, steps.regimes),
        "phases": report.phase_rows,
        "total": report.total,
        "unclassified": report.unclassified,
        "layers": report.layer_rows,
        "matrices": report.matrix_rows,
        "machine": report.machine,
        "run": report.run,
        "gpu": (report.trace.gpu, report.trace.synthetic, report.trace.device, report.trace.pid),
    }


def _again(slim: Path, examined: Examined, options: Options) -> Examined | None:
    """The slim trace examined as the capture was; None where its steps are not found."""
    asked: Options = {
        "rules": options.get("rules"),
        "batch": options.get("batch"),
        "signature": options.get("signature"),
        "device": examined.labelled.device,
        "pid": examined.labelled.pid,
    }
    trace, launches = read_trace(slim, Selection()), launches_in_scopes(slim)
    try:
        return examine_trace(trace, examined.run, examined.models, asked, launches)
    except (TraceError, ConservationError):
        return None
