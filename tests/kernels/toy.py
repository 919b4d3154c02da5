"""A language model small enough to be written down: its plan, its steps, its traces.

Nothing here is taken from the package's synthesizer. Six layers of four products, an output
layer of 100 MB, and a machine that reads 200 GB/s after 1.5 us of launch, so that every
duration can be worked out by hand: 40 MB last 201.5 us.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tracebook.checkpoint.plan import Block, Plan, Read
from tracebook.kernels.align import Column
from tracebook.kernels.classes import builtin_rules, classify_names
from tracebook.kernels.launches import launch_order
from tracebook.kernels.sequence import Kernels, build_kernels
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA, Trace, TraceInfo

MB = 1_000_000
GBPS = 200.0
LAYERS = 6
#: op -> (MB, rows, group within the layer)
LAYER = {
    "q": (10, 1024, 0),
    "k": (4, 256, 0),
    "v": (4, 256, 0),
    "o": (14, 1024, 1),
    "gate": (24, 2048, 2),
    "up": (24, 2048, 2),
    "down": (30, 1024, 3),
}
HEAD_MB, HEAD_ROWS = 100, 6400

GEMM = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{}>>(T1::Params)"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(T1 *)"
ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)256>>(T1)"
SILU = "void vllm::act_and_mul_kernel<c10::BFloat16>(T1 *)"
PREPARE = "_prepare_pos_seq_lens_kernel"
EMBED = "void at::native::vectorized_gather_kernel<(int)16, long>(char *)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ArgMaxOps<float>>(T3)"
VERIFY = "_rejection_kernel"


def stream_ns(weight_bytes: float, gbps: float = GBPS) -> int:
    """Time of a kernel that reads so many bytes."""
    return round(1500 + weight_bytes / gbps)


@dataclass(frozen=True)
class K:
    """One kernel of a step, and the truth about it."""

    name: str
    ns: int
    phase: str
    layer: int | None = None
    matrix: str = ""
    weight_bytes: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    graph: bool = False
    pause_ns: int = 1000  # idle time before it


def product(phase: str, layer: int | None, matrix: str, mb: float, tile: str, rows: int) -> K:
    size = round(mb * MB)
    grid = (-(-rows // 128), 1, 1)
    return K(GEMM.format(tile), stream_ns(size), phase, layer, matrix, size, grid)


def layer_kernels(layer: int, phase: str = "target_layers", scale: float = 1.0) -> list[K]:
    """norm, qkv, attention, o, norm, gate+up, silu, down."""

    def gemm(*ops: str) -> K:
        mb = sum(LAYER[op][0] for op in ops) * scale
        rows = sum(LAYER[op][1] for op in ops)
        return product(phase, layer, "+".join(f"{op}_proj" for op in ops), mb, ops[-1], rows)

    glue = (K(NORM, 2300, phase, layer), K(ATTENTION, 9000, phase, layer, grid=(1, 8, 1)))
    return [
        glue[0],
        gemm("q", "k", "v"),
        glue[1],
        gemm("o"),
        glue[0],
        gemm("gate", "up"),
        K(SILU, 2600, phase, layer, grid=(4, 1, 1)),
        gemm("down"),
    ]


def step(layers: int = LAYERS) -> list[K]:
    """One decode step without drafter: preparation, layers, head, greedy sampling."""
    kernels = [K(PREPARE, 1900, "prepare", pause_ns=30_000), K(EMBED, 2000, "target_layers")]
    for layer in range(layers):
        kernels += layer_kernels(layer)
    kernels.append(K(NORM, 2300, "target_layers"))
    kernels.append(product("output_layer", None, "lm_head", HEAD_MB, "head", HEAD_ROWS))
    kernels.append(K(ARGMAX, 7000, "sampling", grid=(25, 1, 1)))
    return kernels


def layer_reads(layer: int, group: int, phase: str = "target_layers", scale: float = 1.0):
    return [
        Read(phase, layer, op, f"{op}_proj", round(mb * MB * scale), rows, group + at,
             family=f"{phase}.{op}")
        for op, (mb, rows, at) in LAYER.items()
    ]  # fmt: skip


def plan(layers: int = LAYERS, *, head_mb: float = HEAD_MB, scale: float = 1.0) -> Plan:
    """The plan of `step`."""
    target = [read for i in range(layers) for read in layer_reads(i, 4 * i, scale=scale)]
    head = Read("output_layer", None, "head", "lm_head", round(head_mb * MB), HEAD_ROWS,
                4 * layers, family="head")  # fmt: skip
    return make_plan([("target", target), ("output", [head])], layers)


def make_plan(blocks: Sequence[tuple[str, Sequence[Read]]], layers: int, **more) -> Plan:
    """A plan of blocks; a third item in a block's name ("draft:2") is its pass."""
    made = []
    for name, reads in blocks:
        kind, _, number = name.partition(":")
        made.append(Block(kind, tuple(reads), int(number or 0)))
    values = {
        "small_bytes": {},
        "attention_layers": tuple(range(layers)),
        "recurrent_layers": (),
        "draft_tokens": None,
        "draft_method": "none",
        "description": "no drafter",
    }
    return Plan(blocks=tuple(made), **(values | more))


