"""The truth of a synthetic trace: what each kernel row really is.

In: a `Capture` and the order of its rows in the file. Out: a frame, and the sums per
step that other results are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tracebook.drafts import write_parquet
from tracebook.errors import RunDescriptionError
from tracebook.synth.timeline import Capture

#: One row per kernel. `kernel_id` is the rowid in CUPTI_ACTIVITY_KIND_KERNEL; `step_id`
#: counts steady whole steps from 0, null outside; `kind` is decode, warmup, prefill or cut.
#: `matrix` and `weight_bytes` are null and 0 for kernels that read no weight matrix.
TRUTH_SCHEMA: dict[str, pl.DataType] = {
    "kernel_id": pl.Int64(),
    "step_id": pl.Int64(),
    "kind": pl.String(),
    "phase": pl.String(),
    "layer": pl.Int32(),
    "op": pl.String(),
    "matrix": pl.String(),
    "weight_bytes": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
}


def truth_of(capture: Capture, order: Sequence[int]) -> pl.DataFrame:
    """Say what each kernel row of the file is.

    Args:
        capture: All events.
        order: Kernel rows in the order of the file.

    Returns:
        TRUTH_SCHEMA, in the order of the file. Outside steady steps `phase` is `warmup`
        or `prefill`; the kernels of a cut step keep their phase.
    """
    rows = []
    for kernel_id, index in enumerate(order, start=1):
        event = capture.kernels[index]
        node, kind = event.node, event.run.kind
        rows.append(
            (
                kernel_id,
                event.run.step_id,
                kind,
                kind if kind in ("warmup", "prefill") else str(node.phase),
                node.layer,
                node.op,
                node.matrix,
                node.weight_bytes,
                event.start_ns,
                event.end_ns,
            )
        )
    return pl.DataFrame(rows, schema=TRUTH_SCHEMA, orient="row")


def step_walls(truth: pl.DataFrame) -> pl.DataFrame:
    """Wall interval of each steady step: from its first kernel to the next one's.

    Returns:
        step_id, start_ns, end_ns. The last step ends where the cut step begins, or with
        its last kernel where there is none.
    """
    steps = (
        truth.filter(pl.col("kind") == "decode")
        .group_by("step_id")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max().alias("last_ns"))
        .sort("step_id")
    )
    cut = truth.filter(pl.col("kind") == "cut")["start_ns"].min()
    return steps.select(
        "step_id",
        "start_ns",
        end_ns=pl.col("start_ns").shift(-1).fill_null(pl.lit(cut)).fill_null(pl.col("last_ns")),
    )


def check_truth_path(path: Path) -> None:
    """Refuse a path that `write_truth` cannot write to.

    Raises:
        RunDescriptionError: It ends neither in .csv nor in .parquet.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise RunDescriptionError(
            f"The truth cannot be written to {path.name}.",
            "Use a name that ends in .csv or .parquet.",
        )


def write_truth(truth: pl.DataFrame, path: Path) -> None:
    """Write the truth as .csv or .parquet, by the path's ending.

    Raises:
        RunDescriptionError: Another ending.
    """
    check_truth_path(path)
    if path.suffix == ".parquet":
        write_parquet(truth, path)
    else:
        truth.write_csv(path)
