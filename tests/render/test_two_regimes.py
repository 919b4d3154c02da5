"""Two regimes of one capture, side by side in every form that has tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import make_report

from tracebook.regimes import Regime
from tracebook.render import render
from tracebook.render.regimes import regime_sentence, regime_table
from tracebook.render.text import draw
from tracebook.units import gbps

FAST = {"target_layers": 4.0, "output_layer": 1.0}
SLOW = {"target_layers": 6.0, "output_layer": 1.5}


@pytest.fixture
def two():
    report = make_report()
    regimes = (Regime(20, 5.0, 0, 19, FAST), Regime(12, 7.5, 20, 31, SLOW))
    return replace(report, steps=replace(report.steps, regimes=regimes))


def test_each_regime_has_its_own_times_and_bandwidth(two):
    columns, rows = regime_table(two)
    heads = [column.heading for column in columns]
    table = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    weights = {row.phase: row.weight_bytes for row in two.phase_rows}
    target = table["target layers"]
    assert (target["faster ms"], target["slower ms"], target["ratio"]) == ("4.00", "6.00", "1.500")
    assert target["faster GB/s"] == f"{gbps(weights['target_layers'], 4.0):.1f}"
    assert target["slower GB/s"] == f"{gbps(weights['target_layers'], 6.0):.1f}"
    assert rows[-1][0] == "busy"
    assert table["busy"]["slower GB/s"] == f"{gbps(two.total.weight_bytes, 7.5):.1f}"


def test_phases_that_ran_in_neither_regime_are_left_out(two):
    assert {row[0] for row in regime_table(two)[1]} == {"target layers", "output layer", "busy"}


def test_the_sentence_says_which_steps(two):
    assert regime_sentence(two) == (
        "Two regimes: the faster one is 20 steps between steps 0 and 19, the slower one 12 steps "
        "between steps 20 and 31."
    )


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_they_are_shown_where_there_are_two_and_only_there(two, form):
    assert "Two regimes" in render(two, form, detail="phases")
    assert "Two regimes" not in render(make_report(), form, detail="phases")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_table_fits(two, width):
    lines = draw(two, detail="phases", width=width, rich=False).splitlines()
    assert max(map(len, lines)) <= width
    assert any("faster ms" in line for line in lines)
