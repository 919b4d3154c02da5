"""Exports that hold no usable kernels: why, and what to do."""

from __future__ import annotations

from tracebook.errors import CaptureIncomplete, MissingTable, NotATrace
from tracebook.importers.columns import column_map, pick
from tracebook.importers.facts import GRAPH_TRACE
from tracebook.importers.source import Source
from tracebook.trace import CaptureMode

_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
_NSYS_PREFIXES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_", "NVTX_")
_NSYS_TABLES = frozenset({"META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS"})
#: What DLProf's database has: views for its viewer.
_DLPROF = frozenset({"view_op_nodes", "view_system_config", "view_domain_model_gpu_utilization"})
_RECORD = "Record again with nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"


def refuse_without_kernels(source: Source) -> None:
    """Raise where the export has no kernel rows, with the reason.

    Raises:
        NotATrace: The file is of another program.
        CaptureIncomplete: Graphs were traced as wholes.
        MissingTable: The kernel table is absent, has no rows or lacks a column.
    """
    mapping = column_map()
    table = mapping.kernel_table
    if table not in source.tables:
        _refuse_foreign(source)
        _refuse_no_kernels(source, "no kernel table")
    needed = {**mapping.required}
    missing = sorted(needed.keys() - pick(needed, source.tables[table]).keys())
    if not pick(mapping.names, source.tables[table]):
        missing.append("names")
    if missing:
        wanted = ", ".join(needed[m][0] if m in needed else "demangledName" for m in missing)
        raise MissingTable(
            f"The kernel table of {source.path} lacks {wanted}.", "Give an unchanged nsys export."
        )
    if not source.has_rows(table):
        _refuse_no_kernels(source, "a kernel table without rows")


def is_graph_level(
    source: Source, *, mode: CaptureMode = "unknown", nodes_seen: bool = False
) -> bool:
    """Whether graphs were launched and their kernels not recorded.

    Such a capture may still hold the kernels that ran outside graphs.

    Args:
        source: The export.
        mode: What the capture says of itself.
        nodes_seen: Whether kernels with a graph node were met already.

    Returns:
        True where GRAPH_TRACE has rows and the capture says `graph`; else where graphs
        were launched, by GRAPH_TRACE or RUNTIME, and no kernel, copy or fill carries a
        graph node.
    """
    traced_whole = source.has_rows(GRAPH_TRACE)
    if traced_whole and mode == "graph":
        return True
    if nodes_seen:
        return False
    return (traced_whole or _launched(source)) and not _any_graph_node(source)


def _launched(source: Source) -> bool:
    launches = source.names_starting(_GRAPH_LAUNCHES)
    return bool(launches) and source.has_rows(_RUNTIME, "nameId", launches)


def _any_graph_node(source: Source) -> bool:
    """Whether any kernel, copy or fill carries a graph node: then graphs were traced by node."""
    tables = (
        column_map().kernel_table,
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
    )
    return any(source.has_rows(table, "graphNodeId") for table in tables)


def _refuse_foreign(source: Source) -> None:
    names = set(source.tables) | set(source.views)
    if names & _DLPROF or source.path.name.startswith("dlprof_dldb"):
        raise NotATrace(
            f"{source.path} is a DLProf database, not an nsys export.",
            "DLProf keeps its nsys file beside it (nsys_profile.sqlite): give that one.",
        )
    if column_map().kernel_table in source.views:
        raise NotATrace(
            f"The kernel table of {source.path} is a view; nsys writes tables.",
            "Give the export that nsys wrote.",
        )
    marks = [n for n in names if n in _NSYS_TABLES or n.startswith(_NSYS_PREFIXES)]
    if not marks:
        what = "an SQLite database without tables" if not names else "some other SQLite database"
        raise NotATrace(
            f"{source.path} is {what}, not an nsys export.",
            "Export the run: nsys export --type sqlite REPORT.nsys-rep",
        )


def _refuse_no_kernels(source: Source, what: str) -> None:
    if is_graph_level(source):
        raise CaptureIncomplete(
            f"{source.path} was captured at graph level: it has {what}, since all kernels "
            "ran inside CUDA graphs.",
            "Record again with nsys profile --cuda-graph-trace=node",
        )
    if source.has_rows(_RUNTIME):
        raise MissingTable(
            f"{source.path} has {what}, though CUDA calls were recorded (RUNTIME has rows): "
            "the program stopped before it ran a kernel, or the kernels were not flushed "
            "because it was killed.",
            f"Let the program end by itself or call cudaProfilerStop. {_RECORD}",
        )
    raise MissingTable(
        f"{source.path} has {what} and no CUDA calls (no RUNTIME rows): CUDA was not traced, or "
        "the traced process did not use it.",
        f"{_RECORD} and follow child processes with --trace-fork-before-exec=true",
    )
