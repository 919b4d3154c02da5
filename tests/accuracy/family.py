# ruff: noqa: E501 - one case a line reads as a table
"""The family of cases. A name says what is in it."""

from __future__ import annotations

from .cases import Case
from .timeline import Disturbance

DFLASH2 = dict(method="dflash2", drafter="drafter-bf16", k=10)
FULL = dict(method="dflash2", drafter="drafter-nvfp4", k=10, head="drafthead-fp8", replay=True)
HARD = dict(jitter=0.05, bias=0.10, outliers=0.002)

FIRST = [
    Case("hybrid-vllm-plain"),
    Case("hybrid-vllm-dflash2-full-recipe", steps=20, how=Disturbance(jitter=0.03, bias=0.05), **FULL),
    Case("hybrid-vllm-mtp3", method="mtp", k=3, steps=20, how=Disturbance(bias=0.05)),
    Case("hybrid-sglang-dflash2-drafter-first", engine="sglang", steps=20, schema="3.25.0", **DFLASH2),
    Case("llama8-llamacpp", target="llama8", engine="llamacpp", machine="rtx5090", schema="3.7.2", context=900),
    Case(
        "qwen4-tied-hf-eager-generic", target="qwen4-tied", engine="hf", launch="none", names="generic",
        machine="a100", schema="2021", steps=16,
    ),
    Case("qwen8-vllm-piecewise", target="qwen8", launch="piecewise", machine="h100", schema="3.25.0", how=Disturbance(bias=0.05)),
    Case(
        "hybrid-vllm-dflash2-changing-closed-gaps", steps=24, **DFLASH2,
        how=Disturbance(change=0.4, asynchronous=True, **HARD),
    ),
]  # fmt: skip

CASES = [*FIRST]
