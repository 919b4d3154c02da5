"""Cases drawn at random: any engine with any model, launch, names, layout and disturbance.

The family in `family.py` was looked at case by case while the method was made. What is
drawn here was not, and as many cases as one likes can be had: it measures how often a right
plan raises an alarm, and how often a wrong one does not.
"""

from __future__ import annotations

import random
from dataclasses import replace

from . import zoo
from .cases import Case
from .program import Layout
from .timeline import Disturbance

#: Drafters that exist for a target: method, drafter, head, drafted tokens.
DRAFTERS: dict[str, list[tuple[str, str | None, str | None, tuple[int, ...]]]] = {
    "hybrid27-nvfp4": [
        ("mtp", None, None, (1, 2, 3, 5)),
        ("dflash2", "drafter-bf16", None, (5, 7, 10, 15)),
        ("dflash2", "drafter-nvfp4", "drafthead-fp8", (7, 10)),
        ("dflash2", "dflash2-2", None, (6, 8)),
    ],
    "hybrid27-fp8": [("mtp", None, None, (2, 3)), ("dflash2", "drafter-nvfp4", None, (8,))],
    "hybrid27-bf16": [("mtp", None, None, (2,)), ("dflash2", "dflash2-2", None, (7,))],
    "hybrid4": [("mtp", None, None, (1, 2, 4))],
    "llama8": [
        ("eagle3", "eagle3-llama8", None, (2, 3, 5)),
        ("draft_model", "llama1-tied", None, (3, 5)),
    ],
    "llama8-fp8": [("eagle3", "eagle3-llama8", None, (2, 4))],
    "qwen8": [("dflash", "dflash-8", None, (6, 8)), ("dflash", "dflash-8", "drafthead-32k", (7,))],
    "qwen8-nvfp4": [("dflash", "dflash-8", "drafthead-32k", (6,))],
}
PLAIN_ONLY = ("next-small", "qwen4-tied", "qwen06-tied", "llama70-fp8", "moe30", "moe-fused")
ENGINES = ("vllm", "vllm", "sglang", "llamacpp", "trtllm", "hf")
DRAFTING = ("vllm", "sglang", "trtllm")
SCHEMAS = ("3.20.3", "3.25.0", "3.7.2", "2.9.1", "2021-gpu", "trimmed")


def draw(seed: int, count: int) -> list[Case]:
    """So many right cases, always the same ones for a seed."""
    rng = random.Random(f"drawn {seed}")
    return [_case(f"drawn-{seed}-{number:03d}", rng) for number in range(count)]


def draw_wrong(seed: int, count: int) -> list[Case]:
    """So many cases whose run description is not of the run, drawn from right ones."""
    found: list[Case] = []
    for number, case in enumerate(draw(seed, 4 * count)):
        told = _mistake(case, random.Random(f"mistake {seed} {number}"))
        if told and len(found) < count:
            name = case.name.replace("drawn", "mistaken")
            found.append(replace(case, name=name, expect="wrong-plan", told=told))
    return found


def _case(name: str, rng: random.Random) -> Case:
    engine = rng.choice(ENGINES)
    target = rng.choice((*DRAFTERS, *DRAFTERS, *PLAIN_ONLY))
    method, drafter, head, k = "none", None, None, 0
    if engine in DRAFTING and target in DRAFTERS and rng.random() < 0.7:
        method, drafter, head, ks = rng.choice(DRAFTERS[target])
        k = rng.choice(ks)
        if engine == "trtllm" and method.startswith("dflash"):
            method, drafter, head, k = "none", None, None, 0
    dense = not zoo.net(target).experts and not zoo.net(target).state_bytes
    tensor_parallel = dense and method == "none" and engine in ("vllm", "trtllm")
    hybrid = bool(zoo.net(target).state_bytes)
    case = Case(
        name,
        target=target,
        engine=engine,
        launch=_launch(engine, rng),
        names=rng.choices(("real", "renamed", "generic"), (5, 2, 3))[0],
        schema=rng.choice(SCHEMAS),
        machine=rng.choice(("gb10", "gb10", "h100", "h200", "a100", "rtx5090")),
        method=method,
        drafter=drafter,
        k=k,
        head=head,
        replay=hybrid and method.startswith("dflash") and rng.random() < 0.5,
        ranks=rng.choice((1, 1, 2)) if tensor_parallel else 1,
        steps=rng.randint(10, 22),
        context=rng.choice((120, 600, 2_000, 8_000, 20_000, 50_000)),
        layout=_layout(rng),
        how=_disturbance(rng),
    )
    # Warm-up that nothing sets apart from decode is decode (no graphs, or none in the export),
    # and so is another batch where the export has no grids.
    bare = case.schema == "trimmed"
    how = replace(case.how, warmup=0) if bare or case.launch == "none" else case.how
    return replace(case, how=replace(how, batch2=0) if bare else how)


