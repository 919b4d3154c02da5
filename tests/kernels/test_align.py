"""The dynamic programme against enumeration, and its costs against hand calculation."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracebook.checkpoint.plan import Read
from tracebook.kernels.align import (
    APART_COST,
    GRID_BONUS,
    MOST_APART,
    SKIP_COST,
    SPLIT_COST,
    Column,
    Habits,
    Table,
    align,
    build_table,
    expected_ns,
    grid_fits,
    match_costs,
    skip_costs,
)
from tracebook.kernels.runs import PARTIAL_GROUP_COST, build_runs

from .toy import MB, stream_ns


def read(mb=10.0, group=0, *, family="f", rows=None, optional=False, basis="exact"):
    return Read("target_layers", 0, "x", "x_proj", round(mb * MB), rows, group,
                optional, basis, family)  # fmt: skip


def column(durations, symbols=None, *, grid=None):
    count = len(durations)
    return Column(
        duration_ns=np.array(durations, dtype=float),
        symbol=np.arange(count) if symbols is None else np.array(symbols),
        match_penalty=np.zeros(count),
        skip_factor=np.ones(count),
        grid=np.zeros((count, 3), dtype=np.int64) if grid is None else np.array(grid),
        named=np.zeros(count, dtype=bool),
        distance=np.ones(count, dtype=np.int64),
        telling=np.ones(count, dtype=bool),
        mixes=np.zeros(count, dtype=bool),
        may_add_up=np.zeros(count, dtype=bool),
    )


# ---- runs -----------------------------------------------------------------------------------


def spans(runs):
    return list(zip(runs.first.tolist(), runs.end.tolist(), strict=True))


def test_runs_are_all_neighbours_of_one_group_and_none_across_groups():
    runs = build_runs([read(8, 0), read(2, 0), read(2, 0), read(8, 1)])
    assert sorted(spans(runs)) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 4)]
    size = dict(zip(spans(runs), (runs.weight_bytes / MB).tolist(), strict=True))
    assert size[0, 3] == 12
    assert size[1, 3] == 4
    partial = dict(zip(spans(runs), (runs.penalty > 0).tolist(), strict=True))
    assert not partial[0, 3]
    assert not partial[3, 4]
    assert partial[0, 2]
    assert runs.inside.tolist() == [False, True, True, False, False]


def test_kinds_are_equal_where_the_families_are():
    reads = [read(8, 0, family="q"), read(2, 0, family="k"), read(8, 1, family="q")]
    runs = build_runs(reads)
    kind = dict(zip(spans(runs), runs.kind.tolist(), strict=True))
    assert kind[0, 1] == kind[2, 3]
    assert len({kind[0, 1], kind[1, 2], kind[0, 2]}) == 3


def test_rows_and_bytes_of_a_run_are_sums():
    runs = build_runs([read(8, rows=1024), read(2, rows=256)])
    rows = dict(zip(spans(runs), runs.rows.tolist(), strict=True))
    assert rows[0, 2] == 1280


# ---- costs ----------------------------------------------------------------------------------


def test_time_is_launch_and_streaming():
    """20 MB at 200 GB/s take 100 us; 1 byte/ns is 1 GB/s."""
    assert expected_ns(20e6, 200.0) == 101_500


def cost_of(duration, reads, *, grid=None, habits=None):
    runs = build_runs(reads)
    made = column([duration], [0], grid=grid)
    return match_costs(made, runs, 200.0, habits)[0, :-1]


def test_a_kernel_of_the_right_length_costs_nothing():
    assert cost_of(stream_ns(10 * MB), [read()])[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_two_deviations_cost_the_logarithm_of_three(sign):
    """z = ln(e^0.2)/0.1 = 2, ln(1 + 4/2) = ln 3, too long or too short alike."""
    duration = stream_ns(10 * MB) * math.exp(0.2 * sign)
    assert cost_of(duration, [read()])[0] == pytest.approx(math.log(3), rel=1e-3)


def test_one_odd_duration_costs_less_than_dropping_kernel_and_read():
    """The tail is logarithmic: twice as slow costs about 3."""
    assert 2.5 < cost_of(2 * stream_ns(10 * MB), [read()])[0] < 3.5 < SKIP_COST


def test_derived_bytes_are_allowed_more_spread():
    duration = 1.4 * stream_ns(10 * MB)
    assert cost_of(duration, [read(basis="derived")])[0] < 0.3 * cost_of(duration, [read()])[0]


def test_a_part_of_a_group_costs_more_than_the_whole():
    whole, part = [read(10), read(10)], cost_of(stream_ns(10 * MB), [read(10), read(10)])
    assert part[0] == pytest.approx(PARTIAL_GROUP_COST, abs=1e-6)
    assert cost_of(stream_ns(20 * MB), whole)[1] == pytest.approx(0, abs=1e-6)


def test_bias_of_a_name_is_taken_out_and_odd_names_cost():
    habits = Habits(bias=np.array([math.log(1.3)]), odd=np.array([[0.7]]))
    slow = cost_of(1.3 * stream_ns(10 * MB), [read()], habits=habits)
    assert slow[0] == pytest.approx(0.7, abs=1e-6)


def test_grid_is_a_bonus_and_never_a_penalty():
    duration = stream_ns(10 * MB)
    fits = cost_of(duration, [read(rows=1024)], grid=[[8, 1, 1]])[0]  # 1024 / 128
    other = cost_of(duration, [read(rows=1024)], grid=[[9, 1, 1]])[0]
    assert fits == pytest.approx(-GRID_BONUS, abs=1e-6)
    assert other == pytest.approx(0, abs=1e-6)


#: Grids of published kernels: rows, grid, whether ceil(rows / tile) is among its sides.
GRIDS = [
    (248_320, (1940, 1, 1), True),
    (248_320, (1, 1940, 1), True),  # operands swapped
    (248_320, (970, 1, 1), True),
    (248_320, (248_320, 1, 1), True),  # a block for each row
    (151_936, (1, 1187, 1), True),
    (100_032, (782, 1, 1), True),  # 781.5 rounds up
    (100_032, (781, 1, 1), False),
    (34_816, (272, 1, 1), True),
    (6_144, (48, 1, 1), True),
    (34_816, (48, 1, 1), False),  # a persistent scheduler: one block a multiprocessor
    (96, (1, 1, 1), False),  # one block says nothing
    (0, (8, 1, 1), False),  # rows not known
    (1024, (0, 0, 0), False),  # grid not known
]


@pytest.mark.parametrize(("rows", "grid", "fits"), GRIDS)
def test_grids(rows, grid, fits):
    assert grid_fits(np.array([grid]), np.array([rows])).tolist() == [[fits]]


def test_grids_of_many_kernels_and_runs_at_once():
    grids = np.array([grid for _, grid, _ in GRIDS])
    rows = np.array([n for n, _, _ in GRIDS])
    table = grid_fits(grids, rows)
    assert table.shape == (len(GRIDS), len(GRIDS))
    assert table.diagonal().tolist() == [fits for *_, fits in GRIDS]


def test_leaving_out_costs_half_at_the_time_that_counts_and_never_more_than_the_cap():
    tau = 50_000.0
    made = column([1500, 1500 + tau, 1500 + 100 * tau])
    reads = [read(0.001), read(10), read(10, optional=True), read(4000)]  # tau x 200 GB/s = 10 MB
    kernel, skipped = skip_costs(made, reads, tau, 200.0)
    assert kernel[0] == 0
    assert kernel[1] == pytest.approx(SKIP_COST / 2)
    assert 0.99 * SKIP_COST < kernel[2] < SKIP_COST
    assert skipped[0] < 0.001
    assert skipped[1] == pytest.approx(SKIP_COST / 2)
    assert skipped[2] == 0
    assert 0.99 * SKIP_COST < skipped[3] < SKIP_COST


def test_kernels_no_longer_than_glue_cost_nothing_to_leave_out():
    made = column([2000, 2500, 60_000])
    usual, slow = (skip_costs(made, [read()], 500, 200.0, glue_ns)[0] for glue_ns in (1500, 2500))
    assert usual[1] > SKIP_COST / 2
    assert slow[:2].tolist() == [0, 0]
    assert slow[2] == pytest.approx(SKIP_COST, rel=0.01)


@pytest.mark.parametrize("symbols", [[1, 1, 0], [1, 0, 1]], ids=["next", "next but one"])
def test_one_of_two_kernels_alike_side_by_side_is_not_spared_as_glue(symbols):
    """k and v: as short as glue, but two of a kind."""
    made = column([2500, 2500, 2500, 3000, 3000], [*symbols, 5, 6])
    skipped, _ = skip_costs(made, [read()], 500, 200.0, 2500)
    assert (skipped > 0).tolist() == [symbol == 1 for symbol in symbols] + [True, True]


# ---- the path -------------------------------------------------------------------------------


def paths(table, kernels, reads):
    """Every monotone choice of (first kernel, end kernel, run), as tuples of moves."""
    runs = list(enumerate(spans(table.runs)))

    def choices(kernel, column):
        yield ()
        for start in range(kernel, kernels):
            for run, (first, end) in runs:
                if first < column:
                    continue
                for length in range(1, 4):
                    last = (start + length - 1) % len(table.kernel_skip)
                    shared = dict(table.split.get(last, ()))
                    if start + length <= kernels and (length == 1 or length - 1 in shared):
                        for rest in choices(start + length, end):
                            yield ((start, start + length, run), *rest)

    yield from choices(0, 0)


def between(table, kernel):
    """Launches that were left out of the column in front of a kernel; many are like eight."""
    return min(int(table.column.distance[kernel]) - 1, MOST_APART)


def cost_of_path(table, path, kernels, reads, *, free_ends=False):
    """What a choice costs, from the meaning of the moves."""
    size = len(table.kernel_skip)
    total, kernel, column = 0.0, 0, 0
    ends = [*path, (kernels, kernels, None)]
    for number, (start, end, run) in enumerate(ends):
        first, stop = spans(table.runs)[run] if run is not None else (reads, reads)
        outer = free_ends and number in (0, len(ends) - 1)
        if not outer:
            skipped = [k % size for k in range(kernel, start)]
            total += sum(table.kernel_skip[k] for k in skipped)
            if table.runs.inside[column : first + 1].all():  # nowhere to pause but in the group
                total += APART_COST * sum(1 + between(table, k) for k in skipped)
        total += sum(table.read_skip[column:first])
        if run is not None:
            last = (end - 1) % size
            length = end - start
            if length == 1 and table.runs.inside[first]:
                total += APART_COST * between(table, last)
            alike = table.alike[run]
            costs = table.match[last] if length == 1 else dict(table.split[last])[length - 1]
            total += costs[alike]
        kernel, column = end, stop
    return total


def check_path(table, matches, cost, kernels, *, free_ends=False):
    """The matches are a legal choice and cost what was said."""
    reads = len(table.read_skip)
    run_of = {span: i for i, span in enumerate(spans(table.runs))}
    path = tuple((m.first_kernel, m.end_kernel, run_of[m.first, m.end]) for m in matches)
    for a, b in itertools.pairwise(matches):
        assert a.end_kernel <= b.first_kernel
        assert a.end <= b.first
    assert cost == pytest.approx(
        cost_of_path(table, path, kernels, reads, free_ends=free_ends), abs=1e-9
    )


costs = st.floats(0, 8).map(lambda x: round(x, 2))


@st.composite
def tables(draw, most_kernels=4, most_reads=4, split=False):
    """Arbitrary costs for a few kernels and reads in arbitrary groups."""
    kernels, reads = draw(st.integers(1, most_kernels)), draw(st.integers(1, most_reads))
    groups = np.cumsum([0] + [draw(st.integers(0, 1)) for _ in range(reads - 1)])
    runs = build_runs([read(10, int(g)) for g in groups])

    def matrix():
        rows = [[draw(costs) for _ in range(len(runs.first))] for _ in range(kernels)]
        return np.concatenate([np.array(rows), np.full((kernels, 1), np.inf)], axis=1)

    more = {
        kernel: [(draw(st.integers(1, 2)), row)]
        for kernel, row in enumerate(matrix())
        if draw(st.booleans())
    }
    distance = np.array([draw(st.integers(1, 12)) for _ in range(kernels)])
    return Table(
        replace(column([1.0] * kernels), distance=distance),
        runs,
        matrix(),
        np.array([draw(costs) for _ in range(kernels)]),
        np.array([draw(costs) for _ in range(reads)]),
        np.arange(len(runs.first) + 1),  # every run has costs of its own
        more if split else {},
    )


def cheapest(table, kernels, *, free_ends=False):
    reads = len(table.read_skip)
    return min(
        cost_of_path(table, path, kernels, reads, free_ends=free_ends)
        for path in paths(table, kernels, reads)
    )


@settings(max_examples=60, deadline=None)
@given(tables())
def test_no_choice_is_cheaper(table):
    kernels = len(table.kernel_skip)
    matches, cost = align(table)
    assert cost == pytest.approx(cheapest(table, kernels), abs=1e-9)
    check_path(table, matches, cost, kernels)


@settings(max_examples=40, deadline=None)
@given(tables(most_kernels=4, most_reads=3, split=True))
def test_no_choice_is_cheaper_where_two_kernels_may_share_a_run(table):
    kernels = len(table.kernel_skip)
    matches, cost = align(table)
    assert cost == pytest.approx(cheapest(table, kernels), abs=1e-9)
    check_path(table, matches, cost, kernels)


@settings(max_examples=40, deadline=None)
@given(st.booleans().flatmap(lambda split: tables(most_kernels=3, most_reads=3, split=split)))
def test_no_choice_is_cheaper_on_the_sequence_written_twice(table):
    kernels = 2 * len(table.kernel_skip)
    matches, cost = align(table, cyclic=True)
    assert cost == pytest.approx(cheapest(table, kernels, free_ends=True), abs=1e-9)
    check_path(table, matches, cost, kernels, free_ends=True)


def table_of(durations, reads, symbols=None, **more):
    return build_table(column(durations, symbols), reads, build_runs(reads),
                       bandwidth_gbps=200.0, tau_ns=25_000, **more)  # fmt: skip


def found(durations, reads, symbols=None, cyclic=False, **more):
    matches, _ = align(table_of(durations, reads, symbols, **more), cyclic=cyclic)
    return [(m.first_kernel, m.end_kernel, m.first, m.end) for m in matches]


def ns(*mb):
    return [stream_ns(x * MB) for x in mb]


def test_kernels_meet_their_matrices_over_glue():
    reads = [read(10, 0), read(30, 1), read(14, 2)]
    durations = [2000, *ns(10), 2500, 2500, *ns(30), 9000, *ns(14), 2000]
    assert found(durations, reads) == [(1, 2, 0, 1), (4, 5, 1, 2), (6, 7, 2, 3)]


def test_one_kernel_for_a_whole_group():
    reads = [read(10, 0), read(4, 0), read(4, 0), read(14, 1)]
    assert found(ns(18, 14), reads) == [(0, 1, 0, 3), (1, 2, 3, 4)]


def test_three_kernels_for_a_group_of_three():
    reads = [read(10, 0), read(4, 0), read(5, 0), read(14, 1)]
    assert found(ns(10, 4, 5, 14), reads) == [(i, i + 1, i, i + 1) for i in range(4)]


def test_a_missing_kernel_leaves_its_read_alone():
    reads = [read(10, 0), read(30, 1), read(14, 2)]
    assert found(ns(10, 14), reads) == [(0, 1, 0, 1), (1, 2, 2, 3)]


def test_several_equal_kernels_share_one_matrix_only_where_that_is_allowed():
    """A head of 80 MB in four parts, and glue."""
    reads = [read(30, 0), read(80, 1)]
    durations, symbols = [*ns(30), *ns(20) * 4, 900, 901, 902], [0, 1, 1, 1, 1, 2, 3, 4]
    assert (1, 5, 1, 2) in found(durations, reads, symbols, allow_split=True)
    assert (1, 5, 1, 2) not in found(durations, reads, symbols)


def test_kernels_of_different_names_never_share_a_matrix():
    reads = [read(30, 0), read(80, 1)]
    split = found([*ns(30), *ns(20) * 4, *[900] * 3], reads, range(8), allow_split=True)
    assert split
    assert all(end - start == 1 for start, end, *_ in split)


@pytest.mark.parametrize("kernels", range(1, 7))
def test_parts_are_looked_for_in_few_kernels_too(kernels):
    reads = [read(80)]
    durations = ns(*[80 / kernels] * kernels)
    assert found(durations, reads, [0] * kernels, allow_split=True) == [(0, kernels, 0, 1)]


@pytest.mark.parametrize("turn", range(5))
def test_a_step_that_begins_anywhere(turn):
    reads = [read(10, 0), read(30, 1), read(14, 2)]
    durations = np.roll([*ns(10), 2500, *ns(30), *ns(14), 3000], -turn).tolist()
    found_at = {
        (first, (start + turn) % 5) for start, _, first, _ in found(durations, reads, cyclic=True)
    }
    assert found_at == {(0, 0), (1, 2), (2, 3)}


@pytest.mark.parametrize("turn", range(7))
def test_parts_are_found_where_the_sequence_begins_between_them(turn):
    """A head of 80 MB in four parts, and the first of them may come last."""
    reads = [read(30, 0), read(80, 1)]
    durations = np.roll([*ns(30), 2500, *ns(20) * 4, 3000], -turn).tolist()
    symbols = np.roll([0, 1, 2, 2, 2, 2, 3], -turn).tolist()
    head = [
        {(kernel + turn) % 7 for kernel in range(start, end)}
        for start, end, first, _ in found(durations, reads, symbols, cyclic=True, allow_split=True)
        if first == 1
    ]
    assert head == [{2, 3, 4, 5}]


def test_two_kernels_alike_make_two_matrices_of_a_group_and_do_not_share_both():
    """Gate and up, a kernel each: nothing says that each is a half of both."""
    reads, symbols = [read(20, 0), read(20, 0), read(60, 1)], [0, 0, 1]
    made = found(ns(20, 20, 60), reads, symbols, allow_split=True)
    assert made == [(0, 1, 0, 1), (1, 2, 1, 2), (2, 3, 2, 3)]


def test_split_cost_is_paid_once_a_group_of_parts():
    glue = [100] * 6  # leaving it out costs nothing
    table = table_of([*ns(20, 20), *glue], [read(40)], [0, 0, 1, 2, 3, 4, 5, 6], allow_split=True)
    _, cost = align(table)
    # Two launches instead of one: 203 us for 201.5 us is not noticed.
    assert SPLIT_COST <= cost <= SPLIT_COST + 0.5


def test_runs_that_cost_the_same_are_computed_once():
    runs = build_runs([read(8, 0), read(2, 0), read(8, 1), read(2, 1), read(5, 2)])
    examples, number = runs.distinct
    assert len(examples.first) == 4  # 8, 2, both, 5
    assert number[-1] == 4
    for run, own in enumerate(number[:-1].tolist()):
        assert runs.weight_bytes[run] == examples.weight_bytes[own]
        assert runs.kind[run] == examples.kind[own]
        assert runs.penalty[run] == examples.penalty[own]
