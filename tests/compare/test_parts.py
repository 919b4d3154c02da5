from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from tracebook.compare.baseline import Part
from tracebook.compare.parts import part_changes


def part(name="gemm_a", ns=100, *, layer=0, matrix=None, op=None, phase="target_layers",
         kernel_class="gemm", kernels=1):  # fmt: skip
    return Part(phase, layer, op, matrix, kernel_class, name, kernels, ns)


def test_a_renamed_kernel_is_neither_gone_nor_new():
    (change,) = part_changes(
        [part("old_gemm", 100, matrix="mlp.up_proj", op="up")],
        [part("new_gemm", 130, matrix="mlp.up_proj", op="up")],
    )
    assert (change.status, change.renamed, change.change_ns) == ("slower", True, 30)
    assert (change.old_names, change.new_names) == (("old_gemm",), ("new_gemm",))


def test_role_wins_over_name():
    """Two kernels swap their matrices: what counts is the matrix."""
    changes = part_changes(
        [part("a", 100, matrix="up"), part("b", 200, matrix="down")],
        [part("b", 110, matrix="up"), part("a", 200, matrix="down")],
    )
    assert [(c.matrix, c.change_ns) for c in changes if c.change_ns] == [("up", 10)]


def test_layers_are_told_together():
    old = [part(ns=100, layer=n, matrix="up") for n in range(64)]
    new = [part(ns=103, layer=n, matrix="up") for n in range(64)]
    (change,) = part_changes(old, new)
    assert (change.layers, change.old_kernels, change.change_ns) == (64, 64, 192)


def test_fused_matrices_are_matched_with_their_parts():
    old = [part("qkv", ns, matrix=matrix) for matrix, ns in (("q", 60), ("k", 20), ("v", 21))]
    (change,) = part_changes(old, [part("fused", 90, matrix="q+k+v")])
    assert (change.matrix, change.old_ns, change.new_ns) == ("q+k+v", 101, 90)
    assert (change.status, change.old_kernels, change.new_kernels) == ("faster", 3, 1)
    (back,) = part_changes([part("fused", 90, matrix="q+k+v")], old)
    assert (back.status, back.change_ns) == ("slower", 11)


def test_name_matches_what_lost_its_role():
    """A norm whose layer is no longer known, and a copy that is counted elsewhere."""
    changes = part_changes(
        [
            part("norm", 10, layer=3, kernel_class="norm"),
            part("copy", 7, layer=None, kernel_class="copy", phase="prepare"),
        ],
        [
            part("norm", 12, layer=None, kernel_class="norm"),
            part("copy", 7, layer=None, kernel_class="copy", phase="sampling"),
        ],
    )
    assert {(c.status, c.change_ns) for c in changes} == {("slower", 2), ("slower", 0)}
    assert {c.old_phase for c in changes} == {None, "prepare"}


def test_new_and_gone():
    changes = part_changes(
        [part("same", 50, matrix="up"), part("cast", 9, kernel_class="elementwise")],
        [part("same", 50, matrix="up"), part("sort", 20, kernel_class="sample", layer=None)],
    )
    assert [(c.status, c.change_ns) for c in changes] == [("new", 20), ("gone", -9), ("slower", 0)]


parts = st.lists(
    st.builds(
        part,
        name=st.sampled_from("abcd"),
        ns=st.integers(1, 10**6),
        layer=st.sampled_from([None, 0, 1]),
        matrix=st.sampled_from([None, "q", "k", "q+k", "up"]),
        phase=st.sampled_from(["target_layers", "draft_head"]),
        kernel_class=st.sampled_from(["gemm", "norm"]),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(parts, parts)
def test_changes_add_up_whatever_is_matched(old, new):
    changes = part_changes(old, new)
    expected = sum(p.ns for p in new) - sum(p.ns for p in old)
    assert sum(change.change_ns for change in changes) == expected
    assert sum(change.old_kernels for change in changes) == len(old)
    assert sum(change.new_kernels for change in changes) == len(new)


@given(parts)
def test_a_run_does_not_differ_from_itself(run):
    assert not any(change.change_ns for change in part_changes(run, run))
    renamed = [dataclasses.replace(p, name=f"{p.name}2") for p in run if p.matrix]
    kept = [p for p in run if p.matrix]
    assert {c.status for c in part_changes(kept, renamed)} <= {"slower"}
