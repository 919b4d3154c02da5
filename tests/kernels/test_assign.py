"""Phases of what stands between matrices: zones, names with one meaning, launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracebook.kernels.assign import assign_labels
from tracebook.kernels.classes import CLASSES, builtin_rules, classify_names
from tracebook.kernels.marks import PHASE_OF_BLOCK, BlockMark, Mark, Marks
from tracebook.kernels.zones import Facts, find_zones

from .test_classes import name_frame
from .toy import (
    ARGMAX,
    EMBED,
    LAYERS,
    NORM,
    PREPARE,
    VERIFY,
    K,
    drafted_step,
    layer_kernels,
    product,
    step,
)

COMMIT = "_commit_gdn_state_kernel"
QUANT = "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, (bool)0>(int)"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float>(T)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
NAMELESS = "k_17"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel>(T)"
BLOCK_OF = {"target_layers": "target", "output_layer": "output", "drafter_layers": "draft",
            "draft_head": "draft_head"}  # fmt: skip


def marks_of(kernels):
    """A mark on each product, as a perfect alignment would set it; passes count the heads."""
    blocks, marks, number = [], [], 0
    for position, k in enumerate(kernels):
        if not k.matrix:
            continue
        name = BLOCK_OF[k.phase]
        if not blocks or blocks[-1].name != name:
            number += name == "draft" and any(b.name == "draft" for b in blocks)
            index = number if name.startswith("draft") else 0
            blocks.append(BlockMark(name, PHASE_OF_BLOCK[name].value, index))
        marks.append(
            Mark(
                position, len(blocks) - 1, k.layer, k.matrix, k.matrix, k.weight_bytes, "alignment"
            )
        )
    return Marks(tuple(blocks), tuple(marks))


def facts_of(kernels, **more):
    names = [k.name for k in kernels]
    found = classify_names(name_frame(names), builtin_rules())["kernel_class"]
    launches = np.cumsum(
        [not (k.graph and i and kernels[i - 1].graph) for i, k in enumerate(kernels)]
    )
    distinct = list(dict.fromkeys(names))
    values = {
        "kernel_class": np.array([CLASSES.index(c) for c in found]),
        "duration_ns": np.array([float(k.ns) for k in kernels]),
        "launch": launches,
        "in_graph": np.array([k.graph for k in kernels]),
        "name": np.array([distinct.index(name) for name in names]),
        "foreign": np.zeros(len(kernels), dtype=bool),
        "collective": np.zeros(len(kernels), dtype=bool),
        "speculative": any(k.phase.startswith("draft") for k in kernels),
        "recurrent": False,
    }
    return Facts(**(values | more))


def labels(kernels, cut=0, **more):
    return assign_labels(marks_of(kernels), facts_of(kernels, **more), cut)


def phases(kernels, cut=0, **more):
    return [label.phase for label in labels(kernels, cut, **more)]


def truth(kernels):
    return [k.phase for k in kernels]


def graphed(kernels):
    """The target's layers as one graph, all else eager; a drafter's layers and head another."""
    return [
        replace(k, graph=k.phase in ("target_layers", "drafter_layers", "draft_head"))
        for k in kernels
    ]


@pytest.mark.parametrize(
    "kernels",
    [step(), drafted_step(1), drafted_step(3), graphed(step()), graphed(drafted_step(1))],
    ids=["plain", "one draft", "three drafts", "graph", "graph and draft"],
)
def test_every_kernel_of_a_step_gets_its_phase(kernels):
    assert phases(kernels) == truth(kernels)


@pytest.mark.parametrize("turn", [1, 7, 30, 50, 60])
def test_rotation_does_not_change_phases(turn):
    kernels = drafted_step(2)
    turned = kernels[turn:] + kernels[:turn]
    assert phases(turned, cut=len(kernels) - turn) == truth(turned)


def test_marks_keep_what_the_alignment_said():
    kernels = drafted_step(2)
    for k, label in zip(kernels, labels(kernels), strict=True):
        if k.matrix:
            assert (label.layer, label.matrix, label.weight_bytes, label.evidence) == (
                k.layer, k.matrix, k.weight_bytes, "alignment",
            )  # fmt: skip
        else:
            assert label.weight_bytes is None
            assert label.matrix is None


def test_glue_in_a_layer_has_its_layer():
    for k, label in zip(step(), labels(step()), strict=True):
        if k.layer is not None:
            assert label.layer == k.layer


def test_draft_passes_are_counted_from_zero_and_only_in_drafting():
    kernels = drafted_step(2)
    of_head = [x.pass_index for k, x in zip(kernels, labels(kernels), strict=True)
               if k.phase == "draft_head" and k.matrix]  # fmt: skip
    assert of_head == [0, 1]
    assert {x.pass_index for k, x in zip(kernels, labels(kernels), strict=True)
            if k.phase in ("target_layers", "output_layer")} == {None}  # fmt: skip


def insert(kernels, behind, *new):
    """New kernels behind the first one that a test picks."""
    at = next(i for i, k in enumerate(kernels) if behind(k)) + 1
    return [*kernels[:at], *new, *kernels[at:]]


def is_head(k):
    return k.phase == "output_layer"


def test_the_conventions_of_the_output_layer():
    """Quantisation in front of the head is the head's, casts and softmax on logits sampling."""
    kernels = step()
    at = next(i for i, k in enumerate(kernels) if is_head(k))
    cast = K("void at::native::elementwise_kernel<128, float_copy>(T)", 3000, "sampling")
    kernels = [
        *kernels[:at], K(QUANT, 2000, "output_layer"), kernels[at], K(REDUCE, 3000, "output_layer"),
        cast, *kernels[at + 1 :],
    ]  # fmt: skip
    assert phases(kernels) == truth(kernels)


