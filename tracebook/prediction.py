"""A predicted step as data: phases, step times, drafting.

`predict` makes it, `render.prediction` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracebook.notices import Notice
from tracebook.report import MachineFacts
from tracebook.traffic import Movement

SCHEMA = "tracebook.prediction/1"


@dataclass(frozen=True)
class Learnt:
    """What a saved report says about speed; rates in GB/s on the machine predicted for.

    Attributes:
        source: What was learnt from, in words.
        weights_gbps: Weight bytes of the step over its wall time.
        step_gbps: All traffic of the step over its wall time.
        phase_gbps: All traffic over time, for each phase that moves weights or state.
        moving_gbps: The same for all those phases together.
        rest_ms: Time of the step in which none of them runs: sampling, preparation, idle.
        scale: Peak of the machine predicted for over that of the report's.
    """

    source: str
    weights_gbps: float | None
    step_gbps: float | None
    phase_gbps: dict[str, float]
    moving_gbps: float | None
    rest_ms: float
    scale: float


@dataclass(frozen=True)
class PhasePrediction:
    """One phase: what it moves, and how long that takes at each rate. Times in ms."""

    phase: str
    weight_bytes: int
    traffic_bytes: int
    basis: str
    floor_ms: float | None
    ceiling_ms: float | None
    learnt_ms: float | None
    learnt_gbps: float | None
    traffic: tuple[Movement, ...]


@dataclass(frozen=True)
class StepTime:
    """The whole step at one rate; tokens per second where tokens per step are known."""

    at: str
    gbps: float | None
    ms: float
    steps_per_s: float
    tokens_per_s: float | None


@dataclass(frozen=True)
class SweepRow:
    """One number of drafts, at the rate that the sweep uses."""

    draft_tokens: int
    expected_tokens: float | None
    traffic_bytes: int
    step_ms: float
    tokens_per_s: float | None
    speedup: float | None
    break_even_alpha: float | None


@dataclass(frozen=True)
class Speculation:
    """What drafting comes to.

    Attributes:
        draft_tokens: K of the run.
        tokens_per_step: Per sequence, given or expected.
        alpha: Acceptance per position that yields them.
        rate: At which the step times below are taken.
        plain_ms: A step without drafting.
        break_even_alpha: Acceptance from which K drafts beat plain decoding.
        best_draft_tokens: K with the most tokens per second at this acceptance.
        longest_paying: Largest K of the sweep that beats plain decoding.
    """

    draft_tokens: int
    tokens_per_step: float | None
    alpha: float | None
    rate: str
    plain_ms: float
    break_even_alpha: float | None
    best_draft_tokens: int | None
    longest_paying: int | None


@dataclass(frozen=True)
class Prediction:
    """A predicted step. See docs/method.md for each formula."""

    description: str
    machine: MachineFacts
    batch: int
    tokens_per_step: float | None
    phases: tuple[PhasePrediction, ...]
    weight_bytes: int
    traffic_bytes: int
    steps: tuple[StepTime, ...]
    learnt: Learnt | None
    speculation: Speculation | None
    sweep: tuple[SweepRow, ...]
    assumed: tuple[str, ...]
    warnings: tuple[Notice, ...]

    def step_ms(self, at: str) -> float | None:
        """The step time at one of the rates."""
        return next((step.ms for step in self.steps if step.at == at), None)
