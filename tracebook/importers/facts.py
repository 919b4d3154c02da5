"""Facts about a capture from the small tables of an export."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from tracebook.config import is_hub_id
from tracebook.importers.columns import column_map, pick
from tracebook.importers.command_line import model_of
from tracebook.importers.source import Source
from tracebook.notices import Notice
from tracebook.printable import printable
from tracebook.trace import CaptureMode, Gpu, TraceInfo

_MODE_SUFFIX = "CUDA_GRAPH_TRACE_OPTIONS:MODE"
SYNTHETIC_KEY, TRIMMED_KEY = "TRACEBOOK_SYNTHETIC", "TRACEBOOK_TRIMMED"
#: Longer messages are none of nsys's, and a pattern may need the square of a length.
_LONGEST_MESSAGE = 2_000
#: Messages of DIAGNOSTIC_EVENT that put the kernel rows in doubt, as exports of nsys
#: 2024 to 2026 word them. (code, pattern in small letters, what is said instead, a
#: message without names that matches this pattern alone)
_DIAGNOSTICS = (
    (
        "events_lost",
        r"not all cuda events",
        "not all CUDA events may have been collected",
        "Not all CUDA events were collected.",
    ),
    (
        "events_lost",
        r"cuda.*(dropped|lost|discarded|overflow)|(dropped|lost|discarded|overflow).*cuda",
        "CUDA events were dropped",
        "CUDA events were dropped.",
    ),
    (
        "cuda_not_started",
        r"cuda profiling might (have not|not have) been started",
        "CUDA profiling may not have been started correctly",
        "CUDA profiling might have not been started correctly.",
    ),
)
_LONGEST_FACT = 200
_LOST_HINT = "Record a shorter window, and let the program end by itself."
DIAGNOSTICS_TABLE = "DIAGNOSTIC_EVENT"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def read_facts(source: Source) -> TraceInfo:
    """Versions, capture mode, GPUs, model and whether the trace says it is synthetic.

    The mode is `unknown` where neither the metadata nor a table tells; the kernel rows
    may tell then.
    """
    mapping = column_map()
    export = [row for table in mapping.metadata_tables for row in _pairs(source, table)]
    capture = _pairs(source, mapping.capture_table)
    facts = {str(name): printable(str(value)[:_LONGEST_FACT]) for name, value in export}
    return TraceInfo(
        path=source.path,
        nsys_version=facts.get("EXPORT_PRODUCT_VERSION"),
        schema_version=facts.get("EXPORT_SCHEMA_VERSION"),
        capture_mode=_capture_mode(source, capture),
        gpus=_gpus(source),
        synthetic=_says(SYNTHETIC_KEY, [*export, *capture]),
        model_hint=_without_folders(model_of(capture)),
        notices=(*_trimmed(export), *_lost_events(source)),
    )


def _pairs(source: Source, table: str) -> list[tuple[object, object]]:
    columns = source.tables.get(table, ())
    if "name" not in columns or "value" not in columns:
        return []
    return [(name, value) for name, value in source.rows(table, ("name", "value"))]


def _without_folders(model: str | None) -> str | None:
    """A hub id as it is; of a path the last part, since folders are named after people."""
    return model if model is None or is_hub_id(model) else PurePath(model).name or None


def _says(key: str, rows: Iterable[tuple[object, object]]) -> bool:
    return any(name == key and str(value).lower() == "true" for name, value in rows)


def _capture_mode(source: Source, capture: Iterable[tuple[object, object]]) -> CaptureMode:
    for name, value in capture:
        if str(name).endswith(_MODE_SUFFIX):
            word = str(value).lower()
            if word.startswith("graph"):
                return "graph"
            if word.startswith("node"):
                return "node"
    return "graph" if source.has_rows(GRAPH_TRACE) else "unknown"


def _trimmed(export: Iterable[tuple[object, object]]) -> tuple[Notice, ...]:
    if not _says(TRIMMED_KEY, export):
        return ()
    return (
        Notice(
            "trimmed",
            "This trace was trimmed: it holds some steps of a capture, without their surroundings.",
            "What lies outside of them can only be seen in the capture itself.",
        ),
    )


def _lost_events(source: Source) -> tuple[Notice, ...]:
    """What the profiler itself said about events it did not get, counted by kind.

    Its messages can hold paths and names, so only their kind and number are kept.
    """
    notices = []
    for (code, _, words, _), count in zip(_DIAGNOSTICS, lost_counts(source), strict=True):
        if count:
            times = "once" if count == 1 else f"{count:,} times"
            notices.append(Notice(code, f"The profiler said {times}: {words}.", _LOST_HINT))
    return tuple(notices)


def lost_counts(source: Source) -> tuple[int, ...]:
    """How often the profiler said each of the sentences that put rows in doubt."""
    texts: list[str] = []
    if "text" in source.tables.get(DIAGNOSTICS_TABLE, ()):
        rows = source.rows(DIAGNOSTICS_TABLE, ("text",))
        texts = [str(text)[:_LONGEST_MESSAGE].lower() for (text,) in rows]
    return tuple(
        sum(1 for text in texts if re.search(pattern, text)) for _, pattern, _, _ in _DIAGNOSTICS
    )


def lost_words() -> tuple[str, ...]:
    """For each of those sentences one that says the same and names nothing."""
    return tuple(plain for _, _, _, plain in _DIAGNOSTICS)


def _gpus(source: Source) -> tuple[Gpu, ...]:
    """GPUs sorted by id. An export lists all devices of the machine, in any order."""
    mapping = column_map()
    columns = pick(mapping.gpus, source.tables.get(mapping.gpu_table, ()))
    if "name" not in columns:
        return ()
    gpus = []
    for row in source.rows(mapping.gpu_table, tuple(columns.values()), limit=1000):
        values = dict(zip(columns, row, strict=True))
        device, name = values.get("device"), values.get("name")
        bandwidth = _positive(values.get("bandwidth_bytes_per_s"))
        sm_count = _positive(values.get("sm_count"))
        gpus.append(
            Gpu(
                device=device if isinstance(device, int) else None,
                name=printable(str(name)[:_LONGEST_FACT]) if name else "unknown GPU",
                bandwidth_gbps=bandwidth / 1e9 if bandwidth else None,
                sm_count=sm_count,
            )
        )
    return tuple(sorted(gpus, key=lambda gpu: (gpu.device is None, gpu.device or 0)))


def _positive(value: object) -> int | None:
    """Zero stands for unknown there, as for display adapters without CUDA."""
    return value if isinstance(value, int) and value > 0 else None
