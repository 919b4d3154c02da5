"""How near each phase of each run comes to the roofline, and by which count of bytes.

python -m analyses.roofline.study
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analyses.common import article, cut, ledger, number, saved_report, table, write

RUNS = (
    "plain-nvfp4", "plain-fp8", "mtp3", "dflash2-k7", "dflash2-k10", "dflash2-k10-nvfp4-drafter",
    "full-recipe",
)  # fmt: skip
PHASES = ("target_layers", "output_layer", "drafter_layers", "draft_head", "replay")


def phases() -> list[dict[str, Any]]:
    """Each phase that moves weights or state, in each run."""
    rows = []
    for run in RUNS:
        report = saved_report(run)
        for row in report.phase_rows:
            if row.phase in PHASES:
                rows.append(
                    {
                        "run": run,
                        "phase": row.phase,
                        "ms": row.ms.median,
                        "weight_gbps": row.weight_gbps,
                        "traffic_gbps": row.traffic_gbps,
                        "roofline_pct": row.roofline_pct,
                        "ceiling_pct": row.ceiling_pct,
                    }
                )
    return rows


def drafters() -> list[dict[str, Any]]:
    """A drafter's rate by its whole file, and without the tables it only gathers from."""
    found = []
    for name, run in (("drafter-bf16", "dflash2-k10"), ("drafter-nvfp4", "full-recipe")):
        book, report = ledger(name), saved_report(run)
        ms = next(row.ms.median for row in report.phase_rows if row.phase == "drafter_layers")
        whole = book.payload_bytes
        read = whole - book.bytes_of("gather_table")
        copy = 104_857_600  # the fused K and V rows of stock vLLM, in BF16
        found.append(
            {
                "drafter": name,
                "ms": ms,
                "whole_file_gbps": whole / (ms * 1e6),
                "without_gather_tables_gbps": read / (ms * 1e6),
                "with_fused_copy_gbps": (read + copy) / (ms * 1e6),
            }
        )
    return found


def compute() -> tuple[dict[str, Any], str]:
    """The result as data and as Markdown."""
    rows, books = phases(), drafters()
    verify = next(r for r in rows if r["run"] == "dflash2-k10" and r["phase"] == "target_layers")
    result = {
        "phases": rows,
        "drafters": books,
        "verify_pass": {key: verify[key] for key in ("weight_gbps", "traffic_gbps")},
        "spread_weights": _spread(rows, "weight_gbps"),
        "spread_traffic": _spread(rows, "traffic_gbps"),
    }
    shown = table(
        ["run", "phase", "ms", "weights GB/s", "all GB/s", "% of peak", "% of ceiling"],
        [
            [
                r["run"], r["phase"].replace("_", " "), number(r["ms"]), number(r["weight_gbps"]),
                number(r["traffic_gbps"]), number(r["roofline_pct"]), number(r["ceiling_pct"]),
            ]
            for r in rows
        ],
    )  # fmt: skip
    counted = table(
        ["drafter", "ms", "whole file GB/s", "without gather tables", "and a fused K/V copy"],
        [
            [
                b["drafter"], number(b["ms"]), number(b["whole_file_gbps"]),
                number(b["without_gather_tables_gbps"]), number(b["with_fused_copy_gbps"]),
            ]
            for b in books
        ],
    )  # fmt: skip
    low, high = result["spread_weights"]
    low_all, high_all = result["spread_traffic"]
    text = f"""# Result

Peak {article()["peak_gbps"]} GB/s.

{shown}

By weights alone the phases run at {number(low, 0)} to {number(high, 0)} GB/s, with all traffic at
{number(low_all, 0)} to {number(high_all, 0)}.

## What counts as read

{counted}
"""
    return cut(result), text


def _spread(rows: list[dict[str, Any]], key: str) -> list[float]:
    """Lowest and highest rate of the phases that read weights."""
    rates = [row[key] for row in rows if row["weight_gbps"]]
    return [min(rates), max(rates)]


if __name__ == "__main__":
    write(Path(__file__).parent, *compute())