def test_collectives_are_communication_wherever_they_stand():
    kernels = step()
    for behind in (lambda k: k.matrix == "o_proj", is_head):
        kernels = insert(kernels, behind, K(ALLREDUCE, 9000, "communication"))
    assert phases(kernels) == truth(kernels)


def test_a_collective_that_only_its_place_tells_ends_what_a_layer_does():
    """A nameless kernel behind the down projection, between two others that no name tells."""
    kernels = step()
    down = next(i for i, k in enumerate(kernels) if (k.matrix, k.layer) == ("down_proj", 2))
    untold = [K("kernel", 2500, "target_layers", 2), K("kernel", 9000, "communication")]
    kernels[down + 1 : down + 1] = [*untold, K("kernel", 2400, "target_layers", 3)]
    collective = np.arange(len(kernels)) == down + 2
    said = labels(kernels, collective=collective)
    assert [(x.phase, x.layer) for x in said[down + 1 : down + 4]] == [
        ("target_layers", 2),
        ("communication", None),
        ("target_layers", 3),
    ]
    assert said[down + 2].evidence == "alignment"


def test_a_named_commit_is_replay():
    kernels = insert(drafted_step(1), lambda k: k.name == VERIFY, K(COMMIT, 700_000, "replay"))
    assert phases(kernels) == truth(kernels)


def test_a_nameless_long_kernel_behind_the_verdict_is_replay_in_a_recurrent_model():
    kernels = insert(drafted_step(1), lambda k: k.name == VERIFY, K(NAMELESS, 700_000, "replay"))
    assert phases(kernels, recurrent=True) == truth(kernels)
    assert "replay" not in phases(kernels, recurrent=False)


def test_a_nameless_long_kernel_in_front_of_a_sampler_is_no_commit():
    """A scan of sorted probabilities, say: what is committed goes by the verdict."""
    kernels = drafted_step(1)
    at = next(i for i, k in enumerate(kernels) if k.name == VERIFY)
    kernels = [*kernels[:at], K(NAMELESS, 700_000, "sampling"), *kernels[at:]]
    assert phases(kernels, recurrent=True) == truth(kernels)


def test_of_two_norms_between_layers_the_first_ends_one():
    """Gemma has one behind its last matrix as well."""
    kernels = []
    for k in step():
        kernels.append(k)
        if k.matrix == "down_proj":
            kernels.append(K(NORM, 2300, "target_layers", k.layer))
    for k, label in zip(kernels, labels(kernels), strict=True):
        if k.layer is not None and k.layer < LAYERS - 1:
            assert label.layer == k.layer


def test_what_is_written_for_the_verify_pass_is_its_preparation():
    """Behind what the drafter hands on: a copy of the draft, then buffers of the target."""
    kernels = drafted_step(1)
    kernels += [K(COPY, 1500, "draft_head"), K(COPY, 1600, "prepare")]
    assert phases(kernels) == truth(kernels)


