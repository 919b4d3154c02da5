"""One token through one layer in the GPU's order: bytes and time of each operation.

python -m analyses.layer_flow.study
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from analyses.common import FIXTURES, number, saved_report, table, write
from tracebook.kernel_table import kernel_table

RUN = "plain-nvfp4"
#: A layer of each kind: Gated DeltaNet, full attention.
LAYERS = {"Gated DeltaNet": 1, "full attention": 3}
#: Kernel class -> traffic of the target's layers that it moves.
STATE_OF = {
    "gdn": [("recurrent_state", "read"), ("recurrent_state", "write")],
    "conv": [("conv_state", "read"), ("conv_state", "write")],
    "attention": [("kv_cache", "read")],
    "kv_write": [("kv_cache", "write")],
}
#: Layers that share the traffic of each kind of state.
COUNT_OF = {"recurrent_state": 48, "conv_state": 48, "kv_cache": 16}


def operations(layer: int) -> list[dict[str, Any]]:
    """The kernels of a layer in order: median time over the kept steps."""
    rows = kernel_table(FIXTURES / RUN / "trace.sqlite").rows.filter(
        (pl.col("phase") == "target_layers")
        & (pl.col("layer") == layer)
        & pl.col("step_id").is_not_null()
    )
    placed = rows.sort("step_id", "start_ns").with_columns(
        place=pl.int_range(pl.len()).over("step_id")
    )
    merged = placed.group_by("place", maintain_order=True).agg(
        pl.col("op").first(),
        pl.col("kernel_class").first(),
        pl.col("matrix").first(),
        pl.col("weight_bytes").first(),
        (pl.col("end_ns") - pl.col("start_ns")).median().alias("ns"),
    )
    moved = state_bytes()
    seen: set[str] = set()
    found = []
    for row in merged.sort("place").iter_rows(named=True):
        kind = row["kernel_class"]
        state = 0 if kind in seen else sum(moved[key] for key in STATE_OF.get(kind, []))
        seen.add(kind)
        found.append(
            {
                "op": row["op"] or kind,
                "class": kind,
                "matrix": row["matrix"],
                "weight_bytes": row["weight_bytes"] or 0,
                "state_bytes": state,
                "us": round(row["ns"] / 1e3, 1),
            }
        )
    return found


def state_bytes() -> dict[tuple[str, str], int]:
    """Traffic of one layer, by name and direction, from the report of the run."""
    (layers,) = (r for r in saved_report(RUN).phase_rows if r.phase == "target_layers")
    return {
        (m.name, m.direction): m.bytes // COUNT_OF[m.name]
        for m in layers.traffic
        if m.name in COUNT_OF
    }


def compute() -> tuple[dict[str, Any], str]:
    """The result as data and as Markdown."""
    result = {kind: operations(layer) for kind, layer in LAYERS.items()}
    blocks = ["# Result"]
    for kind, rows in result.items():
        total = sum(row["us"] for row in rows)
        weights = sum(row["weight_bytes"] for row in rows)
        products = sum(row["us"] for row in rows if row["weight_bytes"])
        mixing = [row for row in rows if row["class"] in ("gdn", "attention")]
        blocks += [
            f"## {kind} (layer {LAYERS[kind]})",
            table(
                ["operation", "matrices", "weights MB", "state MB", "us", "GB/s"],
                [_cells(row) for row in rows],
            ),
            f"{number(weights / 1e6)} MB of weights in {number(total / 1e3, 2)} ms. "
            f"Products take {100 * products / total:.1f} % of the time and read every weight byte; "
            f"mixing across tokens reads "
            f"{sum(row['weight_bytes'] for row in mixing)} weight bytes and takes "
            f"{100 * sum(row['us'] for row in mixing) / total:.1f} %.",
        ]
    return result, "\n\n".join(blocks) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    size = row["weight_bytes"] + row["state_bytes"]
    names = (row["matrix"] or "-").replace("linear_attn.", "").replace("self_attn.", "")
    return [
        row["op"].replace("_", " "),
        names.replace("+", " + "),
        number(row["weight_bytes"] / 1e6, 2) if row["weight_bytes"] else "-",
        number(row["state_bytes"] / 1e6, 2) if row["state_bytes"] else "-",
        number(row["us"]),
        number(size / (row["us"] * 1e3)) if size > 100_000 else "-",
    ]


if __name__ == "__main__":
    write(Path(__file__).parent, *compute())
