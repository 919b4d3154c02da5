"""The order of one step in each engine, from the public notes on their sources."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .models import Checkpoint, Linear, Net
from .program import (
    DRAFTER,
    HEAD,
    OTHER,
    OUTPUT,
    PREPARE,
    REPLAY,
    SAMPLING,
    TARGET,
    Builder,
    Op,
    layer,
)


@dataclass(frozen=True)
class Run:
    """What is decoded: target, drafter, head, and how it is launched.

    `launch` is full, piecewise or none. `method` is none, mtp, eagle3, dflash,
    dflash2 or draft_model; `k` the drafted tokens.
    """

    target: Net
    engine: str = "vllm"
    launch: str = "full"
    method: str = "none"
    drafter: Net | None = None
    k: int = 0
    reduced_head: Checkpoint | None = None
    replay: bool = False  # RecoverSSM: one commit launch instead of snapshots
    context_first: bool = False

    @property
    def rows(self) -> int:
        return self.k + 1

    @property
    def recurrent_layers(self) -> int:
        return self.target.kinds.count("gdn")


def step(run: Run, b: Builder) -> list[Op]:
    """All kernels of one decode step, in launch order."""
    {"vllm": vllm, "sglang": sglang, "llamacpp": llamacpp, "trtllm": trtllm, "hf": hf}[run.engine](
        run, b
    )
    return b.ops


def _verify(run: Run, b: Builder) -> None:
    b.rows = run.rows
    if run.recurrent_layers and run.k:
        b.verify = "gdn_recover" if run.replay else "gdn_verify"
        b.snapshots = 1 if run.replay else run.k + 2


def target_layers(run: Run, b: Builder, graph: str) -> None:
    """Embedding, all layers, final norm: one graph, pieces, or none."""
    net, b.launch = run.target, graph
    b.add("embed", TARGET)
    every = max(1, len(net.kinds) // 5) if run.method in ("dflash", "dflash2", "eagle3") else 0
    for i in range(len(net.kinds)):
        layer(b, net, i, TARGET, first=i == 0)
        if every and i % every == every - 1:
            b.add("aux", TARGET, layer=i)
    b.add("final_norm", TARGET)


def target_graph(run: Run) -> str:
    return {"full": "target", "piecewise": "piece0", "none": ""}[run.launch]


def head_linear(run: Run, *, draft: bool) -> Linear:
    """The matrix that a head reads: the target's, the drafter's own, or a reduced one."""
    if draft and run.reduced_head is not None:
        return run.reduced_head.linear("lm_head")
    own = run.drafter.head if draft and run.drafter and run.drafter.head else None
    if own is not None:
        return run.drafter.ckpt.linear(own)
    return run.target.ckpt.linear(run.target.head)


def output_head(b: Builder, phase: str, linear: Linear) -> None:
    """A head, on one kernel or in chunks of its rows."""
    chunks = b.layout.head_chunks
    size = Linear(linear.path, linear.n // chunks, linear.k, linear.fmt, linear.nbytes // chunks)
    for number in range(chunks):
        b.gemm(phase, None, "head", [size], quantized=number > 0)


def greedy_or_rejection(run: Run, b: Builder) -> None:
    b.add("sample_extra", SAMPLING)
    b.add("reject" if run.k else "sample", SAMPLING)


def vllm(run: Run, b: Builder) -> None:
    """Target, eager output layer, sampler, commit, then the drafter."""
    b.add("prep_extra", PREPARE)
    b.add("prep", PREPARE)
    _verify(run, b)
    target_layers(run, b, target_graph(run))
    b.launch = ""
    b.add("gather", OUTPUT)
    output_head(b, OUTPUT, head_linear(run, draft=False))
    if b.ranks > 1:
        b.add("allgather", "communication")
    greedy_or_rejection(run, b)
    b.add("post", f"{SAMPLING}|{OTHER}")
    if run.replay:
        commit(run, b)
    if run.method in ("dflash", "dflash2"):
        block_context(run, b)
        block_draft(run, b, "" if run.launch == "none" else "drafter")
        b.launch = ""
        b.add("write_draft", f"{HEAD}|{OTHER}|{PREPARE}|{SAMPLING}")
    elif run.method != "none":
        sequential_drafts(run, b)


def commit(run: Run, b: Builder) -> None:
    """Keep the state of the accepted positions: one launch for all layers."""
    size = run.target.state_bytes * (2 if b.layout.gdn_float32 else 1)
    b.add("commit", REPLAY, traffic=2.0 * size * run.recurrent_layers / b.ranks)


def block_context(run: Run, b: Builder, *, late: bool = False) -> None:
    """The drafter takes in the hidden states of the verified positions."""
    net = run.drafter
    b.add("cat", DRAFTER)
    b.gemm(DRAFTER, None, "fc", [net.ckpt.linear("fc")])
    if not late:
        b.add("draft_prep", PREPARE)
    b.add("norm", DRAFTER)
    layers = range(len(net.kinds))
    parts = [[net.linear(i, f"self_attn.{x}_proj") for x in "kv"] for i in layers]
    if b.layout.kv_copy == "fused":
        # the engine keeps a BF16 copy of all K/V rows beside the stored ones
        flat = [
            Linear(f"layers.{i}.{p.path}", p.n, p.k, "bf16", 2 * p.n * p.k)
            for i, pair in enumerate(parts) for p in pair
        ]  # fmt: skip
        b.gemm(DRAFTER, None, "kv_copy", flat)
        b.add("permute", DRAFTER)
        b.add("norm", DRAFTER)
        b.add("qkprep", DRAFTER)
    for i in layers:
        if b.layout.kv_copy != "fused":
            b.gemm(DRAFTER, i, "kv", parts[i])
            b.add("qkprep", DRAFTER, layer=i)
        b.add("kvwrite", DRAFTER, layer=i)


def block_draft(run: Run, b: Builder, graph: str, *, head_graph: str | None = None) -> None:
    """The drafter's layers over the block, its head and its selector."""
    net, b.launch = run.drafter, graph
    b.rows = run.k
    b.add("embed", DRAFTER)
    for i in range(len(net.kinds)):
        layer(b, net, i, DRAFTER, first=i == 0)
    b.launch = graph if head_graph is None else head_graph
    b.add("final_norm", HEAD)
    output_head(b, HEAD, head_linear(run, draft=True))
    if run.reduced_head is not None:
        b.add("d2t", HEAD)
    if net.extra.get("selector"):
        b.add("topk", HEAD)
        hidden = net.ckpt.linear("candidate_selector.hidden_projection")
        b.gemm(HEAD, None, "selector", [hidden])
        b.add("selector", HEAD)
    else:
        b.add("argmax", HEAD)


