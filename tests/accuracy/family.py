# ruff: noqa: E501 - one case a line reads as a table
"""The family of cases. A name says what is in it."""

from __future__ import annotations

from dataclasses import replace

from .cases import Case
from .negatives import NEGATIVES
from .program import Layout
from .timeline import Disturbance

DFLASH2 = dict(method="dflash2", drafter="drafter-bf16", k=10)
FULL = dict(method="dflash2", drafter="drafter-nvfp4", k=10, head="drafthead-fp8", replay=True)
EAGLE = dict(target="llama8", method="eagle3", drafter="eagle3-llama8", k=3, machine="h100")
HARD = dict(jitter=0.05, bias=0.10, outliers=0.002)
_NOTHING = dict.fromkeys(
    (
        "target.checkpoint",
        "drafter.method",
        "drafter.checkpoint",
        "drafter.draft_tokens",
        "draft_head.checkpoint",
    )
)
SPLIT = Layout(fused_qkv=False, fused_gate_up=False, fused_qkvz=False, ba_first=True)

ORDER = [
    Case("hybrid-vllm-plain"),
    Case("hybrid-vllm-dflash2-full-recipe", steps=20, how=Disturbance(jitter=0.03, bias=0.05), **FULL),
    Case("hybrid-vllm-mtp3", method="mtp", k=3, steps=20, how=Disturbance(bias=0.05, middle_us=300)),
    Case("hybrid-vllm-mtp1-none-split", method="mtp", k=1, launch="none", layout=SPLIT, schema="2.9.1", how=Disturbance(bias=0.08)),
    Case("hybrid-sglang-dflash2-drafter-first", engine="sglang", steps=20, schema="3.25.0", **DFLASH2),
    Case("hybrid-sglang-dflash2-late-kv-layers", engine="sglang", steps=20, layout=Layout(kv_copy="layers"), how=Disturbance(middle_us=400, **HARD), **FULL),
    Case("hybrid-fp8-sglang-mtp3", target="hybrid27-fp8", engine="sglang", method="mtp", k=3, steps=18, how=Disturbance(bias=0.08)),
    Case("hybrid-fp8-vllm-plain-2021", target="hybrid27-fp8", schema="2021-gpu", how=Disturbance(**HARD)),
    Case("hybrid-bf16-vllm-dflash2-two-layers", target="hybrid27-bf16", method="dflash2", drafter="dflash2-2", k=7, steps=16),
    Case("hybrid-vllm-w4a16-float32-state", layout=Layout(quantize=False, gdn_float32=True), how=Disturbance(bias=0.08), steps=18, **DFLASH2),
    Case("hybrid-llamacpp", engine="llamacpp", schema="3.7.2", steps=16, how=Disturbance(bias=0.06)),
    Case("hybrid4-tied-vllm", target="hybrid4", machine="rtx5090", how=Disturbance(bias=0.06)),
    Case("hybrid4-tied-mtp2", target="hybrid4", machine="a100", method="mtp", k=2, how=Disturbance(bias=0.06)),
    Case("next-fused-qkvz-sglang", target="next-small", engine="sglang", machine="h100", schema="3.25.0", how=Disturbance(bias=0.06)),
    Case("llama8-llamacpp", target="llama8", engine="llamacpp", machine="rtx5090", schema="3.7.2", context=900),
    Case("llama8-vllm-overlapping-launches", target="llama8", machine="h100", schema="3.25.0", how=Disturbance(overlap=True, bias=0.06)),
    Case("llama8-fp8-trtllm", target="llama8-fp8", engine="trtllm", machine="h100", how=Disturbance(bias=0.06)),
    Case("llama8-vllm-eagle3-k3", how=Disturbance(bias=0.06, middle_us=250), **EAGLE),
    Case("llama8-vllm-draft-model-k4", target="llama8", machine="h100", method="draft_model", drafter="llama1-tied", k=4, how=Disturbance(bias=0.06)),
    Case("llama70-fp8-vllm-tp2", target="llama70-fp8", machine="h100", ranks=2, steps=12, schema="3.25.0", how=Disturbance(bias=0.06)),
    Case("llama70-fp8-trtllm", target="llama70-fp8", engine="trtllm", machine="h200", steps=16, how=Disturbance(bias=0.06)),
    Case("qwen4-tied-hf-eager-generic", target="qwen4-tied", engine="hf", launch="none", names="generic", machine="a100", schema="2021", steps=16),
    Case("qwen06-tied-vllm", target="qwen06-tied", machine="a100", steps=40, how=Disturbance(bias=0.05)),
    Case("qwen8-vllm-piecewise", target="qwen8", launch="piecewise", machine="h100", schema="3.25.0", how=Disturbance(bias=0.05)),
    Case("qwen8-vllm-eager-drifting-grids", target="qwen8", launch="none", machine="a100", how=Disturbance(drift=True, **HARD)),
    Case("qwen8-vllm-dflash-eight-layers", target="qwen8", machine="h100", method="dflash", drafter="dflash-8", k=8, how=Disturbance(bias=0.06, middle_us=300)),
    Case("qwen8-nvfp4-dflash-reduced-head", target="qwen8-nvfp4", machine="rtx5090", method="dflash", drafter="dflash-8", k=6, head="drafthead-32k", how=Disturbance(bias=0.06)),
    Case("qwen8-sglang-plain", target="qwen8", engine="sglang", machine="a100", how=Disturbance(bias=0.06)),
    Case("moe30-vllm", target="moe30", machine="h100", steps=20, how=Disturbance(bias=0.05)),
    Case("moe-fused-shared-sglang", target="moe-fused", engine="sglang", machine="a100", steps=20, how=Disturbance(bias=0.05)),
]  # fmt: skip

