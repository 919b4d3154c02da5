"""The period of a step, on sequences whose period can be counted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tracebook.kernels.period import find_anchors, find_periods, positions_by_symbol

PREPARE, HEAD, SAMPLE, ARGMAX = 100, 101, 102, 103
LAYER = [0, 1, 2, 3, 1, 4, 5]


def one_step(layers=10, head_twice=False):
    """prepare, layers, head, sampler; with a drafter the head runs a second time."""
    kernels = [PREPARE] + LAYER * layers + [HEAD, SAMPLE]
    if head_twice:
        kernels += LAYER * 2 + [HEAD, ARGMAX]
    return kernels


def dense(symbols):
    return np.unique(np.array(symbols), return_inverse=True)[1].astype(np.int64)


def best(symbols, accept=lambda lag: True):
    periods = find_periods(dense(symbols), accept)
    return periods[0].kernels if periods else None


@pytest.mark.parametrize("layers", [2, 10, 40])
@pytest.mark.parametrize("head_twice", [False, True])
def test_the_step_and_not_the_layer(layers, head_twice):
    once = one_step(layers, head_twice)
    assert best(once * 20) == len(once)


def test_three_steps_are_enough_to_be_seen():
    once = one_step(6)
    assert best(once * 3) == len(once)


def test_nothing_recurs():
    assert find_periods(np.arange(200), lambda lag: True) == []
    assert find_periods(np.array([], dtype=np.int64), lambda lag: True) == []


def test_bounds_are_asked():
    once = one_step(10)
    length = len(once)
    periods = find_periods(dense(once * 20), lambda lag: lag > 1.5 * length)
    assert periods
    assert all(period.kernels > 1.5 * length for period in periods)
    assert periods[0].kernels % length == 0


@pytest.mark.parametrize("seed", range(12))
def test_small_changes_and_a_warm_up_do_not_hide_it(seed):
    """Two in a hundred kernels are missing or doubled; a prefill of other kernels goes first."""
    rng = random.Random(seed)
    rotation = rng.randrange(80)
    once = one_step(10)
    steps = [
        symbol for symbol in once * 30 for _ in range(rng.choices([1, 0, 2], weights=[98, 1, 1])[0])
    ]
    found = best([200 + rng.randrange(9) for _ in range(150)] + steps[rotation:])
    assert abs(found - len(once)) <= 0.03 * len(once)


def test_renaming_symbols_changes_nothing():
    once = one_step(10, head_twice=True)
    rng = random.Random(1)
    new = rng.sample(range(200), 200)
    assert best([new[s] for s in once * 15]) == best(once * 15)


def test_positions_of_each_symbol():
    found = positions_by_symbol(np.array([2, 0, 2, 1]))
    assert [where.tolist() for where in found] == [[1], [3], [0, 2]]


def test_anchors_stand_once_in_each_period():
    once = one_step(10)
    symbols = dense(once * 12)
    anchors = find_anchors(symbols, np.arange(len(symbols) + 1), len(once))
    marks = anchors[0].positions
    assert set(np.diff(marks).tolist()) == {len(once)}
    assert len(marks) == 12
    assert anchors[0].regularity == pytest.approx(1 - len(once) / len(symbols), abs=0.02)
    assert [a.regularity for a in anchors] == sorted((a.regularity for a in anchors), reverse=True)


def test_a_kernel_of_the_layers_serves_where_nothing_is_single():
    """No preparation, no sampler, no head: only the pause in the layers' rhythm is left."""
    once = LAYER * 10 + [6, 6, 6, 7, 7, 7, 6, 7, 6, 7]
    symbols = dense(once * 12)
    anchors = find_anchors(symbols, np.arange(len(symbols) + 1), len(once))
    assert set(np.diff(anchors[0].positions).tolist()) == {len(once)}


def test_a_kernel_that_runs_twice_a_step_is_no_anchor_at_both():
    once = one_step(10, head_twice=True)
    symbols = dense(once * 12)
    for anchor in find_anchors(symbols, np.arange(len(symbols) + 1), len(once))[:3]:
        assert np.median(np.diff(anchor.positions)) == len(once)
