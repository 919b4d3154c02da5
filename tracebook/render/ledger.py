"""The ledger of a checkpoint as text or JSON: what is in it, and what a step reads of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from tracebook.checkpoint.summary import RULE_OF_M, StepBytes, Summary
from tracebook.render.words import clean
from tracebook.render.wrapping import fill
from tracebook.units import BYTES_PER_GB, counted, gb_text

SCHEMA = "tracebook.ledger/1"

_READ_WORDS = {
    "step": "each step",
    "drafting": "when drafting",
    "rows": "single rows",
    "never": "never",
    "unknown": "unknown",
}
_HEADINGS = ("component", "bytes", "GB", "share", "bits/weight", "read", "format")
_LEFT = frozenset({"component", "read", "format"})
_NARROWEST = 40


def render_text(
    summaries: Sequence[Summary], *, bandwidth_gbps: float | None, terminal: bool
) -> str:
    """Draw ledgers for people.

    Args:
        summaries: One per checkpoint.
        bandwidth_gbps: Peak for the ceiling, 10^9 bytes per second; None: not said.
        terminal: Whether to draw a rich table; else, or with NO_COLOR, plain ASCII.
    """
    rich = terminal and "NO_COLOR" not in os.environ
    width = max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)
    text = "\n".join(_one(summary, bandwidth_gbps, width, rich=rich) for summary in summaries)
    return text if rich else text.encode("ascii", "backslashreplace").decode("ascii")


def _one(summary: Summary, bandwidth_gbps: float | None, width: int, *, rich: bool) -> str:
    files = "1 file" if summary.files == 1 else f"{summary.files} files"
    head = (
        f"{clean(summary.name)} ({summary.source}): {summary.payload_bytes:,} bytes in "
        f"{summary.tensors:,} tensors of {files}; family {summary.family}"
    )
    blocks = [_wrap(head, width), _table(summary, width, rich=rich)]
    facts = list(_facts(summary, bandwidth_gbps))
    if facts:
        blocks.append("\n".join(_wrap(fact, width, indent="  ") for fact in facts))
    for notice in summary.notices:
        lines = [_wrap(f"Warning: {clean(notice.message)}", width, indent="         ")]
        if notice.hint:
            lines.append(_wrap(f"   Hint: {clean(notice.hint)}", width, indent="         "))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _table(summary: Summary, width: int, *, rich: bool) -> str:
    rows = [
        (
            component.name,
            f"{component.bytes:,}",
            gb_text(component.bytes),
            f"{100 * component.share:.2f} %",
            "-" if component.bits_per_weight is None else f"{component.bits_per_weight:.2f}",
            _READ_WORDS[component.read],
            clean(", ".join(component.formats)),
        )
        for component in summary.components
    ]
    total = summary.payload_bytes
    rows.append(("total", f"{total:,}", gb_text(total), "100.00 %", "", "", ""))
    columns = len(_HEADINGS)
    sizes = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(columns)]
    while columns > 3 and sum(sizes[:columns]) + 2 * (columns - 1) > width:
        columns -= 1
    table = _rich_table(rows, columns, width) if rich else _plain_table(rows, sizes[:columns])
    if columns == len(_HEADINGS):
        return table
    left = ", ".join(_HEADINGS[columns:])
    return f"{table}\n\n{_wrap(f'Left out at this width: {left}.', width)}"


def _plain_table(rows: Sequence[Sequence[str]], sizes: Sequence[int]) -> str:
    """Aligned columns, the first ones, as many as there are sizes."""
    columns = len(sizes)
    rule = tuple("-" * size for size in sizes)
    lines = [
        "  ".join(
            cell.ljust(size) if name in _LEFT else cell.rjust(size)
            for cell, size, name in zip(row[:columns], sizes, _HEADINGS[:columns], strict=True)
        ).rstrip()
        for row in [_HEADINGS, rule, *rows[:-1], rule, rows[-1]]
    ]
    return "\n".join(lines)


def _rich_table(rows: Sequence[Sequence[str]], columns: int, width: int) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # One cell of padding and one of the box: as wide as the plain table.
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for name in _HEADINGS[:columns]:
        table.add_column(
            name,
            justify="left" if name in _LEFT else "right",
            no_wrap=name != "format",
            overflow="fold",
            style="cyan" if name == "component" else None,
        )
    for number, row in enumerate(rows, start=1):
        table.add_row(*(Text(cell) for cell in row[:columns]), end_section=number == len(rows) - 1)
    console = Console(width=width, force_terminal=True, color_system="standard", emoji=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")


def _facts(summary: Summary, bandwidth_gbps: float | None) -> Iterator[str]:
    if summary.layers is not None:
        layers = summary.layers
        shares = ", ".join(
            f"{name} {100 * size / layers.bytes:.1f} %" for name, size in layers.blocks
        )
        bits = layers.bits_per_weight
        mean = "" if bits is None else f", {bits:.2f} bits per weight with scales"
        yield f"{counted(layers.count, 'layer')}: {layers.bytes:,} bytes{mean} ({shares})"
    if summary.step is not None:
        yield from _step_facts(summary.step, bandwidth_gbps)
    elif summary.draft_pass_bytes is not None:
        yield (
            f"Read of this checkpoint by one draft pass: {summary.draft_pass_bytes:,} bytes "
            f"({gb_text(summary.draft_pass_bytes)} GB): all but gather tables, embedding and "
            "what is never read."
        )


def _step_facts(step: StepBytes, bandwidth_gbps: float | None) -> Iterator[str]:
    parts = " + ".join(f"{size:,} {name.replace('_', ' ')}" for name, size in step.phases.items())
    plain = set(step.phases) <= {"target_layers", "output_layer"}
    name = "M, read by one step" if plain else f"Read by one step of {clean(step.description)}"
    yield f"{name}: {step.total:,} bytes ({gb_text(step.total)} GB, {step.basis}) = {parts}"
    for op, size in step.optional.items():
        yield f"Some engines read besides: {op.replace('_', ' ')}, {size:,} bytes (derived)."
    yield f"The rule: {RULE_OF_M}"
    if bandwidth_gbps is None:
        yield "The ceiling needs the machine's bandwidth: add --bandwidth GBPS or --machine NAME."
        return
    rate = ceiling_per_s(step, bandwidth_gbps)
    unit = "tokens" if plain else "steps"
    yield (
        f"Ceiling at {bandwidth_gbps:g} GB/s: {rate:.2f} {unit} per second "
        f"({1000 / rate:.1f} ms a step), weights alone."
    )


def ceiling_per_s(step: StepBytes, bandwidth_gbps: float) -> float:
    """Steps per second if the step's bytes came at the peak and nothing else took time."""
    return bandwidth_gbps * BYTES_PER_GB / step.total


