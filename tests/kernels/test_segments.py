"""Whole steps from slices that begin anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.segments import place_steps
from tracebook.kernels.steps import Kind, Slice
from tracebook.kernels.template import build_template

from .toy import NORM, K, kernels_of, play, step

ONCE = step()
LENGTH = len(ONCE)


def placed(kernels, anchors):
    """Place steps in a trace whose slices begin at `anchors`, the step's own first kernel known.

    Returns the result and, per kernel, its place counted from the first kernel of the step.
    """
    sequence = kernels_of(play(kernels)[0])
    slices = tuple(Slice(a, min(a + LENGTH, len(kernels))) for a in anchors)
    template = build_template(sequence, Kind(slices))
    names = [kernels[i] for i in template.source.tolist()]
    cut = next(i for i, k in enumerate(names) if k.name == ONCE[0].name)
    result = place_steps(sequence, template, cut)
    own = np.where(result.place >= 0, (result.place - cut) % LENGTH, -1)
    return result, own


def bounds(result):
    return [(b.first, b.end) for b in result.bounds]


@pytest.mark.parametrize("anchor", [0, 1, 20, 40, LENGTH - 2])
def test_slices_that_begin_anywhere_give_the_same_steps(anchor):
    """Five whole steps, seen from the anchor's four or five slices."""
    kernels = ONCE * 5
    anchors = [anchor + LENGTH * i for i in range(5) if anchor + LENGTH * (i + 1) <= len(kernels)]
    result, own = placed(kernels, anchors)
    assert bounds(result) == [(LENGTH * i, LENGTH * (i + 1)) for i in range(5)]
    assert own.tolist() == list(range(LENGTH)) * 5
    assert result.cut_off == 0


@pytest.mark.parametrize("anchor", [20, 40])
def test_a_capture_that_begins_and_ends_inside_steps(anchor):
    """Half a step, four whole ones, a third of one: the four whole ones are kept."""
    kernels = ONCE[30:] + ONCE * 4 + ONCE[:17]
    start = LENGTH - 30
    anchors = [start + anchor + LENGTH * i for i in range(3)]
    if anchor > 30:
        anchors.insert(0, anchor - 30)
    result, _ = placed(kernels, anchors)
    assert bounds(result) == [(start + LENGTH * i, start + LENGTH * (i + 1)) for i in range(4)]
    assert result.cut_off == (1 if anchor > 30 else 0)  # the half that had the anchor


def test_something_else_in_between_makes_two_chains():
    other = [K("prefill", 9000, "")] * 40
    kernels = [*ONCE * 3, *other, *ONCE * 3]
    second = 3 * LENGTH + 40
    anchors = [20, 20 + LENGTH, second + 20, second + 20 + LENGTH]
    result, own = placed(kernels, anchors)
    assert bounds(result) == [
        (base + LENGTH * i, base + LENGTH * (i + 1)) for base in (0, second) for i in range(3)
    ]
    assert (own[3 * LENGTH : second] == -1).all()


def test_a_single_step_before_the_first_chain_is_found():
    other = [K("autotune", 9000, "")] * 60
    kernels = [*ONCE, *other, *ONCE * 4]
    second = LENGTH + 60
    result, _ = placed(kernels, [0, *(second + LENGTH * i for i in range(4))])
    chain = [(second + LENGTH * i, second + LENGTH * (i + 1)) for i in range(4)]
    assert bounds(result) == [(0, LENGTH), *chain]


def test_kernels_that_the_template_does_not_know_stay_in_their_step():
    odd = [*ONCE[:10], K(NORM + "x", 2000, ""), *ONCE[10:]]
    kernels = [*ONCE * 2, *odd, *ONCE * 2]
    starts = [0, LENGTH, 2 * LENGTH, 3 * LENGTH + 1, 4 * LENGTH + 1]
    sequence = kernels_of(play(kernels)[0])
    slices = tuple(Slice(a, b) for a, b in zip(starts, [*starts[1:], len(kernels)], strict=True))
    result = place_steps(sequence, build_template(sequence, Kind(slices)), 0)
    assert bounds(result) == [(s.first, s.end) for s in slices]
    assert np.flatnonzero(result.place == -1).tolist() == [2 * LENGTH + 10]


def test_bounds_rise_and_never_overlap():
    kernels = ONCE[5:] + ONCE * 6 + ONCE[:50]
    start = LENGTH - 5
    result, _ = placed(kernels, [start + 33 + LENGTH * i for i in range(5)])
    edges = [edge for bound in bounds(result) for edge in bound]
    assert edges == sorted(edges)
    assert len(result.bounds) == 6


def other_tactics(kernels, every):
    """The same work by kernels of other names."""
    return [replace(k, name=f"{k.name}_b") if i % every == 3 else k for i, k in enumerate(kernels)]


@pytest.mark.parametrize("anchor", [0, 20, LENGTH - 2])
def test_a_step_of_other_tactics_at_the_end_of_a_chain_is_whole(anchor):
    """Every eleventh kernel of the last step is another one, and stands in for the usual one."""
    kernels = ONCE * 4 + other_tactics(ONCE, 11)
    anchors = [anchor + LENGTH * i for i in range(5) if anchor + LENGTH * (i + 1) <= len(kernels)]
    result, _ = placed(kernels, anchors)
    assert bounds(result) == [(LENGTH * i, LENGTH * (i + 1)) for i in range(5)]


@pytest.mark.parametrize("cut", [1, 2])
def test_the_first_kernels_of_a_step_may_be_missing_between_two_chains(cut):
    """The one before it was followed by another step that the slices do not know."""
    other = [K(NORM, 4000 + i, "mixed") for i in range(30)]
    kernels = ONCE * 3 + other + ONCE[cut:] + ONCE * 2
    start = 3 * LENGTH + len(other)
    anchors = [cut, cut + LENGTH, start, start + LENGTH]
    result, _ = placed(kernels, anchors)
    assert (start, start + LENGTH - cut) in bounds(result)
