from __future__ import annotations

import numpy as np
import pytest

from tracebook.compare.inference import holm, inflation, medians, rank_test, ranks, welch_df


def autocorrelated(rng, series, steps, correlation):
    values = np.empty((series, steps))
    state = rng.standard_normal(series)
    for step in range(steps):
        drawn = rng.standard_normal(series) * np.sqrt(1 - correlation**2)
        state = correlation * state + drawn
        values[:, step] = state
    return values


def test_equal_values_share_their_rank():
    assert ranks(np.array([[3.0, 1.0, 3.0, 2.0]])).tolist() == [[3.5, 1.0, 3.5, 2.0]]


@pytest.mark.parametrize(("correlation", "theory"), [(0.0, 1.0), (0.3, 1.857), (0.6, 4.0)])
def test_inflation_of_ar1_is_the_theoretical_one(correlation, theory):
    """(1 + r) / (1 - r) for the mean of an AR(1) process; ranks change it little."""
    values = autocorrelated(np.random.default_rng(3), 200, 1000, correlation)
    assert inflation(values).mean() == pytest.approx(theory, rel=0.15)


def test_outliers_do_not_hide_dependence():
    rng = np.random.default_rng(4)
    calm = autocorrelated(rng, 200, 300, 0.6)
    wild = np.where(rng.random(calm.shape) < 0.05, 30.0, calm)
    assert inflation(wild).mean() > 0.75 * inflation(calm).mean()


@pytest.mark.parametrize("row", [[7.0] * 30, [1.0, 2.0, 1.5], [5.0] * 29 + [6.0]])
def test_series_without_variation_are_not_inflated(row):
    assert 1.0 <= inflation(np.array([row]))[0] < 2.0


def test_error_of_the_median_is_that_of_the_normal_theory():
    """1.2533 sigma / sqrt(n) for independent normal draws."""
    values = np.random.default_rng(5).standard_normal((400, 200))
    found = medians(values, np.ones(400))
    theory = 1.2533 / np.sqrt(200)
    assert found.value.std() == pytest.approx(theory, rel=0.12)
    assert found.error.mean() == pytest.approx(theory, rel=0.12)
    assert found.effective[0] == 200


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_rank_test_rejects_equals_as_often_as_it_says(correlation):
    rng = np.random.default_rng(6)
    old, new = (autocorrelated(rng, 3000, 60, correlation) for _ in "ab")
    p = rank_test(old, new, inflation(old), inflation(new))
    assert (p < 0.05).mean() < 0.07
    assert (p < 0.005).mean() < 0.012


def test_rank_test_finds_what_is_apart():
    rng = np.random.default_rng(7)
    old, new = rng.standard_normal((1, 30)), rng.standard_normal((1, 40)) + 8
    p = rank_test(old, new, np.ones(1), np.ones(1))
    assert p[0] < 1e-9
    assert rank_test(new, old, np.ones(1), np.ones(1))[0] == pytest.approx(p[0])


def test_constant_sides():
    one, two = np.full((1, 20), 5.0), np.full((1, 20), 6.0)
    assert rank_test(one, one, np.ones(1), np.ones(1))[0] == 1.0
    assert rank_test(one, two, np.ones(1), np.ones(1))[0] == 0.0


def test_holm_by_hand():
    """Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling."""
    raised = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert raised == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_welch_of_equal_parts_adds_degrees_of_freedom():
    assert welch_df([(2.0, 11.0), (2.0, 11.0)]) == pytest.approx(20.0)
