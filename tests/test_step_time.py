"""The law of time, against a count of single nanoseconds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA, LabelledKernels
from tracebook.step_time import ConservationError, group, per_step, share_out

kernels = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from("abc")), max_size=12
)
borders = st.lists(st.integers(0, 80), min_size=2, max_size=5, unique=True).map(sorted)


def kernels_of(
    kernels: list[tuple[int, int, str]], steps: list[int | None] | None = None
) -> LabelledKernels:
    columns = {
        "kernel_id": range(len(kernels)),
        "start_ns": [start for start, _, _ in kernels],
        "end_ns": [start + length for start, length, _ in kernels],
        "phase": [phase for _, _, phase in kernels],
        "step_id": steps or [None] * len(kernels),
    }
    return LabelledKernels.of(
        pl.DataFrame(columns, schema={name: ROW_SCHEMA[name] for name in columns})
    )


def steps_of(borders: list[int]) -> pl.DataFrame:
    rows = [(n, a, b, 0) for n, (a, b) in enumerate(itertools.pairwise(borders))]
    return pl.DataFrame(rows, schema=STEP_SCHEMA, orient="row")


def owners_by_counting(kernels: list[tuple[int, int, str]], start: int, end: int) -> Counter[str]:
    """Who owns each nanosecond: the running kernel that started first."""
    counted: Counter[str] = Counter()
    for instant in range(start, end):
        running = [
            (kernel_start, number, phase)
            for number, (kernel_start, length, phase) in enumerate(kernels)
            if kernel_start <= instant < kernel_start + length
        ]
        counted[min(running)[2] if running else "idle"] += 1
    return counted


@given(kernels, borders)
def test_every_nanosecond_has_the_owner_that_started_first(kernels, borders):
    time = share_out(kernels_of(kernels), steps_of(borders))
    groups = group(time.labels, ("phase",))
    owned = per_step(groups, time.owned)
    for step, (start, end) in enumerate(itertools.pairwise(borders)):
        counted = owners_by_counting(kernels, start, end)
        assert time.idle_ns[step] == counted.pop("idle", 0)
        assert {key[0]: owned[code, step] for code, key in enumerate(groups.keys)
                if owned[code, step]} == dict(counted)  # fmt: skip


@given(kernels, borders)
def test_whole_time_counts_overlaps_twice(kernels, borders):
    time = share_out(kernels_of(kernels), steps_of(borders))
    expected = sum(
        max(0, min(start + length, borders[-1]) - max(start, borders[0]))
        for start, length, _ in kernels
    )
    assert time.whole.sum() == expected


def test_steps_with_a_gap_between_them_do_not_count_the_gap():
    steps = pl.DataFrame([(0, 0, 10, 1), (1, 30, 40, 1)], schema=STEP_SCHEMA, orient="row")
    time = share_out(kernels_of([(5, 30, "a")]), steps)
    assert time.owned.tolist() == [[5, 5]]
    assert time.pieces.tolist() == [2]
    assert time.idle_ns.tolist() == [5, 5]


def test_ties_go_to_the_smaller_kernel_id():
    time = share_out(kernels_of([(0, 4, "b"), (0, 9, "a")]), steps_of([0, 10]))
    groups = group(time.labels, ("phase",))
    owned = per_step(groups, time.owned)
    assert dict(zip([key[0] for key in groups.keys], owned[:, 0], strict=True)) == {"a": 5, "b": 4}


def test_overlapping_steps_are_a_fault():
    steps = pl.DataFrame([(0, 0, 10, 1), (1, 9, 20, 1)], schema=STEP_SCHEMA, orient="row")
    with pytest.raises(ConservationError, match="overlap"):
        share_out(kernels_of([(0, 5, "a")]), steps)


def test_sums_follow_the_step_a_kernel_belongs_to():
    listed = [(0, 5, "a"), (5, 5, "a"), (6, 1, "b"), (20, 1, "b"), (30, 1, "b")]
    steps = pl.DataFrame([(4, 0, 5, 1), (9, 5, 10, 1)], schema=STEP_SCHEMA, orient="row")
    time = share_out(kernels_of(listed, [4, 9, None, 5, 12]), steps)
    groups = group(time.labels, ("phase",))
    assert per_step(groups, time.kernels).tolist() == [[1, 1], [0, 0]]
    assert per_step(groups, time.kernels, np.array([10, 40])).tolist() == [[10, 10], [0, 0]]


def test_kernels_in_several_chunks(monkeypatch):
    """Where a chunk ends makes no difference."""
    listed = [(7 * n % 50, 1 + n % 9, "abc"[n % 3]) for n in range(40)]
    listed.sort()
    whole = share_out(kernels_of(listed), steps_of([3, 20, 41, 70]))
    monkeypatch.setattr("tracebook.step_time.CHUNK", 7)
    parts = share_out(kernels_of(listed), steps_of([3, 20, 41, 70]))
    for name in ("owned", "whole", "kernels", "pieces", "idle_ns"):
        assert (getattr(whole, name) == getattr(parts, name)).all()


def test_times_that_no_float_can_tell_are_added_up_exactly():
    long = 2**54 + 1
    listed = [(0, long, "a"), (long, long, "a"), (long + 5, long, "b")]
    time = share_out(kernels_of(listed), steps_of([0, 2**60]))
    assert time.owned.sum(axis=1).tolist() == [2 * long, 5]
    assert time.whole.sum(axis=1).tolist() == [2 * long, long]


@given(kernels, borders, st.lists(st.sampled_from([0, 1, 2, None]), min_size=12, max_size=12))
def test_kernels_count_in_the_step_they_belong_to(kernels, borders, belongs):
    """Wherever they run; steps that are not kept count none."""
    listed = sorted(kernels)
    steps = steps_of(borders)
    time = share_out(kernels_of(listed, belongs[: len(listed)]), steps)
    expected = [belongs[: len(listed)].count(step) for step in range(steps.height)]
    assert time.kernels.sum(axis=0).tolist() == expected
    lasting = sum(max(0, end - start) > 0 for start, end in pieces_of(listed, borders))
    assert time.pieces.sum() == lasting


def pieces_of(kernels, borders):
    """Exclusive stretches of time, cut at the borders of steps."""
    reached = -1
    for start, length, _ in kernels:
        own = max(start, reached)
        for low, high in itertools.pairwise(borders):
            yield max(own, low), min(start + length, high)
        reached = max(reached, start + length)
