"""Which period, kind and plan are believed, and what is said where none is."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tracebook.errors import NoDecodeSteps
from tracebook.kernels.attempts import _by_floor, _is_several, best_attempt
from tracebook.kernels.doubt import judge_attempt
from tracebook.kernels.period import Period
from tracebook.kernels.search import find_kinds

from .toy import (
    ARGMAX,
    HEAD_MB,
    LAYERS,
    NORM,
    K,
    drafted_plan,
    drafted_step,
    jittered,
    kernels_of,
    plan,
    play,
    step,
)

PEAK = 273.0


def steps_of(make, count=8, seed=0):
    rng = random.Random(seed)
    return [k for _ in range(count) for k in jittered(make(), rng)]


def attempt(kernels, of, peak=PEAK):
    return best_attempt(kernels_of(play(kernels)[0]), of, peak)


def judged(kernels, said, others=()):
    made = attempt(kernels, said)
    made, verdict, notices = judge_attempt(made, lambda: list(others), PEAK)
    return made, verdict, [notice.code for notice in notices]


def fits(made, of):
    return made.plan == of


@pytest.mark.parametrize("make", [step, lambda: drafted_step(2)], ids=["plain", "drafted"])
def test_the_template_is_one_step(make):
    of = plan() if make is step else drafted_plan(2)
    made = attempt(steps_of(make), of)
    assert len(made.template.symbol) == len(make())
    assert made.goodness == pytest.approx(1, abs=0.03)
    assert made.other_kinds == ()


def with_batch_of_two(changes):
    """Nine steps of batch one, six of batch two between them, whose grids are other ones."""
    two = [replace(k, grid=(2 * k.grid[0], *k.grid[1:])) if changes(k) else k for k in step()]
    return steps_of(step, 5) + two * 6 + steps_of(step, 4, seed=2)


@pytest.mark.parametrize(
    "changes",
    [lambda k: not k.weight_bytes, lambda k: k.phase != "prepare"],
    ids=["glue", "all but preparation"],
)
def test_other_kinds_are_counted_and_not_taken(changes):
    made = attempt(with_batch_of_two(changes), plan())
    # A slice begins at its anchor, so that one at each change holds parts of two steps.
    assert len(made.template.slices) in (7, 8, 9)
    assert sum(len(kind.slices) for kind in made.other_kinds) in (6, 7, 8)


def test_another_kind_that_shares_no_kernel_is_counted_too():
    made = attempt(with_batch_of_two(lambda k: True), plan())
    assert len(made.template.slices) in (7, 8, 9)
    assert sum(len(kind.slices) for kind in made.other_kinds) in (5, 6, 7, 8)


def tuning():
    """Each product alone, behind a delay, on four tactics, three times each."""
    return [
        k
        for product in step()
        if product.matrix
        for tactic in range(4)
        for k in [K("delay_kernel", 9000, ""), *[replace(product, name=f"gemm_{tactic}")] * 3]
    ]


@pytest.mark.parametrize("of", [plan(), None], ids=["plan", "no plan"])
@pytest.mark.parametrize(
    ("kernels", "says"),
    [
        ([], "0 kernels"),
        (step()[:9], "9 kernels"),
        ([K(f"k{i}", 9000 + i, "") for i in range(400)], "no sequence of kernels repeats"),
        ([K("void at::native::multi_tensor_apply_kernel<Adam>(T)", 90_000, ""), *step()] * 6,
         "training"),
        ([K(NORM, 2000, ""), K(ARGMAX, 3000, "")] * 400, "No (steady )?decode"),
        (tuning(), "autotuning"),
    ],
    ids=["nothing", "few", "noise", "training", "loop", "autotuning"],
)  # fmt: skip
def test_no_decode_is_said_with_its_reason(kernels, says, of):
    with pytest.raises(NoDecodeSteps, match=says) as caught:
        attempt(kernels, of)
    assert caught.value.hint


def test_another_model_altogether_is_refused():
    """The plan's step takes forty times as long as anything that repeats here."""
    with pytest.raises(NoDecodeSteps):
        attempt(steps_of(step), plan(scale=40, head_mb=40 * HEAD_MB))


def test_a_right_plan_asks_for_no_alternatives():
    made, verdict, notices = judge_attempt(
        attempt(steps_of(step), plan()), lambda: pytest.fail("asked"), PEAK
    )
    assert notices == []
    assert verdict.bytes_trusted
    assert fits(made, plan())


