"""The geometric formula, against the article's figures and against counting."""

from __future__ import annotations

import random

import pytest

from tracebook.errors import RunDescriptionError
from tracebook.speculation import (
    best_drafts,
    break_even_alpha,
    expected_tokens,
    longest_paying,
    solve_alpha,
)


@pytest.mark.parametrize(
    ("tokens", "drafts", "alpha"),
    [(3.30, 3, 0.873), (4.78, 7, 0.845), (5.35, 10, 0.841), (5.32, 10, 0.839)],
)
def test_alpha_of_the_six_stages(tokens, drafts, alpha):
    assert round(solve_alpha(tokens, drafts), 3) == alpha


def test_alpha_fitted_at_seven_predicts_ten():
    assert round(expected_tokens(solve_alpha(4.78, 7), 10), 2) == 5.45


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.84, 1.0])
def test_expectation_is_what_steps_yield_on_average(alpha):
    """Simulated: keep drafts up to the first that is not accepted, and add one token."""
    draw = random.Random(5)
    drafts, steps, tokens = 6, 20_000, 0
    for _ in range(steps):
        kept = 0
        while kept < drafts and draw.random() < alpha:
            kept += 1
        tokens += kept + 1
    assert expected_tokens(alpha, drafts) == pytest.approx(tokens / steps, rel=0.02)


def test_closed_form():
    assert expected_tokens(0.84, 10) == pytest.approx((1 - 0.84**11) / (1 - 0.84))
    assert expected_tokens(1.0, 10) == 11
    assert expected_tokens(0.9, 0) == 1


@pytest.mark.parametrize("tokens", [0.9, 4.01, float("nan")])
def test_what_no_acceptance_yields_is_refused(tokens):
    with pytest.raises(RunDescriptionError, match="between 1 and 4"):
        solve_alpha(tokens, 3)


def test_without_drafts_there_is_nothing_to_solve():
    with pytest.raises(RunDescriptionError):
        solve_alpha(1.0, 0)


def test_break_even_is_where_both_are_equally_fast():
    alpha = break_even_alpha(120.0, 88.0, 3)
    assert expected_tokens(alpha, 3) / 120.0 == pytest.approx(1 / 88.0)
    assert break_even_alpha(88.0 * 5, 88.0, 3) is None  # four tokens at most
    assert break_even_alpha(80.0, 88.0, 3) == 0.0


def test_linear_cost_has_a_best_length_and_flat_cost_wants_long_drafts():
    linear = {k: 88.0 + 9.94 * k for k in range(17)}
    flat = {k: 112.0 + 0.35 * k if k else 88.0 for k in range(17)}
    assert best_drafts(0.873, linear) == 8  # an FP8 study measured 17.7, 18.6, 13.4 at 3, 8, 15
    assert best_drafts(0.873, flat) == 16
    assert best_drafts(0.05, linear) == 0
    assert longest_paying(0.05, linear) is None
    # 1 / (1 - 0.6) = 2.5 tokens at most, so a step may take 220 ms at most: K = 13
    assert longest_paying(0.6, linear) == 13
