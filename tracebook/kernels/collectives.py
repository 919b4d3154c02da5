"""Ranks: what the collectives of a step say of how many share the model."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tracebook.checkpoint.plan import Plan
from tracebook.columns import Ints
from tracebook.kernels.align import Column
from tracebook.kernels.classes import CLASSES
from tracebook.notices import Notice

_COUNT = r",\s*(?:\(int\)\s*)?(\d+)\b"
#: Kernels that are compiled for a number of ranks carry it in their name: vLLM's and SGLang's
#: `cross_device_reduce_1stage<T, ngpus>`, TensorRT-LLM's and FlashInfer's
#: `allreduce_fusion_kernel_oneshot_lamport<pattern, T, NRanks, ...>`, and TensorRT-LLM's
#: older `oneShotAllReduceKernel<T, RanksPerNode, ...>`.
RANKS_IN_NAMES = (
    re.compile(r"cross_device_reduce_\dstage<[^<>,]+" + _COUNT),
    re.compile(r"allreduce_fusion_kernel_\w+<[^<>,]+,[^<>,]+" + _COUNT),
    re.compile(r"(?:one|two)ShotAllReduceKernel<[^<>,]+" + _COUNT),
)


def has_collectives(kernel_class: Ints, column: Column) -> bool | None:
    """Whether ranks talk to each other within a step; None where names say nothing."""
    if (np.array(CLASSES)[kernel_class] == "comm").any():
        return True
    return False if column.named.any() else None


def ranks_in_names(names: Iterable[str]) -> int | None:
    """Ranks that collectives run between, by their names; None where they tell none, or two."""
    found = (pattern.search(name) for name in names for pattern in RANKS_IN_NAMES)
    counts = {int(match[1]) for match in found if match}
    return counts.pop() if len(counts) == 1 else None


def check_ranks(
    plan: Plan, collective: bool | None, told: int | None, devices: int | None
) -> Notice | None:
    """Hold the ranks of the plan against the collectives of a step and the devices at work.

    A rank may belong to a group within the ranks (collectives in two stages), so names do not
    count against as many devices as were said. More devices may hold several whole models.

    Args:
        plan: What the step must read.
        collective: What `has_collectives` told.
        told: What `ranks_in_names` told.
        devices: Devices and processes in the capture that run as many kernels as this one,
            None where that is not known.

    Returns:
        A notice where they differ; None where they agree or nothing tells.
    """
    if plan.ranks > 1 and collective is False:
        return Notice(
            "no_rank_collectives",
            f"{plan.ranks} tensor-parallel ranks were said, but no collective runs within a step.",
            "With one rank each phase reads that many times the bytes given here.",
        )
    if told not in (None, plan.ranks) and devices != plan.ranks:
        return Notice(
            "ranks_unlike",
            f"The collectives of a step run between {told} ranks, as their names tell; the bytes "
            f"are those of one of {plan.ranks}.",
            f"Say --tensor-parallel {told}.",
        )
    if told is None and devices is not None and 1 < devices < plan.ranks:
        return Notice(
            "ranks_missing",
            f"{plan.ranks} tensor-parallel ranks were said; {devices} do the same work in this "
            "capture.",
            "The others may run on another machine; else correct --tensor-parallel.",
        )
    return None