NAMES = [
    Case("hybrid-full-renamed-persistent", names="renamed", layout=Layout(persistent=True), steps=18, how=Disturbance(**HARD), **FULL),
    Case("hybrid-full-generic", names="generic", steps=18, how=Disturbance(bias=0.06), **FULL),
    Case("hybrid-dflash2-generic-trimmed", names="generic", schema="trimmed", steps=18, how=Disturbance(bias=0.06), **DFLASH2),
    Case("hybrid-sglang-generic-trimmed", engine="sglang", names="generic", schema="trimmed", steps=18, how=Disturbance(bias=0.06), **DFLASH2),
    Case("hybrid-mtp3-generic-no-graphs", names="generic", launch="none", method="mtp", k=3, steps=16, schema="2021", how=Disturbance(**HARD)),
    Case("llama8-llamacpp-generic-trimmed", target="llama8", engine="llamacpp", names="generic", machine="rtx5090", schema="trimmed"),
    Case("llama8-eagle3-renamed", names="renamed", how=Disturbance(**HARD), **EAGLE),
    Case("qwen8-vllm-renamed-split", target="qwen8", names="renamed", layout=SPLIT, machine="a100", how=Disturbance(**HARD)),
    Case("moe30-renamed", target="moe30", names="renamed", machine="h100", steps=16, how=Disturbance(bias=0.05)),
    Case("hybrid-full-recipe-no-checkpoint", steps=16, told=_NOTHING, **FULL),
]  # fmt: skip

DISTURBED = [
    Case("hybrid-vllm-dflash2-changing-closed-gaps", steps=24, how=Disturbance(change=0.4, asynchronous=True, **HARD), **DFLASH2),
    Case("hybrid-full-everything-at-once", steps=30, schema="3.25.0", how=Disturbance(change=0.3, tactics=0.2, asynchronous=True, drop=0.004, shuffle=True, mixed=3, batch2=5, autotune=True, foreign=True, hiccups=0.1, dummy=6, **HARD), **FULL),
    Case("hybrid-piecewise-dflash2-changing", launch="piecewise", steps=18, how=Disturbance(change=0.5, asynchronous=True, drift=True, **HARD), **DFLASH2),
    Case("hybrid-plain-alternating-tactics", how=Disturbance(tactics=0.4, bias=0.08, asynchronous=True)),
    Case("hybrid-mtp3-dropped-shuffled", method="mtp", k=3, steps=18, how=Disturbance(drop=0.01, shuffle=True, bias=0.08)),
    Case("hybrid-long-context", context=32000, steps=18, how=Disturbance(bias=0.06), **FULL),
    Case("hybrid-mixed-chunks-batch2", steps=30, how=Disturbance(mixed=4, batch2=8, bias=0.06), **DFLASH2),
    Case("hybrid-plain-two-regimes", steps=30, how=Disturbance(regime=1.3, bias=0.05)),
    Case("llama8-vllm-side-stream-copies", target="llama8", machine="a100", how=Disturbance(side=True, bias=0.05)),
    Case("llama8-vllm-foreign-process", target="llama8", machine="a100", how=Disturbance(foreign=True, bias=0.05)),
    Case("llama8-eagle3-changing-closed-gaps", how=Disturbance(change=0.5, asynchronous=True, **HARD), **EAGLE),
    Case("qwen8-eager-changing-closed-gaps", target="qwen8", launch="none", machine="a100", how=Disturbance(change=0.5, asynchronous=True, drift=True, **HARD)),
    Case("llama8-eager-hiccups", target="llama8", launch="none", machine="a100", how=Disturbance(hiccups=0.3, asynchronous=True, drift=True, **HARD)),
    Case("hybrid-sglang-verdict-gap-generic", engine="sglang", names="generic", steps=18, how=Disturbance(middle_us=500, asynchronous=True, bias=0.06), **FULL),
    Case("qwen8-split-k-chunked-head", target="qwen8", machine="a100", layout=Layout(split_k=True, head_chunks=4), how=Disturbance(bias=0.05)),
    Case("qwen8-autotuned-reinstantiated", target="qwen8", machine="h100", steps=30, how=Disturbance(autotune=True, reinstantiate=True, warmup=6, dummy=12, bias=0.05)),
]  # fmt: skip

