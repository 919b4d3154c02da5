"""Kernels of the drafters: MTP heads pass by pass, DFlash blocks in one pass.

In: the plan's draft blocks. Out: segments that follow the sampler. Source of the
order: vLLM `qwen3_dflash2.py`, `spec_decode/dflash/speculator.py` and the MTP proposer.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracebook.checkpoint.plan import Plan, Read
from tracebook.phases import Phase
from tracebook.synth.layers import LayerStyle, decoder_layer, drafter_layer
from tracebook.synth.models import Models
from tracebook.synth.nodes import Node, NodeFactory, Segment, take

#: Numbers of the drafters' graphs: MTP's first pass takes the verified block, later ones a row.
BLOCK_GRAPH, FIRST_PASS_GRAPH, NEXT_PASS_GRAPH = 2, 2, 3


def sequential_drafter(
    factory: NodeFactory, plan: Plan, models: Models, tokens: int
) -> tuple[Segment, ...]:
    """Make K passes of an MTP head: forward in a graph, head and argmax eager."""
    segments: list[Segment] = []
    passes = 1 + max(block.pass_index for block in plan.blocks)
    for index in range(passes):
        rows = tokens if index == 0 else 1
        before = ("mtp_inputs", "mtp_next_token") if index == 0 else ("mtp_step",)
        segments.append(Segment(_small_ones(factory, models, Phase.PREPARE, 1, *before)))
        forward = _mtp_forward(factory, models, _reads(plan, "draft", index), rows)
        graph = FIRST_PASS_GRAPH if index == 0 else NEXT_PASS_GRAPH
        segments.append(Segment(forward, graph))
        head = _reads(plan, "draft_head", index)
        segments.append(
            Segment(
                (
                    *_small_ones(factory, models, Phase.DRAFT_HEAD, 1, "head_norm"),
                    *factory.quantize(head[0], Phase.DRAFT_HEAD, component="mtp_head", tokens=1),
                    factory.gemm(head, component="mtp_head", tokens=1),
                    *_small_ones(factory, models, Phase.DRAFT_HEAD, 1, "argmax"),
                )
            )
        )
    write = _small_ones(factory, models, Phase.DRAFT_HEAD, 1, "write_drafts")
    return (*segments[:-1], Segment((*segments[-1].nodes, *write)))


def _mtp_forward(
    factory: NodeFactory, models: Models, reads: Sequence[Read], rows: int
) -> tuple[Node, ...]:
    phase = Phase.DRAFTER_LAYERS
    style = LayerStyle(phase, "mtp", models.drafter, rows)
    layers = [read for read in reads if read.op != "fc"]
    return (
        *_small_ones(factory, models, phase, rows, "embedding", "mtp_cat"),
        factory.gemm(take(reads, "fc"), component="mtp", tokens=rows),
        *(
            node
            for layer in dict.fromkeys(read.layer for read in layers)
            for node in decoder_layer(factory, [r for r in layers if r.layer == layer], style)
        ),
    )


def block_drafter(
    factory: NodeFactory, plan: Plan, models: Models, tokens: int
) -> tuple[Segment, ...]:
    """Make a DFlash drafter: context eager, layers, head and selector in one graph."""
    graph = (
        *_block_layers(factory, models, _reads(plan, "draft", 0), tokens),
        *_block_head(factory, models, _reads(plan, "draft_head", 0), tokens),
    )
    context = _reads(plan, "draft_context", 0)
    drafter_layers = {read.layer for read in _reads(plan, "draft", 0)}
    return (
        Segment(_block_context(factory, models, context, len(drafter_layers), tokens)),
        Segment(graph, BLOCK_GRAPH),
        Segment(_small_ones(factory, models, Phase.DRAFT_HEAD, 1, "write_drafts")),
    )


def _block_context(
    factory: NodeFactory, models: Models, reads: Sequence[Read], layers: int, tokens: int
) -> tuple[Node, ...]:
    """Hidden states of the verified block go into the drafter's K/V cache."""
    phase = Phase.DRAFTER_LAYERS
    fc = take(reads, "fc")
    nodes = [
        *_small_ones(factory, models, phase, tokens, "aux_cat"),
        *factory.quantize(fc[0], phase, component="drafter", tokens=tokens),
        factory.gemm(fc, component="drafter", tokens=tokens),
        *_small_ones(factory, models, Phase.PREPARE, 1, "dflash_inputs"),
        *_small_ones(factory, models, phase, tokens, "rms_norm"),
        factory.gemm(take(reads, "kv_copy"), component="drafter", tokens=tokens),
    ]
    after = ("permute_copy", "grouped_norm", "rope", *["cache_write"] * layers)
    return (*nodes, *_small_ones(factory, models, phase, tokens, *after))


def _block_layers(
    factory: NodeFactory, models: Models, reads: Sequence[Read], tokens: int
) -> tuple[Node, ...]:
    phase = Phase.DRAFTER_LAYERS
    style = LayerStyle(phase, "drafter", models.drafter, tokens)
    return (
        *_small_ones(factory, models, phase, tokens, "embedding"),
        *(
            node
            for layer in dict.fromkeys(read.layer for read in reads)
            for node in drafter_layer(factory, [r for r in reads if r.layer == layer], style)
        ),
    )


def _block_head(
    factory: NodeFactory, models: Models, reads: Sequence[Read], tokens: int
) -> tuple[Node, ...]:
    """Final norm, head, candidates and, in DFlash2, the selector's walk through them."""
    phase = Phase.DRAFT_HEAD
    head = take(reads, "head")
    selector = [read for read in reads if read.op == "selector"]
    drafts = tokens - 1
    nodes = [
        *_small_ones(factory, models, phase, drafts, "head_norm"),
        *factory.quantize(head[0], phase, component="draft_head", tokens=drafts),
        factory.gemm(head, component="draft_head", tokens=drafts),
    ]
    if (head[0].rows or 0) < models.target.vocabulary:
        nodes += _small_ones(
            factory, models, phase, drafts, "vocabulary_fill", "vocabulary_scatter"
        )
    nodes += _small_ones(factory, models, phase, drafts, "top_k")
    if selector:
        nodes.append(factory.gemm(selector, component="draft_head", tokens=drafts))
        nodes += _small_ones(
            factory, models, phase, drafts, "codebook_gather", "codebook_gather", "selector_walk"
        )
    return (*nodes, *_small_ones(factory, models, phase, drafts, "cache_draft_logits"))


def _small_ones(
    factory: NodeFactory, models: Models, phase: Phase, tokens: int, *keys: str
) -> tuple[Node, ...]:
    return tuple(factory.small(key, phase, shape=models.drafter, tokens=tokens) for key in keys)


def _reads(plan: Plan, block: str, index: int) -> tuple[Read, ...]:
    return next(
        found.reads for found in plan.blocks if (found.name, found.pass_index) == (block, index)
    )