@pytest.mark.parametrize("said", [1, 3, 4])
def test_another_number_of_draft_tokens_is_found(said):
    right = drafted_plan(2)
    made, verdict, codes = judged(
        steps_of(lambda: drafted_step(2)), drafted_plan(said), [drafted_plan(n) for n in (1, 2, 3)]
    )
    assert fits(made, right)
    assert "plan_contradicted" in codes
    assert verdict.bytes_trusted


def test_a_forgotten_drafter_is_found():
    made, _, codes = judged(steps_of(lambda: drafted_step(2)), plan(), [drafted_plan(2)])
    assert fits(made, drafted_plan(2))
    assert "plan_contradicted" in codes


def test_an_invented_drafter_is_found():
    made, _, codes = judged(steps_of(step), drafted_plan(2), [plan()])
    assert fits(made, plan())
    assert "plan_contradicted" in codes


def test_a_wrong_plan_is_not_replaced_by_one_that_fits_no_better():
    """Two more layers than ran, and the only other offer has four more."""
    _, verdict, codes = judged(steps_of(step), plan(LAYERS + 2), [plan(LAYERS + 4)])
    assert "plan_contradicted" not in codes
    assert codes
    assert not verdict.bytes_trusted


def test_ranks_without_collectives_are_doubted():
    _, _, codes = judged(steps_of(step), replace(plan(), ranks=2))
    assert "no_rank_collectives" in codes


def shared(ranks):
    """A step with a collective behind o and down, made for so many ranks."""
    name = f"void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int){ranks}>(T1 *)"
    kernels = []
    for k in step():
        kernels.append(k)
        if k.matrix in ("o_proj", "down_proj"):
            kernels.append(K(name, 9000, "communication"))
    return kernels


def test_ranks_that_names_contradict_are_replaced_by_those_that_they_tell():
    """Shares of bytes fit as well by any number of ranks; the names decide."""
    others = [replace(plan(scale=4 / n, head_mb=4 * HEAD_MB / n), ranks=n) for n in (1, 2, 4, 8)]
    made, _, codes = judged(steps_of(lambda: shared(4)), others[1], [others[0], *others[2:]])
    assert made.plan.ranks == 4
    assert "plan_contradicted" in codes
    made, verdict, codes = judged(steps_of(lambda: shared(4)), others[2], others)
    assert codes == []
    assert verdict.bytes_trusted


def test_without_a_plan_there_are_marks_from_structure_and_no_verdict():
    made = attempt(steps_of(step), None)
    assert made.fit is None
    assert len(made.marks.marks) == 4 * LAYERS + 1
    assert judge_attempt(made, tuple, PEAK)[1:] == (None, [])


def test_of_steps_in_a_row_the_shortest_that_is_long_enough_comes_first():
    """Kernels of 1 us: a layer of 10, a step of 100; three steps score a little better."""
    before_ns = np.arange(2001) * 1000
    layer, one, three, odd = Period(10, 0.95), Period(100, 0.9), Period(300, 0.93), Period(140, 0.5)
    assert _by_floor([layer, three, odd, one], before_ns, 90_000.0) == [one, three, odd, layer]


def test_what_is_several_of_a_period():
    assert _is_several(1810, [905])
    assert _is_several(2712, [905])
    assert not _is_several(905, [905])
    assert not _is_several(1500, [905])


def test_several_steps_in_a_row_do_not_explain_an_invented_drafter():
    """Passes of a model hold kernels for any drafter; one step does not."""
    made = attempt(steps_of(step, count=20), drafted_plan(2))
    assert len(made.template.symbol) == len(step())
    assert made.goodness < 0.7


def test_layers_of_a_prompt_are_no_kinds_of_step():
    """Prompts in front of the steps: their layers repeat more often than any step does."""
    layer = [replace(k, grid=(40, 1, 1), ns=4 * k.ns) for k in step()[2:10]]
    sequence = kernels_of(play([*layer * 120, *steps_of(step, count=8)])[0])
    _, kinds = find_kinds(sequence, len(step()), lambda lag: True, sequence.symbol)
    assert {piece.end - piece.first for piece in kinds[0].slices} == {len(step())}
