from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracebook.compare.student import two_sided_p, two_sided_quantile


@pytest.mark.parametrize(
    ("df", "p", "t"),
    [  # two-sided points of Student's distribution, as printed in any table
        (1, 0.05, 12.706),
        (2, 0.01, 9.925),
        (5, 0.05, 2.571),
        (10, 0.05, 2.228),
        (10, 0.001, 4.587),
        (30, 0.01, 2.750),
        (120, 0.05, 1.980),
        (1_000_000, 0.05, 1.960),
        (1_000_000, 0.001, 3.291),
    ],
)
def test_points_of_the_table(df, p, t):
    assert two_sided_quantile(p, df) == pytest.approx(t, abs=6e-4)
    assert two_sided_p(t, df) == pytest.approx(p, rel=2e-3)


@given(st.floats(0, 60), st.floats(0.6, 500))
def test_is_a_probability_that_falls_with_t(t, df):
    p = two_sided_p(t, df)
    assert 0 <= p <= 1
    assert two_sided_p(-t, df) == p
    assert two_sided_p(t + 0.5, df) <= p + 1e-12


def test_one_degree_of_freedom_is_cauchy():
    assert two_sided_p(1.0, 1.0) == pytest.approx(0.5)
    assert two_sided_p(0.0, 7.0) == 1.0
    assert two_sided_p(float("inf"), 7.0) == 0.0
    assert two_sided_p(float("nan"), 7.0) == 1.0
