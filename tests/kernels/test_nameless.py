"""What is left unclassified where names say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tracebook.kernels.classes import CLASSES
from tracebook.kernels.nameless import is_nameless, lead, pass_starts, unknowable


def flags(text):
    """`x` is told, or unknowable; `.` is not."""
    return np.array([c == "x" for c in text])


def test_one_name_that_tells_sampling_or_preparation_is_enough():
    classes = [CLASSES.index(name) for name in ("unknown", "elementwise", "norm", "copy")]
    assert is_nameless(np.array(classes))
    assert not is_nameless(np.array([*classes, CLASSES.index("sample")]))


@pytest.mark.parametrize(
    ("first", "later", "common"),
    [
        ("abcdefg", ["xefg", "xefg"], 3),
        ("abcdefg", ["xefg", "xxfg"], 2),
        ("abc", ["abc"], 3),
        ("abc", [], None),
        ("abc", ["abx"], 0),
    ],
)
def test_passes_begin_alike(first, later, common):
    number = [[ord(c) for c in text] for text in (first, *later)]
    assert pass_starts(number[0], number[1:]) == common


@pytest.mark.parametrize(
    ("before", "after", "told", "ns", "cut", "unknown"),
    [
        # Up to the longest one the sampler, then nobody knows, up to a launch of the next block.
        ("output_layer", "drafter_layers", "....xx", [2, 9, 1, 2, 1, 1], None, "..xx.."),
        # A commit in the middle: both of its sides are open.
        ("output_layer", "drafter_layers", "..x..x", [9, 1, 50, 2, 2, 1], None, ".x.xx."),
        # A plain step: it ends at the cut, then inputs are prepared, then the gather.
        ("output_layer", "target_layers", "......xx", [9, 1, 1, 1, 1, 1, 1, 1], 3, ".....x.."),
        # Behind a draft head with the next step's begin.
        ("draft_head", "target_layers", ".....x", [2, 9, 1, 1, 1, 1], 3, "..xxx."),
        # Not between a head and layers: neighbours decide there.
        ("drafter_layers", "drafter_layers", "...", [1, 2, 3], None, "..."),
        ("output_layer", "target_layers", "", [], None, ""),
    ],
)
def test_what_nothing_tells(before, after, told, ns, cut, unknown):
    known = flags(told)
    found = unknowable(before, after, known, ns, cut, lead(known, launched=False))
    assert found.tolist() == flags(unknown).tolist()


def test_a_graph_of_the_next_block_begins_where_its_launch_does():
    known = flags("...x")
    assert lead(known, launched=True) == 0
    found = unknowable("output_layer", "target_layers", known, [9, 1, 1, 1], 1, 0)
    assert not found.any()
