"""The report: the whole result of an analysis, as data that lives without the trace.

In: what the account computed. Out: JSON with the schema name `tracebook.report/1`,
and polars frames. Everything drawn, compared or predicted starts from here. Keys are
only added within a schema number. Figures that cannot be had are null, and a warning
or the basis beside them says why.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Self

import polars as pl

from tracebook.drafts import draft_of
from tracebook.errors import ReportVersionError
from tracebook.kernels.nvtx import NvtxAgreement
from tracebook.notices import Notice
from tracebook.printable import printable_json
from tracebook.records import decode, frame
from tracebook.regimes import Regime
from tracebook.stats import Summary
from tracebook.step_detail import MedianStep, StepSamples
from tracebook.traffic import Movement

_FAMILY = "tracebook.report/"
_VERSION = 1
SCHEMA = f"{_FAMILY}{_VERSION}"
#: Parts of a report that are saved on demand.
_DETAIL = ("step_samples", "median_step")


@dataclass(frozen=True)
class TraceFacts:
    """The capture. `path` is as the user may show it: never more than was typed."""

    path: str
    nsys_version: str | None
    schema_version: str | None
    capture_mode: str
    gpu: str | None
    synthetic: bool
    device: int | None
    pid: int | None


@dataclass(frozen=True)
class MachineFacts:
    """The roofline: peak and, where known, the measured read ceiling, in GB/s."""

    name: str | None
    bandwidth_gbps: float | None
    ceiling_gbps: float | None
    source: str | None


@dataclass(frozen=True)
class RunFacts:
    """What was run. `assumed` names every setting that nobody gave.

    `tensor_parallel` is the number of ranks that share the matrices, where it is known:
    all bytes are then those of one rank.
    """

    target: str | None
    drafter: str | None
    draft_method: str | None
    draft_tokens: int | None
    draft_head: str | None
    batch: int | None
    tokens_per_step: float | None
    context_tokens: int | None
    tokens_basis: str | None = None
    assumed: tuple[str, ...] = ()
    kv_dtype: str | None = None
    gdn_dtype: str | None = None
    replay: bool | None = None
    tensor_parallel: int | None = None


@dataclass(frozen=True)
class Dropped:
    """Steps left out of the account, by reason."""

    reason: str
    count: int


@dataclass(frozen=True)
class StepFacts:
    """The steady steps. `kernel_sum_ms` adds durations, overlaps counted twice.

    `drift_share` is how much slower the last steps are than the first, where steps change
    steadily, see `tracebook.regimes`.
    """

    found: int
    kept: int
    dropped: tuple[Dropped, ...]
    source: str
    wall_ms: Summary
    busy_ms: Summary
    idle_ms: Summary
    kernel_sum_ms: Summary
    tokens_per_s: float | None
    regimes: tuple[Regime, ...] = ()
    drift_share: float | None = None

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the wall time of all kept steps."""
        return self.idle_ms.mean / self.wall_ms.mean


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the median step.

    Attributes:
        phase: A `Phase` value.
        ms: Exclusive time per step.
        share: Of the wall time of all kept steps, 0 to 1.
        kernels: Kernels in a step (the lower median where steps differ).
        passes: Sequential passes in a step; None without a checkpoint.
        weight_bytes: Per step; None where bytes cannot be had.
        traffic_bytes: Weights and what is known beyond them.
        basis: Of weight_bytes: `exact`, `derived` or `assumed`.
        weight_gbps: weight_bytes over the median time.
        traffic_gbps: traffic_bytes over the median time.
        roofline_pct: traffic_gbps in percent of the machine's published peak.
        floor_ms: traffic_bytes at that peak.
        evidence: Kind of evidence to its share of the phase's time.
        traffic_basis: What traffic_bytes counts.
        ceiling_pct: traffic_gbps in percent of the measured read ceiling.
        kernel_sum_ms: Plain sum of durations, overlaps counted twice.
        traffic: The reads and writes that traffic_bytes is the sum of.
    """

    phase: str
    ms: Summary
    share: float
    kernels: int
    passes: int | None
    weight_bytes: int | None
    traffic_bytes: int | None
    basis: str | None
    weight_gbps: float | None
    traffic_gbps: float | None
    roofline_pct: float | None
    floor_ms: float | None
    evidence: dict[str, float]
    traffic_basis: str | None
    ceiling_pct: float | None
    kernel_sum_ms: Summary
    traffic: tuple[Movement, ...] = ()


@dataclass(frozen=True)
class PartRow:
    """A part of a phase: a layer, or a kind of matrix over all layers.

    Rows of layers have a `layer`, None for what lies in none; rows of matrices have
    `op`, and `matrix` where weights are read. Either kind adds up to the phases.
    `weight_bytes` counts the matched matrices only, not norms and biases.
    """

    phase: str
    layer: int | None
    op: str | None
    matrix: str | None
    ms: Summary
    kernels: int
    weight_bytes: int | None
    weight_gbps: float | None
    roofline_pct: float | None


@dataclass(frozen=True)
class Total:
    """The whole step: all phases' bytes over the median wall time."""

    weight_bytes: int | None
    traffic_bytes: int | None
    weight_gbps: float | None
    traffic_gbps: float | None
    roofline_pct: float | None
    floor_ms: float | None
    ceiling_steps_per_s: float | None
    ceiling_pct: float | None


