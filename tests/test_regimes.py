"""Captures that are not one thing: two regimes, and steps that drift."""

from __future__ import annotations

import numpy as np
import pytest

from tracebook.regimes import find_drift, find_regimes

STEPS = 40
RNG = np.random.default_rng(11)
NOISE = 1 + 0.004 * RNG.standard_normal(STEPS)


def steps_ns(factor: np.ndarray | float) -> np.ndarray:
    """Steps of 10 ms with noise of 0.4 %, each times its factor."""
    return (1e7 * NOISE * factor).astype(np.int64)


def test_steps_that_slow_down_steadily_drift():
    assert find_drift(steps_ns(np.linspace(1, 1.12, STEPS))) == pytest.approx(0.088, abs=0.01)


def test_steps_that_speed_up_drift_the_other_way():
    assert find_drift(steps_ns(np.linspace(1.12, 1, STEPS))) == pytest.approx(-0.081, abs=0.01)


@pytest.mark.parametrize(
    "factor",
    [
        pytest.param(1.0, id="steady"),
        pytest.param(np.linspace(1, 1.02, STEPS), id="too little"),
        pytest.param(1 + 0.3 * (np.arange(STEPS) == 39), id="one stall at the end"),
        pytest.param(np.where(np.arange(STEPS) % 2, 1.0, 1.3), id="to and fro"),
    ],
)
def test_other_steps_do_not_drift(factor):
    assert find_drift(steps_ns(factor)) is None


def test_too_few_steps_say_nothing_about_drift():
    assert find_drift(steps_ns(np.linspace(1, 1.5, STEPS))[:11]) is None


def test_regimes_are_given_fast_first():
    fast, slow = find_regimes(steps_ns(np.where(np.arange(STEPS) < 15, 1.3, 1.0)))
    assert (fast.steps, fast.first_step, fast.last_step) == (25, 15, 39)
    assert (slow.steps, slow.first_step, slow.last_step) == (15, 0, 14)
    assert slow.busy_ms / fast.busy_ms == pytest.approx(1.3, abs=0.01)


def test_phases_of_two_regimes_stand_apart():
    factor = np.where(np.arange(STEPS) < 15, 1.3, 1.0)
    busy_ns = steps_ns(factor)
    target_ns = steps_ns(0.8 * factor)
    fast, slow = find_regimes(busy_ns, {"target_layers": target_ns, "other": busy_ns - target_ns})
    assert fast.phase_ms["target_layers"] == pytest.approx(8, abs=0.05)
    assert slow.phase_ms["target_layers"] == pytest.approx(10.4, abs=0.07)
    assert slow.phase_ms["other"] == pytest.approx(2.6, abs=0.02)


def test_one_regime_is_none():
    assert find_regimes(steps_ns(1.0)) == ()
    assert find_regimes(np.zeros(0, dtype=np.int64)) == ()
