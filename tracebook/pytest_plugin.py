"""A fixture and a marker for pytest: a project's own tests hold a trace to a baseline.

    def test_decode_is_no_slower(trace_check):
        trace_check("run.sqlite", baseline="base.json", gate={"drafter_layers": 0.02})

The plugin is loaded with every pytest run where tracebook is installed, so it imports
nothing but pytest until the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from tracebook.compare.comparison import Comparison

_MARKER = (
    "trace_check(baseline, gate, min_ms, min_steps, undecided, ...): defaults for the trace_check "
    "fixture in this test"
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def trace_check(request: pytest.FixtureRequest) -> Callable[..., Comparison]:
    """Compare a run with a baseline; fail the test where the run is slower.

    The function takes a trace or a saved run (or several captures of one build), and

    - `baseline`: a saved run, or its name in `.tracebook/` of the root directory;
    - `gate`: a fraction for every phase, or phase to fraction;
    - `min_ms`, `min_steps`: as `tracebook check` has them;
    - `undecided`: `fail` (the default) or `skip`, where the two cannot be compared or the
      machine was in another state;
    - anything that `tracebook.analyze` takes, for traces.

    Relative paths are relative to pytest's root directory. The function returns the
    comparison. `@pytest.mark.trace_check(...)` gives defaults.
    """
    marker = request.node.get_closest_marker("trace_check")
    defaults: dict[str, Any] = dict(marker.kwargs) if marker else {}

    def check(run: str | Path | Sequence[str | Path], **given: Any) -> Comparison:
        from tracebook.errors import TracebookError

        try:
            return _check(request.config.rootpath, run, **(defaults | given))
        except TracebookError as error:
            # A stack through this package would hide what is wrong and lose the hint.
            told = f"{error.message}\nHint: {error.hint}" if error.hint else error.message
        pytest.fail(told, pytrace=False)

    return check


def _check(
    root: Path,
    run: str | Path | Sequence[str | Path],
    *,
    baseline: str | Path,
    gate: float | Mapping[str, float] = 0.02,
    min_ms: float = 0.05,
    min_steps: int = 20,
    undecided: Literal["fail", "skip"] = "fail",
    **options: Any,
) -> Comparison:
    from tracebook.compare.comparison import compare
    from tracebook.compare.gates import make_gates
    from tracebook.compare.outcome import judge
    from tracebook.compare.sides import STORE, both
    from tracebook.render.comparison import render

    single = dict(gate) if isinstance(gate, Mapping) else {}
    overall = 0.02 if isinstance(gate, Mapping) else gate
    gates = make_gates(gate=overall, per_quantity=single, min_ms=min_ms, min_steps=min_steps)
    runs = [run] if isinstance(run, str | Path) else list(run)
    sides = both(_at(root, baseline), [str(root / one) for one in runs], options, root / STORE)
    found = compare(*sides, gates)
    outcome = judge(found)
    if outcome.exit_code == 0:
        return found
    text = render(found, outcome, "text")
    if outcome.state != "regression" and undecided == "skip":
        pytest.skip(outcome.headline)
    pytest.fail(text, pytrace=False)


def _at(root: Path, baseline: str | Path) -> str:
    """The path of a saved run below the root, or the name as it is."""
    path = root / baseline
    return str(path) if path.exists() else str(baseline)