EMPTY = [
    Case(f"none-{kind}", target="qwen8", machine="a100", expect="refuse", negative=kind, steps=5)
    for kind in NEGATIVES
]

_BY_NAME = {case.name: case for case in (*ORDER, *NAMES, *DISTURBED)}
_UNTOLD = {"drafter.checkpoint": None, "drafter.draft_tokens": None, "drafter.method": "none"}
_BLOCK = {
    "drafter.method": "dflash2",
    "drafter.checkpoint": "drafter-bf16",
    "drafter.draft_tokens": 10,
}


def _wrong(base: str, what: str, **told) -> Case:
    """The trace of a right case with a run description that is not of that run."""
    told = {key.replace("__", "."): value for key, value in told.items()}
    return replace(_BY_NAME[base], name=f"wrong-{what}", expect="wrong-plan", told=told)


WRONG = [
    _wrong("hybrid-vllm-plain", "fp8-for-nvfp4", target__checkpoint="hybrid27-fp8"),
    _wrong("hybrid-fp8-vllm-plain-2021", "bf16-for-fp8", target__checkpoint="hybrid27-bf16"),
    _wrong("hybrid-vllm-mtp3", "k2-for-k3", drafter__draft_tokens=2),
    _wrong("hybrid-vllm-mtp3", "k4-for-k3", drafter__draft_tokens=4),
    _wrong("llama8-vllm-eagle3-k3", "eagle3-k5-for-k3", drafter__draft_tokens=5),
    _wrong("hybrid-vllm-dflash2-full-recipe", "forgotten-drafter", **_UNTOLD, draft_head__checkpoint=None),
    _wrong("hybrid-vllm-mtp3", "forgotten-mtp", **_UNTOLD),
    _wrong("hybrid-vllm-plain", "invented-drafter", **_BLOCK),
    _wrong("hybrid-vllm-plain", "invented-mtp", drafter__method="mtp", drafter__draft_tokens=3),
    _wrong("hybrid-vllm-dflash2-full-recipe", "full-head-for-reduced", draft_head__checkpoint=None),
    _wrong("hybrid-sglang-dflash2-drafter-first", "reduced-head-for-full", draft_head__checkpoint="drafthead-fp8"),
    _wrong("hybrid-sglang-dflash2-drafter-first", "nvfp4-drafter-for-bf16", drafter__checkpoint="drafter-nvfp4"),
    _wrong("llama70-fp8-vllm-tp2", "one-rank-for-two", workload__tensor_parallel=None),
    _wrong("llama8-vllm-overlapping-launches", "two-ranks-for-one", workload__tensor_parallel=2),
    _wrong("llama8-fp8-trtllm", "bf16-for-fp8-dense", target__checkpoint="llama8"),
    _wrong("qwen8-vllm-piecewise", "other-model", target__checkpoint="llama8"),
]  # fmt: skip

CASES = [*ORDER, *NAMES, *DISTURBED, *EMPTY, *WRONG]
