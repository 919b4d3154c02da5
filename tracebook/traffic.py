"""Bytes that a phase moves in one step.

In: the weight bytes that kernels were found for. Out: traffic per phase, with what it
counts. Only weights are counted as yet: the KV cache, recurrent state and activations
that a phase also moves are left out, and the basis says so.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Basis of a traffic figure that counts nothing beside the weights.
WEIGHTS_ONLY = "weights only"


@dataclass(frozen=True)
class Traffic:
    """Bytes per step and what they count."""

    traffic_bytes: int | None
    basis: str | None


def phase_traffic(weight_bytes: int | None) -> Traffic:
    """Traffic of one phase.

    Args:
        weight_bytes: Weight bytes per step, None where they cannot be had. A phase
            without weights moves something, but what is not counted yet: None.
    """
    if not weight_bytes:
        return Traffic(None, None)
    return Traffic(weight_bytes, WEIGHTS_ONLY)
