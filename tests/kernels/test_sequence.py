"""Arrays of a launch sequence: symbols, gaps, markers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracebook.kernels.classes import CLASSES
from tracebook.kernels.populations import split_by_duration

from .toy import ATTENTION, NORM, PREPARE, K, kernels_of, play, step


def test_equal_name_and_shape_mean_equal_symbols():
    wide = K(NORM, 2300, "other", grid=(64, 1, 1))
    kernels = kernels_of(play([K(NORM, 2300, "other"), wide, K(NORM, 2400, "other"), wide])[0])
    a, b, c, d = kernels.shape_symbol[:].tolist()
    assert a == c != b == d


def test_a_grid_that_follows_the_context_does_not_make_another_symbol():
    grown = [K(ATTENTION, 9000, "other", grid=(1, 8, 1 + i)) for i in range(4)]
    assert len(set(kernels_of(play(grown)[0]).shape_symbol[:].tolist())) == 1


def test_classes_and_markers_come_along():
    kernels = kernels_of(
        play([K(PREPARE, 1900, "prepare"), K("_causal_conv1d_fwd_kernel", 9, "")])[0]
    )
    assert [CLASSES[c] for c in kernels.kernel_class[:]] == ["prepare", "conv"]
    assert kernels.step_marker[:].tolist() == [True, False]
    assert kernels.prefill[:].tolist() == [False, True]
    assert not kernels.train.any()
    assert not kernels.autotune.any()


def test_durations_are_measured_and_gaps_lie_between_them():
    made, _ = play([replace(k, pause_ns=500 + i) for i, k in enumerate(step(1))])
    kernels = kernels_of(made)
    assert kernels.duration_ns[:].tolist() == [float(k.ns) for k in step(1)]
    assert kernels.gap_ns[:].tolist() == [0.0] + [500.0 + i for i in range(1, len(step(1)))]


def test_a_gap_is_time_in_which_nothing_ran():
    """A long kernel on one stream covers what looks like a pause on the other."""
    made, _ = play([K(NORM, 100, ""), K(NORM, 100, ""), K(NORM, 100, "")])
    frame = made.kernels.with_columns(
        start_ns=np.array([0, 10, 300]), end_ns=np.array([250, 60, 400])
    )
    assert kernels_of(replace(made, kernels=frame)).gap_ns[:].tolist() == [0.0, 0.0, 50.0]


def split(groups):
    """Symbols of one shape whose durations are given."""
    durations = np.array(groups, dtype=float)
    return split_by_duration(np.zeros(len(durations), dtype=np.int64), durations).tolist()


def test_two_populations_of_one_shape_are_told_apart():
    assert split([100, 300, 101, 302, 99, 298]) == [0, 1, 0, 1, 0, 1]


def test_three_populations_are_told_apart():
    assert split([10, 11, 10, 100, 110, 105, 1000, 990, 1010]) == [0] * 3 + [1] * 3 + [2] * 3


def test_a_spread_without_a_jump_stays_one():
    assert set(split(np.geomspace(100, 1000, 40))) == {0}


def test_one_slow_kernel_is_no_population():
    assert set(split([100] * 50 + [900])) == {0}


def test_shapes_never_share_a_symbol():
    shapes = np.array([0, 1, 0, 1, 2])
    symbols = split_by_duration(shapes, np.array([5.0, 5.0, 5.0, 5.0, 5.0]))
    assert symbols.tolist() == [0, 1, 0, 1, 2]


def test_nothing_to_split():
    empty = np.array([], dtype=np.int64)
    assert split_by_duration(empty, empty.astype(float)).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**7)), min_size=1, max_size=40),
    st.integers(2, 1000),
)
def test_symbols_refine_shapes_and_know_no_unit(kernels, factor):
    shape = np.array([s for s, _ in kernels])
    shape = np.unique(shape, return_inverse=True)[1]
    duration = np.array([float(d) for _, d in kernels])
    symbols = split_by_duration(shape, duration)
    for symbol in set(symbols.tolist()):
        assert len(set(shape[symbols == symbol].tolist())) == 1
    for a in set(shape.tolist()):  # longer kernels of a shape never have the smaller symbol
        order = np.argsort(duration[shape == a], kind="stable")
        assert (np.diff(symbols[shape == a][order]) >= 0).all()
    assert (split_by_duration(shape, duration * factor) == symbols).all()
