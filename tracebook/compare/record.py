"""From a trace to a `Run`: the report, and what it is made of step by step.

This is the one module here that needs a trace, so the one that imports what traces need.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any, Unpack

import numpy as np
import polars as pl

from tracebook.account import account
from tracebook.analysis import Examined, examine
from tracebook.checkpoint import read_checkpoint
from tracebook.checkpoint.hf_cache import locate
from tracebook.compare.baseline import Part, Run
from tracebook.config import RunDescription
from tracebook.importers.clocks import processor_clock
from tracebook.options import Options
from tracebook.phases import Phase
from tracebook.step_time import StepTime, group, per_step, share_out

_ROLE = ("phase", "layer", "op", "matrix", "kernel_class", "name_id")
_NO_LAYER = -1


def record(path: str | Path, *, keep_paths: bool = False, **options: Unpack[Options]) -> Run:
    """Analyse a trace and keep the times of every step.

    Args:
        path: The trace.
        keep_paths: Keep the paths of the trace and of checkpoints as the report has
            them; else their last parts alone.
        **options: As `tracebook.analyze`.

    Raises:
        TracebookError: As `tracebook.analyze`.
    """
    return run_of(examine(path, **options), keep_paths=keep_paths)


def run_of(examined: Examined, *, keep_paths: bool = False) -> Run:
    """What `record` keeps of an examined trace."""
    labelled = examined.labelled
    report = account(labelled, trace=examined.trace, machine=examined.machine, run=examined.run)
    document: dict[str, Any] = json.loads(report.to_json(paths=keep_paths))
    if not keep_paths:
        _drop_paths(document)
    time = share_out(labelled.kernels, labelled.steps, examined.trace.scratch)
    groups = group(time.labels, ("phase",))
    owned = per_step(groups, time.owned)
    order = [phase.value for phase in Phase]
    found = sorted(
        ((str(key[0]), owned[code]) for code, key in enumerate(groups.keys) if owned[code].any()),
        key=lambda item: order.index(item[0]),
    )
    return Run(
        report=document,
        wall_ns=time.wall_ns,
        idle_ns=time.idle_ns,
        phases_ns=dict(found),
        checkpoint_bytes=_checkpoint_bytes(examined.run),
        phases_trusted=labelled.verdict is None or labelled.verdict.phases_trusted,
        parts=_parts(time, examined.trace.names),
        clock=_clock(examined),
    )


def _clock(examined: Examined) -> float | None:
    """Median clock of the processors from the first kept step to the last."""
    labelled = examined.labelled
    found = processor_clock(
        examined.trace.info.path,
        device=labelled.device,
        from_ns=labelled.steps["start_ns"][0],
        to_ns=labelled.steps["end_ns"][-1],
    )
    return None if found is None else found[1]


def _drop_paths(document: dict[str, Any]) -> None:
    """Leave the last part of each path."""
    trace, run = document["trace"], document["run"]
    trace["path"] = PurePath(trace["path"]).name
    for name in ("target", "drafter", "draft_head"):
        if run[name] is not None:
            run[name] = PurePath(run[name]).name


def _checkpoint_bytes(run: RunDescription) -> dict[str, int] | None:
    """Tensor bytes of each checkpoint: what tells one checkpoint from another."""
    if run.target is None:
        return None
    sources = {"target": run.target, "drafter": run.drafter, "draft_head": run.draft_head}
    return {
        name: read_checkpoint(locate(source)).payload_bytes
        for name, source in sources.items()
        if source is not None
    }


def _parts(time: StepTime, names: pl.DataFrame) -> tuple[Part, ...]:
    """Kernels by role and name, in the order of phases and layers."""
    keyed = time.labels.with_columns(
        pl.col("layer").fill_null(_NO_LAYER), pl.col("op", "matrix").fill_null("")
    )
    groups = group(keyed, _ROLE)
    owned = np.median(per_step(groups, time.owned), axis=1)
    kernels = np.median(per_step(groups, time.kernels), axis=1)
    by_id = dict(names.select("name_id", "name").iter_rows())
    parts = []
    for code, (phase, layer, op, matrix, kernel_class, name_id) in enumerate(groups.keys):
        if owned[code] > 0:
            parts.append(
                Part(
                    phase=str(phase),
                    layer=None if layer == _NO_LAYER else int(layer),
                    op=str(op) or None,
                    matrix=str(matrix) or None,
                    kernel_class=str(kernel_class),
                    name=str(by_id.get(name_id, f"name {name_id}")),
                    kernels=int(kernels[code]),
                    ns=round(float(owned[code])),
                )
            )
    order = [phase.value for phase in Phase]
    return tuple(sorted(parts, key=lambda part: (order.index(part.phase), part.layer or 0)))
