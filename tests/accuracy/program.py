"""A step as a list of kernels: what each does, where it belongs, what it reads."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .models import Linear, Net

#: Whoever may be asked to say a phase where both readings are fair writes "a|b".
TARGET, OUTPUT, DRAFTER = "target_layers", "output_layer", "drafter_layers"
HEAD, REPLAY, SAMPLING = "draft_head", "replay", "sampling"
PREPARE, COMM, OTHER = "prepare", "communication", "other"


@dataclass(frozen=True)
class Op:
    """One kernel to be run.

    `what` is a key of the name table or "gemm"; `launch` the CUDA graph that it is
    a node of ("" when launched alone); `traffic` bytes moved beside the weights.
    `part` numbers kernels that one entry of the name table stands for.
    """

    what: str
    phase: str
    layer: int | None = None
    op: str = ""
    matrix: tuple[str, ...] = ()
    weight_bytes: int = 0
    n: int = 0
    k: int = 0
    fmt: str = ""
    rows: int = 1
    traffic: float = 0.0
    launch: str = ""
    stream: int = 0
    alternative: int = 0  # of the tactic


@dataclass(frozen=True)
class Layout:
    """Freedoms that an engine takes: what is fused, quantised, split."""

    fused_qkv: bool = True
    fused_gate_up: bool = True
    fused_qkvz: bool = True  # else qkv, z, b, a on their own
    ba_first: bool = False
    quantize: bool = True  # activations (W4A4, W8A8); False: W4A16
    quantize_silu: bool = True
    persistent: bool = False
    split_k: bool = False  # tall matrices on two kernels
    head_chunks: int = 1
    kv_copy: str = "fused"  # drafter context: "fused" BF16 copy, "layers" as stored
    gdn_float32: bool = False


@dataclass
class Builder:
    """Collects the ops of one step."""

    layout: Layout
    ranks: int = 1
    rows: int = 1
    context: int = 512
    batch: int = 1
    launch: str = ""
    ops: list[Op] = field(default_factory=list)
    variant: random.Random = field(default_factory=lambda: random.Random(0))
    verify: str = "gdn"  # which recurrence runs: gdn, gdn_verify or gdn_recover
    snapshots: int = 2  # states moved by one recurrence

    def add(self, what: str, phase: str, **more) -> None:
        more = {"launch": self.launch, "rows": self.rows * self.batch} | more
        self.ops.append(Op(what, phase, **more))

    def gemm(self, phase: str, layer: int | None, op: str, parts: list[Linear], **more) -> None:
        """One kernel that reads all `parts` (equal inputs, outputs side by side)."""
        if (
            self.layout.quantize
            and parts[0].fmt in ("nvfp4", "fp8")
            and not more.pop("quantized", False)
        ):
            self.add(f"quant_{parts[0].fmt}", phase, layer=layer)
        more.pop("quantized", None)
        n, size = sum(p.n for p in parts) // self.ranks, sum(p.nbytes for p in parts) // self.ranks
        matrix = tuple(p.path for p in parts)
        reads = dict(layer=layer, op=op, matrix=matrix, n=n, k=parts[0].k, fmt=parts[0].fmt)
        split = self.layout.split_k and parts[0].k >= 3 * n
        self.add("gemm", phase, weight_bytes=size, **reads, **more)
        if split:
            self.add("splitk", phase, layer=layer)

    def comm(self) -> None:
        if self.ranks > 1:
            self.add("allreduce", COMM)


def attention(b: Builder, net: Net, i: int, phase: str, *, first: bool = False) -> None:
    """Norm, projections, rotary, cache write, attention, output projection."""
    lay = b.layout
    b.add("norm" if first else "addnorm", phase, layer=i)
    if net.extra.get("conv"):
        draft_convolution(b, net, i, "attention_conv")
    names = [net.linear(i, f"self_attn.{x}_proj") for x in "qkv"]
    if lay.fused_qkv:
        b.gemm(phase, i, "qkv", names)
    else:
        for x, linear in zip("qkv", names, strict=True):
            b.gemm(phase, i, x, [linear], quantized=x != "q")
    b.add("qkprep", phase, layer=i)
    outer = leave_graph(b)
    b.add("kvwrite", phase, layer=i)
    kv = 2 * net.kv_heads * net.head_dim * 2 * b.context / b.ranks
    if net.kinds and phase == DRAFTER and net.extra.get("conv"):
        kv = min(kv, 2 * net.kv_heads * net.head_dim * 2 * 2048)  # sliding window
    b.add("attn", phase, layer=i, traffic=kv * b.batch)
    if b.context > 256:
        b.add("combine", phase, layer=i)
    b.launch = outer
    if net.gated:
        b.add("gate", phase, layer=i)
    b.gemm(phase, i, "o", [net.linear(i, "self_attn.o_proj")])
    b.comm()


def leave_graph(b: Builder) -> str:
    """In a piecewise graph attention runs eagerly: close this piece, name the next."""
    launch = b.launch
    if not launch.startswith("piece"):
        return launch
    b.launch = ""
    return f"piece{int(launch[5:]) + 1}"


def recurrent(b: Builder, net: Net, i: int, phase: str, *, first: bool = False) -> None:
    """A Gated DeltaNet layer up to its output projection."""
    lay, has = b.layout, lambda x: net.has(i, f"linear_attn.in_proj_{x}")
    linear = lambda x: net.linear(i, f"linear_attn.in_proj_{x}")  # noqa: E731
    b.add("norm" if first else "addnorm", phase, layer=i)
    wide = ["qkvz"] if has("qkvz") else ["qkv", "z"]
    thin = ["ba"] if has("ba") else ["b", "a"]
    groups = [wide, thin] if lay.fused_qkvz else [[x] for x in (*wide, *thin)]
    if lay.ba_first:
        groups = groups[::-1] if lay.fused_qkvz else [*groups[2:], *groups[:2]]
    seen = False
    for group in groups:
        parts = [linear(x) for x in group]
        b.gemm(phase, i, "".join(group), parts, quantized=seen)
        seen = seen or parts[0].fmt != "bf16"
    outer = leave_graph(b)
    b.add("gdn_pre", phase, layer=i)
    b.add("conv", phase, layer=i)
    state = net.state_bytes * (2 if lay.gdn_float32 else 1) / b.ranks
    b.add(b.verify, phase, layer=i, traffic=state * b.snapshots * b.batch)
    b.launch = outer
    b.add("gdn_norm", phase, layer=i)
    b.gemm(phase, i, "out", [net.linear(i, "linear_attn.out_proj")])
    b.comm()


def mlp(b: Builder, net: Net, i: int, phase: str, at: str = "mlp.") -> None:
    """gate, up, SiLU, down."""
    gate, up, down = (net.linear(i, f"{at}{x}_proj") for x in ("gate", "up", "down"))
    if b.layout.fused_gate_up:
        b.gemm(phase, i, "gate_up", [gate, up])
    else:
        b.gemm(phase, i, "gate", [gate])
        b.gemm(phase, i, "up", [up], quantized=True)
    fused = down.fmt == "nvfp4" and b.layout.quantize and b.layout.quantize_silu
    b.add("silu_nvfp4" if fused else "silu", phase, layer=i)
    b.gemm(phase, i, "down", [down], quantized=fused)


def experts(b: Builder, net: Net, i: int, phase: str) -> None:
    """Router, shared expert, the chosen experts in two grouped kernels."""
    b.gemm(phase, i, "router", [net.linear(i, "mlp.gate")])
    b.add("moe_route", phase, layer=i)
    tokens = b.rows * b.batch
    share = 1 - (1 - net.top_k / net.experts) ** tokens
    stacked = net.has(i, "mlp.experts.gate_up_proj")
    if stacked:
        wide, tall = ["mlp.experts.gate_up_proj"], ["mlp.experts.down_proj"]
        sizes = [net.linear(i, wide[0]).nbytes, net.linear(i, tall[0]).nbytes]
    else:
        wide, tall = ["mlp.experts.gate_proj", "mlp.experts.up_proj"], ["mlp.experts.down_proj"]
        one = [net.linear(i, f"mlp.experts.0.{x}_proj").nbytes for x in ("gate", "up", "down")]
        sizes = [net.experts * (one[0] + one[1]), net.experts * one[2]]
    for op, matrix, size in (("experts_up", wide, sizes[0]), ("experts_down", tall, sizes[1])):
        reads = int(size * share) // b.ranks
        b.add("moe", phase, layer=i, op=op, matrix=tuple(matrix), weight_bytes=reads, fmt="bf16")
        b.add("moe_act" if op == "experts_up" else "moe_sum", phase, layer=i)
    if net.has(i, "mlp.shared_expert.gate_proj"):
        mlp(b, net, i, phase, "mlp.shared_expert.")
        b.gemm(phase, i, "shared_gate", [net.linear(i, "mlp.shared_expert_gate")])


def layer(b: Builder, net: Net, i: int, phase: str, *, first: bool = False) -> None:
    """One whole decoder layer."""
    (recurrent if net.kinds[i] == "gdn" else attention)(b, net, i, phase, first=first)
    if net.extra.get("conv"):
        b.add("draft_conv", phase, layer=i)
    b.add("addnorm", phase, layer=i)
    if net.extra.get("conv"):
        draft_convolution(b, net, i, "mlp_conv")
    experts(b, net, i, phase) if net.experts else mlp(b, net, i, phase)
    b.comm()
    if net.extra.get("conv"):
        b.add("draft_conv", phase, layer=i)


def draft_convolution(b: Builder, net: Net, i: int, which: str) -> None:
    """The two-tap convolution whose kernel is projected from the hidden state."""
    b.gemm(DRAFTER, i, which, [net.linear(i, f"{which}.kernel_projection")])
    b.add("draft_conv", DRAFTER, layer=i)
