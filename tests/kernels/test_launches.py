"""Launch order: what the host said, not how streams interleave."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracebook.kernels.launches import launch_order
from tracebook.trace import KERNEL_SCHEMA

from .toy import make_trace


def frame(rows):
    """Rows of (id, start, end, correlation), graph node and stream where given."""
    base = dict.fromkeys(KERNEL_SCHEMA) | {"device": 0, "pid": 1, "name_id": 0, "stream": 7}
    keys = ("kernel_id", "start_ns", "end_ns", "correlation_id", "graph_node_id", "stream")
    filled = [base | dict(zip(keys, row, strict=False)) for row in rows]
    return make_trace(filled, ["k"]).kernels


def in_launch_order(kernels):
    """The rows in launch order, with the launch of each and whether it is one of a graph."""
    found = launch_order(kernels)
    ordered = kernels if found.order is None else kernels[found.order]
    launch = found[np.arange(len(kernels))]
    number = pl.Series(np.unique(launch, return_inverse=True)[1])
    return ordered.with_columns(launch=number, in_graph=pl.Series(found.in_graph))


def ids(ordered):
    return ordered["kernel_id"].to_list()


def test_a_side_stream_that_runs_early_stays_where_it_was_launched():
    """Launched 1, 2, 3; the second stream starts number 3 before number 2."""
    ordered = in_launch_order(frame([(1, 0, 10, 1), (2, 30, 40, 2), (3, 12, 14, 3, None, 9)]))
    assert ids(ordered) == [1, 2, 3]
    assert ordered["launch"].n_unique() == 3
    assert not ordered["in_graph"].any()


def test_nodes_of_a_graph_stand_in_their_usual_order():
    """Two branches swap places in one of three replays; the mean offset decides."""
    rows = []
    for replay, (left, right) in enumerate([(100, 200), (100, 200), (190, 180)]):
        base = 10_000 * replay
        rows += [
            (10 * replay + 1, base, base + 50, replay, 70),
            (10 * replay + 2, base + left, base + left + 5, replay, 71),
            (10 * replay + 3, base + right, base + right + 5, replay, 72),
        ]
    ordered = in_launch_order(frame(rows))
    assert ids(ordered) == [1, 2, 3, 11, 12, 13, 21, 22, 23]
    assert ordered["in_graph"].all()
    assert ordered["launch"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_kernels_of_one_launch_without_node_ids_are_a_graph_too():
    ordered = in_launch_order(frame([(1, 0, 5, 4), (2, 6, 9, 4), (3, 20, 25, 5)]))
    assert ordered["in_graph"].to_list() == [True, True, False]
    assert ordered["launch"].to_list() == [0, 0, 1]


def test_too_few_ids_mean_start_order():
    """2 of 100 ids are missing; the ids alone would turn the order round."""
    rows = [(i, 100 * i, 100 * i + 50, 200 - i if i > 2 else None) for i in range(1, 101)]
    assert ids(in_launch_order(frame(rows))) == list(range(1, 101))


def test_one_missing_id_in_two_hundred_does_not_matter():
    rows = [(i, 100 * i, 100 * i + 50, i if i != 50 else None) for i in range(1, 201)]
    rows[149] = (150, 100 * 149 - 5, 100 * 149 - 1, 150, None, 9)  # early on another stream
    assert ids(in_launch_order(frame(rows))) == list(range(1, 201))


def test_ids_that_contradict_the_clock_are_not_believed():
    """Every kernel starts 3 ms before the one launched before it."""
    rows = [(i, 3_000_000 * i, 3_000_000 * i + 10, 100 - i) for i in range(1, 21)]
    assert ids(in_launch_order(frame(rows))) == list(range(1, 21))


def test_no_kernels():
    ordered = in_launch_order(pl.DataFrame(schema=pl.Schema(KERNEL_SCHEMA)))
    assert ordered.is_empty()
    assert {"launch", "in_graph"} <= set(ordered.columns)


launched = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 5_000_000), st.integers(1, 900)), max_size=30
)


@settings(max_examples=40, deadline=None)
@given(launched, st.randoms(use_true_random=False))
def test_order_of_rows_never_matters_and_no_row_is_lost(kernels, rng):
    rows = [(i, start, start + ns, corr) for i, (corr, start, ns) in enumerate(kernels, start=1)]
    shuffled = list(rows)
    random.Random(rng.random()).shuffle(shuffled)
    ordered = in_launch_order(frame(rows))
    assert sorted(ids(ordered)) == [row[0] for row in rows]
    assert ordered.equals(in_launch_order(frame(shuffled)))
    launch = ordered["launch"].to_list()
    assert launch == sorted(launch)
    if ids(ordered) != ids(ordered.sort("start_ns", "end_ns", "kernel_id")):
        assert ordered["correlation_id"].is_sorted()


def by_polars(kernels):
    """Kernel ids in launch order and the flag of graphs, told by whole columns at once."""
    own = pl.col("start_ns") - pl.col("start_ns").min().over("id")
    filled = kernels.with_columns(
        id=pl.col("correlation_id").fill_null(strategy="forward").fill_null(strategy="backward")
    ).with_columns(own=own.cast(pl.Float64))
    # Nodes of launches that begin with a node as most launches that have it do.
    filled = filled.with_columns(begins=pl.int_range(pl.len()).over("id") == 0)
    often = 2 * pl.col("begins").sum().over("graph_node_id")
    filled = filled.with_columns(usual=often >= pl.len().over("graph_node_id"))
    filled = filled.with_columns(whole=(pl.col("begins") & pl.col("usual")).any().over("id"))
    whole = pl.when("whole").then("own").mean().over("graph_node_id")
    placed = filled.with_columns(
        place=pl.when(pl.col("graph_node_id").is_null())
        .then("own")
        .otherwise(pl.coalesce(whole, pl.col("own").mean().over("graph_node_id")))
    )
    apart, place = pl.col("id").diff(), pl.col("place").diff()
    rising = ((apart > 0) | ((apart == 0) & (place >= 0))).fill_null(True)
    if not placed.select(rising.all()).item():
        placed = placed.sort("id", "place", "start_ns", "kernel_id")
    graph = (pl.len().over("id") > 1) | pl.col("graph_node_id").is_not_null()
    return placed.with_columns(graph=graph).select("kernel_id", "graph").rows()


replays = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 3) | st.none(), st.integers(0, 60), st.integers(1, 9), st.integers(0, 9)
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(replays, st.integers(1, 9), st.booleans())
def test_part_by_part_is_as_all_at_once(replays, chunk, far):
    """Launches of nodes and others that overlap; ids are missing here and there, but few."""
    rows = []
    for number, nodes in enumerate(replays):
        for node, offset, ns, odd in nodes:
            start = number * (1000 if far else 40) + offset
            known = odd or len(rows) % 101 < 100
            rows.append((len(rows) + 1, start, start + ns, number if known else None, node))
    kernels = frame(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracebook.columns.CHUNK", chunk)
        patch.setattr("tracebook.kernels.launches.CHUNK", chunk)
        patch.setattr("tracebook.kernels.launches._SAMPLE", 1)
        found = in_launch_order(kernels)
    assert found.select("kernel_id", "in_graph").rows() == by_polars(kernels)


def test_a_replay_that_lost_its_first_kernels_does_not_move_the_others():
    """Its times from a later begin would put its nodes in front of those that it lacks."""
    rows = []
    for replay in range(4):
        for node in range(4):
            if replay == 1 and node < 2:
                continue  # this replay seems to begin with its third node
            if replay == 2 and node == 2:
                continue
            start = 10_000 * replay + (0, 900, 1000, 1100)[node]
            rows.append((len(rows) + 1, start, start + 90, replay, node))
    found = launch_order(frame(rows))
    assert found.order is None


def test_missing_ids_take_the_one_before_and_the_first_the_one_behind():
    rows = [(i, 10 * i, 10 * i + 5, None if i in (1, 60, 61) else i) for i in range(1, 401)]
    found = launch_order(frame(rows))
    numbers = found[np.arange(400)].tolist()
    assert numbers[:2] == [2, 2]
    assert numbers[58:62] == [59, 59, 59, 62]


def test_kernels_of_one_process_among_others():
    """Rows 0, 2 and 3; the id of the row in between is no neighbour of theirs."""
    kernels = frame([(1, 0, 5, 4), (2, 6, 7, 4), (3, 8, 9, 6), (4, 10, 12, 5)])
    found = launch_order(kernels, np.array([0, 2, 3]))
    assert found.order.tolist() == [0, 2, 1]
    assert found.in_graph.tolist() == [False, False, False]