def jittered(kernels: Sequence[K], rng: random.Random, share: float = 0.02) -> list[K]:
    return [replace(k, ns=max(900, round(k.ns * rng.lognormvariate(0, share)))) for k in kernels]


def play(kernels: Sequence[K], **more) -> tuple[Trace, list[K]]:
    """A trace of kernels that run one after the other on one stream; ids count from 1."""
    names = list(dict.fromkeys(k.name for k in kernels))
    number = {name: i for i, name in enumerate(names)}
    now, launch, rows = 1_000_000, 0, []
    for i, k in enumerate(kernels, start=1):
        now += k.pause_ns
        in_run = k.graph and i > 1 and kernels[i - 2].graph
        launch += not in_run
        rows.append(
            {
                "kernel_id": i,
                "start_ns": now,
                "end_ns": now + k.ns,
                "device": 0,
                "pid": 41,
                "stream": 7,
                "correlation_id": launch,
                "name_id": number[k.name],
                "grid_x": k.grid[0],
                "grid_y": k.grid[1],
                "grid_z": k.grid[2],
                "block_x": 128,
                "block_y": 1,
                "block_z": 1,
                "graph_node_id": None,
                "graph_id": None,
            }
            | more
        )
        now += k.ns
    return make_trace(rows, names), list(kernels)


def make_trace(rows: Sequence[dict], names: Sequence[str]) -> Trace:
    frame = pl.DataFrame(list(rows), schema=pl.Schema(KERNEL_SCHEMA))
    table = pl.DataFrame(
        [(i, name, short_name(name)) for i, name in enumerate(names)],
        schema=NAME_SCHEMA,
        orient="row",
    )
    return Trace(
        TraceInfo(Path("toy.sqlite")), frame.sort("start_ns", "end_ns", "kernel_id"), table
    )


def short_name(name: str) -> str:
    """What nsys calls the short name: no template arguments, no namespaces."""
    return name.removeprefix("void ").partition("<")[0].partition("(")[0].split("::")[-1]


def kernels_of(trace: Trace) -> Kernels:
    """The arrays of a trace with one device and process."""
    classes = classify_names(trace.names, builtin_rules())
    return build_kernels(trace.kernels, launch_order(trace.kernels), classes, trace.names)


def column_of(kernels: Sequence[K], *, named: bool = True) -> Column:
    """A step as the alignment sees it; with `named` only products may read weights."""
    names = list(dict.fromkeys((k.name, k.grid) for k in kernels))
    products = np.array(["Gemm" in k.name for k in kernels])
    certain = products if named else np.ones(len(kernels), dtype=bool)
    return Column(
        duration_ns=np.array([float(k.ns) for k in kernels]),
        symbol=np.array([names.index((k.name, k.grid)) for k in kernels], dtype=np.int64),
        match_penalty=np.where(certain, 0.0, 3.0),
        skip_factor=np.where(certain, 1.0, 0.1),
        grid=np.array([k.grid for k in kernels], dtype=np.int64),
        named=products & named,
        distance=np.ones(len(kernels), dtype=np.int64),
        telling=np.full(len(kernels), named),
        mixes=np.array([named and k.name == ATTENTION for k in kernels]),
        may_add_up=np.full(len(kernels), not named),
    )


def drafted_step(passes: int = 2) -> list[K]:
    """A step with verification and sequential draft passes behind it: fc, a layer, the head."""
    kernels = [replace(k, name=VERIFY, ns=4000) if k.phase == "sampling" else k for k in step()]
    kernels.append(K("eagle_prepare_inputs_padded_kernel", 2000, "prepare", pause_ns=4000))
    for _ in range(passes):
        kernels.append(product("drafter_layers", None, "fc", 20, "fc", 1024))
        kernels += layer_kernels(0, "drafter_layers", 0.5)
        kernels.append(K(NORM, 2300, "draft_head"))
        kernels.append(product("draft_head", None, "lm_head", HEAD_MB, "head", HEAD_ROWS))
        kernels.append(K(ARGMAX, 7000, "draft_head", grid=(25, 1, 1)))
    return kernels


def drafted_plan(passes: int = 2) -> Plan:
    """The plan of `drafted_step`."""
    base = plan()
    blocks = [("target", base.blocks[0].reads), ("output", base.blocks[1].reads)]
    for number in range(passes):
        first = 1000 + 10 * number
        fc = Read("drafter_layers", None, "fc", "fc", 20 * MB, 1024, first, family="fc")
        layer = layer_reads(0, first + 1, "drafter_layers", 0.5)
        head = Read("draft_head", None, "head", "lm_head", HEAD_MB * MB, HEAD_ROWS, first + 6,
                    family="head")  # fmt: skip
        blocks += [(f"draft:{number}", [fc, *layer]), (f"draft_head:{number}", [head])]
    return make_plan(blocks, LAYERS, draft_tokens=passes, draft_method="mtp",
                     description=f"mtp with {passes} draft tokens")  # fmt: skip
