"""The table of kernels: one row per kernel of a capture, with what was found for it.

In: a trace and what the user said. Out: rows in the columns that others rely on, also
where no decode step repeats (then with the class alone), and unknown names as rules.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import polars as pl

from tracebook.analysis import examine_in_words, open_for
from tracebook.capture import capture_notices
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.classes import classify_names, load_rules
from tracebook.kernels.labels import ROW_SCHEMA
from tracebook.notices import Notice
from tracebook.opening import TABLE_BYTES_PER_KERNEL, refuse_words_beyond
from tracebook.options import Options
from tracebook.phases import Phase
from tracebook.trace import Trace
from tracebook.units import counted, ms

#: The columns of the table, in order.
COLUMNS = (
    "kernel_id",
    "step_id",
    "phase",
    "layer",
    "op",
    "matrix",
    "kernel_class",
    "start_ns",
    "end_ns",
    "weight_bytes",
    "evidence",
)

#: Characters of an unknown name that its rule compares.
_PATTERN_CHARACTERS = 160


@dataclass(frozen=True)
class KernelTable:
    """`rows` in `COLUMNS` order, `names` of the unknown kernels by time, and notices.

    `unknown` has the columns name, kernels, duration_ns, longest first.
    """

    rows: pl.DataFrame
    unknown: pl.DataFrame
    notices: tuple[Notice, ...]


def kernel_table(path: str | Path, **options: Unpack[Options]) -> KernelTable:
    """Label every kernel of a capture.

    Args:
        path: The trace.
        **options: As `analyze`.

    Raises:
        TracebookError: The trace, the checkpoint or an option cannot be used. A trace
            without decode steps is no error here: a notice says so.
    """
    rules = options.get("rules")
    rules_path = Path(rules) if rules is not None else None
    try:
        examined = examine_in_words(path, TABLE_BYTES_PER_KERNEL, **options)
    except NoDecodeSteps as error:
        trace = open_for(path, options)
        height, allowed = trace.kernels.height, options.get("max_memory_bytes")
        refuse_words_beyond(Path(path), height, TABLE_BYTES_PER_KERNEL, allowed)
        rows = classify_only(trace, rules_path)
        reason = Notice("no_decode_steps", error.message, error.hint)
        notices: tuple[Notice, ...] = (reason, *capture_notices(trace))
    else:
        trace = examined.trace
        rows = examined.labelled.rows
        if rows.height < trace.kernels.height:
            rest = classify_only(trace, rules_path).join(rows, on="kernel_id", how="anti")
            rows = pl.concat([rows, rest.select(rows.columns)])
        notices = examined.labelled.notices
    rows = rows.sort("start_ns", "end_ns", "kernel_id")
    return KernelTable(rows.select(COLUMNS), _unknown(rows, trace), notices)


def unknown_rules(table: KernelTable) -> str:
    """Unknown kernel names as TOML rules, longest first, ready to paste and complete."""
    if table.unknown.is_empty():
        return "# Every kernel name of this trace is known.\n"
    blocks = ["# Set the class of each and give the file with --rules.\n"]
    written = set()
    for name, kernels, duration_ns in table.unknown.iter_rows():
        # Template arguments go on for pages, and a rule must stay readable.
        pattern = "^" + re.escape(name[:_PATTERN_CHARACTERS])
        if pattern in written:
            continue
        written.add(pattern)
        blocks.append(
            f"# {counted(kernels, 'kernel')}, {ms(duration_ns):.3f} ms\n"
            f'[[rule]]\nclass = "unknown"\npattern = {_toml_text(pattern)}\n'
            f"example = {_toml_text(name)}\n"
        )
    return "\n".join(blocks)


def _toml_text(text: str) -> str:
    """A TOML basic string: JSON's escapes, and DEL, which TOML forbids bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def classify_only(trace: Trace, rules: Path | None) -> pl.DataFrame:
    """Every kernel of a trace with its class alone: ROW_SCHEMA, phase `unclassified`."""
    classes = classify_names(trace.names, load_rules(rules)).select("name_id", "kernel_class")
    known = trace.kernels.join(classes, on="name_id", how="left", maintain_order="left")
    given = known.with_columns(
        phase=pl.lit(Phase.UNCLASSIFIED.value),
        evidence=pl.when(pl.col("kernel_class") == "unknown")
        .then(pl.lit("none"))
        .otherwise(pl.lit("name")),
    )
    return given.select(
        pl.col(name).cast(dtype) if name in given.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in ROW_SCHEMA.items()
    )


def _unknown(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Names that no rule knows, with their count and time."""
    return (
        rows.filter(pl.col("kernel_class") == "unknown")
        .join(trace.names.select("name_id", "name"), on="name_id", how="left")
        .group_by("name")
        .agg(
            pl.len().alias("kernels"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("duration_ns"),
        )
        .sort("duration_ns", "name", descending=[True, False])
    )
