"""Durations of the kernels of all steps, so that phases take the wanted time.

In: the nodes of one step and the settings. Out: integers in ns, one row a step.
Where a phase reads weights, only its weight kernels are scaled; else all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracebook.errors import RunDescriptionError
from tracebook.synth.nodes import Node
from tracebook.synth.settings import SynthSettings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pace:
    """How fast the kernels of each phase run: factors on the durations of nodes.

    `weights` and `others` map a phase to the factor for kernels that read weights and
    for those that do not; a phase that is not named keeps its durations.
    """

    weights: dict[str, float]
    others: dict[str, float]

    def durations_ns(self, nodes: Sequence[Node]) -> Floats:
        """Durations of these nodes at this pace, before jitter."""
        return np.array(
            [
                node.duration_ns
                * (self.weights if node.weight_bytes else self.others).get(node.phase, 1.0)
                for node in nodes
            ]
        )


def calibrate(nodes: Sequence[Node], jitter: Floats, settings: SynthSettings) -> Pace:
    """Find the pace at which the median of each wanted phase time is met.

    Args:
        nodes: Nodes of one step.
        jitter: Factors, one row a step and one column a node.
        settings: With the wanted times in ms.

    Raises:
        RunDescriptionError: A phase has no kernel, or its small kernels alone take longer.
    """
    weights: dict[str, float] = {}
    others: dict[str, float] = {}
    base = np.array([node.duration_ns for node in nodes])
    reads = np.array([node.weight_bytes > 0 for node in nodes])
    phases = np.array([node.phase for node in nodes])
    for phase, wanted_ms in settings.phases_ms.items():
        inside = phases == phase
        if not inside.any():
            raise RunDescriptionError(
                f"[synth.phases_ms] gives {phase} {wanted_ms} ms, but the step has no such kernel.",
                "Leave the phase out, or describe the drafter.",
            )
        scaled = inside & reads if (inside & reads).any() else inside
        fixed = jitter[:, inside & ~scaled] @ base[inside & ~scaled]
        moving = jitter[:, scaled] @ base[scaled]
        factor = _solve(fixed, moving, wanted_ms * 1e6, phase)
        (weights if scaled is not inside else others)[phase] = factor
    return Pace(weights, others)


def whole_ns(durations: Floats) -> Integers:
    """Round durations to whole ns, at least one."""
    return np.maximum(np.rint(durations), 1).astype(np.int64)


def edge_gaps_ns(covered: Integers, wobble: Floats, settings: SynthSettings) -> Integers:
    """Gap after the last kernel of each step, so that the median step has the wanted time.

    Args:
        covered: From the first kernel's start to the last one's end, per step.
        wobble: Factors around 1, per step.
        settings: With `step_ms`, or `edge_gap_us` where that is not given.

    Raises:
        RunDescriptionError: The kernels alone take longer than the wanted step.
    """
    if settings.step_ms is None:
        return whole_ns(settings.edge_gap_us * 1e3 * wobble)
    base = _solve(covered.astype(float), wobble, settings.step_ms * 1e6, "the step")
    return whole_ns(base * wobble)


def _solve(fixed: Floats, moving: Floats, wanted: float, what: str) -> float:
    """Factor on `moving` at which the median of the sum is `wanted`."""

    def median(factor: float) -> float:
        return float(np.median(fixed + factor * moving))

    if median(0.0) >= wanted:
        raise RunDescriptionError(
            f"[synth] {what}: {wanted / 1e6:.3f} ms is too short, {median(0.0) / 1e6:.3f} ms "
            "are taken by what is not scaled.",
            "Give a longer time.",
        )
    return _bisect(lambda factor: median(factor) - wanted)


def _bisect(rising: Callable[[float], float]) -> float:
    """Zero of a rising function above 0."""
    low, high = 0.0, 1.0
    while rising(high) < 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