def test_a_product_that_the_plan_does_not_know_stays_unclassified():
    """Between sampling and the next step a foreign matrix is read: nobody can know for what."""
    kernels = step()
    foreign = replace(
        product("unclassified", None, "x", 50, "foreign", 512), matrix="", weight_bytes=0
    )
    kernels.append(foreign)
    mask = np.array([k is foreign for k in kernels])
    found = labels(kernels, foreign=mask)
    assert found[-1].phase == "unclassified"
    assert found[-1].evidence == "none"


def test_all_names_lost_layers_and_heads_stay():
    """Every kernel unknown: matrices are marked, glue inside layers follows them."""
    kernels = [
        replace(k, name=f"k{sorted({x.name for x in step()}).index(k.name)}") for k in step()
    ]
    for k, phase in zip(kernels, phases(kernels), strict=True):
        if k.matrix or k.layer is not None:
            assert phase == k.phase


def test_preparation_stands_before_the_layers_even_without_a_cut():
    kernels = step()
    for cut in (0, None):
        found = phases(kernels, cut)
        assert found[0] == "prepare"
        assert found[1] == "target_layers"


def test_a_sampler_of_several_kernels():
    kernels = step()
    glue = "void at::native::elementwise_kernel<128, add>(T)"
    names = ("_temperature_kernel", "_gumbel_sample_kernel", glue)
    more = [K(name, 3000, "sampling") for name in names]
    kernels = insert(kernels, is_head, *more)
    assert phases(kernels) == truth(kernels)


def test_zones_lie_between_blocks_and_round_the_end():
    kernels = drafted_step(1)
    zones = find_zones(marks_of(kernels), len(kernels))
    assert [(z.before.name, z.after.name) for z in zones] == [
        ("target", "output"),
        ("output", "draft"),
        ("draft", "draft_head"),
        ("draft_head", "target"),
    ]
    last = zones[-1].positions
    assert last == (len(kernels) - 1, 0, 1, 2)  # argmax, then prepare, gather, norm
    assert [kernels[p].name for p in last] == [ARGMAX, PREPARE, EMBED, NORM]


def test_zones_share_no_position_and_hold_no_mark():
    kernels = drafted_step(3)
    marks = marks_of(kernels)
    positions = [p for zone in find_zones(marks, len(kernels)) for p in zone.positions]
    assert len(positions) == len(set(positions))
    assert not set(positions) & {mark.position for mark in marks.marks}


def test_a_model_of_one_block_still_has_its_round_trip():
    kernels = [k for layer in range(3) for k in layer_kernels(layer)]
    zones = find_zones(marks_of(kernels), len(kernels))
    assert len(zones) == 1
    assert zones[0].positions == (0,)
    assert phases(kernels) == ["target_layers"] * len(kernels)


def unnamed(kernels):
    """The same kernels, named by their text alone: the rules know none of them."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(k.name for k in kernels))}
    return [replace(k, name=f"k{numbers[k.name]}") for k in kernels]


def test_without_names_the_reader_of_logits_is_sampling_and_the_rest_is_not_guessed():
    """Behind the head: a cast, the long reader of logits, then whatever it may be."""
    kernels = insert(drafted_step(2), lambda k: k.name == VERIFY, K("index_put", 1700, "sampling"),
                     K("next inputs", 1800, "prepare"))  # fmt: skip
    found = phases(unnamed(kernels))
    at = next(i for i, k in enumerate(kernels) if is_head(k))
    longest = max(range(at + 1, at + 4), key=lambda i: kernels[i].ns)
    assert found[at + 1 : longest + 1] == ["sampling"] * (longest - at)
    for k, phase in zip(kernels, found, strict=True):
        assert phase in (k.phase, "unclassified")
        if k.matrix:
            assert phase == k.phase
    assert {k.phase for k, p in zip(kernels, found, strict=True) if p != k.phase} <= {
        "sampling", "prepare", "target_layers", "drafter_layers",
    }  # fmt: skip


def test_what_stands_round_a_commit_that_only_its_time_tells_is_not_guessed():
    """The plan of the commit, or the last of the sampler: nothing tells them apart."""
    kernels = insert(drafted_step(1), lambda k: k.name == VERIFY, K("a", 1700, "sampling"),
                     K("b", 2100, "replay"), K(NAMELESS, 700_000, "replay"),
                     K("c", 2200, "replay"))  # fmt: skip
    found = dict(zip((k.name for k in kernels), phases(kernels, recurrent=True), strict=True))
    assert found[NAMELESS] == "replay"
    assert found[VERIFY] == "sampling"
    assert {found[name] for name in "bc"} == {"unclassified"}