def _launch(engine: str, rng: random.Random) -> str:
    if engine == "hf":
        return "none"
    return rng.choice(
        ("full", "full", "piecewise", "none") if engine == "vllm" else ("full", "none")
    )


def _layout(rng: random.Random) -> Layout:
    fused = rng.random() < 0.8
    return Layout(
        fused_qkv=fused,
        fused_gate_up=fused or rng.random() < 0.5,
        fused_qkvz=rng.random() < 0.8,
        ba_first=rng.random() < 0.3,
        quantize=rng.random() < 0.8,
        quantize_silu=rng.random() < 0.7,
        persistent=rng.random() < 0.2,
        split_k=rng.random() < 0.15,
        head_chunks=rng.choice((1, 1, 1, 1, 2, 4)),
        kv_copy=rng.choice(("fused", "layers")),
    )


def _disturbance(rng: random.Random) -> Disturbance:
    often = lambda share: rng.random() < share  # noqa: E731
    # Who schedules ahead does not wait for the verdict in the middle of a step.
    asynchronous = often(0.4)
    return Disturbance(
        jitter=rng.choice((0.01, 0.025, 0.05)),
        bias=rng.choice((0.0, 0.05, 0.10)),
        outliers=0.002 * often(0.3),
        shuffle=often(0.3),
        drop=0.003 * often(0.15),
        change=0.4 * often(0.3),
        tactics=0.3 * often(0.2),
        asynchronous=asynchronous,
        side=often(0.1) and not asynchronous,
        overlap=often(0.1),
        warmup=rng.choice((0, 2, 5)),
        autotune=often(0.2),
        prefill=often(0.8),
        mixed=3 * often(0.2),
        batch2=5 * often(0.2),
        reinstantiate=often(0.1),
        middle_us=0.0 if asynchronous else rng.choice((0.0, 300.0)),
        hiccups=0.1 * often(0.2),
        dummy=6 * often(0.2),
        drift=often(0.3),
        foreign=often(0.1),
    )


#: Checkpoints that could be named instead of the right one.
_OTHER_TARGET = {
    "hybrid27-nvfp4": "hybrid27-fp8",
    "hybrid27-fp8": "hybrid27-bf16",
    "hybrid27-bf16": "hybrid27-fp8",
    "llama8": "llama8-fp8",
    "llama8-fp8": "llama8",
    "qwen8": "qwen8-nvfp4",
    "qwen8-nvfp4": "qwen8",
}
_UNTOLD = {
    "drafter.checkpoint": None,
    "drafter.draft_tokens": None,
    "drafter.method": "none",
    "draft_head.checkpoint": None,
}


def _mistake(case: Case, rng: random.Random) -> dict[str, object]:
    """One thing told wrong that the bytes of a step depend on; empty where none was drawn."""
    found: list[dict[str, object]] = []
    if case.target in _OTHER_TARGET and case.method in ("none", "mtp"):
        found.append({"target.checkpoint": _OTHER_TARGET[case.target]})
    if case.method != "none":
        found.append(_UNTOLD)
    if case.method in ("mtp", "eagle3", "draft_model"):
        found.append({"drafter.draft_tokens": case.k + rng.choice((-1, 1) if case.k > 1 else (1,))})
    if case.method == "none" and case.target in DRAFTERS:
        method, drafter, _, ks = rng.choice(DRAFTERS[case.target])
        found.append(
            {"drafter.method": method, "drafter.draft_tokens": ks[0]}
            | ({"drafter.checkpoint": drafter} if drafter else {})
        )
    if case.head:
        found.append({"draft_head.checkpoint": None})
    if case.ranks > 1:
        found.append({"workload.tensor_parallel": None})
    return rng.choice(found) if found else {}
