"""The comparison of two sides: what every quantity took before and after, and verdicts.

A quantity is `worse` or `better` where three things hold: its median changed by more
than both thresholds, the 95 % interval of the change leaves out zero, and the rank test
rejects after correction for the number of quantities. It is `same` where that does not
hold although a change worth speaking of would have been seen, and else `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from tracebook.compare.baseline import Baseline, Noise, Run
from tracebook.compare.comparable import LEAST_STEPS_OF_RUN, comparable
from tracebook.compare.decompose import contributions_ns
from tracebook.compare.gates import STEP, Gates
from tracebook.compare.inference import Floats, holm, rank_test, welch_df
from tracebook.compare.machine_state import (
    LEAST_CLOCK,
    LEAST_FACTOR,
    classes_moved,
    clock_ratio,
    two_groups,
    uniform_factor,
)
from tracebook.compare.parts import PartChange, part_changes
from tracebook.compare.series import Series, phases_of, quantities_of, series_of
from tracebook.compare.student import two_sided_p, two_sided_quantile
from tracebook.notices import Notice
from tracebook.units import gbps, ms, rounded

Verdict = Literal["same", "better", "worse", "unknown"]

#: `same` is said where a change of this part of the old time, or of this many gates,
#: would have been found 19 times in 20.
_SEEN, _SEEN_GATES = 0.05, 2.5
_ONE_SIDED = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True)
class Row:
    """One quantity: a phase, `idle`, or `step` for the whole.

    Attributes:
        quantity: Its name.
        old_ms: Median over steps (the mean of the runs' medians, where there are several).
        new_ms: The same, of the new side.
        change_ms: new_ms - old_ms.
        change_pct: In percent of old_ms; None where that is 0.
        interval_ms: 95 % interval of change_ms.
        p: Two-sided, corrected for the number of quantities (Holm).
        verdict: same, better, worse or unknown.
        gate_pct: Its relative gate.
        threshold_ms: Change from which it counts, by both thresholds.
        seen_ms: Smallest change that would have been found 19 times in 20.
        contribution_ns: What it adds to the change of the step. Those of phases and idle
            sum to that of the step, exactly.
        old_bytes: Weight bytes per step, None where not known.
        new_bytes: The same, of the new side.
        old_gbps: old_bytes over old_ms.
        new_gbps: new_bytes over new_ms.
        noise_pct: Standard deviation between runs in percent, None where not known.
    """

    quantity: str
    old_ms: float
    new_ms: float
    change_ms: float
    change_pct: float | None
    interval_ms: tuple[float, float]
    p: float
    verdict: Verdict
    gate_pct: float
    threshold_ms: float
    seen_ms: float
    contribution_ns: int
    old_bytes: int | None
    new_bytes: int | None
    old_gbps: float | None
    new_gbps: float | None
    noise_pct: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything that two sides differ by.

    Attributes:
        rows: The step, its phases, idle.
        parts: Kernels behind the changes, the largest first.
        old_steps: Kept steps of each run.
        new_steps: The same, of the new side.
        reasons: Why the two cannot be compared; none where they can.
        machine_state: What speaks for a change of the machine and not of the code.
        cautions: What to mind.
        gates: The thresholds used.
    """

    rows: tuple[Row, ...]
    parts: tuple[PartChange, ...]
    old_steps: tuple[int, ...]
    new_steps: tuple[int, ...]
    reasons: tuple[Notice, ...]
    machine_state: Notice | None
    cautions: tuple[Notice, ...]
    gates: Gates

    @property
    def step(self) -> Row:
        """The whole step."""
        return self.rows[0]

    def with_verdict(self, verdict: Verdict) -> tuple[Row, ...]:
        """Phases and idle of one verdict, those that add most to the step first."""
        found = [row for row in self.rows[1:] if row.verdict == verdict]
        return tuple(sorted(found, key=lambda row: -abs(row.contribution_ns)))


def compare(old: Baseline, new: Baseline, gates: Gates | None = None) -> Comparison:
    """Compare the steps of two sides.

    Args:
        old: The baseline, one run or several, with noise between runs if calibrated.
        new: What is judged.
        gates: Thresholds.
    """
    gates = gates or Gates()
    checked = comparable(old.runs, new.runs, min_steps=gates.min_steps)
    phases = phases_of((*old.runs, *new.runs))
    names = quantities_of(phases)
    sides = [[series_of(run, phases) for run in side.runs] for side in (old, new)]
    estimate = _estimate(names, sides[0], sides[1], old.noise or new.noise)
    contributions = contributions_ns(*sides)
    rows = tuple(
        _row(index, name, estimate, contributions[index], (old, new), gates, len(names))
        for index, name in enumerate(names)
    )
    state, caution = _machine_state(names, (old, new), sides, rows[0])
    cautions = [*checked.cautions, *([caution] if caution else [])]
    return Comparison(
        rows=rows,
        parts=part_changes(_typical(old.runs).parts, _typical(new.runs).parts),
        old_steps=tuple(run.steps for run in old.runs),
        new_steps=tuple(run.steps for run in new.runs),
        reasons=checked.reasons,
        machine_state=state,
        cautions=tuple(cautions),
        gates=gates,
    )


@dataclass(frozen=True)
class _Estimate:
    """Per quantity: medians, the error of their difference, p-values, in ns."""

    old: Floats
    new: Floats
    error: Floats
    df: Floats
    p: Floats
    noise: Floats | None
    enough: bool


def _estimate(
    names: Sequence[str], old: Sequence[Series], new: Sequence[Series], noise: Noise | None
) -> _Estimate:
    """Pool the runs of each side; the noise between runs counts beside that within."""
    before, after = (np.mean([run.median for run in side], axis=0) for side in (old, new))
    within = [(run.error / len(side)) ** 2 for side in (old, new) for run in side]
    counts = [run.steps / run.inflated for side in (old, new) for run in side]
    between, df_between = _between_runs(names, old, new, noise, before)
    spread = between * (1 / len(old) + 1 / len(new))
    variance = np.sum(within, axis=0) + spread
    df = np.array(
        [
            welch_df(
                [(float(part[i]), float(n[i])) for part, n in zip(within, counts, strict=True)]
                + ([(float(spread[i]), df_between + 1.0)] if spread[i] > 0 else [])
            )
            for i in range(len(names))
        ]
    )
    pooled = [np.concatenate([run.values for run in side], axis=1) for side in (old, new)]
    inflated = [
        np.sum([run.steps for run in side])
        / np.sum([run.steps / run.inflated for run in side], axis=0)
        for side in (old, new)
    ]
    p = rank_test(pooled[0], pooled[1], inflated[0], inflated[1])
    error = np.sqrt(variance)
    for i in np.flatnonzero(spread > 0):
        t = float((after[i] - before[i]) / error[i])
        p[i] = max(p[i], two_sided_p(t, float(df[i])))
    known = df_between > 0
    steps = [run.steps for side in (old, new) for run in side]
    enough = min(steps) >= LEAST_STEPS_OF_RUN
    return _Estimate(before, after, error, df, holm(p), np.sqrt(between) if known else None, enough)


def _between_runs(
    names: Sequence[str],
    old: Sequence[Series],
    new: Sequence[Series],
    noise: Noise | None,
    level: Floats,
) -> tuple[Floats, float]:
    """Variance between runs of one build, in ns squared, and its degrees of freedom.

    It is what the runs at hand differ by, or what was calibrated, whichever is more.
    Where neither is known it is zero, with no degrees of freedom.
    """
    variance, df = np.zeros(len(names)), 0.0
    seen = len(old) + len(new) - 2
    if seen > 0:
        squares = sum(
            np.sum((np.array([run.median for run in side]) - centre) ** 2, axis=0)
            for side in (old, new)
            for centre in [np.mean([run.median for run in side], axis=0)]
        )
        variance, df = squares / seen, float(seen)
    if noise is not None:
        learned = np.array([noise.between_runs.get(name, 0.0) for name in names])
        variance = np.maximum(variance, (learned * level) ** 2)
        df = max(df, noise.runs - 1.0)
    return variance, df


def _row(
    index: int,
    name: str,
    found: _Estimate,
    contribution: int,
    sides: tuple[Baseline, Baseline],
    gates: Gates,
    tested: int,
) -> Row:
    old, new, error = (float(a[index]) for a in (found.old, found.new, found.error))
    change = new - old
    reach = _t95(round(float(found.df[index]), 1)) * error
    interval = (change - reach, change + reach)
    threshold = gates.threshold_ns(name, old)
    sure = NormalDist().inv_cdf(1 - gates.alpha / (2 * tested))
    seen = max(threshold, sure * error) + _ONE_SIDED * error
    enough = found.enough and all(
        sum(run.steps for run in side.runs) >= gates.min_steps for side in sides
    )
    verdict: Verdict = "same"
    if not enough:
        verdict = "unknown"
    elif (
        abs(change) >= threshold
        and not interval[0] <= 0 <= interval[1]
        and found.p[index] < gates.alpha
    ):
        verdict = "worse" if change > 0 else "better"
    elif seen > max(_SEEN * old, _SEEN_GATES * threshold):
        verdict = "unknown"
    old_bytes, new_bytes = (_bytes(side.runs[0], name) for side in sides)
    return Row(
        quantity=name,
        old_ms=ms(old),
        new_ms=ms(new),
        change_ms=ms(change),
        change_pct=rounded(100 * change / old) if old else None,
        interval_ms=(ms(interval[0]), ms(interval[1])),
        p=float(f"{found.p[index]:.3g}"),
        verdict=verdict,
        gate_pct=rounded(100 * gates.of(name)),
        threshold_ms=ms(threshold),
        seen_ms=ms(seen),
        contribution_ns=contribution,
        old_bytes=old_bytes,
        new_bytes=new_bytes,
        old_gbps=gbps(old_bytes, ms(old)),
        new_gbps=gbps(new_bytes, ms(new)),
        noise_pct=(
            rounded(100 * float(found.noise[index]) / old)
            if found.noise is not None and old
            else None
        ),
    )


@lru_cache(maxsize=4096)
def _t95(df: float) -> float:
    return two_sided_quantile(0.05, df)


def _bytes(run: Run, quantity: str) -> int | None:
    """Weight bytes per step that the run's report gives for a quantity."""
    if quantity == STEP:
        found = run.fact("total", "weight_bytes")
    else:
        rows = [row for row in run.report.get("phases") or () if row.get("phase") == quantity]
        found = rows[0].get("weight_bytes") if rows else None
    return found if isinstance(found, int) else None


def _typical(runs: Sequence[Run]) -> Run:
    """The run whose median step is in the middle."""
    ordered = sorted(runs, key=lambda run: float(np.median(run.wall_ns)))
    return ordered[(len(ordered) - 1) // 2]


def _machine_state(
    names: Sequence[str],
    sides: tuple[Baseline, Baseline],
    series: Sequence[Sequence[Series]],
    step: Row,
) -> tuple[Notice | None, Notice | None]:
    """A finding that the machine changed, and a caution where that may be so."""
    hint = (
        "Lock the clocks (nvidia-smi --lock-gpu-clocks), let the machine cool down, and record "
        "both again; the code is neither cleared nor blamed."
    )
    clocks = clock_ratio(sides[0].runs, sides[1].runs)
    for side, called in zip(series, ("baseline", "new run"), strict=True):
        for one in side:
            groups = two_groups(one, names)
            if groups is not None:
                message = (
                    f"Machine state (clock, power, thermal): the steps of the {called} fall into "
                    f"two groups, around {groups[0] / 1e6:.2f} and {groups[1] / 1e6:.2f} ms, "
                    "which differ in every phase alike."
                )
                return Notice("two_speeds", message, hint), None
    factor = uniform_factor(names, *series)
    if factor is None:
        return None, None
    moved = f"every phase is {'slower' if factor > 1 else 'faster'} by the same factor"
    moved = f"{moved} ({100 * (factor - 1):+.1f} %)"
    told = ""
    if clocks is not None:
        told = f"; the clock is at {100 * clocks:.0f} % of the baseline's"
    by_clock = clocks is not None and abs(clocks - 1) > LEAST_CLOCK and (clocks < 1) == (factor > 1)
    if abs(factor - 1) < LEAST_FACTOR and not by_clock:
        if step.verdict not in ("worse", "better"):
            return None, None
        text = f"{moved[0].upper()}{moved[1:]}{told}: look at the clocks before the code."
        return None, Notice("one_factor", text, None)
    if not classes_moved(_typical(sides[0].runs), _typical(sides[1].runs), factor):
        text = f"{moved[0].upper()}{moved[1:]}, but not every class of kernels."
        return None, Notice("one_factor_some_classes", text, None)
    return (
        Notice("one_factor", f"Machine state (clock, power, thermal): {moved}{told}.", hint),
        None,
    )
