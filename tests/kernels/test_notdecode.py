"""Passes through a model that choose no token, or that are no whole step, are no decode."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tracebook.errors import NoDecodeSteps
from tracebook.kernels.align import Column
from tracebook.kernels.attempts import best_attempt
from tracebook.kernels.doubt import judge_attempt
from tracebook.kernels.fit import fit_plan
from tracebook.kernels.labels import KindInfo
from tracebook.kernels.notdecode import check_drafter_alone, check_tokens, output_is_missing

from .toy import (
    EMBED,
    LAYERS,
    NORM,
    PREPARE,
    K,
    column_of,
    drafted_plan,
    drafted_step,
    jittered,
    kernels_of,
    layer_kernels,
    layer_reads,
    make_plan,
    plan,
    play,
    step,
)

PEAK = 273.0


def pooled() -> list[K]:
    """A pass of an embedding service: the layers of the model, a norm, and that is all."""
    kernels = [K(PREPARE, 1900, "prepare", pause_ns=30_000), K(EMBED, 2000, "target_layers")]
    for layer in range(LAYERS):
        kernels += layer_kernels(layer)
    return [*kernels, K(NORM, 2300, "target_layers")]


def judged(make, of, count=8):
    rng = random.Random(3)
    kernels = kernels_of(play([k for _ in range(count) for k in jittered(make(), rng)])[0])
    return judge_attempt(best_attempt(kernels, of, PEAK), tuple, PEAK)


@pytest.mark.parametrize("of", [plan(), None], ids=["plan", "no plan"])
def test_layers_without_an_output_layer_are_refused(of):
    with pytest.raises(NoDecodeSteps, match="output layer"):
        judged(pooled, of)


@pytest.mark.parametrize("of", [plan(), None], ids=["plan", "no plan"])
def test_a_whole_step_is_not(of):
    assert judged(step, of)[2] == []


def missing(kernels, of, *, named=True):
    column: Column = column_of(kernels, named=named)
    return output_is_missing(fit_plan(column, of, peak_gbps=PEAK), column, of, PEAK)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("make", "of", "said"),
    [
        (pooled, plan(), True),
        (step, plan(), False),
        (lambda: drafted_step(2), drafted_plan(2), False),
    ],
    ids=["pooled", "step", "drafted"],
)
def test_time_tells_whether_an_output_layer_was_read(make, of, said, named):
    assert missing(make(), of, named=named) is (said and named)


def test_a_long_kernel_in_another_place_may_be_the_output_layer():
    """The alignment may have gone wrong; a good capture is not refused for it."""
    head = next(k for k in step() if k.matrix == "lm_head")
    assert not missing([*pooled()[:5], head, *pooled()[5:]], plan())


def test_an_output_layer_of_fewer_bits_or_in_chunks_is_there():
    head = next(k for k in step() if k.matrix == "lm_head")
    half = replace(head, ns=head.ns // 2)
    chunk = replace(head, ns=head.ns // 4)
    for parts in ([half], [chunk] * 4):
        at = step().index(head)
        assert not missing([*step()[:at], *parts, *step()[at + 1 :]], plan())


def test_without_the_layers_nothing_is_said_of_the_output_layer():
    """Another model ran: whether it has an output layer cannot be told by this plan."""
    assert not missing(pooled()[:20], plan())


def draft_model_plan(passes: int, layers: int):
    base = plan()
    blocks = [("target", base.blocks[0].reads), ("output", base.blocks[1].reads)]
    for number in range(passes):
        reads = [
            read
            for layer in range(layers)
            for read in layer_reads(layer, 1000 + 100 * number + 4 * layer, "drafter_layers", 0.5)
        ]
        blocks.append((f"draft:{number}", reads))
    return make_plan(blocks, LAYERS, draft_tokens=passes, draft_method="draft_model")


@pytest.mark.parametrize(("depth", "passes", "refused"), [
    (3, 4, True),
    (LAYERS, 4, False),  # the target's own depth: a step
    (2, 4, False),  # neither: another model, of which nothing is known
    (3, 1, False),  # one pass does not repeat within a step
])  # fmt: skip
def test_the_passes_of_a_drafter_are_no_steps(depth, passes, refused):
    of = draft_model_plan(passes, 3)
    if not refused:
        assert check_drafter_alone(depth, of) is None
        return
    with pytest.raises(NoDecodeSteps, match="passes of the drafter"):
        check_drafter_alone(depth, of)


def tokens(count, batch):
    kind = KindInfo("00000000", 20, 900, count, norm_grids=(count, 48) if count else ())
    return [notice.code for notice in check_tokens(kind, batch)]


@pytest.mark.parametrize(("count", "batch", "told"), [
    (None, 1, []),
    (1, None, []),
    (64, 1, []),  # a tree of drafts
    (512, 8, []),
    (512, 512, []),
    (64, None, []),
    (65, None, ["tokens_at_once"]),
    (1024, None, ["tokens_at_once"]),
])  # fmt: skip
def test_tokens_at_once_that_a_batch_can_have(count, batch, told):
    assert tokens(count, batch) == told


@pytest.mark.parametrize(("count", "batch"), [(2048, None), (2048, 1), (65, 1), (1025, 16)])
def test_more_tokens_at_once_are_prefill(count, batch):
    with pytest.raises(NoDecodeSteps, match=f"{count:,} tokens pass the layers at once") as caught:
        tokens(count, batch)
    assert "--batch" in caught.value.hint


@pytest.mark.parametrize(("grids", "told"), [((1400, 2800), True), ((), False)])
def test_grids_of_other_row_wise_kernels_tell_tokens_too(grids, told):
    """One name of norm; where fewer names share the grid it is only warned of."""
    kind = KindInfo("00000000", 20, 900, 1400, row_grids=grids)
    if told:
        with pytest.raises(NoDecodeSteps, match="1,400 tokens"):
            check_tokens(kind, None)
    else:
        assert [notice.code for notice in check_tokens(kind, None)] == ["tokens_at_once"]


def test_a_score_is_no_output_layer():
    """A reranker: one row behind the last layer, and nothing chooses a token."""
    score = replace(step()[-2], ns=2500, phase="output_layer")
    with pytest.raises(NoDecodeSteps, match="neither an output layer"):
        judged(lambda: [*pooled(), score], None)