@dataclass(frozen=True)
class UnknownName:
    """A kernel name that no rule knows, with its mean time per step."""

    name: str
    kernels: int
    ms: float


@dataclass(frozen=True)
class Unclassified:
    """Time that no phase could be given for."""

    ms: Summary
    share: float
    names: tuple[UnknownName, ...]


@dataclass(frozen=True)
class Report:
    """One analysed run. See `docs/method.md` for how each figure is defined.

    `step_samples` and `median_step` are what steps and timelines are drawn from. They are
    saved on demand only, and two reports of the same figures are equal without them. `nvtx`
    is there where the engine opened NVTX scopes.
    """

    trace: TraceFacts
    machine: MachineFacts
    run: RunFacts
    steps: StepFacts
    phase_rows: tuple[PhaseRow, ...]
    total: Total
    unclassified: Unclassified
    warnings: tuple[Notice, ...]
    layer_rows: tuple[PartRow, ...] = ()
    matrix_rows: tuple[PartRow, ...] = ()
    nvtx: NvtxAgreement | None = None
    step_samples: StepSamples | None = field(default=None, compare=False, repr=False)
    median_step: MedianStep | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        """One line: what ran, the step, and where its time goes."""
        target = PurePath(self.run.target).name if self.run.target else "no checkpoint"
        times = ", ".join(f"{row.phase} {row.ms.median:.2f}" for row in self.phase_rows)
        return f"<Report {target}: step {self.steps.wall_ms.median:.2f} ms ({times})>"

    @property
    def phases(self) -> pl.DataFrame:
        """One row per phase: `ms` is the median, the rest of the summary is `ms_*`."""
        return frame(PhaseRow, self.phase_rows)

    @property
    def traffic(self) -> pl.DataFrame:
        """One row per phase and kind of bytes that it reads or writes in a step."""
        names = ("phase", "name", "direction", "bytes", "basis", "note")
        schema = {name: pl.Int64() if name == "bytes" else pl.String() for name in names}
        moved = [[getattr(m, name) for name in names] for r in self.phase_rows for m in r.traffic]
        return pl.DataFrame(moved, schema=schema, orient="row")

    @property
    def layers(self) -> pl.DataFrame:
        """One row per phase and layer."""
        return frame(PartRow, self.layer_rows).drop("op", "matrix")

    @property
    def matrices(self) -> pl.DataFrame:
        """One row per phase and kind of matrix, over all layers."""
        return frame(PartRow, self.matrix_rows).drop("layer")

    @property
    def plot(self) -> Any:
        """Pictures: `report.plot.breakdown()` and so on give matplotlib figures."""
        # By name: what draws a report stands right of it.
        return importlib.import_module("tracebook.plots").Plots(self)

    def _repr_html_(self) -> str:
        """What Jupyter shows: the verdict, the phase table and the warnings."""
        page = importlib.import_module("tracebook.render.html")
        return str(page.fragment(self))

    def to_json(self, *, steps: bool = False, paths: bool = False) -> str:
        """The report as JSON text: same report, same bytes.

        Args:
            steps: With the single steps and the kernels of the median step, each on a
                line of its own, so that all pictures can be drawn again.
            paths: With the path of the trace as the report has it, else its name alone:
                folders are named after people and machines.
        """
        content = asdict(replace(self, step_samples=None, median_step=None))
        if not paths:
            content["trace"]["path"] = PurePath(self.trace.path).name
        rows = {name: content.pop(f"{name}_rows") for name in ("phase", "layer", "matrix")}
        document = {
            "schema": SCHEMA,
            "trace": content["trace"],
            "machine": content["machine"],
            "run": content["run"],
            "steps": content["steps"],
            "phases": rows["phase"],
            "total": content["total"],
            "unclassified": content["unclassified"],
            "warnings": content["warnings"],
            "layers": rows["layer"],
            "matrices": rows["matrix"],
        }
        if self.nvtx is not None:
            document["nvtx"] = content["nvtx"]
        if self.run.tensor_parallel is None:
            del document["run"]["tensor_parallel"]
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        for key in _DETAIL if steps else ():
            if (detail := getattr(self, key)) is not None:
                line = json.dumps(asdict(detail), separators=(",", ":"), ensure_ascii=False)
                text = f'{text[:-2]},\n "{key}": {line}\n}}'
        return text + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ReportVersionError: The text is no report, is damaged, or comes from a
                newer tracebook.
        """
        try:
            document = printable_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ReportVersionError(
                f"This is not a saved report: {error}.",
                "Make one with `tracebook report RUN --format json -o FILE`.",
            ) from error
        document = _of_saved_run(document)
        _check_version(document)
        content = {key: value for key, value in document.items() if key != "schema"}
        for part, key in (("phase", "phases"), ("layer", "layers"), ("matrix", "matrices")):
            content[f"{part}_rows"] = content.pop(key, [])
        try:
            return decode(cls, content)
        except (KeyError, TypeError, ValueError) as error:
            raise ReportVersionError(
                f"The saved report is damaged: {error!r}.",
                "Make it again with `tracebook report RUN --format json -o FILE`.",
            ) from error

    def save(self, path: str | Path, *, steps: bool = False) -> None:
        """Write the JSON to a file; `steps` as in `to_json`."""
        with draft_of(Path(path)) as draft:
            draft.write_text(self.to_json(steps=steps), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that was saved.

        Raises:
            ReportVersionError: As `from_json`; also where the file cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ReportVersionError(
                f"The saved report {path} is no JSON text, but binary.",
                "Make one with `tracebook report RUN --format json -o FILE`.",
            ) from error
        except OSError as error:
            raise ReportVersionError(
                f"The saved report {path} cannot be read: {error}.", "Check the path."
            ) from error
        return cls.from_json(text)


def is_saved_report(path: Path) -> bool:
    """Whether a file is JSON text, so a saved report rather than a trace."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError:
        return False


