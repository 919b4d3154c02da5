"""What stands between matrices: joints of layers, and the norm that no name tells."""

from __future__ import annotations

import numpy as np

from tracebook.kernels.joints import common_start, layer_joints, norm_lengths
from tracebook.kernels.marks import BlockMark, Mark, Marks

#: Names of kernels by number: 0 and 1 are products, the rest is glue.
QKV, DOWN, ADD, SQUARE, MEAN, SCALE, MIX, GATE = range(8)
NORM = [ADD, SQUARE, MEAN, SCALE]
LAYER = [*NORM, QKV, MIX, *NORM, QKV, GATE, DOWN]


def marks_of(names, layers):
    """Products are marks; each layer has three."""
    positions = [i for i, name in enumerate(names) if name in (QKV, DOWN)]
    marks = tuple(
        Mark(position, 0, number // 3, "op", "matrix", 1, "alignment")
        for number, position in enumerate(positions)
    )
    assert len(marks) == 3 * layers
    return Marks((BlockMark("target", "target_layers", 0),), marks)


def lengths_of(names, layers, *, told=()):
    norm = np.isin(names, told)
    return norm_lengths(marks_of(names, layers), np.array(names), norm)


def test_a_norm_of_small_kernels_leads_into_the_next_layer():
    names = LAYER * 3
    first_products = [LAYER.index(QKV) + len(LAYER) * i for i in (1, 2)]
    assert lengths_of(names, 3) == dict.fromkeys(first_products, len(NORM))


def test_what_else_stands_at_the_joint_stays_with_the_layer_before():
    """A sum of experts, say, that only ends a layer."""
    names = [*LAYER, GATE, GATE] * 2
    assert set(lengths_of(names, 2).values()) == {len(NORM)}


def test_a_norm_that_a_name_tells_is_left_to_the_name():
    assert lengths_of(LAYER * 3, 3, told=(MEAN,)) == {}


def test_one_kernel_in_common_may_be_chance():
    names = [SCALE, QKV, MIX, SCALE, QKV, GATE, DOWN, ADD] * 2
    assert lengths_of(names, 2) == {}


def test_the_joint_of_layers_is_the_usual_one():
    names = LAYER * 3
    assert layer_joints(marks_of(names, 3), np.array(names)) == [tuple(NORM)]


def test_common_start():
    assert common_start([1, 2, 3], [1, 2, 4]) == 2
    assert common_start([1, 2], [1, 2, 4]) == 2
    assert common_start([], [1]) == 0
