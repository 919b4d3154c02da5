"""Sentences and cells that several renderers share, so that they say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from tracebook.config import is_hub_id
from tracebook.errors import ReportVersionError
from tracebook.kernels.nvtx import NvtxAgreement
from tracebook.report import PartRow, PhaseRow, Report
from tracebook.step_detail import StepSamples
from tracebook.units import counted, gb_text, number_text

#: What a control character in a name becomes: a terminal must not act on it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Column:
    """A column of a table: heading, whether it is text, when it may fall away or wrap.

    Columns with a higher `drop` leave first where a terminal is narrow; 0 stays.
    """

    heading: str
    text: bool = False
    drop: int = 0
    wraps: bool = False


PHASE_COLUMNS = (
    Column("phase", text=True),
    Column("ms"),
    Column("share", drop=5),
    Column("", text=True, drop=4),
    Column("GB", drop=2),
    Column("GB/s", drop=3),
    Column("all GB/s"),
    Column("% of peak"),
    Column("% of ceiling", drop=6),
    Column("floor ms", drop=1),
)

LAYER_COLUMNS = (
    Column("phase", text=True),
    Column("layer"),
    Column("ms"),
    Column("GB", drop=2),
    Column("GB/s", drop=1),
    Column("% of peak"),
)

MATRIX_COLUMNS = (
    Column("phase", text=True),
    Column("op", text=True, wraps=True),
    Column("matrix", text=True, drop=3, wraps=True),
    Column("kernels", drop=4),
    Column("ms"),
    Column("GB", drop=2),
    Column("GB/s", drop=1),
    Column("% of peak"),
)


def clean(text: str) -> str:
    """A name from a trace without characters that a terminal or a reader would act on."""
    return _CONTROL.sub("?", text)


def phase_table(report: Report, bars: dict[str, str]) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows of the phase table: phases, idle, and the whole step last.

    Args:
        report: The report.
        bars: A bar for each phase and for `idle`; without any, there is no such column.
    """
    steps, total = report.steps, report.total
    rows = [_phase_cells(row, bars.get(row.phase, "")) for row in report.phase_rows]
    idle = ["idle", number_text(steps.idle_ms.median, 2), _share_text(steps.idle_share)]
    rows.append([*idle, bars.get("idle", ""), *["-"] * 6])
    rows.append(
        [
            "step",
            number_text(steps.wall_ms.median, 2),
            _share_text(1.0),
            "",
            gb_text(total.weight_bytes),
            number_text(total.weight_gbps, 1),
            number_text(total.traffic_gbps, 1),
            number_text(total.roofline_pct, 1),
            number_text(total.ceiling_pct, 1),
            number_text(total.floor_ms, 2),
        ]
    )
    hidden = {"" if not bars else None, None if report.machine.ceiling_gbps else "% of ceiling"}
    shown = [i for i, column in enumerate(PHASE_COLUMNS) if column.heading not in hidden]
    return [PHASE_COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _phase_cells(row: PhaseRow, bar: str) -> list[str]:
    """One phase as cells of `PHASE_COLUMNS`."""
    return [
        row.phase.replace("_", " "),
        number_text(row.ms.median, 2),
        _share_text(row.share),
        bar,
        gb_text(row.weight_bytes or None),
        number_text(row.weight_gbps, 1),
        number_text(row.traffic_gbps, 1),
        number_text(row.roofline_pct, 1),
        number_text(row.ceiling_pct, 1),
        number_text(row.floor_ms, 2),
    ]


def _share_text(share: float) -> str:
    return f"{100 * share:.1f} %"


def part_cells(row: PartRow, columns: tuple[Column, ...]) -> list[str]:
    """A layer or a matrix as cells of its columns."""
    cells = {
        "phase": row.phase.replace("_", " "),
        "layer": "-" if row.layer is None else str(row.layer),
        "op": clean(row.op or "-"),
        "matrix": clean(row.matrix or "-").replace("+", " + "),
        "kernels": str(row.kernels),
        "ms": number_text(row.ms.median, 3),
        "GB": gb_text(row.weight_bytes or None),
        "GB/s": number_text(row.weight_gbps, 1),
        "% of peak": number_text(row.roofline_pct, 1),
    }
    return [cells[column.heading] for column in columns]


def traffic_table(report: Report) -> tuple[list[Column], list[list[str]]]:
    """Each kind of bytes that a phase reads or writes in a step, with its basis."""
    columns = [
        Column("phase", text=True),
        Column("moves", text=True),
        Column("", text=True),
        Column("MB"),
        Column("basis", text=True, drop=1),
        Column("counted as", text=True, drop=2, wraps=True),
    ]
    rows = [
        [
            row.phase.replace("_", " "),
            moved.name.replace("_", " "),
            moved.direction,
            number_text(moved.bytes / 1e6, 2),
            moved.basis,
            clean(moved.note),
        ]
        for row in report.phase_rows
        for moved in row.traffic
    ]
    return columns, rows


def samples(report: Report) -> StepSamples:
    """The single steps of a report.

    Raises:
        ReportVersionError: It was saved without them.
    """
    if report.step_samples is None:
        raise ReportVersionError(
            "This report was saved without its single steps.",
            "Save it with `tracebook report RUN --format json --detail steps -o FILE`.",
        )
    return report.step_samples


def step_table(report: Report) -> tuple[list[Column], list[list[str]]]:
    """One row per kept step; its longest phases stay longest where a terminal is narrow."""
    steps = samples(report)
    longest = sorted(steps.phases_ms, key=lambda phase: -sum(steps.phases_ms[phase]))
    columns = [Column("step"), Column("start ms", drop=len(longest) + 1), Column("step ms")]
    columns += [
        Column(phase.replace("_", " "), drop=longest.index(phase) + 1) for phase in steps.phases_ms
    ]
    columns.append(Column("idle"))
    times = (steps.wall_ms, *steps.phases_ms.values(), steps.idle_ms)
    rows = [
        [str(index), number_text(start, 2), *(number_text(value, 2) for value in values)]
        for index, (start, *values) in enumerate(zip(steps.start_ms, *times, strict=True))
    ]
    return columns, rows


def trace_path(report: Report) -> str:
    """The trace as it was typed where that is a relative path, else without its folders."""
    path = PurePath(report.trace.path)
    return path.name if path.is_absolute() else str(path)


def facts(report: Report) -> list[tuple[str, str]]:
    """What was looked at, as label and sentence."""
    steps, run, machine = report.steps, report.run, report.machine
    trace = clean(trace_path(report)) + (" (synthetic)" if report.trace.synthetic else "")
    if report.trace.nsys_version:
        trace += f", nsys {clean(report.trace.nsys_version)}"
    name = clean(report.trace.gpu or machine.name or "unknown GPU")
    peak = "peak unknown"
    if machine.bandwidth_gbps is not None:
        peak = f"peak {machine.bandwidth_gbps:g} GB/s"
    if machine.ceiling_gbps is not None:
        peak += f", measured ceiling {machine.ceiling_gbps:g} GB/s"
    dropped = "; ".join(f"{clean(entry.reason)}: {entry.count}" for entry in steps.dropped)
    kept = f"{steps.kept} of {steps.found} kept" + (f" (left out: {dropped})" if dropped else "")
    lines = [
        ("trace", trace),
        ("machine", f"{name}, {peak}"),
        ("source", clean(machine.source or "none")),
        ("run", _run_sentence(report)),
        ("steps", f"{kept}, found by {clean(steps.source)}"),
        ("step", _step_sentence(report)),
    ]
    if report.nvtx is not None:
        lines.append(("nvtx", _nvtx_sentence(report.nvtx)))
    if run.assumed:
        lines.append(("assumed", ", ".join(run.assumed) + " (not said)"))
    return lines


def _run_sentence(report: Report) -> str:
    run = report.run
    parts = [_model_name(run.target) if run.target else "no checkpoint"]
    if run.draft_method == "none":
        parts.append("no drafter")
    elif run.draft_method is not None:
        drafts = f" with {counted(run.draft_tokens, 'draft token')}" if run.draft_tokens else ""
        parts.append(run.draft_method + drafts)
    if run.drafter:
        parts.append(f"drafter {_model_name(run.drafter)}")
    if run.draft_head:
        parts.append(f"draft head {_model_name(run.draft_head)}")
    if run.batch is not None:
        parts.append(f"batch {run.batch}")
    if (run.tensor_parallel or 1) > 1:
        parts.append(f"one of {run.tensor_parallel} ranks, its own bytes only")
    return ", ".join(parts)


def _nvtx_sentence(nvtx: NvtxAgreement) -> str:
    """How far the engine's scopes and the labels agree, and which scope agrees least."""
    count = f"{len(nvtx.scopes)} scope{'s' * (len(nvtx.scopes) > 1)} of the engine"
    if nvtx.agreement is None:
        return f"{count}, none of whose kernels has a phase to compare"
    sentence = f"{count}, {100 * nvtx.agreement:.1f} % of their kernel time agrees"
    share, scope = min((s.agreement, s.scope) for s in nvtx.scopes if s.agreement is not None)
    return sentence + (f" (least in {scope}: {100 * share:.1f} %)" if share < 1 else "")


def _model_name(source: str) -> str:
    """A hub id as it is, a path by its last part and without its endings."""
    name = source if is_hub_id(source) else source.rsplit("/", 1)[-1]
    for ending in (".gz", ".json", ".headers", ".safetensors"):
        name = name.removesuffix(ending)
    return clean(name)


def _step_sentence(report: Report) -> str:
    wall = report.steps.wall_ms
    sentence = f"{wall.median:.2f} ms"
    if wall.ci95 is not None:
        sentence += f" (95 % interval {wall.ci95[0]:.2f} to {wall.ci95[1]:.2f})"
    if report.steps.tokens_per_s is not None:
        sentence += (
            f"; {report.steps.tokens_per_s:.1f} tokens/s at "
            f"{report.run.tokens_per_step:g} per step ({report.run.tokens_basis})"
        )
    return sentence


def verdict(report: Report) -> str:
    """The report in one or two sentences: how near to the roofline, and what is lost where."""
    total, wall = report.total, report.steps.wall_ms.median
    longest = max(report.phase_rows, key=lambda row: row.ms.median)
    if total.weight_bytes is None:
        share = f"{100 * longest.share:.0f} % of it"
        return f"A step takes {wall:.2f} ms, {share} in {_spoken(longest.phase)}."
    speed = (
        f"A step reads {gb_text(total.weight_bytes)} GB of weights in {wall:.2f} ms, "
        f"{number_text(total.weight_gbps, 1)} GB/s"
    )
    if total.traffic_bytes is not None and total.traffic_bytes > total.weight_bytes:
        speed += f"; with state and caches {number_text(total.traffic_gbps, 1)} GB/s"
    if total.roofline_pct is None or total.floor_ms is None:
        return speed + "."
    losses = [
        (row.ms.median - (row.floor_ms or 0.0), _spoken(row.phase)) for row in report.phase_rows
    ]
    losses.append((report.steps.idle_ms.median, "idle time"))
    lost, where = max(losses)
    return (
        f"{speed}, {total.roofline_pct:.1f} % of the peak. The floor is {total.floor_ms:.2f} ms; "
        f"the largest loss is {lost:.2f} ms, in {where}."
    )


def _spoken(phase: str) -> str:
    return "the " + phase.replace("_", " ")


def footnote(report: Report) -> str | None:
    """What the byte columns count."""
    moved = [movement for row in report.phase_rows for movement in row.traffic]
    if not moved:
        return None
    more = dict.fromkeys(m.name.replace("_", " ") for m in moved if m.name != "weights")
    if not more:
        return "All figures count weights only; phases without one read no weights."
    listed = ", ".join(more)
    return (
        f"GB and GB/s count weights only. All GB/s, percent and floor add {listed}; "
        "activations stay in caches and are not counted."
    )
