"""How often a check is right: simulated pairs of runs, judged as `tracebook check` does.

    python -m benchmarks.power [--pairs 1000] [--seed 1]

Every line draws pairs of runs from a model of noise (tests/step_noise.py), compares them
at the default settings and counts how the checks end. `make power` prints the table that
stands in docs/method.md. The exit status is 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.step_noise import (
    STEP_MS,
    baseline_of,
    common,
    drifting,
    following,
    heavy,
    independent,
    two_speeds,
)
from tracebook.compare.baseline import Baseline
from tracebook.compare.calibrate import calibrate
from tracebook.compare.comparison import compare
from tracebook.compare.outcome import Outcome, judge

STEP = sum(STEP_MS.values()) + 0.37
#: Steps of 99.6 ms, and of ones 10.6 % longer, in a capture of 30 s.
STEPS_OF_30_S = int(30e3 / STEP), int(30e3 / (1.106 * STEP))
#: A drafter that makes the step 10.6 % longer.
MUCH_SLOWER = 1 + 0.106 * STEP / STEP_MS["drafter_layers"]


def regressed(outcome: Outcome) -> bool:
    """Exit 3."""
    return outcome.exit_code == 3


def drafter_alone(outcome: Outcome) -> bool:
    """Exit 3, and the drafter is the one phase that is blamed."""
    blamed = {row.quantity for row in outcome.regressions} - {"step"}
    return regressed(outcome) and blamed == {"drafter_layers"}


def step_found(outcome: Outcome) -> bool:
    """Exit 3, the step being one of the regressions."""
    return regressed(outcome) and "step" in {row.quantity for row in outcome.regressions}


def machine(outcome: Outcome) -> bool:
    """Exit 4, for the state of the machine."""
    return outcome.state == "machine_state"


@dataclass(frozen=True)
class Scenario:
    """Pairs of one kind: what the second run differs by, and what must come out."""

    name: str
    steps: tuple[int, int]
    noise: Callable[..., Any]
    counted: Callable[[Outcome], bool]
    least: float | None = None
    most: float | None = None
    change: dict[str, Any] = field(default_factory=dict)
    between_runs: float = 0.0
    calibrated_by: int = 0


def unchanged(name: str, steps: int, noise: Callable[..., Any], most: float) -> Scenario:
    return Scenario(f"unchanged, {name}", (steps, steps), noise, regressed, most=most)


_DRAFTER = {"slower": {"drafter_layers": 1.04}}
_LONG = {"slower": {"drafter_layers": MUCH_SLOWER}}
SCENARIOS = (
    unchanged("independent phases", 60, independent, 0.01),
    unchanged("common noise", 60, common, 0.01),
    unchanged("common noise", 20, common, 0.01),
    unchanged("common noise", 300, common, 0.01),
    unchanged("5 % of steps 1.3x", 60, heavy, 0.01),
    unchanged("slow drift", 60, drifting, 0.01),
    unchanged("AR(1) 0.3", 60, following(0.3), 0.02),
    unchanged("AR(1) 0.6", 60, following(0.6), 0.02),
    unchanged("AR(1) 0.6", 300, following(0.6), 0.02),
    Scenario("unchanged, runs differ by 0.1 %", (60, 60), common, regressed, most=0.01,
             between_runs=0.001),
    Scenario("unchanged, runs differ by 0.5 %", (60, 60), common, regressed, between_runs=0.005),
    Scenario("the same, calibrated by 5 runs", (60, 60), common, regressed, most=0.01,
             between_runs=0.005, calibrated_by=5),
    Scenario("drafter +4 %, independent phases", (60, 60), independent, drafter_alone, 0.95,
             change=_DRAFTER),
    Scenario("drafter +4 %, common noise", (60, 60), common, drafter_alone, 0.95, change=_DRAFTER),
    Scenario("drafter +4 %, 5 % of steps 1.3x", (60, 60), heavy, drafter_alone, 0.95,
             change=_DRAFTER),
    Scenario("drafter +4 %, AR(1) 0.3", (60, 60), following(0.3), drafter_alone, change=_DRAFTER),
    Scenario("drafter +4 %, AR(1) 0.6", (60, 60), following(0.6), drafter_alone, change=_DRAFTER),
    Scenario("all phases +1 %, independent", (300, 300), independent, step_found, 0.95,
             change={"everything": 1.01, "idle": 1.01}),
    Scenario("all phases +1 %, common noise", (300, 300), common, step_found, 0.95,
             change={"everything": 1.01, "idle": 1.01}),
    Scenario("step +10.6 % by the drafter, 30 s", STEPS_OF_30_S, common, drafter_alone, 0.999,
             change=_LONG),
    Scenario("clock: all phases +12 %", (60, 60), common, machine, 0.95,
             change={"everything": 1.12}),
    Scenario("clock: all phases -12 %", (60, 60), independent, machine, 0.95,
             change={"everything": 0.88}),
    Scenario("clock: all phases +12 %, AR(1) 0.6", (60, 60), following(0.6), machine, 0.95,
             change={"everything": 1.12}),
    Scenario("clock changes within the capture", (60, 60), two_speeds, machine, 0.95),
)  # fmt: skip


def play(scenario: Scenario, pairs: int, seed: int) -> tuple[float, Counter[int]]:
    """Share of pairs that end as counted, and how many ended with each status."""
    rng = np.random.default_rng(seed)
    statuses: Counter[int] = Counter()
    counted = 0
    for _ in range(pairs):
        shared = {"noise": scenario.noise, "between_runs": scenario.between_runs}
        old = baseline_of(rng, scenario.steps[0], **shared)
        if scenario.calibrated_by:
            more = (baseline_of(rng, scenario.steps[0], **shared).runs
                    for _ in range(scenario.calibrated_by - 1))  # fmt: skip
            old = calibrate(Baseline((*old.runs, *(run for runs in more for run in runs))))
        new = baseline_of(rng, scenario.steps[1], **shared, **scenario.change)
        outcome = judge(compare(old, new))
        statuses[outcome.exit_code] += 1
        counted += scenario.counted(outcome)
    return counted / pairs, statuses


def play_number(number: int, pairs: int, seed: int) -> tuple[float, Counter[int]]:
    """One line of the table, by its number: closures do not travel between processes."""
    return play(SCENARIOS[number], pairs, seed + number)


def met(scenario: Scenario, share: float) -> bool:
    """Whether the share is within what is demanded."""
    low = scenario.least is None or share >= scenario.least
    return low and (scenario.most is None or share <= scenario.most)


def show(scenario: Scenario, share: float, statuses: Counter[int], pairs: int) -> bool:
    """Print a line of the table; return whether its demand is met."""
    demand = "-"
    if scenario.least is not None:
        demand = f">= {100 * scenario.least:g} %"
    if scenario.most is not None:
        demand = f"<= {100 * scenario.most:g} %"
    good = met(scenario, share)
    steps = "/".join(str(n) for n in dict.fromkeys(scenario.steps))
    row = (
        scenario.name,
        steps,
        scenario.counted.__name__.replace("_", " "),
        f"{100 * share:.1f} %",
        demand if good else f"{demand} NOT MET",
        *(f"{100 * statuses[code] / pairs:.1f} %" for code in (0, 3, 4)),
    )
    print("| " + " | ".join(row) + " |", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.perf_counter()
    print(f"{args.pairs} pairs a line, seed {args.seed}, default settings\n")
    heads = ("pairs of runs", "steps", "counted", "share", "demand", "exit 0", "3", "4")
    print("| " + " | ".join(heads) + " |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    lines = len(SCENARIOS)
    with ProcessPoolExecutor() as pool:
        played = pool.map(play_number, range(lines), [args.pairs] * lines, [args.seed] * lines)
        verdicts = [
            show(scenario, share, statuses, args.pairs)
            for scenario, (share, statuses) in zip(SCENARIOS, played, strict=True)
        ]
    print(f"\n{time.perf_counter() - began:.0f} s", file=sys.stderr)
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
