"""From an opened export to a `Trace`: refuse, read, clean, name, select."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from tracebook.errors import CaptureIncomplete, TraceError
from tracebook.importers.clean import clean_kernels
from tracebook.importers.columns import column_map, pick
from tracebook.importers.facts import read_facts
from tracebook.importers.names import resolve_names
from tracebook.importers.refusals import is_graph_level, refuse_without_kernels
from tracebook.importers.source import Source
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA, Trace


@dataclass(frozen=True)
class Selection:
    """Which kernels are wanted; None means all. Times in ns, [from_ns, to_ns)."""

    device: int | None = None
    pid: int | None = None
    from_ns: int | None = None
    to_ns: int | None = None


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
    raw = source.kernels(mapping.kernel_table, columns, (selection.from_ns, selection.to_ns))
    kernels, notices = clean_kernels(raw)
    nodes_seen = kernels["graph_node_id"].null_count() < kernels.height
    if is_graph_level(source, mode=info.capture_mode, nodes_seen=nodes_seen):
        raise CaptureIncomplete(
            f"{source.path} was captured at graph level: the kernels inside CUDA graphs "
            "are not in it.",
            "Record again with nsys profile --cuda-graph-trace=node",
        )
    if kernels.is_empty():
        raise _nothing_left(source, selection, notices)
    if info.capture_mode == "unknown" and nodes_seen:
        info = replace(info, capture_mode="node")
    kernels = _selected(source, kernels, selection)
    names, name_notices = resolve_names(source, kernels)
    return Trace(
        info=replace(info, notices=(*info.notices, *notices, *name_notices)),
        kernels=kernels.select(*KERNEL_SCHEMA),
        names=names,
    )


def _name_columns(present: tuple[str, ...]) -> dict[str, str]:
    """Full and short name, or the mangled one where neither exists: each column costs time."""
    names = pick(column_map().names, present)
    if len(names) > 1:
        names.pop("mangled", None)
    return names


def _selected(source: Source, kernels: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    for column, wanted in (("device", selection.device), ("pid", selection.pid)):
        if wanted is None:
            continue
        kept = kernels.filter(pl.col(column) == wanted)
        if kept.is_empty():
            there = sorted(value for value in kernels[column].unique() if value is not None)
            listed = ", ".join(str(value) for value in there) or "not recorded"
            word = "process" if column == "pid" else "device"
            raise TraceError(
                f"{source.path} has no kernel of {word} {wanted}.",
                f"Its {word} numbers: {listed}.",
            )
        kernels = kept
    return kernels


def _nothing_left(source: Source, selection: Selection, notices: tuple[Notice, ...]) -> TraceError:
    if selection.from_ns is None and selection.to_ns is None:
        return TraceError(
            f"{source.path} has no usable kernel row: "
            + " ".join(notice.message for notice in notices),
            "Repeat the export.",
        )
    mapping = column_map()
    columns = pick(mapping.required, source.tables[mapping.kernel_table])
    span = source.span(mapping.kernel_table, columns["start_ns"], columns["end_ns"])
    hint = "Widen it."
    if span:
        hint = f"Kernels run from {span[0] / 1e9:.3f} s to {span[1] / 1e9:.3f} s."
    return TraceError(f"{source.path} has no kernel in the window asked for.", hint)
