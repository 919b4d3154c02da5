"""Kernels of decoder layers in the order vLLM runs them.

In: the reads of one layer. Out: the layer's nodes. Order inside a layer: vLLM
`qwen_gdn_linear_attn.py` and the Qwen3 attention layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracebook.checkpoint.plan import Read
from tracebook.phases import Phase
from tracebook.synth.models import Shape
from tracebook.synth.nodes import Node, NodeFactory, take

_RECURRENCE = {
    "packed": ("recurrence_packed",),
    "snapshots": ("verify_cat", "recurrence_verify", "verify_copy"),
    "replay": ("verify_cat", "recurrence_replay", "verify_copy"),
    "chunked": (
        "post_conv",
        "chunk_cumsum",
        "chunk_kkt",
        "chunk_inverse",
        "chunk_wu",
        "chunk_state",
        "chunk_output",
    ),
}


@dataclass(frozen=True)
class LayerStyle:
    """What differs between uses of a layer.

    Attributes:
        phase: Phase of its nodes.
        component: `target`, `mtp` or `drafter`.
        shape: Sizes of the model.
        tokens: Positions.
        recurrence: Key of the recurrence's form, see `_RECURRENCE`.
        prefill: Whether a whole prompt is processed.
    """

    phase: Phase
    component: str
    shape: Shape
    tokens: int
    recurrence: str = "packed"
    prefill: bool = False


def decoder_layer(
    factory: NodeFactory, reads: Sequence[Read], style: LayerStyle
) -> tuple[Node, ...]:
    """Make all nodes of one target or MTP layer."""
    ops = {read.op for read in reads}
    mixing = _gdn(factory, reads, style) if "out" in ops else _attention(factory, reads, style)
    return (*mixing, *_mlp(factory, reads, style))


def drafter_layer(
    factory: NodeFactory, reads: Sequence[Read], style: LayerStyle
) -> tuple[Node, ...]:
    """Make all nodes of one layer of a DFlash drafter; DFlash2 has the convolutions.

    Each convolution runs before and after its sublayer with the kernel projected once.
    """
    return (
        *_drafter_attention(factory, reads, style),
        *_drafter_mlp(factory, reads, style),
    )


def _gdn(factory: NodeFactory, reads: Sequence[Read], style: LayerStyle) -> Iterator[Node]:
    small = _Small(factory, reads[0].layer, style)
    out = take(reads, "out")
    yield small("input_norm")
    yield factory.gemm(
        take(reads, "qkv", "z", "qkvz"), component=style.component, tokens=style.tokens
    )
    yield factory.gemm(take(reads, "b", "a", "ba"), component=style.component, tokens=style.tokens)
    yield small("gates_copy")
    yield small("core_zero")
    yield small("conv_prefill" if style.prefill else "conv_update")
    for key in _RECURRENCE[style.recurrence]:
        yield small(key)
    yield small("gated_norm")
    yield from _fp4_quantize(factory, out, style)
    yield factory.gemm(out, component=style.component, tokens=style.tokens)


def _attention(factory: NodeFactory, reads: Sequence[Read], style: LayerStyle) -> Iterator[Node]:
    small = _Small(factory, reads[0].layer, style)
    qkv, out = take(reads, "q", "k", "v", "qkv"), take(reads, "o")
    yield small("input_norm")
    yield from _fp4_quantize(factory, qkv, style)
    yield factory.gemm(qkv, component=style.component, tokens=style.tokens)
    yield small("query_key_norm")
    yield small("rope")
    yield small("cache_write")
    if style.prefill:
        yield small("attention_prefill")
    else:
        yield small("attention")
        yield small("attention_combine")
    if style.shape.gated:
        bf16 = factory.format_of(out[0], style.component) == "bf16"
        yield small("output_gate_bf16" if bf16 else "output_gate")
    yield from _fp4_quantize(factory, out, style)
    yield factory.gemm(out, component=style.component, tokens=style.tokens)


def _mlp(factory: NodeFactory, reads: Sequence[Read], style: LayerStyle) -> Iterator[Node]:
    small = _Small(factory, reads[0].layer, style)
    gate_up, down = take(reads, "gate", "up", "gate_up"), take(reads, "down")
    stored = factory.format_of(gate_up[0], style.component)
    norm, activation = {
        "nvfp4": ("post_norm", "silu_quantize_fp4"),
        "bf16": ("post_norm", "silu"),
    }.get(stored, ("post_norm_fp8", "silu_fp8"))
    yield small(norm)
    yield from _fp4_quantize(factory, gate_up, style)
    yield factory.gemm(gate_up, component=style.component, tokens=style.tokens)
    yield small(activation)
    yield factory.gemm(down, component=style.component, tokens=style.tokens)


def _drafter_attention(
    factory: NodeFactory, reads: Sequence[Read], style: LayerStyle
) -> Iterator[Node]:
    small = _Small(factory, reads[0].layer, style)
    qkv, out = take(reads, "q", "k", "v", "qkv"), take(reads, "o")
    convolution = [read for read in reads if read.op == "attention_conv"]
    yield small("drafter_norm")
    if convolution:
        yield factory.gemm(convolution, component=style.component, tokens=style.tokens)
        yield small("block_conv")
    yield from _fp4_quantize(factory, qkv, style)
    yield factory.gemm(qkv, component=style.component, tokens=style.tokens)
    for key in (
        "drafter_query_key_norm",
        "rope",
        "cache_write",
        "drafter_attention",
        "drafter_attention_combine",
    ):
        yield small(key)
    yield from _fp4_quantize(factory, out, style)
    yield factory.gemm(out, component=style.component, tokens=style.tokens)
    if convolution:
        yield small("block_conv")


def _drafter_mlp(factory: NodeFactory, reads: Sequence[Read], style: LayerStyle) -> Iterator[Node]:
    small = _Small(factory, reads[0].layer, style)
    gate_up, down = take(reads, "gate", "up", "gate_up"), take(reads, "down")
    convolution = [read for read in reads if read.op == "mlp_conv"]
    yield small("drafter_norm")
    if convolution:
        yield factory.gemm(convolution, component=style.component, tokens=style.tokens)
        yield small("block_conv")
    yield from _fp4_quantize(factory, gate_up, style)
    yield factory.gemm(gate_up, component=style.component, tokens=style.tokens)
    nvfp4 = factory.format_of(down[0], style.component) == "nvfp4"
    yield small("silu_quantize_fp4" if nvfp4 else "silu")
    yield factory.gemm(down, component=style.component, tokens=style.tokens)
    if convolution:
        yield small("block_conv")


def _fp4_quantize(
    factory: NodeFactory, reads: Sequence[Read], style: LayerStyle
) -> tuple[Node, ...]:
    """Quantisation in front of an FP4 matrix; for FP8 Inductor fuses it into the norm."""
    if factory.format_of(reads[0], style.component) != "nvfp4":
        return ()
    return factory.quantize(
        reads[0], style.phase.value, component=style.component, tokens=style.tokens
    )


@dataclass(frozen=True)
class _Small:
    """Makes the small kernels of one layer."""

    factory: NodeFactory
    layer: int | None
    style: LayerStyle

    def __call__(self, key: str) -> Node:
        return self.factory.small(
            key,
            self.style.phase.value,
            shape=self.style.shape,
            tokens=self.style.tokens,
            layer=self.layer,
        )
