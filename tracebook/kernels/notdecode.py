"""Passes through a model that are no decode steps: prompts, embeddings, a drafter alone.

Layers of a model repeat in these as they do in decode, and they read the same matrices. What
they lack is what makes a token: one read of the output layer for all that pass the layers.
"""

from __future__ import annotations

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Floats, Ints
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.align import Column
from tracebook.kernels.classes import CHOOSES, CLASSES
from tracebook.kernels.fit import Fit, ratio_of
from tracebook.kernels.labels import KindInfo
from tracebook.kernels.marks import Marks
from tracebook.kernels.refusal import RECORD
from tracebook.kernels.verdict import target_over_output
from tracebook.notices import Notice

#: The target reads at less than this share of the output layer's bandwidth in prefill, which
#: runs all tokens through the layers and one through the output layer.
PREFILL_RATIO = 0.46
#: The layers are those of the plan where so many of their bytes were found.
LAYERS_FOUND = 0.97
#: Kernels that take less than this share of the time that the output layer needs at the peak
#: do not read it. A quarter leaves room for a head of fewer bits than the checkpoint's.
OUTPUT_SHARE = 0.25
#: A kernel that takes so many times as long as what it was matched with may do something else.
TOO_LONG = 2.0
#: Products shorter than this share of the longest of a layer read no vocabulary.
SMALL_MATRIX = 0.02
#: A sequence passes one token through the layers, or a tree or block of drafts: engines go up
#: to 64. A prompt has more, and so has a chunk of one (512 and up).
TOKENS_PER_SEQUENCE = 64
#: Engines decode at most so many sequences at once unless told otherwise (vLLM: 1,024).
MOST_SEQUENCES = 1024


def check_fitted(
    fit: Fit,
    column: Column,
    plan: Plan,
    peak_gbps: float | None,
    kernel_class: Ints,
    *,
    trusted: bool,
) -> None:
    """Refuse what reads the layers of the plan as decode does not.

    Args:
        fit: Where the reads of the plan were found.
        column: The kernels of the template.
        plan: What the step must read.
        peak_gbps: Peak bandwidth, None where unknown.
        kernel_class: Index into CLASSES per template position.
        trusted: Whether the phases of the fit are believed.

    Raises:
        NoDecodeSteps: The output layer is never read, or the layers are not bound by reading.
    """
    if not _chooses(kernel_class) and output_is_missing(fit, column, plan, peak_gbps):
        raise NoDecodeSteps(
            f"No steady decode found: the layers of {plan.description} repeat, but its output "
            "layer is not read between them, so no token is chosen (embeddings, or prompts in "
            "chunks).",
            "Record a server while it generates tokens.",
        )
    ratio = target_over_output(fit, column, plan)
    if trusted and ratio is not None and ratio < PREFILL_RATIO:
        raise NoDecodeSteps(
            "No steady decode found: in what repeats the layers of "
            f"{plan.description} reach {ratio:.2f} times the bandwidth of the output "
            "layer, so more than reading these weights goes on in them (prefill, a large batch, "
            "long attention that no name tells, or a checkpoint of fewer bits than what ran).",
            RECORD,
        )


def _chooses(kernel_class: Ints) -> bool:
    """Whether a kernel chooses tokens."""
    return bool(np.isin(np.array(CLASSES)[kernel_class], CHOOSES).any())


def output_is_missing(fit: Fit, column: Column, plan: Plan, peak_gbps: float | None) -> bool:
    """Whether no kernel behind the target's layers lasts long enough for the output layer.

    The alignment finds some kernel for it if it can; physics says whether that one can be it.
    All kernels between the last and the first layer count that may read weights and read
    nothing else, since an engine may compute the output layer in chunks. A long kernel
    elsewhere that its match does not explain means that the alignment is wrong, not the
    capture; and where names do not tell products, it is wrong too often for a refusal.
    """
    block_of = [block.name for block in plan.blocks for _ in block.reads]
    wanted = dict.fromkeys(("target", "output"), 0)
    found = dict.fromkeys(wanted, 0)
    for name, read in zip(block_of, plan.reads, strict=True):
        if name in wanted and not read.optional:
            wanted[name] += read.weight_bytes
    free = column.reads_weights.copy()
    layers: list[tuple[int, ...]] = []
    for item in fit.found:
        name = block_of[item.first]
        if name in found:
            part = plan.reads[item.first : item.end]
            found[name] += sum(read.weight_bytes for read in part if not read.optional)
        if name == "target":
            layers.append(item.kernels)
        if name != "output":
            free[list(item.kernels)] = False
    if not column.named.any() or not layers or not wanted["output"]:
        return False
    if found["target"] < LAYERS_FOUND * wanted["target"]:
        return False
    needed_ns = wanted["output"] / max(fit.bandwidth_gbps, peak_gbps or 0.0)
    explained = np.zeros(fit.length, dtype=bool)
    for item, ratio in zip(fit.found, ratio_of(fit, column, plan.reads), strict=True):
        explained[list(item.kernels)] = ratio < TOO_LONG
    odd = column.reads_weights & ~explained
    if (column.duration_ns[odd] >= OUTPUT_SHARE * needed_ns).any():
        return False
    behind, before = layers[-1][-1] + 1, layers[0][0]
    arc = np.arange(behind, before if before >= behind else before + fit.length) % fit.length
    spent_ns = float(column.duration_ns[arc][free[arc]].sum())
    return spent_ns < OUTPUT_SHARE * needed_ns


