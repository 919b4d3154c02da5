"""The law of time, against a count of single nanoseconds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracebook.kernels.labels import ROW_SCHEMA, STEP_SCHEMA
from tracebook.step_time import ConservationError, group, share_out, sum_per_step, time_per_step

kernels = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from("abc")), max_size=12
)
borders = st.lists(st.integers(0, 80), min_size=2, max_size=5, unique=True).map(sorted)


def rows_of(kernels: list[tuple[int, int, str]]) -> pl.DataFrame:
    columns = {
        "kernel_id": range(len(kernels)),
        "start_ns": [start for start, _, _ in kernels],
        "end_ns": [start + length for start, length, _ in kernels],
        "phase": [phase for _, _, phase in kernels],
    }
    return pl.DataFrame(columns, schema={name: ROW_SCHEMA[name] for name in columns})


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
    time = share_out(rows_of(kernels), steps_of(borders))
    groups = group(time.rows, ("phase",))
    owned = time_per_step(groups, time.owned, time.steps)
    for step, (start, end) in enumerate(itertools.pairwise(borders)):
        counted = owners_by_counting(kernels, start, end)
        assert time.idle_ns[step] == counted.pop("idle", 0)
        assert {key[0]: owned[code, step] for code, key in enumerate(groups.keys)
                if owned[code, step]} == dict(counted)  # fmt: skip


@given(kernels, borders)
def test_whole_time_counts_overlaps_twice(kernels, borders):
    time = share_out(rows_of(kernels), steps_of(borders))
    expected = sum(
        max(0, min(start + length, borders[-1]) - max(start, borders[0]))
        for start, length, _ in kernels
    )
    assert time.whole.ns.sum() == expected


def test_steps_with_a_gap_between_them_do_not_count_the_gap():
    steps = pl.DataFrame([(0, 0, 10, 1), (1, 30, 40, 1)], schema=STEP_SCHEMA, orient="row")
    time = share_out(rows_of([(5, 30, "a")]), steps)
    assert time.owned.ns.tolist() == [5, 5]
    assert time.idle_ns.tolist() == [5, 5]


def test_ties_go_to_the_smaller_kernel_id():
    time = share_out(rows_of([(0, 4, "b"), (0, 9, "a")]), steps_of([0, 10]))
    groups = group(time.rows, ("phase",))
    owned = time_per_step(groups, time.owned, 1)
    assert dict(zip([key[0] for key in groups.keys], owned[:, 0], strict=True)) == {"a": 5, "b": 4}


def test_overlapping_steps_are_a_fault():
    steps = pl.DataFrame([(0, 0, 10, 1), (1, 9, 20, 1)], schema=STEP_SCHEMA, orient="row")
    with pytest.raises(ConservationError, match="overlap"):
        share_out(rows_of([(0, 5, "a")]), steps)


def test_sums_follow_the_step_a_kernel_belongs_to():
    rows = rows_of([(0, 5, "a"), (5, 5, "a"), (6, 1, "b")]).with_columns(
        step_id=pl.Series([4, 9, None], dtype=pl.Int64)
    )
    steps = pl.DataFrame([(4, 0, 5, 1), (9, 5, 10, 1)], schema=STEP_SCHEMA, orient="row")
    groups = group(rows, ("phase",))
    sums = sum_per_step(groups, rows, np.array([10, 20, 40]), steps)
    assert sums.tolist() == [[10, 20], [0, 0]]