def sequential_drafts(run: Run, b: Builder) -> None:
    """MTP, EAGLE3 or a small model: K passes one after another."""
    net = run.drafter
    b.add("draft_first", PREPARE)
    if run.method == "eagle3":
        b.add("cat", DRAFTER)
        b.gemm(DRAFTER, None, "fc", [net.ckpt.linear("fc")])
    for number in range(run.k):
        b.launch, b.rows = "", run.rows if number == 0 else 1
        if number:
            b.add("draft_step", PREPARE)
        b.launch = "" if number == 0 or run.launch == "none" else "draft"
        b.add("embed", DRAFTER)
        if run.method in ("mtp", "eagle3"):
            b.add("norm", DRAFTER)
            b.add("norm", DRAFTER)
            b.add("cat", DRAFTER)
        if run.method == "mtp":
            b.gemm(DRAFTER, None, "fc", [net.ckpt.linear(net.extra["fc"])])
        for i in range(len(net.kinds)):
            layer(b, net, i, DRAFTER, first=i == 0)
        b.launch = ""
        b.add("final_norm", HEAD)
        output_head(b, HEAD, head_linear(run, draft=True))
        b.add("argmax", HEAD)
        if run.method == "eagle3" or run.reduced_head is not None:
            b.add("d2t", HEAD)


def sglang(run: Run, b: Builder) -> None:
    """Drafter first where there is one; output layer inside the target's graph."""
    if run.method in ("dflash", "dflash2"):
        b.add("draft_prep", PREPARE)
        quantised = head_linear(run, draft=True).fmt != "bf16"
        eager = run.launch == "none"
        block_draft(
            run, b, "" if eager else "drafter", head_graph="" if quantised or eager else None
        )
        b.launch = ""
        b.add("draft_buffer", f"{PREPARE}|{OTHER}|{HEAD}")
    b.add("prep", PREPARE)
    _verify(run, b)
    target_layers(run, b, target_graph(run))
    output_head(b, OUTPUT, head_linear(run, draft=False))
    b.launch = ""
    greedy_or_rejection(run, b)
    if run.recurrent_layers and run.k:
        commit(run, b)
    if run.method in ("dflash", "dflash2"):
        block_context(run, b, late=True)
    elif run.method != "none":
        sequential_drafts(run, b)
    b.add("post", f"{SAMPLING}|{OTHER}")


def llamacpp(run: Run, b: Builder) -> None:
    """One graph a token, head included; a quantise kernel before each product."""
    b.layout = replace(
        b.layout, fused_qkv=False, fused_gate_up=False, fused_qkvz=False, quantize=False
    )
    target_layers(run, b, "target" if run.launch != "none" else "")
    output_head(b, OUTPUT, head_linear(run, draft=False))
    b.ops = [extra for op in _residual_apart(b.ops) for extra in _quantised_input(op)]
    b.launch = ""
    b.add("sample", SAMPLING)


def _residual_apart(ops: list[Op]) -> list[Op]:
    """Additions to the residual stream as kernels of their own: what they add tells their layer."""
    out: list[Op] = []
    for op in ops:
        if op.what not in ("addnorm", "final_norm"):
            out.append(op)
            continue
        before = next((o for o in reversed(out) if o.layer is not None), op)
        out.append(replace(op, what="residual", layer=before.layer, phase=before.phase))
        out.append(replace(op, what="row_norm"))
    return out


def _quantised_input(op: Op) -> list[Op]:
    if op.what != "gemm":
        return [op]
    keep = dict(what="quant_any", phase=op.phase, layer=op.layer, launch=op.launch, rows=op.rows)
    return [Op(**keep), op]


def trtllm(run: Run, b: Builder) -> None:
    """TensorRT-LLM: the whole forward in one graph, sampler eager."""
    b.add("prep", PREPARE)
    _verify(run, b)
    target_layers(run, b, "target" if run.launch != "none" else "")
    output_head(b, OUTPUT, head_linear(run, draft=False))
    b.launch = ""
    b.add("reject" if run.k else "sample", SAMPLING)
    if run.method != "none":
        sequential_drafts(run, b)


def hf(run: Run, b: Builder) -> None:
    """Plain eager transformers: no fusion, no graph, many small kernels."""
    b.layout = replace(b.layout, fused_qkv=False, fused_gate_up=False, fused_qkvz=False)
    b.add("prep", PREPARE)
    target_layers(run, b, "")
    output_head(b, OUTPUT, head_linear(run, draft=False))
    b.ops = _residual_apart(b.ops)
    b.add("sample", SAMPLING)
