"""Where a step begins: pauses, preparation, ends of graphs, never inside a block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.cut import find_cut, may_begin
from tracebook.kernels.ends import Ends
from tracebook.kernels.zones import find_zones

from .test_assign import facts_of, graphed, marks_of
from .toy import PREPARE, drafted_step, step


def votes(length, *positions):
    return np.bincount(positions, minlength=length) / max(1, len(positions))


def cut_of(kernels, *, gaps=None, marker=PREPARE, pauses=(), limits=(), borders=()):
    """The cut of a cyclic step; the pause before each kernel is its own unless given.

    `pauses`, `limits` and `borders` are positions at which runs of steps begin or end.
    """
    gap = np.array([float(k.pause_ns) for k in kernels] if gaps is None else gaps)
    marked = np.array([k.name == marker for k in kernels])
    zones = find_zones(marks_of(kernels), len(kernels))
    ends = Ends(*(votes(len(kernels), *at) for at in (pauses, limits, borders)))
    facts = facts_of(kernels)
    return find_cut(zones, facts, gap, marked, ends, may_begin(zones, facts))


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


def in_front_of_the_drafter(kernels):
    return next(i for i, k in enumerate(kernels) if k.phase == "drafter_layers")


def test_the_pause_before_the_first_step_beats_one_in_every_step():
    """Nameless, pauses closed: the host waits for the verdict, and once before the first step."""
    kernels = nameless(drafted_step(1))
    middle = in_front_of_the_drafter(kernels)
    gaps = [0.0] * len(kernels)
    gaps[middle] = 600_000.0
    assert cut_of(kernels, gaps=gaps).position == middle
    cut = cut_of(kernels, gaps=gaps, pauses=[0])
    assert (cut.position, bool(cut.certain)) == (0, True)


def test_the_first_and_the_last_kernel_of_a_capture_tell_where_nothing_else_does():
    kernels = nameless(drafted_step(1))
    gaps = [0.0] * len(kernels)
    assert cut_of(kernels, gaps=gaps, limits=[0, 0]).position == 0


def test_ends_inside_a_layer_tell_nothing():
    """A capture that begins and pauses anywhere."""
    kernels, first = turned(step(), 11)
    cut = cut_of(kernels, pauses=[20], limits=[33])
    assert (cut.position, bool(cut.certain)) == (first, True)


FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)"
PUT = "void at::native::index_elementwise_kernel<128, 4>(long)"


@pytest.mark.parametrize(("names", "moved"), [([FILL], 1), ([PUT], 0), ([PUT, FILL], 1),
                                              ([FILL, FILL], 2)])  # fmt: skip
def test_glue_in_front_of_the_preparation(names, moved):
    """A fill clears a buffer of the new step, a write may be the end of the old one."""
    kernels = step()
    glue = [replace(kernels[0], name=name, ns=1500, pause_ns=0) for name in names]
    kernels, first = turned([*kernels, *glue], 9)
    cut = cut_of(kernels, gaps=[0.0] * len(kernels))
    assert cut.position == first - moved


def test_a_step_does_not_begin_within_its_layers_or_behind_its_preparation():
    """The gaps of eager kernels differ by a microsecond, which tells nothing."""
    kernels, first = turned(step(), 11)
    for later in (1, 2):  # the gather, the norm of the first layer
        gaps = [900.0] * len(kernels)
        gaps[(first + later) % len(kernels)] = 4000.0
        assert cut_of(kernels, gaps=gaps, marker=None).position == first


def test_runs_that_begin_and_end_at_one_place_tell_it():
    """Without names and pauses; what stands around the runs is other work."""
    kernels = nameless(drafted_step(1))
    gaps = [0.0] * len(kernels)
    at = next(i for i, k in enumerate(kernels) if k.phase == "drafter_layers")
    assert cut_of(kernels, gaps=gaps, borders=[0]).position == 0
    assert cut_of(kernels, gaps=gaps, borders=[at - 1]).position == at - 1


def test_where_nothing_marks_the_begin_it_is_behind_the_choice_and_the_rest_is_said():
    """No names, no pauses: the longest of some like gaps is chance."""
    kernels = nameless(step())
    kernels[1:1] = [replace(kernels[0], ns=1500), replace(kernels[0], ns=1700)]
    gaps = [0.0] * len(kernels)
    gaps[2] = 400.0
    cut = cut_of(kernels, gaps=gaps)
    assert cut.position == 0
    assert cut.unmarked >= 2


@pytest.mark.parametrize("told", ["name", "pause", "limit"])
def test_what_marks_the_begin_leaves_nothing_open(told):
    once = step()
    gaps = [0.0] * len(once)
    if told == "pause":
        gaps[0] = 40_000.0
    kernels = once if told == "name" else nameless(once)
    cut = cut_of(kernels, gaps=gaps, limits=[0] if told == "limit" else ())
    assert (cut.position, cut.unmarked) == (0, 0)
