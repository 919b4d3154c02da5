"""Saved runs: a report with the times of every step, as compact JSON.

A baseline holds one run or several of one build, and the noise between them where it
was calibrated. It holds no time stamp, no host and, unless asked, no path. Reading it
needs numpy and nothing else. Older versions are upgraded, newer ones refused.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracebook.errors import ReportVersionError
from tracebook.phases import STEP_PHASES
from tracebook.printable import printable_json

Ints = NDArray[np.int64]

FAMILY = "tracebook.baseline/"
VERSION = 1
SCHEMA = f"{FAMILY}{VERSION}"

#: How to turn a document of one version into one of the next.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

#: Phases that a step can have.
_PHASES = frozenset(phase.value for phase in STEP_PHASES)

_AGAIN = "Make it again with `tracebook save RUN -o FILE`."


@dataclass(frozen=True)
class Part:
    """One kind of kernel at one place of the step.

    Attributes:
        phase: A `Phase` value.
        layer: Index of the layer, None outside layers.
        op: What it does, where that is known.
        matrix: The matrix that it reads, where it reads weights.
        kernel_class: Class of the kernel's name.
        name: The kernel's name.
        kernels: Kernels in a step.
        ns: Exclusive time in a step, the median over steps.
    """

    phase: str
    layer: int | None
    op: str | None
    matrix: str | None
    kernel_class: str
    name: str
    kernels: int
    ns: int


@dataclass(frozen=True)
class Run:
    """One capture: its report and what every kept step took.

    Attributes:
        report: The report's JSON.
        wall_ns: Per kept step, in time order.
        idle_ns: Per kept step.
        phases_ns: Phase to exclusive time per kept step; with idle they add up to wall.
        checkpoint_bytes: Tensor bytes of the checkpoints, by what they serve as (`target`,
            `drafter`, `draft_head`); None without a target.
        phases_trusted: False where the plan does not fit the kernels.
        parts: Kernels by role, for telling what is behind a change.
        clock: Median clock of the processors during the steps, in the unit of the
            export, None where it has none.
    """

    report: Mapping[str, Any]
    wall_ns: Ints
    idle_ns: Ints
    phases_ns: Mapping[str, Ints]
    checkpoint_bytes: Mapping[str, int] | None = None
    phases_trusted: bool = True
    parts: tuple[Part, ...] = ()
    clock: float | None = None

    @property
    def steps(self) -> int:
        """Number of kept steps."""
        return len(self.wall_ns)

    def fact(self, table: str, key: str) -> Any:
        """One entry of the report, None where it has none."""
        return (self.report.get(table) or {}).get(key)


@dataclass(frozen=True)
class Noise:
    """What repeated runs of one build differ by.

    Attributes:
        runs: Runs that it was learned from.
        between_runs: `step`, `idle` or phase to the standard deviation of a run's
            median, as a fraction of it.
    """

    runs: int
    between_runs: Mapping[str, float]


@dataclass(frozen=True)
class Baseline:
    """Runs of one build, to be compared with others."""

    runs: tuple[Run, ...]
    noise: Noise | None = None


def to_json(baseline: Baseline) -> str:
    """A baseline as JSON text, one line per run: same baseline, same bytes."""
    head: dict[str, Any] = {"schema": SCHEMA, "noise": None}
    if baseline.noise is not None:
        head["noise"] = {
            "runs": baseline.noise.runs,
            "between_runs": dict(baseline.noise.between_runs),
        }
    runs = ",\n".join(_compact(_run_document(run)) for run in baseline.runs)
    return f'{_compact(head)[:-1]},"runs":[\n{runs}\n]}}\n'


def from_json(text: str, *, source: str = "the file") -> Baseline:
    """Read what `to_json` wrote, of this version or an older one.

    Args:
        text: JSON.
        source: What messages call it.

    Raises:
        ReportVersionError: It is no baseline, is damaged, or comes from a newer
            tracebook.
    """
    try:
        document = printable_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ReportVersionError(f"{source} is not a saved run: {error}.", _AGAIN) from error
    document = _upgraded(document, source)
    try:
        runs = tuple(_run(entry) for entry in document["runs"])
        noise = document.get("noise")
        learned = None if noise is None else _noise(noise)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ReportVersionError(f"{source} is damaged: {error}.", _AGAIN) from error
    if not runs:
        raise ReportVersionError(f"{source} holds no run.", _AGAIN)
    return Baseline(runs, learned)


def load(path: str | Path) -> Baseline:
    """Read a saved baseline; a name that ends in .gz is unpacked.

    Raises:
        ReportVersionError: As `from_json`; also where the file cannot be read.
    """
    try:
        content = Path(path).read_bytes()
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ReportVersionError(f"{path} cannot be read: {error}.", "Check the path.") from error
    return from_json(text, source=str(path))


def write(baseline: Baseline, path: Path, *, packed: bool) -> None:
    """Write a baseline, gzip-packed where asked (without a time stamp)."""
    content = to_json(baseline).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)


def is_saved(path: Path) -> bool:
    """Whether a file is JSON, plain or packed, and so a saved run rather than a trace."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.lstrip().startswith(b"{") or head.startswith(b"\x1f\x8b")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _upgraded(document: Any, source: str) -> dict[str, Any]:
    """The document in the present version."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema.startswith("tracebook.report/"):
        raise ReportVersionError(
            f"{source} is a saved report: it lacks the times of single steps.",
            "Save the run for comparisons with `tracebook save RUN -o FILE`.",
        )
    number = schema.removeprefix(FAMILY) if isinstance(schema, str) else ""
    if not isinstance(schema, str) or not schema.startswith(FAMILY) or not number.isdecimal():
        raise ReportVersionError(
            f"{source} is not a saved run: its schema is {schema!r}, not {SCHEMA!r}.", _AGAIN
        )
    version = int(number)
    if version > VERSION:
        raise ReportVersionError(
            f"{source} has schema {schema!r}; this tracebook reads up to {SCHEMA!r}.",
            "Upgrade tracebook (pip install --upgrade nsys-tracebook), or save the run again.",
        )
    while version < VERSION:
        if version not in UPGRADES:
            raise ReportVersionError(f"{source} has schema {schema!r}, which never was.", _AGAIN)
        document = UPGRADES[version](document)
        version += 1
    return dict(document)


_PART_COLUMNS = ("phase", "layer", "op", "matrix", "kernel_class", "name", "kernels", "ns")
#: Columns that are kept as numbers of a list of texts: kernel names are long.
_TEXT_COLUMNS = ("phase", "op", "matrix", "kernel_class", "name")


def _run_document(run: Run) -> dict[str, Any]:
    texts: dict[str | None, int] = {}
    columns: dict[str, list[Any]] = {}
    for column in _PART_COLUMNS:
        values = [getattr(part, column) for part in run.parts]
        if column in _TEXT_COLUMNS:
            values = [texts.setdefault(value, len(texts)) for value in values]
        columns[column] = values
    return {
        "report": run.report,
        "checkpoint_bytes": None if run.checkpoint_bytes is None else dict(run.checkpoint_bytes),
        "phases_trusted": run.phases_trusted,
        "clock": run.clock,
        "wall_ns": run.wall_ns.tolist(),
        "idle_ns": run.idle_ns.tolist(),
        "phases_ns": {phase: values.tolist() for phase, values in run.phases_ns.items()},
        "parts": {"texts": list(texts), **columns},
    }


def _run(entry: Mapping[str, Any]) -> Run:
    phases = {str(phase): _ints(values) for phase, values in entry["phases_ns"].items()}
    wall, idle = _ints(entry["wall_ns"]), _ints(entry["idle_ns"])
    if any(len(values) != len(wall) for values in (idle, *phases.values())):
        raise ValueError("the phases have different numbers of steps")
    if len(wall) == 0:
        raise ValueError("it holds no step")
    strange = [phase for phase in phases if phase not in _PHASES]
    if strange:
        raise ValueError(f"{strange[0]!r} is no phase")
    if min(values.min() for values in (idle, *phases.values())) < 0:
        raise ValueError("a time is negative")
    if not np.array_equal(sum(phases.values(), idle), wall):
        raise ValueError("phases and idle do not add up to the steps")
    planned = entry.get("checkpoint_bytes")
    clock = entry.get("clock")
    report = entry["report"]
    _check_report(report)
    return Run(
        report=report,
        wall_ns=wall,
        idle_ns=idle,
        phases_ns=phases,
        checkpoint_bytes=None if planned is None else {str(k): int(v) for k, v in planned.items()},
        phases_trusted=bool(entry.get("phases_trusted", True)),
        parts=_parts(entry.get("parts") or {}),
        clock=None if clock is None else float(clock),
    )


def _check_report(report: Any) -> None:
    """What is looked up in a report must have the shape that is relied on."""
    if not isinstance(report, dict):
        raise TypeError("its report is not an object")
    rows = report.get("phases", [])
    if not isinstance(rows, list):
        raise TypeError("the phases of its report are not a list")
    tables = [report.get(name) or {} for name in ("trace", "run", "total")]
    for table in (*tables, *rows):
        if not isinstance(table, dict):
            raise TypeError("a part of its report is not an object")
    for value in (value for table in tables for value in table.values()):
        if isinstance(value, dict):
            raise TypeError("a fact of its report is an object")


def _ints(values: Sequence[Any]) -> Ints:
    if not all(type(value) is int for value in values):
        raise TypeError("times must be whole nanoseconds")
    return np.array(values, dtype=np.int64)


def _parts(columns: Mapping[str, Any]) -> tuple[Part, ...]:
    if not columns:
        return ()
    texts = columns["texts"]
    lists = [
        [texts[value] for value in columns[column]] if column in _TEXT_COLUMNS else columns[column]
        for column in _PART_COLUMNS
    ]
    parts = tuple(Part(*values) for values in zip(*lists, strict=True))
    for part in parts:
        numbers = (part.kernels, part.ns, 0 if part.layer is None else part.layer)
        texts = (part.phase, part.kernel_class, part.name, part.op or "", part.matrix or "")
        if not all(type(n) is int for n in numbers) or not all(type(t) is str for t in texts):
            raise TypeError("a kernel is not described as it must be")
    return parts


def _noise(entry: Mapping[str, Any]) -> Noise:
    between = {str(name): float(value) for name, value in entry["between_runs"].items()}
    if any(not 0 <= value < 10 for value in between.values()):
        raise ValueError("a noise between runs is out of range")
    return Noise(int(entry["runs"]), between)
