"""Runs whose step times are drawn from models of noise, for tests and for `make power`.

The step is the full recipe of the saved runs: 99.6 ms, of which the drafter takes 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tracebook.compare.baseline import Baseline, Run

#: Phase to ms of the median step, as published for the full recipe.
STEP_MS = {
    "target_layers": 84.8,
    "output_layer": 5.6,
    "drafter_layers": 5.7,
    "draft_head": 2.3,
    "replay": 0.7,
    "sampling": 0.11,
    "prepare": 0.02,
}
IDLE_MS = 0.37

Rng = np.random.Generator


def independent(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """Every phase of every step varies by itself, 1.5 %."""
    return np.exp(0.015 * rng.standard_normal(shape))


def common(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """All phases of a step vary together by 1.5 %, and each by 0.7 % of its own."""
    together = 0.015 * rng.standard_normal((1, shape[1]))
    return np.exp(together + 0.007 * rng.standard_normal(shape))


def heavy(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """As `common`; one step in twenty takes 1.3 times as long."""
    return common(rng, shape) * np.where(rng.random((1, shape[1])) < 0.05, 1.3, 1.0)


def following(correlation: float) -> Callable[[Rng, tuple[int, int]], np.ndarray]:
    """All phases follow one AR(1) process of 1.5 %, and each has 0.7 % of its own."""

    def noise(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
        steps = shape[1]
        drawn = rng.standard_normal(steps) * np.sqrt(1 - correlation**2)
        state = rng.standard_normal()
        together = np.empty(steps)
        for step in range(steps):
            state = correlation * state + drawn[step]
            together[step] = state
        return np.exp(0.015 * together + 0.007 * rng.standard_normal(shape))

    return noise


def drifting(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """As `common`, on a slow wave of 1 % whose phase is another in every capture."""
    wave = np.sin(2 * np.pi * (np.arange(shape[1]) / shape[1] + rng.random()))
    return common(rng, shape) * np.exp(0.01 * wave)


def two_speeds(rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """As `independent`; for a third of the capture the clock is 10 % lower."""
    steps = shape[1]
    slow = (np.arange(steps) + rng.integers(steps)) % steps < 0.35 * steps
    return independent(rng, shape) * np.where(slow, 1.1, 1.0)


def baseline_of(
    rng: Rng,
    steps: int,
    *,
    noise: Callable[[Rng, tuple[int, int]], np.ndarray] = common,
    slower: Mapping[str, float] | None = None,
    everything: float = 1.0,
    idle: float = 1.0,
    between_runs: float = 0.0,
    report: Mapping[str, object] | None = None,
) -> Baseline:
    """One run.

    Args:
        rng: Source of its noise.
        steps: Kept steps.
        noise: Model; factors of shape (phases, steps) around 1.
        slower: Phase to the factor by which it is slower.
        everything: Factor of all phases (not of idle).
        idle: Factor of idle.
        between_runs: Standard deviation of a factor that the whole run has.
        report: Its report, as far as it matters.
    """
    factors = noise(rng, (len(STEP_MS), steps)) * everything
    factors *= np.exp(between_runs * rng.standard_normal())
    phases = {
        phase: np.round(1e6 * ms * (slower or {}).get(phase, 1.0) * row).astype(np.int64)
        for (phase, ms), row in zip(STEP_MS.items(), factors, strict=True)
    }
    idle_ns = np.round(1e6 * IDLE_MS * idle * np.exp(0.1 * rng.standard_normal(steps)))
    idle_ns = idle_ns.astype(np.int64)
    wall = idle_ns + sum(phases.values())
    return Baseline((Run(dict(report or {}), wall, idle_ns, phases),))
