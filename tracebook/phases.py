"""The phases of a decode step: names and order, the one place that lists them."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a nanosecond of a step belongs. Order is the order of reports."""

    TARGET_LAYERS = "target_layers"
    OUTPUT_LAYER = "output_layer"
    DRAFTER_LAYERS = "drafter_layers"
    DRAFT_HEAD = "draft_head"
    REPLAY = "replay"
    SAMPLING = "sampling"
    PREPARE = "prepare"
    COMMUNICATION = "communication"
    OTHER = "other"
    UNCLASSIFIED = "unclassified"
    IDLE = "idle"
    PREFILL = "prefill"
    WARMUP = "warmup"


#: Phases of a report row, in order (idle stands apart; prefill and warmup lie outside steps).
STEP_PHASES: tuple[Phase, ...] = tuple(Phase)[:10]
