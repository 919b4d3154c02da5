"""Phases without a checkpoint: what the repeating blocks of a step say by themselves.

Attention and recurrence kernels stand in the middle of layers, matrix products around
them. Stacks of layers are separated by sampling, preparation or a head; the largest
stack is the target, what follows it is the output layer, later stacks are the drafter.
There are times then, but no bytes, and names must say which kernels are products.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.columns import Floats, Ints
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.marks import PHASE_OF_BLOCK, BlockMark, Mark, Marks

#: Classes that never stand between two layers of one stack.
BETWEEN_STACKS = frozenset({"sample", "verify", "select", "prepare", "draft_prepare", "replay"})
MIXERS = frozenset({"attention", "gdn"})
LEAST_LAYERS = 2


@dataclass(frozen=True)
class Stack:
    """Layers that follow each other: mixer positions, and the products around them.

    `before` lists the products in front of the first mixer, `between` those between
    neighbouring mixers, `after` those behind the last one, all as positions.
    """

    mixers: tuple[int, ...]
    before: tuple[int, ...]
    between: tuple[tuple[int, ...], ...]
    after: tuple[int, ...]


def marks_of_structure(kernel_class: Ints, symbol: Ints, duration_ns: Floats) -> Marks | None:
    """Find target, output layer, drafter and draft head from classes and repetition.

    Args:
        kernel_class: Index into CLASSES per template position.
        symbol: Shape symbol per position.
        duration_ns: Median duration per position.

    Returns:
        Marks on the matrix products, or None where no stack of layers is seen.
    """
    stacks = _find_stacks(kernel_class)
    if not stacks:
        return None
    target = max(
        range(len(stacks)), key=lambda i: (len(stacks[i].mixers), _time(stacks[i], duration_ns))
    )
    ordered = stacks[target:] + stacks[:target]
    if len(ordered[0].mixers) < LEAST_LAYERS or _several_targets(ordered, duration_ns):
        return None
    blocks: list[BlockMark] = []
    marks: list[Mark] = []

    def add(name: str, number: int, placed: Sequence[tuple[int, int | None]]) -> None:
        if not placed:
            return
        blocks.append(BlockMark(name, PHASE_OF_BLOCK[name].value, number))
        marks.extend(
            Mark(position, len(blocks) - 1, layer, "gemm", "", None, "structure")
            for position, layer in placed
        )

    head_symbols: set[int] = set()
    for number, stack in enumerate(ordered):
        inside = _products_after(stack, symbol, number == 0, head_symbols)
        layers, head = _layers(stack, inside), stack.after[inside:]
        if number == 0:
            head_symbols = {int(symbol[p]) for p in head}
        add("target" if number == 0 else "draft", max(0, number - 1), layers)
        heads = [(p, None) for p in head]
        add("output" if number == 0 else "draft_head", max(0, number - 1), heads)
    return Marks(tuple(blocks), tuple(marks))


def _several_targets(ordered: Sequence[Stack], duration_ns: Floats) -> bool:
    """Whether another stack is about as deep and as long as the target: no drafter is."""
    depth, time = len(ordered[0].mixers), _time(ordered[0], duration_ns)
    return any(
        len(stack.mixers) >= 0.8 * depth and _time(stack, duration_ns) >= 0.5 * time
        for stack in ordered[1:]
    )


def _time(stack: Stack, duration_ns: Floats) -> float:
    inner = [p for group in stack.between for p in group]
    return float(duration_ns[[*stack.before, *inner, *stack.after]].sum())


def _find_stacks(kernel_class: Ints) -> list[Stack]:
    """Stacks in the order of the template, which is cyclic: none is cut at its ends."""
    names = [CLASSES[int(c)] for c in kernel_class]
    breaks = [i for i, name in enumerate(names) if name in BETWEEN_STACKS]
    if not breaks or not MIXERS & set(names):
        return []
    count = len(names)
    order = [(breaks[0] + i) % count for i in range(count)]
    stretches: list[list[int]] = [[]]
    for position in order:
        if names[position] in BETWEEN_STACKS:
            # Top-k and softmax of a router stand inside a layer: a stretch without a
            # layer of its own does not end here.
            stretches.append([])
        else:
            stretches[-1].append(position)
    joined = _join_routers(stretches, names)
    stacks = [_stack(stretch, names) for stretch in _carry_products(joined, names)]
    return [stack for stack in stacks if stack is not None]


def _carry_products(stretches: list[list[int]], names: list[str]) -> list[list[int]]:
    """Give products that stand alone to the layers they prepare, or else to the head before.

    A drafter's context intake stands between two preparations; a selector's projection
    stands behind the drafter, and what follows it in the cycle is the target.
    """
    layered = [any(names[p] in MIXERS for p in s) for s in stretches]
    sizes = [sum(names[p] in MIXERS for p in s) for s in stretches]
    target = int(np.argmax(sizes))
    kept: list[list[int]] = [
        list(s) if has else [] for s, has in zip(stretches, layered, strict=True)
    ]
    count = len(stretches)
    for number, stretch in enumerate(stretches):
        products = [p for p in stretch if names[p] == "gemm"]
        if layered[number] or not products or not any(layered):
            continue
        following = next(
            i % count for i in range(number + 1, number + count + 1) if layered[i % count]
        )
        preceding = next(
            i % count for i in range(number - 1, number - count - 1, -1) if layered[i % count]
        )
        if following != target:
            kept[following] = products + kept[following]
        else:
            kept[preceding] = kept[preceding] + products
    return kept


def _join_routers(stretches: list[list[int]], names: list[str]) -> list[list[int]]:
    """Put stretches together where what parts them comes once a layer (expert routing)."""
    with_mixer = [s for s in stretches if any(names[p] in MIXERS for p in s)]
    if len(with_mixer) < 8:
        return stretches
    sizes = Counter(len(s) for s in with_mixer)
    usual, times = sizes.most_common(1)[0]
    if times < 0.6 * len(with_mixer):
        return stretches
    joined: list[list[int]] = [[]]
    for stretch in stretches:
        layer = any(names[p] in MIXERS for p in stretch)
        if layer and abs(len(stretch) - usual) > 0.5 * usual and joined[-1]:
            joined.append([])
        joined[-1].extend(stretch)
    return joined


def _stack(stretch: list[int], names: list[str]) -> Stack | None:
    """The layers of a stretch: mixers with the products before, between and after them."""
    mixers: list[int] = []
    groups: list[list[int]] = [[]]
    for position in stretch:
        if names[position] in MIXERS:
            if not mixers or groups[-1]:
                mixers.append(position)
                groups.append([])
        elif names[position] == "gemm":
            groups[-1].append(position)
    if not mixers:
        return None
    return Stack(
        tuple(mixers),
        tuple(groups[0]),
        tuple(tuple(group) for group in groups[1:-1]),
        tuple(groups[-1]),
    )


def _products_after(stack: Stack, symbol: Ints, target: bool, head_symbols: set[int]) -> int:
    """How many products behind the last mixer still belong to its layer.

    For the target, nothing but the first layer's products precedes its first mixer, so
    what is left of the usual number between mixers follows them. For a drafter, the
    products behind its last mixer repeat those between mixers up to the head.
    """
    tail = [int(symbol[p]) for p in stack.after]
    shared = next((i for i, s in enumerate(tail) if s in head_symbols), None)
    if shared:
        return shared
    if stack.between:
        kinds = [[int(symbol[p]) for p in group] for group in stack.between]
        if target:
            usual = Counter(len(group) for group in kinds).most_common(1)[0][0]
            inside = usual - len(stack.before)
            if 0 < inside < len(tail):
                return inside
        return max(_common_prefix(tail, kind) for kind in kinds)
    return max(0, len(tail) - 1)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    )


def _layers(stack: Stack, inside: int) -> list[tuple[int, int | None]]:
    """Products of a stack with their layer index; `inside` of them follow each mixer."""
    placed: list[tuple[int, int | None]] = [(p, 0) for p in stack.before]
    for layer, group in enumerate(stack.between):
        placed += [(p, layer if i < inside else layer + 1) for i, p in enumerate(group)]
    last = len(stack.mixers) - 1
    placed += [(p, last) for p in stack.after[:inside]]
    return placed
