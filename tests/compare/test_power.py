"""The promises of docs/method.md on fixed seeds; `make power` plays all of them in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.power import SCENARIOS, play

#: Pairs that each promise is tried on here.
PAIRS = 60
#: Errors among them that a promise of at most 1 or 2 % leaves room for.
MOST_FALSE = 2


PROMISES = [s for s in SCENARIOS if (s.least, s.most) != (None, None)]


@pytest.mark.parametrize("scenario", PROMISES, ids=lambda s: f"{s.name} {s.steps[0]}")
def test_promise(scenario):
    share, _ = play(scenario, PAIRS, seed=20)
    if scenario.most is not None:
        assert share * PAIRS <= MOST_FALSE
    else:
        assert (1 - share) * PAIRS <= max((1 - scenario.least) * PAIRS, 1)


def test_the_table_in_the_docs_has_every_line():
    table = (Path(__file__).parents[2] / "docs" / "method.md").read_text()
    for scenario in SCENARIOS:
        assert f"| {scenario.name} | " in table
    assert "NOT MET" not in table
