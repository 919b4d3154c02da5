"""From an opened export to a `Trace`: refuse, read, clean, name, select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from tracebook.errors import CaptureIncomplete, TraceError
from tracebook.importers.clean import clean_page, join_pages
from tracebook.importers.columns import column_map, pick
from tracebook.importers.facts import read_facts
from tracebook.importers.names import resolve_names
from tracebook.importers.refusals import is_graph_level, refuse_without_kernels
from tracebook.importers.source import Source
from tracebook.importers.window import Selection, Span
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA, Trace


def assemble(source: Source, selection: Selection) -> Trace:
    """Make a `Trace` of an export, see `open_trace`."""
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
    kernels, notices = join_pages(source.kernels(mapping.kernel_table, columns, window, clean_page))
    nodes_seen = kernels["graph_node_id"].null_count() < kernels.height
    if is_graph_level(source, mode=info.capture_mode, nodes_seen=nodes_seen):
        raise CaptureIncomplete(
            f"{source.path} was captured at graph level: the kernels inside CUDA graphs "
            "are not in it.",
            "Record again with nsys profile --cuda-graph-trace=node",
        )
    if kernels.is_empty():
        if window == (None, None):
            raise _nothing_usable(source.path, notices)
        raise _nothing_in_window(source.path, _span(source))
    if info.capture_mode == "unknown" and nodes_seen:
        info = replace(info, capture_mode="node")
    kernels = _of_device_and_process(kernels, selection, source.path)
    names, name_notices = resolve_names(source, kernels)
    return Trace(
        info=replace(info, notices=(*info.notices, *notices, *name_notices)),
        kernels=kernels.select(*KERNEL_SCHEMA),
        names=names,
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
    span: Span = kernels.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    first, last = selection.window(span)
    if first is not None:
        kernels = kernels.filter(pl.col("start_ns") >= first)
    if last is not None:
        kernels = kernels.filter(pl.col("start_ns") < last)
    if kernels.is_empty():
        raise _nothing_in_window(path, span)
    kernels = _of_device_and_process(kernels, selection, path)
    names = trace.names.filter(pl.col("name_id").is_in(kernels["name_id"].unique().implode()))
    return Trace(trace.info, kernels, names)


def _name_columns(present: Sequence[str]) -> dict[str, str]:
    """Full and short name, or the mangled one where neither exists: each column costs time."""
    names = pick(column_map().names, present)
    if len(names) > 1:
        names.pop("mangled", None)
    return names


def _of_device_and_process(kernels: pl.DataFrame, selection: Selection, path: Path) -> pl.DataFrame:
    for column, wanted in (("device", selection.device), ("pid", selection.pid)):
        if wanted is None:
            continue
        kept = kernels.filter(pl.col(column) == wanted)
        if kept.is_empty():
            there = sorted(value for value in kernels[column].unique() if value is not None)
            listed = ", ".join(str(value) for value in there) or "not recorded"
            word = "process" if column == "pid" else "device"
            raise TraceError(
                f"{path} has no kernel of {word} {wanted}.",
                f"Its {word} numbers: {listed}.",
            )
        kernels = kept
    return kernels


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
