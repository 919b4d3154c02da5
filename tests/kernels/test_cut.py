"""Where a step begins: pauses, preparation, ends of graphs, never inside a block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.assign import find_zones
from tracebook.kernels.cut import find_cut

from .test_assign import facts_of, graphed, marks_of
from .toy import PREPARE, drafted_step, step


def cut_of(kernels, *, gaps=None, marker=PREPARE):
    """The cut of a cyclic step; the pause before each kernel is its own unless given."""
    gap = np.array([float(k.pause_ns) for k in kernels] if gaps is None else gaps)
    marked = np.array([k.name == marker for k in kernels])
    zones = find_zones(marks_of(kernels), len(kernels))
    return find_cut(zones, facts_of(kernels), gap, marked)


def turned(kernels, turn):
    return kernels[turn:] + kernels[:turn], (len(kernels) - turn) % len(kernels)


@pytest.mark.parametrize("turn", [0, 1, 3, 20, 40])
@pytest.mark.parametrize("make", [step, lambda: drafted_step(2), lambda: graphed(step())])
def test_the_preparation_kernel_begins_the_step(make, turn):
    kernels, first = turned(make(), turn)
    cut = cut_of(kernels)
    assert cut.position == first
    assert cut.certain


@pytest.mark.parametrize("make", [step, lambda: drafted_step(2)])
def test_pauses_closed_by_asynchronous_scheduling(make):
    """No gap anywhere: the name of the preparation kernel is enough."""
    kernels, first = turned(make(), 9)
    assert cut_of(kernels, gaps=[0.0] * len(kernels)).position == first


def nameless(kernels):
    return [replace(k, name="device_kernel") for k in kernels]


def test_without_names_the_longest_pause_outside_blocks_counts():
    kernels, first = turned(nameless(step()), 11)
    assert cut_of(kernels).position == first


def test_a_longer_pause_inside_a_layer_is_no_boundary():
    kernels = nameless(step())
    kernels[20] = replace(kernels[20], pause_ns=500_000)
    kernels, first = turned(kernels, 11)
    assert cut_of(kernels).position == first


def test_a_pause_for_the_verdict_does_not_beat_the_preparation():
    """The host waits 300 us for the verdict before it drafts; the step still begins elsewhere."""
    kernels = drafted_step(2)
    at = next(i for i, k in enumerate(kernels) if k.phase == "drafter_layers")
    kernels[at - 1] = replace(kernels[at - 1], pause_ns=300_000)
    kernels, first = turned(kernels, 30)
    assert cut_of(kernels).position == first


def test_two_equal_places_are_called_uncertain():
    """No names, one pause at the step's edge and a like one in front of the drafter."""
    kernels = nameless(drafted_step(1))
    at = next(i for i, k in enumerate(kernels) if k.phase == "drafter_layers") - 1
    kernels[at] = replace(kernels[at], pause_ns=60_000)
    assert not cut_of(kernels).certain
