"""What is wrong with a capture, as far as its kernel rows and its own words tell.

In: a trace. Out: notices. Whether decode steps are in it is for later stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tracebook.columns import Values, distinct, parts
from tracebook.notices import Notice
from tracebook.trace import Trace

#: One decode step of a 64-layer model launches about this many kernels.
_FEW_KERNELS = 1000
_LISTED = 8


def capture_notices(trace: Trace) -> tuple[Notice, ...]:
    """Judge a capture.

    Args:
        trace: The kernels that are examined, after any selection.

    Returns:
        The importer's own notices, then one for each of: several devices, several
        processes, few kernels, unknown capture mode.
    """
    kernels = trace.kernels
    devices, pids = distinct(kernels["device"]), distinct(kernels["pid"])
    found = list(trace.info.notices)
    if len(devices) > 1:
        found.append(_several("devices", "device", devices))
    if len(pids) > 1:
        found.append(_several("processes", "pid", pids))
    repeated = _repeated_rows(kernels)
    if repeated:
        words = "1 kernel row repeats" if repeated == 1 else f"{repeated:,} kernel rows repeat"
        found.append(
            Notice(
                "rows_repeated",
                f"{words} another one: same start, end, device, stream and name. Times are "
                "counted twice.",
                "Was an export appended to another one, or imported twice? Export the run anew.",
            )
        )
    if kernels.height < _FEW_KERNELS:
        found.append(
            Notice(
                "few_kernels",
                f"Only {_counted(kernels.height)}: one decode step of a large model alone "
                f"has about {_FEW_KERNELS:,}.",
                "Rows are lost when a process is killed: let it end by itself, or call "
                "cudaProfilerStop.",
            )
        )
    if trace.info.capture_mode == "unknown":
        found.append(
            Notice(
                "capture_mode_unknown",
                "The export does not say how CUDA graphs were traced; kernels inside graphs "
                "could be missing.",
                "Where graphs were used, record with nsys profile --cuda-graph-trace=node",
            )
        )
    return tuple(found)


def _repeated_rows(kernels: pl.DataFrame) -> int:
    """Rows that say the same as the one before them; the rows are in order of time."""
    start, end = Values(kernels["start_ns"]), Values(kernels["end_ns"])
    names = ("device", "pid", "stream", "name_id", "grid_x")
    found = 0
    for part in parts(len(kernels) - 1):
        following = slice(part.start + 1, part.stop + 1)
        # A kernel without duration may well be followed by its like.
        alike = (start[part] == start[following]) & (end[part] == end[following])
        at = part.start + np.flatnonzero(alike & (end[part] > start[part]))
        if len(at):  # hardly ever
            one, other = kernels[at, names], kernels[at + 1, names]
            same = [one[name].eq_missing(other[name]).to_numpy() for name in names]
            found += int(np.all(same, axis=0).sum())
    return found


def _several(many: str, flag: str, numbers: Sequence[int]) -> Notice:
    listed = ", ".join(str(number) for number in numbers[:_LISTED])
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return Notice(
        f"several_{many}",
        f"Kernels of {len(numbers)} {many} are in the capture: {listed}{more}.",
        f"Choose one with --{flag}.",
    )


def _counted(kernels: int) -> str:
    return "1 kernel is in the capture" if kernels == 1 else f"{kernels:,} kernels are in it"
