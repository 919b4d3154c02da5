"""Kinds of step that alternate: found by how a step begins, not by where an anchor stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.begins import how_steps_begin, step_begins
from tracebook.kernels.realign import is_mixed, is_turned
from tracebook.kernels.recover import recover_steps
from tracebook.kernels.segments import place_steps
from tracebook.kernels.steps import Kind, Slice
from tracebook.kernels.template import build_template

from .toy import PREPARE, K, kernels_of, play, step

ONE = step()
LENGTH = len(ONE)
FIRST = next(i for i, k in enumerate(ONE) if k.name == PREPARE)
#: The same step for a batch of eight: all grids differ, and no name of the first kernels.
EIGHT = [replace(k, ns=k.ns + 900, grid=(8, *k.grid[1:])) for k in ONE]
EAGER = [K(f"load_{i}", 3000, "warmup") for i in range(LENGTH)]
ANCHOR = 20


def recovered(steps, *, before=()):
    """What is found in steps of two kinds, where slices begin at an anchor inside.

    Returns the bounds, and the number of steps of each other kind.
    """
    kernels = [*before, *(kernel for once in steps for kernel in once)]
    sequence = kernels_of(play(kernels)[0])
    starts = len(before) + LENGTH * np.arange(len(steps))
    pairs = zip(steps, steps[1:], starts, strict=False)
    slices = [
        Slice(start + ANCHOR, start + ANCHOR + LENGTH)
        for once, following, start in pairs
        if once is ONE and following is ONE
    ]
    template = build_template(sequence, Kind(tuple(slices)))
    names = [kernels[i].name for i in template.source.tolist()]
    cut = names.index(PREPARE)
    found = recover_steps(sequence, template, cut, place_steps(sequence, template, cut))
    others = None if found.others is None else [len(kind.slices) for kind in found.others]
    return [(b.first, b.end) for b in found.placed.bounds], others, found


def expected(steps, before=0):
    return [
        (before + LENGTH * i, before + LENGTH * (i + 1))
        for i, once in enumerate(steps)
        if once is ONE
    ]


def test_steps_that_stand_alone_are_found_and_the_others_counted():
    steps = [ONE, ONE, ONE, EIGHT, ONE, EIGHT, EIGHT, ONE, ONE, EIGHT, ONE]
    bounds, others, _ = recovered(steps)
    assert bounds == expected(steps)
    assert others == [4]


def test_steps_before_the_first_run_are_no_warm_up_where_kinds_alternate():
    steps = [ONE, EIGHT, ONE, ONE, EIGHT, EIGHT, ONE, ONE, ONE, ONE]
    bounds, _, found = recovered(steps)
    assert bounds == expected(steps)
    assert found.isolated == 0


def test_a_step_with_something_else_behind_it_is_warm_up():
    kernels = [*ONE, *EAGER]
    steps = [ONE, ONE, ONE, ONE]
    bounds, _, found = recovered(steps, before=kernels)
    assert bounds == expected(steps, len(kernels))
    assert found.isolated == 1


@pytest.mark.parametrize("kept", [30, LENGTH - 1])
def test_the_step_that_the_capture_cuts_off_is_counted_as_that(kept):
    steps = [ONE, ONE, ONE, EIGHT, ONE[:kept]]
    bounds, others, found = recovered(steps)
    assert bounds == expected(steps[:4])
    assert (found.placed.cut_off, others) == (1, [1])


def template_of(kernels, starts):
    sequence = kernels_of(play(kernels)[0])
    slices = tuple(Slice(start, start + LENGTH) for start in starts)
    return sequence, build_template(sequence, Kind(slices))


def test_a_name_that_occurs_once_marks_the_begin():
    sequence, template = template_of(ONE * 4, [ANCHOR + LENGTH * i for i in range(3)])
    cut = (LENGTH - ANCHOR + FIRST) % LENGTH
    names = how_steps_begin(sequence, template, cut)
    assert len(names) == 1
    begins = step_begins(sequence, Slice(0, len(sequence)), names)
    assert begins.tolist() == [FIRST + LENGTH * i for i in range(4)]


def test_a_name_that_also_occurs_inside_needs_those_behind_it():
    """The first kernel of a step has the name of the norm of every layer."""
    norm = next(k for k in ONE if "norm" in k.name)
    once = [replace(ONE[0], name=norm.name), *ONE[1:]]
    sequence, template = template_of(once * 4, [LENGTH * i for i in range(4)])
    names = how_steps_begin(sequence, template, 0)
    assert len(names) > 1
    begins = step_begins(sequence, Slice(0, len(sequence)), names)
    assert begins.tolist() == [LENGTH * i for i in range(4)]


def test_nothing_marks_a_step_of_equal_kernels():
    once = [replace(k, name="kernel") for k in ONE]
    sequence, template = template_of(once * 4, [LENGTH * i for i in range(4)])
    assert how_steps_begin(sequence, template, 0) is None


@pytest.mark.parametrize(
    ("gaps", "mixed"),
    [((), False), ((6,), False), ((2, 3, 5, 6, 8, 9, 11), True), (tuple(range(1, 12)), True)],
)
def test_slices_that_mostly_stand_alone_are_mixed(gaps, mixed):
    """`gaps` are the slices in front of which another step stands."""
    steps, starts = [], []
    for number in range(12):
        steps += [EIGHT] * (number in gaps)
        starts.append(LENGTH * len(steps))
        steps.append(ONE)
    _, template = template_of([k for once in steps for k in once], starts)
    assert is_mixed(template) is mixed


@pytest.mark.parametrize(("shift", "turned"), [(0, False), (2, False), (5, True)])
def test_slices_of_two_anchors_are_turned_against_each_other(shift, turned):
    """Two requests, a prefill between; in the second the anchor stands `shift` kernels on."""
    kernels = [*ONE * 8, *EAGER, *ONE * 5]
    starts = [ANCHOR + LENGTH * i for i in range(7)]
    starts += [9 * LENGTH + ANCHOR + shift + LENGTH * i for i in range(4)]
    sequence, template = template_of(kernels, starts)
    names = how_steps_begin(sequence, template, (LENGTH - ANCHOR + FIRST) % LENGTH)
    assert is_turned(sequence, template, names) is turned


def test_the_slice_in_which_no_step_begins_does_not_count():
    """The capture ends with a step, so that the last slice is the rest of it."""
    sequence = kernels_of(play(ONE * 4)[0])
    slices = [Slice(5 + LENGTH * i, 5 + LENGTH * (i + 1)) for i in range(3)]
    slices.append(Slice(5 + LENGTH * 3, LENGTH * 4))
    template = build_template(sequence, Kind(tuple(slices)))
    cut = (LENGTH - 5 + FIRST) % LENGTH
    assert len(template.slices) == 4
    assert len(how_steps_begin(sequence, template, cut)) == 1
