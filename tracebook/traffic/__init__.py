"""What a phase moves in one step: weights, state, rows of tables, logits."""

from tracebook.traffic.movement import Movement
from tracebook.traffic.step import Models, StepTraffic, step_traffic, together

__all__ = ["Models", "Movement", "StepTraffic", "step_traffic", "together"]
