"""What the ends of a run of steps tell about where a step begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.ends import find_ends
from tracebook.kernels.steps import Kind, Slice
from tracebook.kernels.template import build_template

from .toy import ARGMAX, NORM, K, kernels_of, play, step

ONCE = [replace(kernel, pause_ns=1000) for kernel in step()]
LENGTH = len(ONCE)
OTHER = [K(f"prefill_{i}", 3000, "prefill") for i in range(30)]


def ends_of(kernels, anchor, steps, *, before, may=range(LENGTH)):
    """Ends of a run whose slices begin `anchor` kernels into a step, as places in the step.

    `may` are the places at which a step can begin.
    """
    sequence = kernels_of(play(kernels)[0])
    first = before + anchor
    slices = [Slice(first + LENGTH * i, first + LENGTH * (i + 1)) for i in range(steps)]
    template = build_template(sequence, Kind(tuple(slices)))
    places = (np.arange(LENGTH) + anchor) % LENGTH
    ends = find_ends(sequence, template, template.gap_ns(sequence), np.isin(places, list(may)))
    return [
        {int((place + anchor) % LENGTH): share for place, share in enumerate(votes) if share}
        for votes in (ends.pauses, ends.limits)
    ]


def paused(kernel, ns=900_000):
    return replace(kernel, pause_ns=ns)


@pytest.mark.parametrize("anchor", [0, 1, 20, LENGTH - 2])
def test_the_pause_behind_a_prefill_votes_for_the_first_kernel_of_a_step(anchor):
    """The prefill ends as a step does, so that more than the step matches."""
    kernels = [*OTHER, K(NORM, 2300, "prefill"), K(ARGMAX, 7000, "prefill")]
    kernels += [paused(ONCE[0]), *ONCE[1:], *ONCE * 5]
    pauses, _ = ends_of(kernels, anchor, 5, before=len(OTHER) + 2)
    assert pauses == {0: 1.0}


@pytest.mark.parametrize("anchor", [0, 20, LENGTH - 2])
def test_a_capture_that_holds_whole_steps_only_votes_twice(anchor):
    steps = 5 if anchor == 0 else 4
    _, limits = ends_of(ONCE * 5, anchor, steps, before=0)
    assert limits == {0: 1.0}


def test_a_capture_that_begins_inside_a_step_votes_for_where_it_begins():
    _, limits = ends_of(ONCE[30:] + ONCE * 4, 20, 3, before=LENGTH - 30)
    assert limits == {30: 0.5, 0: 0.5}


@pytest.mark.parametrize("anchor", [20, 33])
def test_a_capture_that_ends_within_layers_takes_nothing_from_how_it_begins(anchor):
    """It was stopped in the fifth step; the first one is there from its first kernel on."""
    _, limits = ends_of(ONCE * 4 + ONCE[:30], anchor, 3, before=0, may=[LENGTH - 1, 0, 1])
    assert limits == {0: 1.0}


def test_late_launches_behind_the_start_of_a_capture_are_no_pause():
    """Before the host is ahead of the device the second launch comes late."""
    late = [*ONCE[:2], paused(ONCE[2], 60_000), *ONCE[3:]]
    votes = ends_of([*late, *ONCE * 4], 20, 4, before=0, may=range(4))
    assert votes == [{}, {0: 1.0}]


def test_a_stall_within_layers_hides_no_pause_where_a_step_can_begin():
    first = [paused(ONCE[0]), *ONCE[1:30], paused(ONCE[30], 9_000_000), *ONCE[31:]]
    pauses, _ = ends_of([*OTHER, *first, *ONCE * 4], 0, 5, before=len(OTHER), may=range(4))
    assert pauses == {0: 1.0}


def test_a_capture_that_goes_on_with_something_else_has_no_limit_there():
    pauses, limits = ends_of([*OTHER, *ONCE * 4, *OTHER], 20, 3, before=len(OTHER))
    assert (pauses, limits) == ({}, {})


def test_the_pause_behind_a_run_votes_for_the_kernel_after_its_last_one():
    kernels = [*OTHER, *ONCE * 4, paused(OTHER[0]), *OTHER[1:]]
    pauses, _ = ends_of(kernels, 20, 3, before=len(OTHER))
    assert pauses == {0: 1.0}


def test_a_pause_that_every_step_has_does_not_vote():
    once = [*ONCE[:30], paused(ONCE[30]), *ONCE[31:]]
    kernels = [*OTHER, *once * 5]
    pauses, _ = ends_of(kernels, 0, 5, before=len(OTHER))
    assert pauses == {}


def test_shares_count_the_votes_for_nothing():
    """A vote that falls on no kernel of the step makes the others weigh less."""
    kernels = [*OTHER, *ONCE * 4, *OTHER, *[paused(OTHER[0]), *OTHER[1:]], *ONCE * 4]
    sequence = kernels_of(play(kernels)[0])
    firsts = [len(OTHER), len(OTHER) * 3 + 4 * LENGTH]
    slices = [Slice(f + LENGTH * i, f + LENGTH * (i + 1)) for f in firsts for i in range(4)]
    template = build_template(sequence, Kind(tuple(slices)))
    everywhere = np.ones(LENGTH, dtype=bool)
    ends = find_ends(sequence, template, template.gap_ns(sequence), everywhere)
    assert np.flatnonzero(ends.limits).tolist() == [0]
    assert ends.limits[0] == 1.0
