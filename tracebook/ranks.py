"""All ranks of a capture: a report for each device and process that decodes.

In: a path and what the user said about the run. Out: `Ranks`, one report each, what was
left out and why, and which rank the others wait for. With tensor parallelism every rank
reads its share of each matrix, so the bytes of a report are those of one rank.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, Unpack

import polars as pl

from tracebook.analysis import (
    Examined,
    account_for,
    examine_trace,
    keep_first,
    launches_in_scopes,
    models_of_run,
    open_for,
)
from tracebook.config import RunDescription
from tracebook.errors import NoDecodeSteps, ReportVersionError
from tracebook.importers.kernel_columns import filtered
from tracebook.kernels.classes import classify_names, load_rules
from tracebook.kernels.label import ALIKE
from tracebook.notices import Notice
from tracebook.options import Options, describe
from tracebook.phases import Phase
from tracebook.report import Report
from tracebook.trace import Trace
from tracebook.units import percent, rounded

SCHEMA = "tracebook.reports/1"


@dataclass(frozen=True)
class LeftOut:
    """A device and process without a report, and why."""

    device: int | None
    pid: int | None
    reason: str


@dataclass(frozen=True)
class Spread:
    """How far ranks differ.

    Collectives make all ranks wait for the slowest one, so it is told by the time of its
    own work: phases without `communication`, per step.

    Attributes:
        slowest: Number of the rank with the most work of its own, from 0.
        work_ms: Least and most work of a rank.
        step_ms: Shortest and longest median step.
        spread_pct: How much more the slowest works than the fastest, in percent.
    """

    slowest: int
    work_ms: tuple[float, float]
    step_ms: tuple[float, float]
    spread_pct: float | None


@dataclass(frozen=True)
class Ranks:
    """Reports of all ranks, by device and process."""

    reports: tuple[Report, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def spread(self) -> Spread:
        """How far the ranks differ."""
        work = [_own_work_ms(report) for report in self.reports]
        steps = [report.steps.wall_ms.median for report in self.reports]
        return Spread(
            slowest=work.index(max(work)),
            work_ms=(min(work), max(work)),
            step_ms=(min(steps), max(steps)),
            spread_pct=percent(max(work) - min(work), min(work)),
        )

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What any rank warns of, each once."""
        return tuple(dict.fromkeys(w for report in self.reports for w in report.warnings))

    def to_json(self, *, steps: bool = False) -> str:
        """JSON text: schema, spread, what was left out, and `ranks`, a report each."""
        document = {
            "schema": SCHEMA,
            "spread": asdict(self.spread),
            "left_out": [asdict(entry) for entry in self.left_out],
            "ranks": [json.loads(report.to_json(steps=steps)) for report in self.reports],
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ReportVersionError: It is something else, is damaged, or comes from a newer
                tracebook.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document["schema"] != SCHEMA:
                raise ReportVersionError(
                    f"The reports have schema {document['schema']!r}, not {SCHEMA!r}.",
                    "Upgrade tracebook, or make the reports again from the trace.",
                )
            return cls(
                tuple(Report.from_json(json.dumps(entry)) for entry in document["ranks"]),
                tuple(LeftOut(**entry) for entry in document["left_out"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ReportVersionError(
                f"The saved reports are damaged: {error!r}.",
                "Make them again with `tracebook report RUN --all-ranks --format json -o FILE`.",
            ) from error


def is_saved_ranks(path: Path) -> bool:
    """Whether a file is what `Ranks.to_json` wrote."""
    try:
        with path.open("rb") as file:
            return b'"tracebook.reports/' in file.read(64)
    except OSError:
        return False


def analyze_ranks(path: str | Path, **options: Unpack[Options]) -> Ranks:
    """Report on every device and process of a capture that decodes.

    Args:
        path: As `analyze`.
        **options: As `analyze`; `device` and `pid` leave out the others.

    Raises:
        NoDecodeSteps: None of them decodes.
        TracebookError: As `analyze`.
    """
    run = describe(path, options)
    trace = open_for(path, options)
    run, models, told = models_of_run(run, trace.info.model_hint)
    run, assumed = _tensor_parallel(run, trace, options)
    launches = launches_in_scopes(path)
    examined: list[Examined] = []
    left_out: list[LeftOut] = []
    for device, pid in _pairs(trace):
        part: Options = {**options, "device": device, "pid": pid}
        own = (pl.col("device") == device) & pl.col("pid").eq_missing(pl.lit(pid))
        rank = replace(trace, kernels=filtered(trace.kernels, own, trace.scratch))
        try:
            found = examine_trace(rank, run, models, part, launches, (*told, *assumed))
        except NoDecodeSteps as error:
            left_out.append(LeftOut(device, pid, error.message))
        else:
            steps = options.get("steps")
            examined.append(found if steps is None else keep_first(found, steps))
    if not examined:
        raise NoDecodeSteps(
            "No device and process of this capture decodes: "
            + " ".join(f"device {e.device}, pid {e.pid}: {e.reason}" for e in left_out),
            "Look at the kernels with `tracebook kernels`.",
        )
    kept, foreign = _of_the_model(examined)
    counted = _counted(run, kept, said=not assumed)
    reports = [_report_of(each, assumed=bool(assumed), notices=counted) for each in kept]
    ordered = sorted(left_out + foreign, key=lambda e: (e.device or 0, e.pid or 0))
    return Ranks(tuple(reports), tuple(ordered))


def _pairs(trace: Trace) -> list[tuple[int, int | None]]:
    """Device and process of all kernels, in order."""
    pairs = trace.kernels.select("device", "pid").unique().sort("device", "pid")
    return [(int(device), pid) for device, pid in pairs.rows()]


def _tensor_parallel(
    run: RunDescription, trace: Trace, options: Options
) -> tuple[RunDescription, tuple[Notice, ...]]:
    """Assume tensor parallelism where it was not said and several ranks run collectives."""
    if run.target is None or run.tensor_parallel is not None:
        return run, ()
    rules = options.get("rules")
    classes = classify_names(trace.names, load_rules(Path(rules) if rules is not None else None))
    collectives = classes.filter(pl.col("kernel_class") == "comm")["name_id"].implode()
    sizes = trace.kernels.group_by("device", "pid").agg(
        kernels=pl.len(), talks=pl.col("name_id").is_in(collectives).any()
    )
    talking = [int(kernels) for kernels in sizes.filter(pl.col("talks"))["kernels"]]
    count = sum(kernels >= (1 - ALIKE) * max(talking) for kernels in talking)
    if count < 2:
        return run, ()
    return replace(run, tensor_parallel=count), (
        Notice(
            "tensor_parallel_assumed",
            f"How many ranks share the matrices was not said. {count} of them run collectives "
            f"and about as many kernels, so {count} is assumed: each reads its share.",
            f"Say --tensor-parallel {count}, or 1 if each rank holds a whole model.",
        ),
    )


def _of_the_model(examined: Sequence[Examined]) -> tuple[list[Examined], list[LeftOut]]:
    """Ranks whose kernels the plan explains; where it explains none, all are kept."""

    def trusted(each: Examined) -> bool:
        return each.labelled.verdict is None or each.labelled.verdict.phases_trusted

    if not any(trusted(each) for each in examined):
        return list(examined), []
    reason = "Its kernels are not those of the checkpoint."
    foreign = [
        LeftOut(each.labelled.device, each.labelled.pid, reason)
        for each in examined
        if not trusted(each)
    ]
    return [each for each in examined if trusted(each)], foreign


def _counted(run: RunDescription, kept: Sequence[Examined], *, said: bool) -> tuple[Notice, ...]:
    """A warning where the ranks found are no multiple of those that were said."""
    ranks = run.tensor_parallel
    if ranks is None or not said or len(kept) % ranks == 0:
        return ()
    return (
        Notice(
            "ranks_missing",
            f"{ranks} tensor-parallel ranks were said; {len(kept)} decode in this capture.",
            "The others may run on another machine, or lie outside --from and --to.",
        ),
    )


def _report_of(each: Examined, *, assumed: bool, notices: tuple[Notice, ...]) -> Report:
    """The report of one rank; what was assumed for all of them is named in it."""
    report = account_for(each)
    if assumed:
        sharing = f"tensor parallelism over {each.run.tensor_parallel} ranks"
        settings = (*report.run.assumed, sharing)
        report = replace(report, run=replace(report.run, assumed=settings))
    return replace(report, warnings=(*report.warnings, *notices))


def _own_work_ms(report: Report) -> float:
    """Median time per step in all phases but communication."""
    rows = [row for row in report.phase_rows if row.phase != Phase.COMMUNICATION]
    return rounded(sum(row.ms.median for row in rows))
