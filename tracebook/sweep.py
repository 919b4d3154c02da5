"""Many traces, one row each: in this process, in several, or on a Dask cluster.

A trace that cannot be read or has no decode steps is a row with its error; it does not
stop the others. What goes between processes is paths, options and rows of plain values.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tracebook.analysis import analyze
from tracebook.errors import TracebookError
from tracebook.options import Options
from tracebook.report import Report, is_saved_report


@dataclass(frozen=True)
class Row:
    """One run: the figures of its median step, or why there are none.

    `weight_gbps` is bytes of weights over time; percent is of the machine's published peak,
    all traffic counted. `slowest` is the phase with most time.
    """

    path: str
    target: str | None = None
    draft_method: str | None = None
    draft_tokens: int | None = None
    gpu: str | None = None
    steps: int | None = None
    step_ms: float | None = None
    idle_ms: float | None = None
    tokens_per_s: float | None = None
    weight_bytes: int | None = None
    weight_gbps: float | None = None
    roofline_pct: float | None = None
    floor_ms: float | None = None
    slowest: str | None = None
    warnings: int | None = None
    error: str | None = None
    hint: str | None = None


def expand(patterns: Sequence[str]) -> list[Path]:
    """Paths of patterns in order, each once; a pattern that matches nothing stays as it is."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        matches = [] if Path(pattern).exists() else _matches(pattern)
        found.update(dict.fromkeys(Path(match) for match in matches or [pattern]))
    return list(found)


def _matches(pattern: str) -> list[str]:
    # Path.glob takes no absolute pattern.
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


def sweep(
    paths: Sequence[Path], options: Options, *, jobs: int = 1, dask: str | None = None
) -> Iterator[Row]:
    """Analyse many traces; rows come in the order of the paths.

    Args:
        paths: Traces, or reports that were saved.
        options: As `analyze`, the same for all; a run.toml beside each says what differs.
        jobs: Processes on this machine.
        dask: Address of a Dask scheduler whose workers see the same paths; then `jobs` is
            not looked at.

    Raises:
        TracebookError: The cluster cannot be reached, or Dask is not installed.
    """
    if dask is not None:
        yield from _on_cluster(paths, options, dask)
    elif jobs == 1 or len(paths) == 1:
        yield from (row_of(path, options) for path in paths)
    else:
        # Fresh processes: a fork would copy the locks of threads that polars has running.
        with ProcessPoolExecutor(min(jobs, len(paths)), get_context("spawn")) as pool:
            tasks = [pool.submit(row_of, path, options) for path in paths]
            try:
                yield from (_finished(task, path) for task, path in zip(tasks, paths, strict=True))
            finally:
                pool.shutdown(cancel_futures=True)


def row_of(path: Path, options: Options) -> Row:
    """The row of one run."""
    if glob.has_magic(str(path)) and not path.exists():
        return Row(str(path), error=f"No file matches {path}.", hint="Check the pattern.")
    try:
        report = Report.load(path) if is_saved_report(path) else analyze(path, **options)
    except TracebookError as error:
        return Row(str(path), error=error.message, hint=error.hint)
    except Exception as error:  # a fault of the program must not lose the other rows
        return Row(str(path), error=f"fault in tracebook: {type(error).__name__}: {error}")
    steps, total, run = report.steps, report.total, report.run
    slowest = max(report.phase_rows, key=lambda phase: phase.ms.median, default=None)
    return Row(
        path=str(path),
        target=run.target,
        draft_method=run.draft_method,
        draft_tokens=run.draft_tokens,
        gpu=report.trace.gpu,
        steps=steps.kept,
        step_ms=steps.wall_ms.median,
        idle_ms=steps.idle_ms.median,
        tokens_per_s=steps.tokens_per_s,
        weight_bytes=total.weight_bytes,
        weight_gbps=total.weight_gbps,
        roofline_pct=total.roofline_pct,
        floor_ms=total.floor_ms,
        slowest=slowest.phase if slowest is not None else None,
        warnings=len(report.warnings),
    )


def _finished(task: Future[Row], path: Path) -> Row:
    try:
        return task.result()
    except Exception as error:  # the process was killed, as where memory ran out
        return Row(str(path), error=f"its process ended: {type(error).__name__}: {error}")


def _on_cluster(paths: Sequence[Path], options: Options, address: str) -> Iterator[Row]:
    try:
        import distributed
    except ImportError as error:
        raise TracebookError(
            "Dask is not installed, and --dask needs it.",
            "Install it with: pip install 'nsys-tracebook[dask]'",
        ) from error
    connect: Any = distributed.Client  # without types, where it has any at all
    try:
        client = connect(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TracebookError(
            f"No Dask scheduler answers at {address}: {error}.", "Check the address and its port."
        ) from error
    with client:
        absolute = [path.absolute() for path in paths]
        tasks = client.map(row_of, absolute, options=options, pure=False)
        for task, path in zip(tasks, paths, strict=True):
            try:
                row: Row = replace(task.result(), path=str(path))  # as it was given
            except Exception as error:  # a worker died or cannot import tracebook
                row = Row(str(path), error=f"its worker failed: {type(error).__name__}: {error}")
            yield row
