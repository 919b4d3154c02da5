"""Slices, kinds and templates on traces of the toy model."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.period import Anchor
from tracebook.kernels.steps import (
    Kind,
    Slice,
    cut_slices,
    sort_kinds,
)
from tracebook.kernels.template import build_template

from .toy import NORM, K, jittered, kernels_of, play, step

ONCE = step()
LENGTH = len(ONCE)


def sequence(steps):
    """Arrays of several steps, and the slice of each."""
    kernels = kernels_of(play([k for one in steps for k in one])[0])
    ends = np.cumsum([len(one) for one in steps]).tolist()
    return kernels, [Slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def anchor(*positions):
    return Anchor(np.array(positions), 1.0, 0)


def test_slices_begin_at_the_anchor():
    kernels, bounds = sequence([ONCE] * 5)
    assert cut_slices(len(kernels), [anchor(*(b.first for b in bounds))], LENGTH) == bounds


def test_a_stretch_of_something_else_is_not_in_a_slice():
    """Between the second and third step 200 kernels of a prefill run."""
    other = [K("prefill", 9000, "")] * 200
    kernels, bounds = sequence([ONCE, ONCE, other, ONCE, ONCE])
    marks = anchor(*(bounds[i].first for i in (0, 1, 3, 4)))
    assert cut_slices(len(kernels), [marks], LENGTH) == [bounds[i] for i in (0, 1, 3, 4)]


def test_a_lost_mark_is_taken_from_another_anchor():
    kernels, bounds = sequence([ONCE] * 6)
    first = anchor(*(b.first for b in bounds if b is not bounds[3]))
    second = anchor(*(b.first + 10 for b in bounds))
    assert cut_slices(len(kernels), [first, second], LENGTH) == bounds


def test_a_capture_that_ends_inside_a_step():
    kernels, bounds = sequence([ONCE, ONCE, ONCE[: LENGTH // 2]])
    found = cut_slices(len(kernels), [anchor(*(b.first for b in bounds))], LENGTH)
    assert found == bounds[:2]


def batch_of_two():
    """The same products on other grids, other glue."""
    return [replace(k, grid=(k.grid[0], 2, 1)) for k in ONCE]


def test_kinds_are_told_by_their_kernels():
    kernels, bounds = sequence([ONCE, batch_of_two(), ONCE, ONCE, batch_of_two()])
    kinds = sort_kinds(kernels, bounds)
    assert [kind.slices for kind in kinds] == [
        (bounds[0], bounds[2], bounds[3]),
        (bounds[1], bounds[4]),
    ]


def test_a_step_with_a_little_more_glue_is_of_the_same_kind():
    more = [*ONCE[:9], K(NORM, 2000, ""), K(NORM, 2000, ""), *ONCE[9:]]
    kernels, bounds = sequence([ONCE, more, ONCE])
    assert [kind.slices for kind in sort_kinds(kernels, bounds)] == [tuple(bounds)]


def test_eager_and_captured_steps_are_two_kinds():
    graph = [replace(k, graph=True) for k in ONCE[:-1]] + ONCE[-1:]
    kernels, bounds = sequence([ONCE, graph, ONCE, graph, ONCE])
    kinds = sort_kinds(kernels, bounds)
    assert [len(kind.slices) for kind in kinds] == [3, 2]


def test_no_slices_no_kinds():
    assert sort_kinds(sequence([ONCE])[0], []) == []


def test_time_of_a_kind_is_the_sum_of_its_kernels():
    kernels, bounds = sequence([ONCE, ONCE])
    assert Kind((bounds[1],)).time_ns(kernels) == sum(k.ns for k in ONCE)


def test_the_template_of_equal_steps_is_the_step():
    kernels, bounds = sequence([ONCE] * 4)
    template = build_template(kernels, Kind(tuple(bounds)))
    assert (template.symbol == kernels.symbol[:LENGTH]).all()
    assert template.slices == tuple(bounds)
    assert all((place == np.arange(LENGTH)).all() for place in template.places)
    assert template.duration_ns.tolist() == [float(k.ns) for k in ONCE]


def test_durations_are_medians_over_the_steps():
    slow = [replace(k, ns=10 * k.ns) for k in ONCE[:5]] + ONCE[5:]
    kernels, bounds = sequence([ONCE, slow, ONCE])
    template = build_template(replace_symbols(kernels, bounds), Kind(tuple(bounds)))
    assert template.duration_ns.tolist() == [float(k.ns) for k in ONCE]


def replace_symbols(kernels, bounds):
    """Symbols by shape alone, so that slow kernels keep theirs."""
    assert len(bounds) == 3
    return kernels.renamed(kernels.shape_symbol.of_code)


def test_a_kernel_that_most_steps_have_is_in_the_template_and_a_rare_one_is_not():
    often, seldom = K("often", 3000, ""), K("seldom", 3000, "")
    steps = [
        [*ONCE[:5], often, *ONCE[5:]],
        [*ONCE[:5], often, *ONCE[5:]],
        ONCE,
        [*ONCE[:5], often, *ONCE[5:20], seldom, *ONCE[20:]],
    ]
    kernels, bounds = sequence(steps)
    template = build_template(kernels, Kind(tuple(bounds)))
    assert (template.symbol == kernels.symbol[bounds[0].first : bounds[0].end]).all()
    missing = template.places[2]
    assert (missing == np.delete(np.arange(LENGTH + 1), 5)).all()
    assert template.places[3].tolist().count(-1) == 1
    assert template.places[3][21] == -1


@pytest.mark.parametrize("seed", range(5))
def test_changing_steps_lie_along_one_template(seed):
    """Each step loses and gains small kernels; products always find their own place."""
    rng = random.Random(seed)

    def changed():
        kernels = []
        for k in jittered(ONCE, rng):
            small = not k.weight_bytes
            if small and rng.random() < 0.04:
                continue
            kernels.append(k)
            if rng.random() < 0.03:
                kernels.append(K("extra", 2000, ""))
        return kernels

    steps = [changed() for _ in range(9)]
    kernels, bounds = sequence(steps)
    template = build_template(kernels, Kind(tuple(bounds)))
    truth = [(k.layer, k.matrix) for one in steps for k in one]
    name = [truth[i] for i in template.source.tolist()]
    for piece, place in zip(template.slices, template.places, strict=True):
        kept = place[place >= 0]
        assert (np.diff(kept) > 0).all()
        for i, p in enumerate(place.tolist()):
            if truth[piece.first + i][1]:
                assert p >= 0
                assert name[p] == truth[piece.first + i]


def test_of_two_tactics_that_alternate_one_stands_in_the_template():
    """A third of the steps has another kernel there, a third yet another one."""
    once = step()
    tactics = [
        [replace(k, name=f"{k.name}{end}") if i == 20 else k for i, k in enumerate(once)]
        for end in ("", "_b", "_c")
    ]
    kernels = [k for number in range(9) for k in tactics[number % 3]]
    sequence = kernels_of(play(kernels)[0])
    slices = tuple(Slice(len(once) * i, len(once) * (i + 1)) for i in range(9))
    template = build_template(sequence, Kind(slices))
    assert len(template.symbol) == len(once)
    assert [sorted(set(place.tolist()))[0] for place in template.places].count(-1) == 6
