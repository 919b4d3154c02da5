"""From an opened export to a `Trace`: refuse, read, clean, name, select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from tracebook.errors import CaptureIncomplete, TraceError
from tracebook.importers.columns import column_map, pick
from tracebook.importers.facts import read_facts
from tracebook.importers.gather import Gathering
from tracebook.importers.names import resolve_names
from tracebook.importers.refusals import is_graph_level, refuse_without_kernels
from tracebook.importers.source import PAGE_ROWS, Source
from tracebook.importers.window import Selection, Span
from tracebook.notices import Notice
from tracebook.scratch import Scratch
from tracebook.trace import Trace


def assemble(source: Source, selection: Selection, scratch: Scratch) -> Trace:
    """Make a `Trace` of an export, see `open_trace`; its columns lie in `scratch`."""
    refuse_without_kernels(source)
    info = read_facts(source)
    mapping = column_map()
    present = source.tables[mapping.kernel_table]
    columns = {
        **pick(mapping.required, present),
        **_name_columns(present),
        **pick(mapping.optional, present),
    }
    window = selection.window(_span(source) if selection.needs_span else None)
    gathering = Gathering(selection, scratch)
    source.kernels(mapping.kernel_table, columns, window, gathering.take)
    notices = gathering.notices()
    if is_graph_level(source, mode=info.capture_mode, nodes_seen=gathering.nodes_seen):
        raise CaptureIncomplete(
            f"{source.path} was captured at graph level: the kernels inside CUDA graphs "
            "are not in it.",
            "Record again with nsys profile --cuda-graph-trace=node",
        )
    if not gathering.rows:
        if window == (None, None):
            raise _nothing_usable(source.path, notices)
        raise _nothing_in_window(source.path, _span(source))
    if info.capture_mode == "unknown" and gathering.nodes_seen:
        info = replace(info, capture_mode="node")
    kernels = gathering.kernels(source.path)
    names, name_notices = resolve_names(source, gathering.short_ids())
    scratch.release()
    return Trace(
        info=replace(info, notices=(*info.notices, *notices, *name_notices)),
        kernels=kernels,
        names=names,
        scratch=scratch,
    )


def select(trace: Trace, selection: Selection) -> Trace:
    """The part of a whole trace that a selection asks for.

    The notices stay those of the whole.

    Raises:
        TraceError: Nothing is left.
    """
    if selection == Selection():
        return trace
    kernels, path = trace.kernels, trace.info.path
    start = kernels["start_ns"]
    span: Span = (start[0], kernels["end_ns"].max())  # type: ignore[assignment]
    begin, end = selection.window(span)
    first = 0 if begin is None else start.search_sorted(begin)
    last = kernels.height if end is None else start.search_sorted(end)
    kernels = kernels.slice(first, max(0, last - first))
    if kernels.is_empty():
        raise _nothing_in_window(path, span)
    if selection.device is not None or selection.pid is not None:
        gathering = Gathering(selection, trace.scratch)
        for at in range(0, kernels.height, PAGE_ROWS):
            gathering.store(kernels.slice(at, PAGE_ROWS), at, kernels.height)
        kernels = gathering.kernels(path)
    names = trace.names.filter(pl.col("name_id").is_in(kernels["name_id"].unique().implode()))
    return replace(trace, kernels=kernels, names=names)


def _name_columns(present: Sequence[str]) -> dict[str, str]:
    """Full and short name, or the mangled one where neither exists: each column costs time."""
    names = pick(column_map().names, present)
    if len(names) > 1:
        names.pop("mangled", None)
    return names


def _span(source: Source) -> Span | None:
    mapping = column_map()
    columns = pick(mapping.required, source.tables[mapping.kernel_table])
    return source.span(mapping.kernel_table, columns["start_ns"], columns["end_ns"])


def _nothing_usable(path: Path, notices: Sequence[Notice]) -> TraceError:
    return TraceError(
        f"{path} has no usable kernel row: " + " ".join(notice.message for notice in notices),
        "Repeat the export.",
    )


def _nothing_in_window(path: Path, span: Span | None) -> TraceError:
    hint = "Widen it."
    if span:
        hint = f"Kernels run from {span[0] / 1e9:.3f} s to {span[1] / 1e9:.3f} s."
    return TraceError(f"{path} has no kernel in the window asked for.", hint)
