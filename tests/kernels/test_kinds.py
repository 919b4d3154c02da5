"""Kinds of step in words, and the choice among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracebook.errors import NoDecodeSteps
from tracebook.kernels.kinds import Choice, choose_kinds, describe_kind
from tracebook.kernels.steps import Kind, Slice

from .toy import NORM, SILU, K, kernels_of, play, step

LENGTH = len(step())


def with_rows(rows, extra=()):
    """A step whose norms and activations launch one block per token."""
    return [
        *[replace(k, grid=(rows, 1, 1)) if k.name in (NORM, SILU) else k for k in step()],
        *extra,
    ]


def kinds_of(*steps):
    kernels = kernels_of(play([k for one in steps for k in one])[0])
    kinds, at = [], 0
    for one in steps:
        kinds.append(Kind((Slice(at, at + len(one)),)))
        at += len(one)
    return kernels, kinds


def test_tokens_at_once_are_the_blocks_of_the_norms():
    kernels, kinds = kinds_of(with_rows(1), with_rows(11))
    infos = [describe_kind(kernels, kind) for kind in kinds]
    assert [info.rows for info in infos] == [1, 11]
    assert [info.kernels for info in infos] == [LENGTH, LENGTH]
    assert infos[0].signature != infos[1].signature


def test_rows_stay_open_where_no_name_tells():
    kernels, kinds = kinds_of([replace(k, name="kernel") for k in step()])
    assert describe_kind(kernels, kinds[0]).rows is None


FUSED = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16>(T1 *)"
OF_HEADS = "void vllm::fused_qk_norm_rope_kernel<c10::BFloat16>(T1 *)"


@pytest.mark.parametrize(
    ("names", "grids"),
    [
        ((NORM, FUSED), (11, 363)),
        ((NORM, FUSED, OF_HEADS), (11, 363)),
        ((NORM, NORM), ()),  # one name may have its blocks for another reason
    ],
)
def test_two_norms_that_agree_tell_the_tokens(names, grids):
    heads = [K(OF_HEADS, 2000, "", grid=(363, 1, 1))] * 6
    norms = [K(names[i % 2], 2000, "", grid=(11, 1, 1)) for i in range(12)]
    kernels, kinds = kinds_of([*norms, *heads, K(SILU, 2000, "", grid=(40, 1, 1))])
    assert describe_kind(kernels, kinds[0]).norm_grids == grids


def test_a_norm_of_heads_does_not_tell_the_tokens():
    """llama.cpp has one kernel for all norms; those of heads are as many as the heads are."""
    mixed = [K(NORM, 2000, "", grid=(1, 1, 1))] * 10 + [K(NORM, 2000, "", grid=(48, 1, 1))] * 8
    kernels, kinds = kinds_of([*mixed, *[K(OF_HEADS, 2000, "", grid=(48, 1, 1))] * 8])
    assert describe_kind(kernels, kinds[0]).norm_grids == ()


def test_signatures_do_not_depend_on_order_or_time():
    turned = with_rows(1)[20:] + with_rows(1)[:20]
    slow = [replace(k, ns=3 * k.ns) for k in with_rows(1)]
    infos = [describe_kind(*x) for x in (
        (k, kinds[0]) for k, kinds in (kinds_of(with_rows(1)), kinds_of(turned), kinds_of(slow))
    )]  # fmt: skip
    assert len({info.signature for info in infos}) == 1
    more, kinds = kinds_of(with_rows(1, [K("one_more", 2000, "")]))
    assert describe_kind(more, kinds[0]).signature != infos[0].signature


def test_a_batch_is_chosen_by_its_tokens():
    kernels, kinds = kinds_of(with_rows(4), with_rows(8), with_rows(8, [K("x", 2000, "")]))
    assert choose_kinds(kernels, kinds, None) == kinds
    assert choose_kinds(kernels, kinds, Choice()) == kinds
    assert choose_kinds(kernels, kinds, Choice(batch=8)) == kinds[1:]
    assert choose_kinds(kernels, kinds, Choice(batch=2, rows_per_sequence=4)) == kinds[1:]


def test_a_signature_is_chosen_by_its_beginning():
    kernels, kinds = kinds_of(with_rows(4), with_rows(8))
    wanted = describe_kind(kernels, kinds[1]).signature
    assert choose_kinds(kernels, kinds, Choice(signature=wanted[:5])) == kinds[1:]


@pytest.mark.parametrize("choice", [Choice(batch=3), Choice(signature="nothing")])
def test_what_is_not_there_is_refused_with_what_is(choice):
    kernels, kinds = kinds_of(with_rows(4), with_rows(8))
    with pytest.raises(NoDecodeSteps, match="was found") as caught:
        choose_kinds(kernels, kinds, choice)
    for kind in kinds:
        assert describe_kind(kernels, kind).signature in caught.value.hint


def test_a_step_that_mostly_drafts_is_chosen_by_its_batch():
    """A draft model of many layers: more kernels have one token a sequence than all of them."""
    kernels, kinds = kinds_of(with_rows(2), with_rows(16))
    assert choose_kinds(kernels, kinds, Choice(batch=2, rows_per_sequence=4)) == kinds[:1]
    assert choose_kinds(kernels, kinds, Choice(batch=4, rows_per_sequence=4)) == kinds[1:]
    with pytest.raises(NoDecodeSteps):
        choose_kinds(kernels, kinds, Choice(batch=3, rows_per_sequence=4))
