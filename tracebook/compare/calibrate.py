"""The noise floor: what repeated runs of one build differ by.

The steps of one capture tell how steps vary, not how captures do: another capture finds
the machine warmer and memory laid out otherwise. Several runs of one build tell, and a
baseline that carries their spread is held to it. What the steps explain of that spread is
not taken out: with a handful of runs the rest would too often be found to be nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tracebook.compare.baseline import Baseline, Noise, Run
from tracebook.compare.comparable import comparable
from tracebook.compare.gates import Gates
from tracebook.compare.series import phases_of, quantities_of, series_of
from tracebook.errors import NotComparable, TracebookError

#: Two runs give a spread that may be off by a factor of ten.
FEWEST_RUNS = 3


def calibrate(runs: Baseline, gates: Gates | None = None) -> Baseline:
    """Learn the noise between runs and keep it with them.

    Args:
        runs: Three runs or more of one build on one machine.
        gates: For the fewest steps of a run.

    Raises:
        TracebookError: There are too few runs, or two of them are one.
        NotComparable: They are not runs of one build.
    """
    if len(runs.runs) < FEWEST_RUNS:
        raise TracebookError(
            f"{len(runs.runs)} runs do not tell the noise between runs; {FEWEST_RUNS} or more do.",
            "Record the same build again, and give every capture.",
        )
    min_steps = (gates or Gates()).min_steps
    for number, run in enumerate(runs.runs[1:], start=2):
        found = comparable(runs.runs[:1], [run], min_steps=min_steps)
        if found.reasons:
            reason = found.reasons[0]
            text = reason.message.replace("the baseline", "the first run")
            raise NotComparable(
                f"Run {number} is not a run of the same build. "
                f"{text.replace('the new run', 'this one')}",
                reason.hint,
            )
    _refuse_the_same(runs.runs)
    phases = phases_of(runs.runs)
    series = [series_of(run, phases) for run in runs.runs]
    level = np.mean([run.median for run in series], axis=0)
    variance = np.var([run.median for run in series], axis=0, ddof=1)
    spread = np.sqrt(variance)
    learned = {
        name: round(float(spread[row] / level[row]), 6) if level[row] else 0.0
        for row, name in enumerate(quantities_of(phases))
    }
    return Baseline(runs.runs, Noise(len(runs.runs), learned))


def _refuse_the_same(runs: Sequence[Run]) -> None:
    """One capture given twice differs from itself by nothing, which is no noise."""
    for (one, first), (other, second) in combinations(enumerate(runs, start=1), 2):
        if np.array_equal(first.wall_ns, second.wall_ns):
            names = [run.fact("trace", "path") for run in (first, second)]
            called = f" ({names[0]} and {names[1]})" if all(names) and names[0] != names[1] else ""
            raise TracebookError(
                f"Runs {one} and {other}{called} hold the same steps, so they tell nothing of "
                "the noise between runs.",
                "Give different captures of one build, each recorded anew.",
            )


def told(baseline: Baseline) -> str:
    """The noise of a calibrated baseline as a table."""
    noise = baseline.noise
    if noise is None:
        return "The noise between runs is not known.\n"
    phases = phases_of(baseline.runs)
    series = [series_of(run, phases) for run in baseline.runs]
    lines = [f"{'phase':<16}  {'ms':>8}  {'between runs':>12}  {'within, of a median':>19}"]
    for row, name in enumerate(quantities_of(phases)):
        level = float(np.mean([run.median[row] for run in series]))
        within = float(np.mean([run.error[row] for run in series]))
        between = 100 * noise.between_runs.get(name, 0.0)
        lines.append(
            f"{name.replace('_', ' '):<16}  {level / 1e6:>8.2f}  {between:>10.2f} %"
            f"  {100 * within / level if level else 0:>17.2f} %"
        )
    return "\n".join(lines) + "\n"
