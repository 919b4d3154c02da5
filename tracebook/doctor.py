"""What a capture is fit for, judged after the fact.

In: a trace, and perhaps a second capture of the same run at graph level. Out: findings,
each with its verdict and, where something is wrong, what to do. A refusal of the trace is
a finding here, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, Unpack

import polars as pl

from tracebook.analysis import examine, open_for
from tracebook.capture import capture_notices
from tracebook.errors import NoDecodeSteps, TraceError
from tracebook.importers import open_source
from tracebook.importers.facts import GRAPH_TRACE
from tracebook.importers.source import Source
from tracebook.kernels.labels import Labelled
from tracebook.options import Options
from tracebook.stats import summarise_ns
from tracebook.trace import Trace
from tracebook.units import NS_PER_MS, counted

State = Literal["good", "doubtful", "bad"]

_LONGEST_S = 300.0
_FEW_STEPS = 30
_SHARE_IN_STEPS = 0.5
#: Tables that are of use beside the kernels, and what is lost without them.
_TABLES = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "launches cannot be told from graph replays by their call"),
    ("META_DATA_CAPTURE", "the capture mode and the model are not known from the file"),
    ("TARGET_INFO_GPU", "the GPU is not named: give --machine or --bandwidth"),
    ("StringIds", "kernels have no names"),
)
_FEWEST_LAUNCHES = 3


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what, how it stands, in words, and what to do."""

    topic: str
    state: State
    text: str
    hint: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All findings on one capture; `bad` ones forbid an account, `doubtful` ones limit it."""

    path: Path
    findings: tuple[Finding, ...]

    @property
    def fit(self) -> bool:
        """Whether nothing is bad."""
        return all(finding.state != "bad" for finding in self.findings)


def diagnose(
    path: str | Path, overhead: str | Path | None = None, **options: Unpack[Options]
) -> Diagnosis:
    """Judge a capture.

    Args:
        path: The trace.
        overhead: A capture of the same run at graph level, to see what tracing cost.
        **options: As `analyze`.

    Raises:
        TraceError: The path holds no trace at all.
    """
    path = Path(path)
    findings: list[Finding] = []
    with open_source(path) as source:
        findings += _about_tables(source)
        window_ns = _recorded_ns(source)
    try:
        trace = open_for(path, options)
    except TraceError as error:
        findings.append(Finding("kernels", "bad", error.message, error.hint))
        return Diagnosis(path, tuple(findings))
    findings += _about_mode(trace)
    findings += _about_kernels(trace)
    findings += _about_window(trace, window_ns)
    step_ns = None
    try:
        labelled = examine(path, **options).labelled
    except NoDecodeSteps as error:
        findings.append(Finding("steps", "bad", error.message, error.hint))
    else:
        findings += _about_steps(trace, labelled)
        wall = labelled.steps["end_ns"] - labelled.steps["start_ns"]
        step_ns = summarise_ns(wall.to_numpy()).median * NS_PER_MS
    if overhead is not None:
        findings.append(_about_overhead(step_ns, Path(overhead)))
    return Diagnosis(path, tuple(findings))


def _about_tables(source: Source) -> Iterator[Finding]:
    missing = [(table, lost) for table, lost in _TABLES if table not in source.tables]
    if not missing:
        yield Finding("tables", "good", "All tables that are of use are there.")
    for table, lost in missing:
        yield Finding("tables", "doubtful", f"{table} is missing: {lost}.")


def _about_mode(trace: Trace) -> Iterator[Finding]:
    mode = trace.info.capture_mode
    if mode == "node":
        yield Finding("mode", "good", "Graphs were traced by node: their kernels are there.")
    elif mode == "unknown":
        yield Finding(
            "mode",
            "doubtful",
            "The export does not say how graphs were traced, and no kernel is of a graph.",
            "Where graphs were used, record with nsys profile --cuda-graph-trace=node",
        )
    else:
        yield Finding(
            "mode",
            "doubtful",
            "Graphs would have been traced as wholes; none was launched, so nothing is hidden.",
            "To see into graphs, record with nsys profile --cuda-graph-trace=node",
        )


def _about_kernels(trace: Trace) -> Iterator[Finding]:
    names = f"{trace.names.height:,} names"
    yield Finding("kernels", "good", f"{counted(trace.kernels.height, 'kernel')} of {names}.")
    for notice in capture_notices(trace):
        if notice.code != "capture_mode_unknown":  # told above
            yield Finding("kernels", "doubtful", notice.message, notice.hint)


def _about_window(trace: Trace, recorded_ns: int | None) -> Iterator[Finding]:
    first, last = _span_ns(trace)
    text = f"Kernels from {first / 1e9:.3f} s to {last / 1e9:.3f} s"
    if recorded_ns:
        text += (
            f", {100 * (last - first) / recorded_ns:.0f} % of {recorded_ns / 1e9:.1f} s recorded"
        )
    if (recorded_ns or last - first) / 1e9 > _LONGEST_S:
        yield Finding(
            "window",
            "doubtful",
            f"{text}: nsys does not support captures beyond five minutes.",
            "Record a shorter window, see `tracebook record`.",
        )
    else:
        yield Finding("window", "good", f"{text}.")


def _span_ns(trace: Trace) -> tuple[int, int]:
    """Start of the first kernel and end of the last."""
    return trace.kernels.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)


def _about_steps(trace: Trace, labelled: Labelled) -> Iterator[Finding]:
    steps = labelled.steps
    state: State = "good" if steps.height >= _FEW_STEPS else "doubtful"
    yield Finding(
        "steps",
        state,
        f"{steps.height} of {labelled.found} steps are steady, found by {labelled.source}.",
        None if state == "good" else f"Record {_FEW_STEPS} steps or more for narrow intervals.",
    )
    first, last = _span_ns(trace)
    span = last - first
    inside = int((steps["end_ns"] - steps["start_ns"]).sum())
    share = inside / span if span else 0.0
    text = f"{100 * share:.0f} % of the time with kernels is in steady steps"
    if share >= _SHARE_IN_STEPS:
        yield Finding("share", "good", f"{text}.")
    else:
        yield Finding(
            "share",
            "doubtful",
            f"{text}; the rest is loading, warm-up, prefill or other batches.",
            "Record with a capture range around decoding, see `tracebook record`.",
        )


def _about_overhead(step_ns: float | None, path: Path) -> Finding:
    """What node-level tracing costs: the step against the same step traced as whole graphs."""
    if step_ns is None:
        return Finding("overhead", "doubtful", "Without steps there is nothing to compare with.")
    graph_ns = _graph_period_ns(path)
    if graph_ns is None:
        return Finding(
            "overhead",
            "doubtful",
            f"{path} has no graph that was launched {_FEWEST_LAUNCHES} times or more.",
            "Record the same run with nsys profile --cuda-graph-trace=graph",
        )
    cost = step_ns / graph_ns - 1
    text = (
        f"A step takes {step_ns / NS_PER_MS:.2f} ms here and {graph_ns / NS_PER_MS:.2f} ms where "
        f"graphs are traced as wholes: tracing by node costs {100 * cost:+.1f} %."
    )
    if -0.1 <= cost <= 0.1:
        return Finding("overhead", "good", text)
    return Finding(
        "overhead",
        "doubtful",
        text,
        "Compare phases within this capture; for absolute times scale by the graph-level step.",
    )


def _graph_period_ns(path: Path) -> float | None:
    """Median time between launches of the graph that takes most time; ns."""
    starts: dict[object, list[int]] = {}
    time_ns: dict[object, int] = {}
    with open_source(path) as source:
        present = source.tables.get(GRAPH_TRACE, ())
        ident = next((c for c in ("graphExecId", "graphId") if c in present), None)
        if ident is None or not {"start", "end"} <= set(present):
            return None
        for start, end, graph in source.rows(GRAPH_TRACE, ("start", "end", ident)):
            # A start or end of 0 stands for unknown there.
            if isinstance(start, int) and isinstance(end, int) and start > 0 and end > start:
                starts.setdefault(graph, []).append(start)
                time_ns[graph] = time_ns.get(graph, 0) + end - start
    if not time_ns:
        return None
    most = sorted(starts[max(time_ns, key=lambda graph: time_ns[graph])])
    gaps = sorted(after - before for before, after in pairwise(most))
    return float(gaps[len(gaps) // 2]) if len(most) >= _FEWEST_LAUNCHES else None


def _recorded_ns(source: Source) -> int | None:
    """How long was recorded, from ANALYSIS_DETAILS; None where the export does not say."""
    if "duration" not in source.tables.get("ANALYSIS_DETAILS", ()):
        return None
    values = [v for (v,) in source.rows("ANALYSIS_DETAILS", ("duration",)) if isinstance(v, int)]
    return max(values, default=0) or None
