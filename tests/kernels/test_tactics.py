"""Steps of one kind that differ in tactics or by stalls, on traces of the toy model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracebook.kernels.steps import sort_kinds
from tracebook.kernels.tactics import unify_outliers, unify_places, unify_tactics

from .test_steps import ONCE, batch_of_two, sequence
from .toy import NORM, K


def other_tactic(name="another_gemm"):
    """The down projections run on another kernel with another grid."""
    return [replace(k, name=name, grid=(17, 1, 1)) if k.matrix == "down_proj" else k for k in ONCE]


def test_another_tactic_for_one_matrix_is_unified():
    kernels, bounds = sequence([ONCE, other_tactic(), ONCE, other_tactic(), ONCE])
    kinds = sort_kinds(kernels, bounds)
    assert len(kinds) == 2
    unified = unify_tactics(kernels, kinds)
    first, second = (unified.symbol[b.first : b.end] for b in bounds[:2])
    assert (first == second).all()


def test_a_norm_does_not_stand_for_a_matrix():
    """In some stretches the last product is missing, and a norm of its own stands there."""
    odd = [K(f"rms_norm_{k.matrix}", 3000, "") if k.matrix == "lm_head" else k for k in ONCE]
    kernels, bounds = sequence([ONCE, ONCE, ONCE, odd, odd])
    assert unify_tactics(kernels, sort_kinds(kernels, bounds)) is None


def stalled(at, times=6):
    """A step in which one kernel took much longer than usual."""
    return [replace(k, ns=times * k.ns) if i == at else k for i, k in enumerate(ONCE)]


DOWNS = [i for i, k in enumerate(ONCE) if k.matrix == "down_proj"]


def test_stalled_kernels_are_no_matrix_of_their_own():
    """Three of thirty products of one name and grid took six times as long."""
    steps = [ONCE, stalled(DOWNS[1]), ONCE, stalled(DOWNS[4]), ONCE, stalled(DOWNS[0]), ONCE, ONCE]
    kernels, bounds = sequence(steps)
    assert len(sort_kinds(kernels, bounds)) > 1
    unified = unify_outliers(kernels, bounds)
    assert [kind.slices for kind in sort_kinds(unified, bounds)] == [tuple(bounds)]


def test_a_head_on_a_kernel_that_also_reads_layers_is_a_matrix_of_its_own():
    """In every third step another tactic: the head runs on the kernel of the down projections."""
    down, head = ONCE[DOWNS[0]], next(k for k in ONCE if k.matrix == "lm_head")
    other = [replace(k, name=down.name, grid=down.grid) if k is head else k for k in ONCE]
    kernels, bounds = sequence([ONCE, ONCE, other] * 3)
    assert unify_outliers(kernels, bounds) is None


def test_one_stalled_norm_does_not_make_another_batch_of_another_tactic():
    """The norm looks like one of a larger batch; all others are as they were."""
    norms = [i for i, k in enumerate(ONCE) if k.name == NORM]
    slow = [
        replace(k, grid=(9, 1, 1)) if i == norms[3] else k for i, k in enumerate(other_tactic())
    ]
    kernels, bounds = sequence([ONCE, slow, ONCE, slow, ONCE])
    kinds = sort_kinds(kernels, bounds)
    assert len(sort_kinds(unify_tactics(kernels, kinds), bounds)) == 1


def test_another_batch_is_not_unified():
    kernels, bounds = sequence([ONCE, batch_of_two(), ONCE, ONCE])
    assert unify_tactics(kernels, sort_kinds(kernels, bounds)) is None


def test_another_batch_without_names_is_not_unified():
    """Names say nothing, and are the same in both: only the grids of all glue differ."""
    glue = "void at::native::vectorized_elementwise_kernel<4, T>(int)"
    plain = [k if k.matrix else replace(k, name=glue) for k in ONCE]
    wide = [
        replace(k, grid=(8, 2, 1)) if k.matrix else replace(k, grid=(8 * k.grid[0], *k.grid[1:]))
        for k in plain
    ]
    kernels, bounds = sequence([plain, wide, plain, plain])
    assert unify_tactics(kernels, sort_kinds(kernels, bounds)) is None


def test_one_kind_needs_no_unification():
    kernels, bounds = sequence([ONCE] * 3)
    assert unify_tactics(kernels, sort_kinds(kernels, bounds)) is None


def one_kernel_for(ops, op):
    """Matrices of about one size on one kernel, so near in time that they make no populations."""
    named = next(k for k in ONCE if k.matrix == f"{op}_proj")
    return [
        replace(k, name=named.name, grid=named.grid, ns=round(90_000 + 0.1 * k.ns))
        if k.matrix in ops
        else k
        for k in ONCE
    ]


BOTH = one_kernel_for(("o_proj", "down_proj"), "o")
APART = [replace(k, name="another_gemm") if k.matrix == "down_proj" else k for k in BOTH]


def test_a_tactic_for_one_of_two_matrices_of_a_kernel_is_unified_place_by_place():
    """No name is gone: the kernel of both matrices still reads one of them."""
    kernels, bounds = sequence([BOTH, APART, BOTH, APART, BOTH])
    kinds = sort_kinds(kernels, bounds)
    assert len(kinds) == 2
    assert unify_tactics(kernels, kinds) is None
    unified = unify_places(kernels, kinds)
    assert [kind.slices for kind in sort_kinds(unified, bounds)] == [tuple(bounds)]
    first, second = (unified.symbol[b.first : b.end] for b in bounds[:2])
    assert (first == second).all()
    assert unified.count.sum() == len(kernels)
    assert unified.busy_ns.sum() == kernels.busy_ns.sum()


def slower(kernels, times):
    return [replace(k, ns=times * k.ns) for k in kernels]


@pytest.mark.parametrize("other", [batch_of_two(), slower(APART, 3), ONCE[:-6]])
def test_another_batch_a_slow_pass_and_a_shorter_step_are_not_unified_by_place(other):
    kernels, bounds = sequence([ONCE, other, ONCE, other, ONCE])
    assert unify_places(kernels, sort_kinds(kernels, bounds)) is None
