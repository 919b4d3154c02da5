"""Fitting a plan to a step: the right kernels, whatever they are called and wherever it begins."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracebook.checkpoint.plan import Read
from tracebook.kernels import habits as habits_module
from tracebook.kernels.align import Match
from tracebook.kernels.fit import (
    bytes_of,
    fit_plan,
    group_sizes,
    ratio_of,
    smallest_group_that_matters,
)
from tracebook.kernels.habits import learn_habits
from tracebook.kernels.runs import build_runs

from .toy import (
    ARGMAX,
    GBPS,
    GEMM,
    HEAD_MB,
    HEAD_ROWS,
    LAYERS,
    MB,
    K,
    column_of,
    jittered,
    layer_kernels,
    layer_reads,
    make_plan,
    plan,
    product,
    step,
    stream_ns,
)

PLAN = plan()


def placed(fit, of=PLAN):
    """Kernel -> (layer, matrices), as the fit says."""
    said = {}
    for f in fit.found:
        part = of.reads[f.first : f.end]
        for k in f.kernels:
            assert k not in said, "a kernel was used twice"
            said[k] = (part[0].layer, "+".join(r.matrix for r in part))
    return said


def true_places(kernels):
    return {i: (k.layer, k.matrix) for i, k in enumerate(kernels) if k.matrix}


def fitted(kernels, of=PLAN, *, named=True, peak=273.0):
    return fit_plan(column_of(kernels, named=named), of, peak_gbps=peak)


@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize("peak", [273.0, None], ids=["peak", "no peak"])
def test_a_clean_step_is_found_whole(named, peak):
    fit = fitted(step(), named=named, peak=peak)
    assert placed(fit) == true_places(step())
    assert fit.bandwidth_gbps == pytest.approx(GBPS, rel=0.01)
    assert fit.length == len(step())


@pytest.mark.parametrize("turn", [1, 4, 10, 23, 37, 52])
def test_where_the_sequence_begins_does_not_matter(turn):
    kernels = jittered(step(), random.Random(turn))
    turned = kernels[turn:] + kernels[:turn]
    assert placed(fitted(turned)) == true_places(turned)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_noise_of_a_tenth_moves_no_label(seed, named):
    rng = random.Random(seed)
    kernels = jittered(step(), rng, 0.08)
    assert placed(fitted(kernels, named=named)) == true_places(kernels)


def test_names_are_compared_for_equality_only():
    renamed = {name: f"k{i}" for i, name in enumerate(sorted({k.name for k in step()}))}
    kernels = [replace(k, name=renamed[k.name]) for k in step()]
    plain, other = (fitted(ks, named=False) for ks in (step(), kernels))
    assert plain == other


@pytest.mark.parametrize("factor", [2, 5, 12])
def test_a_slower_machine_has_a_smaller_bandwidth_and_the_same_labels(factor):
    """All durations times a factor: 200 GB/s become 200 / factor."""
    slow = [replace(k, ns=k.ns * factor) for k in step()]
    fit = fitted(slow, peak=273.0 / factor)
    assert placed(fit) == true_places(slow)
    assert fit.bandwidth_gbps == pytest.approx(GBPS / factor, rel=0.02)


def test_bandwidth_is_not_spoiled_by_long_kernels_that_read_no_weights():
    """Attention over a long context takes as long as all matrices together, unnamed."""
    kernels = [replace(k, ns=400_000) if "flash" in k.name else k for k in step()]
    fit = fitted(kernels, named=True)
    assert placed(fit) == true_places(kernels)
    assert fit.bandwidth_gbps == pytest.approx(GBPS, rel=0.02)


def test_a_biased_shape_keeps_its_place():
    """All down projections a quarter slower than the rest: habit, not error."""
    kernels = [replace(k, ns=int(1.25 * k.ns)) if k.matrix == "down_proj" else k for k in step()]
    assert placed(fitted(kernels)) == true_places(kernels)


def test_one_very_slow_kernel_keeps_its_place():
    kernels = step()
    kernels[21] = replace(kernels[21], ns=4 * kernels[21].ns)
    assert kernels[21].matrix
    assert placed(fitted(kernels)) == true_places(kernels)


def split_projections():
    """q, k, v, gate and up each have a kernel of their own."""
    kernels = []
    for k in step():
        parts = k.matrix.split("+")
        if len(parts) == 1:
            kernels.append(k)
            continue
        of_layer = {r.matrix: r for r in layer_reads(k.layer, 0)}
        kernels += [
            product(k.phase, k.layer, part, of_layer[part].weight_bytes / MB, part,
                    of_layer[part].rows)
            for part in parts
        ]  # fmt: skip
    return kernels


@pytest.mark.parametrize("named", [True, False])
def test_unfused_projections_are_found_one_by_one(named):
    kernels = split_projections()
    fit = fitted(kernels, named=named)
    truth = true_places(kernels)
    if named:
        assert placed(fit) == truth
    else:  # k and v are equal: only the order tells them apart
        assert placed(fit).keys() >= {i for i in truth if truth[i][1] not in ("k_proj", "v_proj")}


def chunked_head(parts=4):
    kernels = step()
    at = next(i for i, k in enumerate(kernels) if k.matrix == "lm_head")
    part = product("output_layer", None, "lm_head", HEAD_MB / parts, "head", 1600)
    return kernels[:at] + [part] * parts + kernels[at + 1 :]


def test_a_head_in_four_parts_is_one_read():
    fit = fitted(chunked_head())
    assert placed(fit) == true_places(chunked_head())
    assert bytes_of(fit, PLAN.reads).sum() == sum(r.weight_bytes for r in PLAN.reads)


@pytest.mark.parametrize("named", [True, False])
def test_parts_of_a_head_with_a_kernel_in_front_of_each_are_one_read(named):
    """An engine that quantizes before each product: nameless, that may read weights as well."""
    kernels = [k for k in step() if k.matrix != "lm_head"][:-1]
    part = product("output_layer", None, "lm_head", HEAD_MB / 4, "head", HEAD_ROWS)
    for _ in range(4):
        kernels += [K("quantize", 2600, "output_layer"), part]
    kernels.append(K(ARGMAX, 7000, "sampling"))
    fit = fitted(kernels, named=named)
    assert placed(fit) == true_places(kernels)
    shares = bytes_of(fit, PLAN.reads)[[i for i, k in enumerate(kernels) if k.matrix == "lm_head"]]
    assert shares.tolist() == [HEAD_MB * MB // 4] * 4


def test_a_product_that_takes_no_longer_than_glue_need_not_be_a_matrix():
    """2.2 us a launch and 7,000 GB/s: a product of a few rows is as long as a norm.

    Held against a launch of 1.5 us it is long enough for a matrix, and others make way for it.
    """
    sizes = {"qkv": 25.2, "ba": 0.0, "o": 8.4, "gate+up": 25.2, "down": 12.6}
    kernels, reads = [], []
    for layer in range(8):
        for group, (name, mb) in enumerate(sizes.items(), start=5 * layer):
            ns, matrix = 2200 + round(mb * MB / 7000), name if mb else ""
            tile = {"gate+up": "qkv"}.get(name, name)
            made = K(GEMM.format(tile), ns, "target_layers", layer, matrix)
            kernels += (
                [made] if name == "ba" else [K(f"before {name}", 2500, "target_layers"), made]
            )
            ops = matrix.split("+") if matrix else []
            reads += [
                Read("target_layers", layer, op, op, round(mb * MB / len(ops)), None, group,
                     family=op)
                for op in ops
            ]  # fmt: skip
    of = make_plan([("target", reads)], 8)
    assert placed(fitted(kernels, of, named=False, peak=7700.0), of) == true_places(kernels)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("turn", [0, 30, 51])
def test_a_head_behind_a_product_of_no_plan_is_still_the_last_read(turn, parts):
    """In a cycle nothing outside its ends costs: without its head the step avoids the product."""
    kernels = chunked_head(parts)
    at = next(i for i, k in enumerate(kernels) if k.matrix == "lm_head")
    kernels[at:at] = [replace(kernels[at], name=GEMM.format("odd"), ns=60_000, matrix="")]
    kernels = kernels[turn:] + kernels[:turn]
    assert placed(fitted(kernels)) == true_places(kernels)


def drafted(passes=3, parts=4, layers=LAYERS):
    """A step of a drafter of one layer that reads the target's head once a pass, in parts."""
    kernels = chunked_head(parts)
    target = layer_kernels(0, "drafter_layers")
    head = product("draft_head", None, "lm_head", HEAD_MB / parts, "head", HEAD_ROWS // parts)
    for _ in range(passes):
        fc = product("drafter_layers", None, "fc", 12, "fc", 1024)
        kernels += [fc, *target, *[head] * parts, K(ARGMAX, 7000, "sampling", grid=(25, 1, 1))]
    blocks, group = [(b.name, b.reads) for b in plan(layers).blocks], 900
    for number in range(passes):
        fc = Read("drafter_layers", None, "fc", "fc", 12 * MB, 1024, group, family="fc")
        layer = layer_reads(0, group + 1, "drafter_layers")
        last = replace(PLAN.blocks[1].reads[0], phase="draft_head", group=group + 9)
        blocks += [(f"draft:{number}", [fc, *layer]), (f"draft_head:{number}", [last])]
        group += 10
    return kernels, make_plan(blocks, layers)


@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize("turn", [0, 20, 49, 51, 60, 75])
def test_heads_in_parts_do_not_move_where_a_step_with_drafts_begins(turn, named):
    """Sixteen large kernels for four heads: laid one by one, they fit a step begun elsewhere."""
    kernels, of = drafted()
    kernels = kernels[turn:] + kernels[:turn]
    fit = fitted(kernels, of, named=named)
    assert placed(fit, of) == true_places(kernels)
    phases = {k: of.reads[f.first].phase for f in fit.found for k in f.kernels}
    assert phases == {i: k.phase for i, k in enumerate(kernels) if k.matrix}


def test_shared_bytes_are_whole_numbers_that_add_up():
    """100,000,001 bytes over three kernels: 33,333,333 each, and 2 more for the first."""
    odd = plan(head_mb=100.000_001)
    fit = fitted(chunked_head(3), odd)
    head = [k for k in fit.found if odd.reads[k.first].matrix == "lm_head"]
    shares = bytes_of(fit, odd.reads)
    assert len(head) == 1
    assert sorted(shares[list(head[0].kernels)].tolist()) == [33_333_333, 33_333_333, 33_333_335]
    assert shares.dtype == np.int64


def test_optional_reads_may_be_absent_and_are_found_where_present():
    copy = Read("drafter_layers", None, "kv_copy", "kv", 20 * MB, 512, 900, optional=True)
    base = plan()
    with_copy = make_plan(
        [("target", base.blocks[0].reads), ("output", base.blocks[1].reads),
         ("draft_context", [copy])], LAYERS)  # fmt: skip
    assert placed(fitted(step(), with_copy), with_copy) == true_places(step())
    more = [*step(), product("drafter_layers", None, "kv", 20, "kv", 512)]
    assert placed(fitted(more, with_copy), with_copy) == true_places(more)


def small_reads(mb=0.15):
    """Each layer has a small router behind its attention output."""
    kernels, reads = [], []
    for k in step():
        kernels.append(k)
        if k.matrix == "o_proj":
            kernels.append(product("target_layers", k.layer, "router", mb, "router", 64))
    for layer in range(LAYERS):
        for read in layer_reads(layer, 5 * layer):
            if read.op == "gate":
                reads.append(Read("target_layers", layer, "router", "router", round(mb * MB), 64,
                                  5 * layer + 4, family="router"))  # fmt: skip
            reads.append(read)
    return kernels, make_plan([("target", reads), ("output", PLAN.blocks[1].reads)], LAYERS)


@pytest.mark.parametrize("mb", [0.1, 0.15, 1.0])
def test_small_matrices_are_placed_between_the_large_ones(mb):
    kernels, of = small_reads(mb)
    assert placed(fitted(kernels, of), of) == true_places(kernels)


def test_one_small_kernel_is_not_the_first_and_the_last_read_of_a_step():
    """Two reads of 0.13 MB at the ends of the plan, one kernel for them."""
    kernels, of = small_reads()
    kernels = [product("target_layers", 0, "first", 0.13, "small", 64), *kernels]
    first, last = (
        Read("target_layers", None, name, name, 130_000, 64, group, family=name)
        for name, group in (("first", 900), ("last", 901))
    )
    head = [*of.blocks[1].reads, last]
    of = make_plan([("target", [first, *of.blocks[0].reads]), ("output", head)], LAYERS)
    fit = fitted(kernels, of)
    assert placed(fit, of)[0][1] in ("first", "last")
    found = sum(of.reads[i].weight_bytes for f in fit.found for i in range(f.first, f.end))
    assert bytes_of(fit, of.reads).sum() == found


def test_nothing_that_could_read_the_plan():
    """Glue of 2 us against matrices of 100 us and more."""
    assert fitted([K("norm", 2000, "")] * 60) is None


def test_the_right_plan_costs_least():
    """One layer more or less, and a head of half the size, all cost more."""
    right = fitted(step()).cost
    for wrong in (plan(LAYERS - 1), plan(LAYERS + 1), plan(head_mb=HEAD_MB / 2)):
        assert fitted(step(), wrong).cost > right + 1


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_laws_of_any_fit(data):
    """On any durations at all: nothing is used twice, order holds, bytes are whole and add up."""
    long = st.integers(12_000, 700_000)
    durations = data.draw(st.lists(long, min_size=8, max_size=20))
    durations += data.draw(st.lists(st.integers(1000, 9000), max_size=10))
    durations = data.draw(st.permutations(durations))
    count = len(durations)
    kernels = [K(f"n{data.draw(st.integers(0, 4))}", ns, "") for ns in durations]
    of = plan(2)
    fit = fitted(kernels, of, named=False)
    assume(fit is not None)
    used = [k for f in fit.found for k in f.kernels]
    assert len(used) == len(set(used))
    assert set(used) <= set(range(count))
    reads = [i for f in fit.found for i in range(f.first, f.end)]
    assert reads == sorted(set(reads))
    for f in fit.found:
        assert len({of.reads[i].group for i in range(f.first, f.end)}) == 1
    shares = bytes_of(fit, of.reads)
    assert shares.shape == (count,)
    assert (shares >= 0).all()
    assert int(shares.sum()) == sum(of.reads[i].weight_bytes for i in reads)
    assert set(np.flatnonzero(shares).tolist()) <= set(used)
    assert 0 < fit.bandwidth_gbps <= 1.1 * 273
    # The groups follow each other once round the step (an engine may launch the small
    # parts of a group in front of its large ones).
    groups = [
        [k for f in part for k in f.kernels]
        for _, part in itertools.groupby(fit.found, key=lambda f: of.reads[f.first].group)
    ]

    def follow(turn):
        turned = [[(k - turn) % count for k in group] for group in groups]
        return all(max(a) < min(b) for a, b in itertools.pairwise(turned))

    assert any(follow(turn) for turn in range(count))


def test_a_plan_that_is_not_found_on_a_few_long_kernels_is_no_crash():
    """One layer of four products and its head, told to be two layers."""
    fit = fitted(step(1), plan(2))
    kernels = [k for found in fit.found for k in found.kernels]
    assert len(kernels) == len(set(kernels))
    wanted = sum(read.weight_bytes for read in plan(2).reads)
    assert sum(bytes_of(fit, plan(2).reads)) < 0.8 * wanted


# ---- parts ----------------------------------------------------------------------------------


def test_groups_are_summed():
    sizes = group_sizes(plan(1).reads)
    assert sizes == {0: 18 * MB, 1: 14 * MB, 2: 48 * MB, 3: 30 * MB, 4: 100 * MB}


def test_the_smallest_group_that_matters_leaves_out_two_percent():
    """210 MB: a router of 1 MB is under 2 %, the 14 MB projection is not."""
    router = Read("target_layers", 0, "router", "router", MB, 64, 77)
    unread = Read("target_layers", 0, "x", "x", 2, 1, 78, optional=True)
    assert smallest_group_that_matters((*plan(1).reads, router, unread)) == 14 * MB


def test_measured_over_expected_time():
    """Gates and ups take 1.5 times what they should."""
    kernels = [replace(k, ns=int(1.5 * k.ns)) if "gate" in k.matrix else k for k in step()]
    column, fit = column_of(kernels), fitted(kernels)
    fixed = replace(fit, bandwidth_gbps=GBPS)
    for f, ratio in zip(fixed.found, ratio_of(fixed, column, PLAN.reads), strict=True):
        expected = 1.5 if PLAN.reads[f.first].op == "gate" else 1.0
        assert ratio == pytest.approx(expected, rel=0.001)


def test_habits_are_damped_medians_and_odd_names():
    """Three matches 30 % slow: ln(1.3) x 3/5. A name that never served the kind is odd."""
    reads = [Read("t", i, "x", "x", 10 * MB, None, i, family="x") for i in range(4)]
    runs = build_runs(reads)
    slow = round(1.3 * stream_ns(10 * MB))
    made = [K("a", slow, "", weight_bytes=1)] * 3 + [K("b", stream_ns(10 * MB), "")]
    column = column_of(made, named=False)
    matches = [Match(i, i + 1, i, i + 1) for i in range(3)]
    habits = learn_habits(column, runs, matches, GBPS)
    assert habits.bias[0] == pytest.approx(np.log(1.3) * 3 / 5, rel=1e-3)
    assert habits.bias[1] == 0
    assert habits.odd[0, 0] == 0
    assert habits.odd[1, 0] > 0


def test_bias_is_bounded():
    reads = [Read("t", i, "x", "x", 10 * MB, None, i, family="x") for i in range(9)]
    column = column_of([K("a", 5 * stream_ns(10 * MB), "")] * 9, named=False)
    matches = [Match(i, i + 1, i, i + 1) for i in range(9)]
    habits = learn_habits(column, build_runs(reads), matches, GBPS)
    assert habits.bias.tolist() == [habits_module.MAX_BIAS]


@pytest.mark.parametrize("ms", [0.05, 0.2, 1.0, 5.0])
def test_nameless_attention_of_any_length_is_no_matrix(ms):
    """A long context: attention lasts as long as a matrix of the layer, or as all together."""
    kernels = [replace(k, ns=round(1e6 * ms)) if "flash" in k.name else k for k in step()]
    fit = fitted(kernels, named=False)
    assert placed(fit) == true_places(kernels)
    assert fit.bandwidth_gbps == pytest.approx(GBPS, rel=0.02)


def test_of_unequal_projections_each_has_its_kernel_in_every_layer():
    """q is nearly all of q, k and v: its kernel may seem to read the three of them."""
    small = {"q": 16.8, "k": 2.1, "v": 2.1}
    kernels, reads = [], []
    for layer in range(LAYERS):
        for k in step()[2 + 8 * layer : 10 + 8 * layer]:
            if k.matrix != "q_proj+k_proj+v_proj":
                kernels.append(k)
                continue
            for op, mb in small.items():
                made = product("target_layers", layer, f"{op}_proj", mb, op, 1024)
                kernels.append(replace(made, ns=made.ns + 2000))
        for read in PLAN.blocks[0].reads[7 * layer : 7 * layer + 7]:
            mb = small.get(read.op)
            reads.append(replace(read, weight_bytes=round(mb * MB)) if mb else read)
    of = make_plan([("target", reads)], LAYERS)
    assert placed(fitted(kernels, of), of) == true_places(kernels)


def small_layer(layer, kernels):
    """A layer all of whose matrices take about as long: attention tells where it begins."""
    sizes = {"q+k+v": 4.2, "o": 2.1, "gate+up": 6.3, "down": 3.15}
    glue, attention = kernels[0], kernels[2]
    products = [product("target_layers", layer, "+".join(f"{op}_proj" for op in ops.split("+")),
                        mb / 10, "any", 1024) for ops, mb in sizes.items()]  # fmt: skip
    qkv, o, gate_up, down = (replace(k, grid=(1, 1, 1)) for k in products)
    return [glue, qkv, attention, o, glue, gate_up, down]


@pytest.mark.parametrize("turn", [0, 9, 23])
@pytest.mark.parametrize("parts", [1, 2])
def test_attention_that_names_tell_keeps_the_layers_in_place(turn, parts):
    """A tiny model on a fast machine: launches are most of each product, the head is in parts."""
    kernels = [k for i in range(LAYERS) for k in small_layer(i, layer_kernels(i))]
    head = product("output_layer", None, "lm_head", 15 / parts, "head", HEAD_ROWS)
    kernels += [replace(head, ns=round(1.2 * head.ns))] * parts
    turned = kernels[turn:] + kernels[:turn]
    sizes = {"q": 2.1, "k": 1.05, "v": 1.05, "o": 2.1, "gate": 3.15, "up": 3.15, "down": 3.15}
    reads = [
        replace(read, weight_bytes=round(sizes[read.op] * MB / 10))
        for i in range(LAYERS)
        for read in layer_reads(i, 4 * i)
    ]
    head_read = Read("output_layer", None, "head", "lm_head", 15 * MB, HEAD_ROWS, 99, family="head")
    of = make_plan([("target", reads), ("output", [head_read])], LAYERS)
    fit = fitted(turned, of)
    said = placed(fit, of)
    assert {k: where for k, where in said.items()} == true_places(turned)


def test_small_reads_in_front_of_the_first_group_are_found_as_in_the_others():
    """b and a of a recurrence are launched before q, k, v: in the first layer as well."""
    kernels, reads = [], []
    for layer in range(LAYERS):
        inner = layer_kernels(layer)
        small = product("target_layers", layer, "ba_proj", 0.25, "ba", 64)
        kernels += [inner[0], small, *inner[1:]]
        own = layer_reads(layer, 4 * layer)
        ba = Read("target_layers", layer, "ba", "ba_proj", MB // 4, 64, 4 * layer, family="ba")
        reads += [*own[:3], ba, *own[3:]]
    kernels += step()[-3:]
    of = make_plan([("target", reads), ("output", PLAN.blocks[1].reads)], LAYERS)
    for turn in (0, 3, 30):
        turned = kernels[turn:] + kernels[:turn]
        assert placed(fitted(turned, of), of) == true_places(turned)


def in_ranks(kernels, ns=12_000):
    """A nameless step in which two ranks add up behind the output and the down projections."""
    added = []
    for k in kernels:
        added.append(k)
        if k.matrix in ("o_proj", "down_proj"):
            added.append(K("kernel", ns, "communication", k.layer))
    return added


@pytest.mark.parametrize("ns", [6_000, 12_000, 90_000])
def test_collectives_that_no_name_tells_stand_behind_both_halves_of_a_layer(ns):
    kernels = jittered(in_ranks(step(), ns), random.Random(ns))
    fit = fitted(kernels, replace(PLAN, ranks=2), named=False)
    assert placed(fit) == true_places(kernels)
    assert fit.collectives == tuple(i for i, k in enumerate(kernels) if k.phase == "communication")


def test_one_rank_adds_nothing_up():
    kernels = in_ranks(step())
    assert fitted(kernels, named=False).collectives == ()
    assert fitted(step(), replace(PLAN, ranks=2), named=False).collectives == ()


@pytest.mark.parametrize("turn", [0, 5, 20])
@pytest.mark.parametrize("launch_ns", [1500, 2300])
def test_products_of_a_tiny_model_take_a_launch_unlike_that_of_glue(launch_ns, turn):
    """Nameless, attention over a long context outlasts the head, and glue takes 2.8 us."""
    scale = 0.25

    def timed(k):
        if k.matrix:
            return replace(k, ns=round(launch_ns + k.weight_bytes / 1500))
        return replace(k, ns=70_000 if "flash" in k.name else 2800)

    kernels = [k for i in range(LAYERS) for k in layer_kernels(i, scale=scale)]
    head = product("output_layer", None, "lm_head", HEAD_MB, "head", HEAD_ROWS)
    kernels = [timed(k) for k in [*kernels, head, K(ARGMAX, 2800, "sampling")]]
    kernels = kernels[turn:] + kernels[:turn]
    of = plan(scale=scale)
    fit = fitted(kernels, of, named=False, peak=1800.0)
    assert placed(fit, of) == true_places(kernels)


def test_projections_as_short_as_glue_do_not_make_their_neighbour_read_them_too():
    """Of q, k and v on a kernel each the last two take no longer than glue of 2.6 us."""
    glue_ns, kernels, reads = 2600, [], []
    sizes = {"q": 4.7, "k": 1.2, "v": 1.2}
    for layer in range(LAYERS):
        inner = layer_kernels(layer, scale=0.4)
        apart = [
            replace(product("target_layers", layer, f"{op}_proj", mb, "any", 512), grid=(0, 0, 0))
            for op, mb in sizes.items()
        ]
        apart = [replace(k, ns=round(1500 + k.weight_bytes / 1500)) for k in apart]
        rest = [
            replace(k, ns=round(1500 + k.weight_bytes / 1500) if k.matrix else glue_ns)
            for k in [inner[0], *inner[2:]]
        ]
        kernels += [rest[0], *apart, *rest[1:]]
        reads += [
            replace(r, weight_bytes=round(sizes.get(r.op, r.weight_bytes / MB) * MB))
            for r in layer_reads(layer, 4 * layer, scale=0.4)
        ]
    head = product("output_layer", None, "lm_head", HEAD_MB, "head", HEAD_ROWS)
    kernels += [replace(head, ns=round(1500 + HEAD_MB * MB / 1500)), K(ARGMAX, glue_ns, "sampling")]
    of = make_plan([("target", reads), ("output", PLAN.blocks[1].reads)], LAYERS)
    fit = fitted(kernels, of, named=False, peak=1800.0)
    said = placed(fit, of)
    large = {i for i, k in enumerate(kernels) if k.matrix and k.ns > 3000}
    assert {i: said[i] for i in large} == {i: true_places(kernels)[i] for i in large}
