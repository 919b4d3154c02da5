from __future__ import annotations

from math import comb

import numpy as np
import pytest

from tracebook.stats import median_interval_ranks, summarise_ns


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        (5, None),  # 1 - 2 / 32 = 0.9375
        (6, (0, 5)),
        (8, (0, 7)),
        (9, (1, 7)),
        (10, (1, 8)),
        (20, (5, 14)),  # Conover's table: ranks 6 and 15
        (100, (39, 60)),
    ],
)
def test_ranks_of_the_median_interval(n, ranks):
    assert median_interval_ranks(n) == ranks


@pytest.mark.parametrize("n", range(6, 200))
def test_interval_covers_95_percent_and_no_rank_could_be_dropped(n):
    low, high = median_interval_ranks(n)
    assert high == n - 1 - low

    def missed(k):
        return 2 * sum(comb(n, i) for i in range(k)) / 2**n

    assert missed(low + 1) <= 0.05
    assert missed(low + 2) > 0.05


def test_many_steps_do_not_overflow():
    low, high = median_interval_ranks(200_000)
    assert low == pytest.approx(100_000 - 1.96 * 200_000**0.5 / 2, abs=2)
    assert high == 199_999 - low


def test_summary_is_in_ms():
    summary = summarise_ns(np.array([4_000_000, 1_000_000, 2_000_000, 3_000_000]))
    assert summary.median == 2.5
    assert summary.mean == 2.5
    assert summary.n == 4
    assert summary.ci95 is None
    assert summary.p05 == pytest.approx(1.15)
    assert summary.p95 == pytest.approx(3.85, abs=1e-5)
