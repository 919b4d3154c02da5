from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from step_noise import STEP_MS, baseline_of, drifting, following, heavy, two_speeds

from tracebook.compare.baseline import Part
from tracebook.compare.machine_state import classes_moved, clock_ratio, two_groups, uniform_factor
from tracebook.compare.series import phases_of, quantities_of, series_of

NAMES = quantities_of(tuple(STEP_MS))


def series(seed=1, steps=60, **change):
    (run,) = baseline_of(np.random.default_rng(seed), steps, **change).runs
    return series_of(run, phases_of([run]))


@pytest.mark.parametrize("factor", [0.8, 0.95, 1.05, 1.12, 1.5])
def test_one_factor_is_found(factor):
    found = uniform_factor(NAMES, [series()], [series(2, everything=factor)])
    assert found == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"slower": {"target_layers": 1.12}},
        {"slower": dict.fromkeys(STEP_MS, 1.12) | {"draft_head": 1.0}},
        {"slower": dict.fromkeys(STEP_MS, 1.12) | {"drafter_layers": 1.3}},
        {"slower": {"target_layers": 1.1, "output_layer": 1.1}},
    ],
)
def test_unequal_changes_are_not(change):
    assert uniform_factor(NAMES, [series()], [series(2, **change)]) is None


def test_one_phase_tells_no_common_factor():
    one = dataclasses.replace(series(), values=series().values[:2])
    assert uniform_factor(NAMES[:2], [one], [one]) is None


def test_a_slower_matrix_kernel_slows_no_norm():
    """All phases read matrices, so all slow down alike; the norms tell."""

    def run(gemm, norm):
        (found,) = baseline_of(np.random.default_rng(0), 20).runs
        parts = tuple(
            Part("target_layers", 0, None, None, kind, kind, 1, ns)
            for kind, ns in (("gemm", gemm), ("norm", norm))
        )
        return dataclasses.replace(found, parts=parts)

    assert not classes_moved(run(1000, 50), run(1120, 50), 1.12)
    assert classes_moved(run(1000, 50), run(1120, 55), 1.12)
    assert classes_moved(run(1000, 2), run(1120, 2), 1.12)  # too little time to tell


@pytest.mark.parametrize("steps", [30, 60, 300])
def test_two_groups_are_found(steps):
    low, high = two_groups(series(3, steps, noise=two_speeds), NAMES)
    assert high / low == pytest.approx(1.1, abs=0.01)


@pytest.mark.parametrize("noise", [heavy, drifting, following(0.6)])
def test_one_group_is_not_split(noise):
    found = [two_groups(series(seed, noise=noise), NAMES) for seed in range(100)]
    assert sum(group is not None for group in found) <= 1


def test_clocks_are_compared_where_all_have_one():
    (run,) = baseline_of(np.random.default_rng(0), 20).runs
    fast, slow = (dataclasses.replace(run, clock=clock) for clock in (2000.0, 1800.0))
    assert clock_ratio([fast], [slow]) == pytest.approx(0.9)
    assert clock_ratio([fast, run], [slow]) is None