def _wrap(sentence: str, width: int, indent: str = "") -> str:
    return fill(sentence, width, others=indent)


def render_json(summaries: Sequence[Summary], *, bandwidth_gbps: float | None) -> str:
    """Write ledgers as JSON, schema `tracebook.ledger/1`."""
    content = {
        "schema": SCHEMA,
        "bandwidth_gbps": bandwidth_gbps,
        "rule": RULE_OF_M,
        "checkpoints": [_as_json(summary, bandwidth_gbps) for summary in summaries],
    }
    return json.dumps(content, indent=2) + "\n"


def _as_json(summary: Summary, bandwidth_gbps: float | None) -> dict[str, Any]:
    layers, step = summary.layers, summary.step
    return {
        "name": summary.name,
        "source": summary.source,
        "family": summary.family,
        "files": summary.files,
        "tensors": summary.tensors,
        "payload_bytes": summary.payload_bytes,
        "components": [
            {
                "component": component.name,
                "bytes": component.bytes,
                "share": round(component.share, 6),
                "params": component.params,
                "bits_per_weight": _rounded(component.bits_per_weight),
                "formats": list(component.formats),
                "read": component.read,
            }
            for component in summary.components
        ],
        "layers": layers
        and {
            "count": layers.count,
            "bytes": layers.bytes,
            "params": layers.params,
            "bits_per_weight": _rounded(layers.bits_per_weight),
            "blocks": dict(layers.blocks),
        },
        "step": step
        and {
            "description": step.description,
            "phases": step.phases,
            "optional": step.optional,
            "bytes": step.total,
            "basis": step.basis,
            "ceiling_steps_per_s": None
            if bandwidth_gbps is None
            else _rounded(ceiling_per_s(step, bandwidth_gbps)),
        },
        "draft_pass_bytes": summary.draft_pass_bytes,
        "warnings": [
            {"code": n.code, "message": n.message, "hint": n.hint} for n in summary.notices
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
