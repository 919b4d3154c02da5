"""From template labels to rows, and the frame of steps."""

from __future__ import annotations

import numpy as np
import pytest

from tracebook.kernels.assign import Label
from tracebook.kernels.broadcast import label_rows, step_frame
from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA
from tracebook.kernels.segments import Placed
from tracebook.kernels.steps import Slice

from .toy import K, kernels_of, play

#: A template of three kernels: a matrix of layer 3, glue, sampling.
LABELS = [
    Label("target_layers", 3, "down", "down_proj", 123_456, "alignment", None),
    Label("target_layers", 3, "norm", None, None, "neighbour", None),
    Label("sampling", None, "sample", None, None, "name", None),
]
PREFILL = "_causal_conv1d_fwd_kernel"


def run(names, place, bounds):
    kernels = kernels_of(play([K(name, 100, "", pause_ns=10) for name in names])[0])
    placed = Placed(np.array(place), tuple(Slice(a, b) for a, b in bounds), 0)
    return label_rows(kernels, placed, LABELS).rows, step_frame(kernels, placed)


def test_labels_go_to_every_kernel_of_each_step():
    rows, steps = run("abcabc", [0, 1, 2] * 2, [(0, 3), (3, 6)])
    assert dict(rows.schema) == ROW_SCHEMA
    assert dict(steps.schema) == STEP_SCHEMA
    assert rows["step_id"].to_list() == [0, 0, 0, 1, 1, 1]
    assert rows["phase"].to_list() == ["target_layers", "target_layers", "sampling"] * 2
    assert rows["layer"].to_list() == [3, 3, None] * 2
    assert rows["matrix"].to_list() == ["down_proj", None, None] * 2
    assert rows["weight_bytes"].to_list() == [123_456, None, None] * 2
    assert rows["kernel_id"].to_list() == [1, 2, 3, 4, 5, 6]


def test_a_kernel_that_was_inserted_belongs_to_what_it_stands_in():
    """Behind the matrix: same phase and layer, but it reads nothing."""
    rows, _ = run("axbc", [0, -1, 1, 2], [(0, 4)])
    inserted = rows.row(1, named=True)
    assert (inserted["phase"], inserted["layer"], inserted["step_id"]) == ("target_layers", 3, 0)
    assert inserted["weight_bytes"] is None
    assert inserted["matrix"] is None
    assert inserted["evidence"] == "neighbour"


def test_an_insertion_at_the_very_beginning_belongs_to_what_follows():
    rows, _ = run("abcxabc", [0, 1, 2, -1, 0, 1, 2], [(0, 3), (3, 7)])
    assert rows["phase"].to_list()[3] == "target_layers"
    assert rows["step_id"].to_list()[3] == 1


def test_outside_of_steps_is_warm_up_prefill_or_nothing():
    names = ["w", "w", PREFILL, "p", "a", "b", "c", PREFILL, "p", "a", "b", "c", "z"]
    place = [-1] * 4 + [0, 1, 2] + [-1] * 2 + [0, 1, 2] + [-1]
    rows, steps = run(names, place, [(4, 7), (9, 12)])
    phases = rows["phase"].to_list()
    assert phases[:4] == ["warmup", "warmup", "prefill", "prefill"]
    assert phases[7:9] == ["prefill", "prefill"]
    assert phases[12] == "unclassified"
    outside = rows.filter(rows["step_id"].is_null())
    assert len(outside) == 7
    assert outside["weight_bytes"].null_count() == 7
    assert steps.height == 2


def test_steps_follow_each_other_without_a_gap_or_end_with_their_last_kernel():
    """100 ns each, 10 ns apart: three kernels span 320 ns, a step that is followed 330."""
    rows, steps = run("abcabcxabc", [0, 1, 2, 0, 1, 2, -1, 0, 1, 2], [(0, 3), (3, 6), (7, 10)])
    assert (steps["end_ns"] - steps["start_ns"]).to_list() == [330, 320, 320]
    assert steps["kernels"].to_list() == [3, 3, 3]
    assert steps["start_ns"].to_list() == [rows["start_ns"][i] for i in (0, 3, 7)]


@pytest.mark.parametrize(("ns", "matrix"), [(110, "down_proj"), (400, None)])
def test_a_kernel_in_the_place_of_another_reads_what_that_one_reads(ns, matrix):
    """Another tactic for the same matrix takes its time; a kernel of other length is another."""
    labels = [LABELS[1], LABELS[0], LABELS[2]]
    made = [K(name, ns if name == "x" else 100, "", pause_ns=10) for name in "abcabcaxc"]
    placed = Placed(
        np.array([0, 1, 2] * 2 + [0, -1, 2]), (Slice(0, 3), Slice(3, 6), Slice(6, 9)), 0
    )
    swapped = label_rows(kernels_of(play(made)[0]), placed, labels).rows.row(7, named=True)
    assert swapped["matrix"] == matrix
    assert (swapped["phase"], swapped["layer"]) == ("target_layers", 3)
