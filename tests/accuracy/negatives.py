"""Captures without steady decode: the right answer is to say so."""

from __future__ import annotations

import random
from dataclasses import replace

from .cases import Case, autotune, prefill, program
from .program import Op
from .timeline import Timeline


def training(case: Case, lane: Timeline) -> None:
    """Forward, backward, optimiser: periodic, with the matrices of the model, but no decode."""
    forward = prefill(case, 2048)
    backward = [
        replace(op, n=op.k, k=op.n, matrix=(), op=f"grad{i}")
        for op in reversed(forward) if op.what == "gemm" for i in range(2)
    ]  # fmt: skip
    optimiser = [Op("aux", "other", rows=4096) for _ in range(120)]
    for _ in range(min(case.steps, 6)):
        lane.play(forward + backward + optimiser, "training", None)


def prefill_only(case: Case, lane: Timeline) -> None:
    for number in range(5):
        lane.play(prefill(case, 900 + 137 * number), "prefill", None)
        lane.pause(2.0)


def single_step(case: Case, lane: Timeline) -> None:
    lane.play(prefill(case, 700), "prefill", None)
    lane.play(program(case), "single", None)


def no_repetition(case: Case, lane: Timeline) -> None:
    """Kernels of a model in an order that never comes again."""
    ops = program(case, eager=True)
    rng = random.Random(lane.rng.random())
    for _ in range(8):
        lane.play(rng.sample(ops, len(ops) * 2 // 3), "noise", None)


def two_kernels(case: Case, lane: Timeline) -> None:
    """A numerical loop: strictly periodic, nothing of a language model."""
    for _ in range(3000):
        lane.play([Op("norm", "other"), Op("permute", "other", traffic=2e5)], "loop", None)


def tuning_only(case: Case, lane: Timeline) -> None:
    for _ in range(6):
        autotune(lane, program(case))


NEGATIVES = {
    "training": training,
    "prefill": prefill_only,
    "single": single_step,
    "noise": no_repetition,
    "loop": two_kernels,
    "autotune": tuning_only,
}
