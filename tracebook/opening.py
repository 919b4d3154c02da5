"""Which part of a capture is opened: within the memory allowed, and as much as N steps need.

In: a path and a window. Out: a trace, or windows that grow until they hold enough steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tracebook.cache import cache_dir
from tracebook.errors import TraceError
from tracebook.importers import capture_extent, kernel_rows, open_trace, readable_in_parts
from tracebook.importers.window import At, Percent, Selection
from tracebook.scratch import MEMORY, Scratch
from tracebook.trace import Trace
from tracebook.units import BYTES_PER_GB

#: Peak memory of the program without any kernel, and per kernel of a report, of the table of
#: kernels, and of an export for Perfetto, as measured in docs/performance.md. Kernels that lie
#: in files take none, so the first is also the least that can be allowed.
BASE_BYTES = 200_000_000
REPORT_BYTES_PER_KERNEL = 160
TABLE_BYTES_PER_KERNEL = 400
PERFETTO_BYTES_PER_KERNEL = 4000
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
    """Open a part of a trace: in memory, or in files where a report would take too much of it.

    The files lie in the cache directory, without names, and go with the trace.

    Args:
        path: The trace.
        max_memory_bytes: What may be used; half of the machine's memory if None.
        device: As `open_trace`.
        pid: As `open_trace`.
        from_ns: As `open_trace`.
        to_ns: As `open_trace`.

    Raises:
        TraceError: As `open_trace`, or less memory is allowed than the program itself needs,
            or the disk has no room.
    """
    kernels = kernels_between(path, from_ns, to_ns)
    allowed = max_memory_bytes if max_memory_bytes is not None else half_of_memory()
    scratch = MEMORY
    if allowed is not None and BASE_BYTES + REPORT_BYTES_PER_KERNEL * kernels > allowed:
        _refuse_what_files_cannot_help(path, kernels, allowed)
        scratch = Scratch(cache_dir() / "scratch")
    return open_trace(path, device=device, pid=pid, from_ns=from_ns, to_ns=to_ns, scratch=scratch)


def refuse_words_beyond(
    path: Path, kernels: int, bytes_per_kernel: int, max_memory_bytes: int | None = None
) -> None:
    """Refuse where a row in words for each kernel would not fit: such rows are never in files.

    Args:
        path: The trace.
        kernels: How many kernels are to be told.
        bytes_per_kernel: What a row takes.
        max_memory_bytes: As `open_within`.

    Raises:
        TraceError: They would take more than may be used.
    """
    allowed = max_memory_bytes if max_memory_bytes is not None else half_of_memory()
    if allowed is not None and BASE_BYTES + bytes_per_kernel * kernels > allowed:
        hint = (
            "Take a part with --steps 200, or with --from and --to, or raise --max-memory. "
            "A report needs no rows and takes traces of any size."
        )
        raise _too_large(path, kernels, bytes_per_kernel, allowed, hint)


def kernels_between(path: Path, from_ns: At | None, to_ns: At | None) -> int:
    """About how many kernels a part of a trace has, by its share of the time.

    Raises:
        TraceError: The path cannot be read, or the part ends before it begins.
    """
    _refuse_backwards(from_ns, to_ns)
    if from_ns is None and to_ns is None:
        return kernel_rows(path)  # to know its times would take a scan
    kernels, span = capture_extent(path)
    if span is None:
        return kernels
    begin, end = Selection(from_ns=from_ns, to_ns=to_ns).window(span)
    first = max(span[0], begin if begin is not None else span[0])
    last = min(span[1], end if end is not None else span[1])
    return round(kernels * max(0, last - first) / max(1, span[1] - span[0]))


def _refuse_what_files_cannot_help(path: Path, kernels: int, allowed: int) -> None:
    """Raise where less is allowed than any trace takes, or a table is only read whole."""
    if allowed < BASE_BYTES:
        raise TraceError(
            f"{allowed / 1e6:.0f} MB of memory are allowed; the program itself takes "
            f"{BASE_BYTES / 1e6:.0f} MB.",
            f"Give --max-memory {BASE_BYTES / 1e6:.0f}MB or more: traces of any size fit in that.",
        )
    if not readable_in_parts(path):
        hint = (
            "Its table of kernels is an Arrow stream, which is read whole: export the run as "
            "parquetdir or sqlite, or raise --max-memory."
        )
        raise _too_large(path, kernels, REPORT_BYTES_PER_KERNEL, allowed, hint)


def _too_large(
    path: Path, kernels: int, bytes_per_kernel: int, allowed: int, hint: str
) -> TraceError:
    needed = BASE_BYTES + bytes_per_kernel * kernels
    return TraceError(
        f"{path} has about {kernels:,} kernels there, for which about "
        f"{needed / BYTES_PER_GB:.1f} GB of memory are needed; "
        f"{allowed / BYTES_PER_GB:.1f} GB are allowed.",
        hint,
    )


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
