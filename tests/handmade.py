"""Hand-made results of the kernel stages, small enough to be checked by eye."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tracebook.account import account
from tracebook.checkpoint import Plan
from tracebook.checkpoint.plan import Block, Read
from tracebook.config import RunDescription
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA, Labelled, LabelledKernels, Verdict
from tracebook.machine import Machine
from tracebook.report import Report
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA, Gpu, Trace, TraceInfo

STEP_NS = 1_000_000
LAYER_BYTES = 60_000_000
HEAD_BYTES = 30_000_000

#: One step: (phase, layer, op, matrix, class, start, end, bytes, evidence, stream, name_id).
#: Wall 1.0 ms: layers 0.6 ms, output layer 0.2 ms, sampling 0.1 ms of which 0.04 ms lie
#: under the output layer, something unknown 0.04 ms, idle 0.1 ms.
STEP = (
    ("target_layers", 0, "gate", "mlp.gate_proj", "gemm", 0, 300_000, LAYER_BYTES, "alignment", 7),
    ("target_layers", 1, "gate", "mlp.gate_proj", "gemm", 300_000, 600_000, LAYER_BYTES,
     "alignment", 7),
    ("output_layer", None, "head", "lm_head", "gemm", 600_000, 800_000, HEAD_BYTES,
     "alignment", 7),
    ("sampling", None, None, None, "sample", 760_000, 860_000, None, "name", 9),
    ("unclassified", None, None, None, "unknown", 860_000, 900_000, None, "none", 7),
)  # fmt: skip

NAMES = {"gemm": 0, "sample": 1, "unknown": 2}


def labelled_run(
    steps: int = 8, *, verdict: Verdict | None = None, plan: Plan | None = None
) -> Labelled:
    """`steps` equal steps, back to back."""
    rows = [
        (len(STEP) * step + number, step, phase, layer, op, matrix, kernel_class,
         step * STEP_NS + start, step * STEP_NS + end, size, evidence, None, stream,
         NAMES[kernel_class])
        for step in range(steps)
        for number, (phase, layer, op, matrix, kernel_class, start, end, size, evidence,
                     stream) in enumerate(STEP)
    ]  # fmt: skip
    windows = [(step, step * STEP_NS, (step + 1) * STEP_NS, len(STEP)) for step in range(steps)]
    return Labelled(
        kernels=LabelledKernels.of(pl.DataFrame(rows, schema=ROW_SCHEMA, orient="row")),
        steps=pl.DataFrame(windows, schema=STEP_SCHEMA, orient="row"),
        found=steps + 2,
        dropped=(("cut at the edge", 2),),
        source="graph launches",
        verdict=verdict,
        plan=plan,
        device=0,
        pid=41,
    )


def make_verdict(**changes: object) -> Verdict:
    """A verdict in which everything fits."""
    values: dict[str, object] = {
        "matched_share": 1.0,
        "off_share": 0.0,
        "unmatched_gemm_share": 0.0,
        "fitted_gbps": 200.0,
        "phases_trusted": True,
        "bytes_trusted": True,
        "matched_bytes": {"target_layers": 2 * LAYER_BYTES, "output_layer": HEAD_BYTES},
        "passes": {"target_layers": 1, "output_layer": 1},
    }
    return Verdict(**(values | changes))  # type: ignore[arg-type]


def make_plan() -> Plan:
    """Two layers of one matrix and a head."""
    layers = tuple(
        Read("target_layers", layer, "gate", "mlp.gate_proj", LAYER_BYTES, 100, layer)
        for layer in (0, 1)
    )
    head = Read("output_layer", None, "head", "lm_head", HEAD_BYTES, 100, 2, basis="derived")
    return Plan(
        blocks=(Block("target", layers), Block("output", (head,))),
        small_bytes={},
        attention_layers=(0, 1),
        recurrent_layers=(),
        draft_tokens=None,
        draft_method="none",
        description="no drafter",
    )


def make_trace(*, synthetic: bool = False, unknown_name: str = "mystery<kernel>") -> Trace:
    """Facts about a capture; the kernels are not looked at by the account."""
    names = ["cutlass_gemm", "argmax_kernel", unknown_name]
    return Trace(
        info=TraceInfo(
            path=Path("run.sqlite"),
            nsys_version="2025.3.1",
            schema_version="3.20.0",
            capture_mode="node",
            gpus=(Gpu(0, "NVIDIA GB10", 546.0, 48),),
            synthetic=synthetic,
        ),
        kernels=pl.DataFrame(schema=KERNEL_SCHEMA),
        names=pl.DataFrame(
            [(number, name, name) for number, name in enumerate(names)],
            schema=NAME_SCHEMA,
            orient="row",
        ),
    )


MACHINE = Machine("dgx-spark", 250.0, None, "flag")


def make_report(
    steps: int = 8,
    *,
    verdict: Verdict | None = None,
    with_plan: bool = True,
    machine: Machine = MACHINE,
    run: RunDescription | None = None,
    trace: Trace | None = None,
) -> Report:
    """The account of the hand-made run."""
    return account(
        labelled_run(
            steps,
            verdict=verdict or make_verdict() if with_plan else None,
            plan=make_plan() if with_plan else None,
        ),
        trace=trace or make_trace(),
        machine=machine,
        run=run or RunDescription(draft_method="none", batch=1),
    )
