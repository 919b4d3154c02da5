"""Edit alignment against the textbook's quadratic longest common subsequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracebook.kernels.edit import match_positions

sequences = st.lists(st.integers(0, 3), max_size=14)


def longest_common(a, b):
    """Length of a longest common subsequence."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            grown = table[i][j] + 1 if x == y else 0
            table[i + 1][j + 1] = max(table[i][j + 1], table[i + 1][j], grown)
    return table[len(a)][len(b)]


def match(a, b, edits):
    return match_positions(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64), edits)


@given(sequences, sequences)
def test_as_long_as_a_longest_common_subsequence(a, b):
    found = match(a, b, len(a) + len(b))
    assert (found >= 0).sum() == longest_common(a, b)


@given(sequences, sequences, st.integers(0, 28))
def test_none_exactly_beyond_the_allowed_edits(a, b, most):
    distance = len(a) + len(b) - 2 * longest_common(a, b)
    found = match(a, b, most)
    assert (found is None) == (distance > most)


@given(sequences, sequences)
def test_matches_are_equal_rising_and_never_shared(a, b):
    found = match(a, b, len(a) + len(b))
    places = found[found >= 0]
    assert (np.diff(places) > 0).all()
    assert [a[i] for i in places] == [y for y, i in zip(b, found, strict=True) if i >= 0]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", []),
        ("abc", "", []),
        ("", "ab", [-1, -1]),
        ("abc", "abc", [0, 1, 2]),
        ("abc", "ac", [0, 2]),
        ("ac", "abc", [0, -1, 1]),
        ("abcde", "xbcdy", [-1, 1, 2, 3, -1]),
        ("aaaa", "aa", [0, 1]),
    ],
)
def test_plain_cases(a, b, expected):
    def numbers(text):
        return [ord(c) for c in text]

    found = match(numbers(a), numbers(b), 10)
    if a == "aaaa":  # any two will do
        assert (found >= 0).all()
    else:
        assert found.tolist() == expected