def _of_saved_run(document: Any) -> Any:
    """The report within what `tracebook save` wrote of one run; anything else as it is."""
    runs = document.get("runs") if isinstance(document, dict) else None
    if isinstance(runs, list) and len(runs) == 1 and isinstance(runs[0], dict):
        return runs[0].get("report")
    return document


def _check_version(document: Any) -> None:
    """Refuse what is no report, or a newer one."""
    schema = document.get("schema") if isinstance(document, dict) else None
    number = schema.removeprefix(_FAMILY) if isinstance(schema, str) else ""
    if schema is None and isinstance(document, dict) and isinstance(document.get("files"), dict):
        raise ReportVersionError(
            "This holds the headers of a checkpoint, it is not a saved report.",
            "It goes with a trace: give it with --checkpoint.",
        )
    if not isinstance(schema, str) or not schema.startswith(_FAMILY) or not number.isdecimal():
        raise ReportVersionError(
            f"This is not a saved report: its schema is {schema!r}, not {SCHEMA!r}.",
            "Make one with `tracebook report RUN --format json -o FILE`.",
        )
    if int(number) != _VERSION:
        raise ReportVersionError(
            f"The report has schema {schema!r}; this tracebook reads {SCHEMA!r}.",
            "Upgrade tracebook, or make the report again from the trace.",
        )
