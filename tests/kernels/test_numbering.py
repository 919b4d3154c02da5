"""Numbers for distinct values, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracebook.kernels.numbering import Numbering

values = st.integers(0, 2**64 - 1) | st.integers(0, 40)


@given(st.lists(st.lists(values, max_size=30), max_size=8))
def test_numbers_rise_with_first_occurrence(chunks):
    numbering, known = Numbering(), {}
    for chunk in chunks:
        expected = [known.setdefault(value, len(known)) for value in chunk]
        assert numbering.number(np.array(chunk, dtype=np.uint64)).tolist() == expected
    assert numbering.values.tolist() == list(known)


def test_a_table_that_grows_keeps_its_numbers():
    """A thousand values at a time, many of which meet in the table: multiples of a power of 2."""
    numbering = Numbering()
    whole = np.arange(20_000, dtype=np.uint64) << np.uint64(40)
    for first in range(0, len(whole), 1000):
        numbering.number(whole[first : first + 1000])
    assert (numbering.number(whole) == np.arange(len(whole))).all()
    assert len(numbering) == len(whole)
