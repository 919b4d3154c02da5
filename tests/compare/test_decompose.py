from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_noise import baseline_of, heavy

from tracebook.compare.baseline import Run
from tracebook.compare.decompose import contributions_ns
from tracebook.compare.series import phases_of, series_of


def contributions(old, new):
    phases = phases_of((*old, *new))
    return contributions_ns(*([series_of(run, phases) for run in side] for side in (old, new)))


def run_of(layers, head, idle):
    layers, head, idle = (np.array(v, dtype=np.int64) for v in (layers, head, idle))
    phases = {"target_layers": layers, "output_layer": head}
    return Run({}, layers + head + idle, idle, phases)


def test_constant_steps_by_hand():
    old, new = run_of([80] * 9, [10] * 9, [5] * 9), run_of([83] * 9, [9] * 9, [5] * 9)
    assert contributions([old], [new]) == (2, 3, -1, 0)


steps = st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), min_size=8, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=3), st.lists(steps, min_size=1, max_size=3))
def test_phases_and_idle_add_up_to_the_step(old, new):
    sides = [[run_of(*zip(*run, strict=True)) for run in side] for side in (old, new)]
    step, *parts = contributions(*sides)
    assert sum(parts) == step
    medians = [np.mean([np.median(run.wall_ns) for run in side]) for side in sides]
    assert step == round(medians[1] - medians[0])


def test_outliers_do_not_enter():
    """One step in twenty 1.3 times as long would move the mean by 1.5 ms."""
    rng = np.random.default_rng(8)
    old = baseline_of(rng, 200, noise=heavy).runs
    new = baseline_of(rng, 200, noise=heavy, slower={"drafter_layers": 1.5}).runs
    _, *parts = contributions(old, new)
    drafter = parts[phases_of(old).index("drafter_layers")]
    assert drafter / 1e6 == pytest.approx(0.5 * 5.7, rel=0.03)
