"""Phases without a checkpoint: stacks of layers, heads, drafters."""

from __future__ import annotations

import numpy as np
import pytest

from tracebook.kernels.classes import CLASSES, builtin_rules, classify_names
from tracebook.kernels.structure import marks_of_structure

from .test_classes import name_frame
from .toy import ARGMAX, NORM, K, drafted_step, layer_kernels, product, step


def structure(kernels):
    found = classify_names(name_frame([k.name for k in kernels]), builtin_rules())["kernel_class"]
    shapes = list(dict.fromkeys((k.name, k.grid) for k in kernels))
    return marks_of_structure(
        np.array([CLASSES.index(c) for c in found]),
        np.array([shapes.index((k.name, k.grid)) for k in kernels]),
        np.array([float(k.ns) for k in kernels]),
    )


def placed(marks):
    return {m.position: (str(marks.blocks[m.block].phase), m.layer) for m in marks.marks}


def truth(kernels):
    return {i: (k.phase, k.layer) for i, k in enumerate(kernels) if k.matrix}


@pytest.mark.parametrize("layers", [2, 3, 12, 40])
@pytest.mark.parametrize("turn", [0, 3, 11])
def test_layers_and_head_of_a_plain_model(layers, turn):
    kernels = step(layers)
    kernels = kernels[turn:] + kernels[:turn]
    assert placed(structure(kernels)) == truth(kernels)


def block_drafter(layers=3):
    """Target, verification, then a drafter of a few layers, its head and its selection."""
    kernels = [k for k in step(8) if k.phase != "sampling"]
    kernels += [
        K("_rejection_kernel", 4000, "sampling"),
        K("_prepare_dflash_inputs_kernel", 2000, ""),
    ]
    for layer in range(layers):
        kernels += layer_kernels(layer, "drafter_layers", 0.5)
    kernels += [K(NORM, 2300, "draft_head"),
                product("draft_head", None, "lm_head", 100, "head", 6400)]  # fmt: skip
    return [*kernels, K("_selector_walk_kernel", 9000, "draft_head")]


def test_a_block_drafter_and_its_head():
    kernels = block_drafter()
    assert placed(structure(kernels)) == truth(kernels)


def test_the_drafter_may_come_first():
    kernels = block_drafter()
    at = next(i for i, k in enumerate(kernels) if k.phase == "drafter_layers")
    kernels = kernels[at - 1 :] + kernels[: at - 1]
    assert placed(structure(kernels)) == truth(kernels)


def test_sequential_passes_are_told_by_phase():
    """fc and head of each pass: which layer a lone layer is may stay open, not the phase."""
    kernels = drafted_step(2)
    found = {position: phase for position, (phase, _) in placed(structure(kernels)).items()}
    assert found == {position: phase for position, (phase, _) in truth(kernels).items()}


def test_marks_give_no_bytes_and_say_their_evidence():
    for mark in structure(step()).marks:
        assert mark.weight_bytes is None
        assert mark.evidence == "structure"


@pytest.mark.parametrize(
    "kernels",
    [
        [K(NORM, 2000, ""), K(ARGMAX, 2000, "")] * 20,
        [k for k in step() if "flash" not in k.name],
        [*layer_kernels(0), K(ARGMAX, 9000, "")],
        [K("k", 2000, "")] * 30,
    ],
    ids=["no products", "no mixers", "one layer", "no names"],
)
def test_no_stack_of_layers_no_structure(kernels):
    assert structure(kernels) is None
