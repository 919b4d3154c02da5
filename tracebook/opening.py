"""Which part of a capture is opened: within the memory allowed, and as much as N steps need.

In: a path and a window. Out: a trace, or windows that grow until they hold enough steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tracebook.errors import TraceError
from tracebook.importers import capture_extent, kernel_rows, open_trace
from tracebook.importers.window import At, Percent, Selection, Span
from tracebook.trace import Trace
from tracebook.units import BYTES_PER_GB

#: Peak memory per kernel of what needs most, the table of kernels, and of the program without
#: any, as measured in docs/performance.md. A report needs half of it.
BYTES_PER_KERNEL = 400
BASE_BYTES = 200_000_000
#: The first window is as long as N steps and some warm-up of this length would be.
_STEP_NS = 50_000_000
_GROWTH = 3


def open_within(
    path: Path,
    *,
    max_memory_bytes: int | None = None,
    device: int | None = None,
    pid: int | None = None,
    from_ns: At | None = None,
    to_ns: At | None = None,
) -> Trace:
    """Open a part of a trace, unless a report on it would take too much memory.

    Args:
        path: The trace.
        max_memory_bytes: What may be used; half of the machine's memory if None.
        device: As `open_trace`.
        pid: As `open_trace`.
        from_ns: As `open_trace`.
        to_ns: As `open_trace`.

    Raises:
        TraceError: As `open_trace`, or the part is too large.
    """
    _refuse_backwards(from_ns, to_ns)
    allowed = max_memory_bytes if max_memory_bytes is not None else half_of_memory()
    span: Span | None = None
    if from_ns is None and to_ns is None:
        kernels = kernel_rows(path)  # to know its times would take a scan
    else:
        kernels, span = capture_extent(path)
    share = 1.0
    if span is not None:
        begin, end = Selection(from_ns=from_ns, to_ns=to_ns).window(span)
        first = max(span[0], begin if begin is not None else span[0])
        last = min(span[1], end if end is not None else span[1])
        share = max(0.0, last - first) / max(1, span[1] - span[0])
    needed = BASE_BYTES + round(BYTES_PER_KERNEL * kernels * share)
    if allowed is not None and needed > allowed:
        raise TraceError(
            f"{path} has about {round(kernels * share):,} kernels there, for which about "
            f"{needed / BYTES_PER_GB:.1f} GB of memory are needed; "
            f"{allowed / BYTES_PER_GB:.1f} GB are allowed.",
            "Look at a part with --steps 200, or with --from and --to; or raise --max-memory.",
        )
    return open_trace(path, device=device, pid=pid, from_ns=from_ns, to_ns=to_ns)


def growing_windows(
    path: Path, steps: int, from_ns: At | None, to_ns: At | None
) -> Iterator[tuple[int, int, bool]]:
    """Windows that begin alike and grow: (from, to, whether this is all there is), in ns.

    Raises:
        TraceError: The path cannot be read, or has no kernel in the window.
    """
    _refuse_backwards(from_ns, to_ns)
    _, span = capture_extent(path, exact=True)
    if span is None:
        raise TraceError(f"{path} has no usable kernel row.", "Repeat the export.")
    begin, end = Selection(from_ns=from_ns, to_ns=to_ns).window(span)
    first = max(span[0], begin if begin is not None else span[0])
    last = min(span[1] + 1, end if end is not None else span[1] + 1)
    length = (steps + 20) * _STEP_NS
    while first + length < last:
        yield first, first + length, False
        length *= _GROWTH
    yield first, max(first, last), True


def _refuse_backwards(from_ns: At | None, to_ns: At | None) -> None:
    """Raise where a window ends before it begins; a time and a percent are not held together."""
    if isinstance(from_ns, Percent) and isinstance(to_ns, Percent):
        wrong, begin, end = to_ns.value < from_ns.value, f"{from_ns.value:g}", f"{to_ns.value:g}"
        unit = "%"
    elif isinstance(from_ns, int) and isinstance(to_ns, int):
        wrong, begin, end = to_ns < from_ns, f"{from_ns / 1e9:g}", f"{to_ns / 1e9:g}"
        unit = "s"
    else:
        return
    if wrong:
        raise TraceError(
            f"The window ends before it begins: from {begin} {unit} to {end} {unit}.",
            "Give --to more than --from.",
        )


def half_of_memory() -> int | None:
    """Half of the machine's memory in bytes, None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return None
