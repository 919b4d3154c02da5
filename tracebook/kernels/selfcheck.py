"""Self-checks by counting: as many attention and recurrence kernels as the config has layers.

Bytes and times can be explained by a wrong plan, since a kernel too many is taken for a
part of its neighbour's matrix. Kernels that mix tokens are not matched with bytes, so
their number is independent evidence wherever names tell them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Floats, Ints
from tracebook.kernels.classes import CLASSES
from tracebook.notices import Notice

#: Products that end a group: one, or two where kernels of a layer may have changed places
#: (start order, parallel streams). No layer has fewer than two unless it is one kernel.
PRODUCTS_BETWEEN = (1, 2)
#: Names are telling enough for a missing kind of kernel to be a finding when the kernels
#: without a class take at most this share of the time.
NAMELESS_SHARE = 0.03


@dataclass(frozen=True)
class Mixers:
    """Groups of attention and of recurrence kernels in a step, one group a layer."""

    attention: int
    recurrence: int


def count_mixers(kernel_class: Ints, products: int = 1) -> Mixers:
    """Count groups of token-mixing kernels.

    Args:
        kernel_class: Index into CLASSES per template position; a cycle, which may begin
            within a group.
        products: A group ends with so many matrix products between two of its kind.
    """
    counts = {"attention": 0, "gdn": 0}
    last: str | None = None
    passed = 0
    names = np.array(CLASSES)[kernel_class]
    between = np.isin(names, ["gemm", "unknown"])
    behind = int(np.flatnonzero(between)[-1]) + 1 if between.any() else 0
    for name in np.roll(names, -behind).tolist():
        if name in ("gemm", "unknown"):
            passed += 1
        elif name in counts:
            if name != last or passed >= products:
                counts[name] += 1
            last, passed = name, 0
    return Mixers(counts["attention"], counts["gdn"])


def expected_mixers(plan: Plan) -> Mixers:
    """What the config says: target layers of each kind, drafter layers once a pass."""
    drafted = sum(
        len({read.layer for read in block.reads if read.layer is not None})
        for block in plan.blocks
        if block.name == "draft"
    )
    return Mixers(len(plan.attention_layers) + drafted, len(plan.recurrent_layers))


def _usual_mixers(steps: Sequence[Ints], said: Mixers) -> Mixers:
    """What most steps have: what was said, if so many can be counted so."""
    counts = [[count_mixers(step, products) for products in PRODUCTS_BETWEEN] for step in steps]
    if sum(said in ways for ways in counts) >= len(steps) / 2:
        return said
    return Counter(ways[0] for ways in counts).most_common(1)[0][0]


def check_layers(
    plan: Plan, kernel_class: Ints, duration_ns: Floats, steps: Sequence[Ints]
) -> Notice | None:
    """Compare the number of token-mixing kernels with the layers of the plan.

    Args:
        plan: What one step must read.
        kernel_class: Index into CLASSES per template position.
        duration_ns: Per template position.
        steps: Classes of the kernels of some of the steps. They are what is counted: where
            steps differ the template is like none of them.

    Returns:
        A notice where they differ; None where they agree or names do not tell.
    """
    said = expected_mixers(plan)
    found = _usual_mixers(steps, said)
    names = np.array(CLASSES)[kernel_class]
    nameless = float(duration_ns[names == "unknown"].sum() / max(float(duration_ns.sum()), 1.0))
    if found.attention + found.recurrence == 0:
        layered = said.attention + said.recurrence > 0
        if layered and nameless <= NAMELESS_SHARE and (names == "gemm").any():
            return Notice(
                "no_mixing_kernels",
                "No kernel of the step attends to or updates a state, though names tell the "
                f"matrix products of {plan.description}: it is no pass through a model.",
                "Is this a benchmark of matrix products?",
            )
        return None
    wrong = []
    for kind, here, there in (
        ("attention", found.attention, said.attention),
        ("recurrence", found.recurrence, said.recurrence),
    ):
        if here and here != there:
            wrong.append(f"{here} groups of {kind} kernels for {there} layers of that kind")
    if not wrong or (nameless > NAMELESS_SHARE and found.recurrence == 0 < said.recurrence):
        return None
    return Notice(
        "plan_layers_unlike",
        f"A step has {' and '.join(wrong)} ({plan.description}).",
        "Is there a drafter or another number of passes that was not named, or is the "
        "checkpoint another one?",
    )
