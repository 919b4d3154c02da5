"""Counting attention and recurrence kernels against the layers of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from tracebook.kernels.classes import CLASSES
from tracebook.kernels.selfcheck import Mixers, check_layers, count_mixers

LAYER = "norm gemm kv_write attention attention gemm norm gemm gemm "
RECURRENT = "norm gemm conv gdn gemm norm gemm gemm "


def codes(text: str) -> np.ndarray:
    return np.array([CLASSES.index(name) for name in text.split()])


@dataclass
class PlanOfLayers:
    """What the check asks of a plan."""

    attention_layers: tuple[int, ...]
    recurrent_layers: tuple[int, ...] = ()
    blocks: tuple = ()
    description: str = field(default="a model")


def check(plan, text):
    found = codes(text)
    return check_layers(plan, found, np.full(len(found), 1000.0), [found])


def test_a_group_of_kernels_is_one_layer():
    assert count_mixers(codes(3 * LAYER + RECURRENT)) == Mixers(3, 1)


def test_as_many_layers_as_the_config_says_are_fine():
    assert check(PlanOfLayers((0, 1), (2,)), 2 * LAYER + RECURRENT) is None


@pytest.mark.parametrize("layers", [1, 3])
def test_another_number_of_layers_is_told(layers):
    notice = check(PlanOfLayers((0, 1)), layers * LAYER)
    assert notice.code == "plan_layers_unlike"
    assert f"{layers} groups of attention kernels for 2 layers" in notice.message


def test_a_kernel_that_changed_places_with_a_product_is_no_layer():
    swapped = "norm gemm kv_write attention gemm attention norm gemm gemm "
    assert check(PlanOfLayers((0, 1)), LAYER + swapped) is None


def test_a_group_that_the_cycle_cuts_in_two_is_one():
    cycle = (2 * LAYER).split()
    turned = cycle[4:] + cycle[:4]  # begins with the second kernel of the first group
    assert turned[0] == turned[-1] == "attention"
    assert check(PlanOfLayers((0, 1)), " ".join(turned)) is None


def test_both_mixers_in_one_layer_count_for_themselves():
    parallel = "norm gemm attention gdn gemm norm gemm gemm "
    assert count_mixers(codes(2 * parallel)) == Mixers(2, 2)


def test_products_alone_are_no_model():
    assert check(PlanOfLayers((0, 1)), 8 * "gemm ").code == "no_mixing_kernels"


def test_names_that_say_nothing_prove_nothing():
    assert check(PlanOfLayers((0, 1)), 8 * "unknown ") is None