def check_structure(marks: Marks, kernel_class: Ints, duration_ns: Floats) -> None:
    """Refuse layers that are followed by neither an output layer nor the choice of a token.

    Args:
        marks: What the structure of the step told.
        kernel_class: Index into CLASSES per template position.
        duration_ns: Median duration per position.

    Raises:
        NoDecodeSteps: There is neither.
    """
    if _chooses(kernel_class) or _reads_vocabulary(marks, duration_ns):
        return
    raise NoDecodeSteps(
        "No steady decode found: layers of a model repeat, but neither an output layer nor the "
        "choice of a token follows them (embeddings, or prompts in chunks).",
        "Record a server while it generates tokens. Of a model in pipeline stages take the "
        "device with the last stage (--device).",
    )


def _reads_vocabulary(marks: Marks, duration_ns: Floats) -> bool:
    """Whether the products behind the layers can be an output layer: it is no small matrix.

    A vocabulary has as many rows as the widest matrix of a layer, or more; a score has one.
    """
    longest = dict.fromkeys(("target", "output"), 0.0)
    for mark in marks.marks:
        name = marks.blocks[mark.block].name
        if name in longest:
            longest[name] = max(longest[name], float(duration_ns[mark.position]))
    return longest["output"] >= SMALL_MATRIX * longest["target"] and longest["output"] > 0


def check_drafter_alone(depth: int, plan: Plan) -> None:
    """Refuse the passes of a drafter within one step, which look like steps of a smaller model.

    Args:
        depth: Layers that the structure of what repeats has.
        plan: What a step must read.

    Raises:
        NoDecodeSteps: What repeats is as deep as the drafter, and not as the target.
    """
    passes = [block for block in plan.blocks if block.name == "draft"]
    layers = {len({r.layer for r in block.reads if r.layer is not None}) for block in passes}
    target = len(plan.attention_layers) + len(plan.recurrent_layers)
    if len(passes) > 1 and depth in layers and depth != target:
        raise NoDecodeSteps(
            f"No steady decode found: what repeats has {depth} layers like the drafter, not "
            f"{target} like the target ({plan.description}). It is the passes of the drafter, "
            "and no whole step comes twice.",
            RECORD,
        )


def check_tokens(kind: KindInfo, batch: int | None) -> list[Notice]:
    """Hold the tokens that pass the layers at once against what decode can have.

    For steps whose bytes say nothing: with a checkpoint the output layer tells prompts apart.

    Args:
        kind: The kind of step accounted for.
        batch: Sequences decoded at once as the user said, None where nothing was said.

    Returns:
        A warning where a large batch and a chunk of a prompt would look alike.

    Raises:
        NoDecodeSteps: No batch that was said or that is usual has so many tokens.
    """
    grids = kind.norm_grids or kind.row_grids
    told = grids[0] if grids else 0
    tokens = told or kind.rows or 0
    most = TOKENS_PER_SEQUENCE * batch if batch is not None else MOST_SEQUENCES
    if told > most:
        sequences = f"batch {batch}" if batch is not None else "any usual batch"
        raise NoDecodeSteps(
            f"No steady decode found: {tokens:,} tokens pass the layers at once, more than "
            f"{sequences} has in decode: it is prefill.",
            "Let the capture run on while tokens are generated. If so many sequences were "
            "decoded at once, say so with --batch.",
        )
    if batch is None and tokens > TOKENS_PER_SEQUENCE:
        return [
            Notice(
                "tokens_at_once",
                f"{tokens:,} tokens pass the layers at once: a large batch, or prompts in chunks "
                "of that size, which look the same without a checkpoint.",
                "Say --batch, and --checkpoint so that the output layer can tell.",
            )
        ]
    return []
