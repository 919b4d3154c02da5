from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from step_noise import STEP_MS, baseline_of, common, following, heavy, two_speeds

from tracebook.compare.baseline import Baseline, Noise
from tracebook.compare.calibrate import calibrate
from tracebook.compare.comparison import compare
from tracebook.compare.gates import Gates, make_gates
from tracebook.compare.outcome import judge
from tracebook.errors import NotComparable, TracebookError


def pair(seed=1, steps=60, **change):
    rng = np.random.default_rng(seed)
    return baseline_of(rng, steps), baseline_of(rng, steps, **change)


def pooled(*baselines: Baseline) -> Baseline:
    return Baseline(tuple(run for baseline in baselines for run in baseline.runs))


def rows_of(found):
    return {row.quantity: row for row in found.rows}


def test_a_slower_drafter_is_blamed_alone():
    found = compare(*pair(slower={"drafter_layers": 1.04}))
    outcome = judge(found)
    assert outcome.exit_code == 3
    assert [row.quantity for row in outcome.regressions] == ["drafter_layers"]
    assert "Slower in the drafter layers" in outcome.headline
    row = rows_of(found)["drafter_layers"]
    low, high = row.interval_ms
    assert low < 0.04 * 5.7 < high
    assert row.p < 1e-4
    assert sum(r.contribution_ns for r in found.rows[1:]) == found.step.contribution_ns
    assert found.step.change_ms == pytest.approx(found.step.contribution_ns / 1e6, abs=1e-6)


def test_the_same_run_is_the_same():
    old, _ = pair()
    found = compare(old, old)
    assert {row.verdict for row in found.rows} == {"same"}
    assert {row.p for row in found.rows} == {1.0}
    assert judge(found).exit_code == 0


def test_a_faster_phase_is_better_and_passes():
    found = compare(*pair(slower={"draft_head": 0.8}))
    assert rows_of(found)["draft_head"].verdict == "better"
    assert judge(found).exit_code == 0


def test_a_step_slower_all_over_is_found_though_no_phase_is():
    found = compare(*pair(steps=300, everything=1.012, idle=1.012))
    outcome = judge(found)
    assert outcome.exit_code == 3
    assert [row.quantity for row in outcome.regressions] == ["step"]
    assert "most of it in the target layers" in outcome.headline
    assert [caution.code for caution in found.cautions] == ["one_factor"]


def test_fewer_and_longer_steps_of_the_same_seconds_regress():
    """10.6 % longer steps, all of it the drafter: 301 and 272 steps fill 30 s."""
    rng = np.random.default_rng(2)
    slower = {"drafter_layers": 1 + 0.106 * 99.6 / STEP_MS["drafter_layers"]}
    old, new = baseline_of(rng, 301), baseline_of(rng, 272, slower=slower)
    outcome = judge(compare(old, new))
    assert outcome.exit_code == 3
    assert {row.quantity for row in outcome.regressions} == {"drafter_layers", "step"}


@pytest.mark.parametrize("factor", [1.12, 0.88])
def test_one_factor_in_every_phase_is_the_machine(factor):
    outcome = judge(compare(*pair(everything=factor)))
    assert (outcome.state, outcome.exit_code, outcome.regressions) == ("machine_state", 4, ())
    assert "Machine state (clock, power, thermal)" in outcome.reasons[0].message


@pytest.mark.parametrize("side", [0, 1])
def test_two_speeds_within_a_capture_are_the_machine(side):
    rng = np.random.default_rng(3)
    sides = [baseline_of(rng, 80), baseline_of(rng, 80)]
    sides[side] = baseline_of(rng, 80, noise=two_speeds)
    outcome = judge(compare(*sides))
    assert (outcome.state, outcome.reasons[0].code) == ("machine_state", "two_speeds")


def test_outliers_are_no_second_speed():
    rng = np.random.default_rng(4)
    assert judge(compare(*(baseline_of(rng, 60, noise=heavy) for _ in "ab"))).exit_code == 0


def test_an_alternating_drafter_is_the_code():
    """Half of the steps draft twice as long: two groups, but not of every phase."""
    rng = np.random.default_rng(5)
    old, new = baseline_of(rng, 60), baseline_of(rng, 60)
    (run,) = new.runs
    extra = np.where(np.arange(60) % 2, run.phases_ns["drafter_layers"], 0)
    phases = dict(run.phases_ns) | {"drafter_layers": run.phases_ns["drafter_layers"] + extra}
    run = dataclasses.replace(run, phases_ns=phases, wall_ns=run.wall_ns + extra)
    assert judge(compare(old, Baseline((run,)))).state != "machine_state"


def test_clocks_name_the_cause_of_a_small_factor():
    old, new = pair(steps=300, everything=1.025, idle=1.0)
    slow = [Baseline((dataclasses.replace(side.runs[0], clock=clock),))
            for side, clock in ((old, 2400.0), (new, 2340.0))]  # fmt: skip
    assert judge(compare(old, new)).exit_code == 3
    outcome = judge(compare(*slow))
    assert outcome.state == "machine_state"
    assert "the clock is at 98 %" in outcome.reasons[0].message


def test_too_few_steps_are_unknown_and_not_the_same():
    found = compare(*pair(steps=12))
    assert {row.verdict for row in found.rows} == {"unknown"}
    assert [reason.code for reason in judge(found).reasons] == ["too_few_steps"] * 2
    assert judge(found).exit_code == 4
    assert judge(compare(*pair(steps=12), make_gates(min_steps=12))).exit_code == 0


def test_a_named_phase_may_not_stay_unknown():
    rng = np.random.default_rng(6)

    def wild(rng, shape):
        return np.exp(0.3 * rng.standard_normal(shape))

    old, new = (baseline_of(rng, 30, noise=wild) for _ in "ab")
    gates = make_gates(per_quantity={"draft_head": 0.01})
    outcome = judge(compare(old, new, gates))
    assert outcome.exit_code == 4
    assert {reason.code for reason in outcome.reasons} == {"too_noisy"}


@pytest.mark.parametrize(
    ("gates", "exit_code"),
    [
        (make_gates(per_quantity={"drafter_layers": 0.08, "step": 0.05}), 0),
        (make_gates(min_ms=0.5), 0),
        (make_gates(gate=0.01), 3),
    ],
)
def test_both_thresholds_hold(gates, exit_code):
    assert judge(compare(*pair(slower={"drafter_layers": 1.05}), gates)).exit_code == exit_code


def test_a_new_phase_counts_with_all_its_time():
    old, new = pair()
    (run,) = old.runs
    phases = dict(run.phases_ns)
    gone = phases.pop("replay")
    without = Baseline((dataclasses.replace(run, phases_ns=phases, wall_ns=run.wall_ns - gone),))
    found = compare(without, new)
    row = rows_of(found)["replay"]
    assert (row.verdict, row.change_pct) == ("worse", None)
    assert row.change_ms == pytest.approx(0.7, rel=0.02)


def test_runs_that_differ_among_themselves_widen_the_interval():
    rng = np.random.default_rng(7)
    one, two = pair(seed=8)
    shifted = [baseline_of(rng, 60, everything=factor) for factor in (0.98, 1.0, 1.02)]
    alone = compare(one, two).step.interval_ms
    found = compare(pooled(*shifted), pooled(one, two)).step
    assert found.interval_ms[1] - found.interval_ms[0] > 2 * (alone[1] - alone[0])
    assert found.noise_pct == pytest.approx(1.6, abs=0.5)  # sd of the five medians, pooled


def test_calibrated_noise_holds_back_what_runs_differ_by():
    rng = np.random.default_rng(9)
    runs = [baseline_of(rng, 60, everything=1 + shift) for shift in (-0.01, -0.004, 0.004, 0.01)]
    learned = calibrate(pooled(*runs))
    assert learned.noise.runs == 4
    assert learned.noise.between_runs["step"] == pytest.approx(0.0088, abs=0.002)
    slower = baseline_of(rng, 60, everything=1.012)
    assert judge(compare(pooled(*runs[1:3]), slower)).exit_code == 0
    single = Baseline(runs[1].runs)
    assert judge(compare(single, slower)).exit_code == 3
    assert judge(compare(Baseline(single.runs, learned.noise), slower)).exit_code == 0


def test_calibration_asks_for_runs_of_one_build():
    one, two = pair()
    with pytest.raises(TracebookError, match="2 runs do not tell"):
        calibrate(pooled(one, two))
    other = Baseline((dataclasses.replace(two.runs[0], report={"trace": {"gpu": "other"}}),))
    named = Baseline((dataclasses.replace(one.runs[0], report={"trace": {"gpu": "this"}}),))
    with pytest.raises(NotComparable, match="Run 2 is not a run of the same build"):
        calibrate(pooled(named, other, named))


def test_calibration_refuses_a_capture_given_twice():
    one, two = pair()
    with pytest.raises(TracebookError, match="Runs 1 and 3 hold the same steps") as refused:
        calibrate(pooled(one, two, one))
    assert refused.value.exit_code == 1
    assert "different captures of one build" in refused.value.hint


def test_noise_of_either_side_counts():
    old, new = pair()
    noise = Noise(5, {"step": 0.02})
    for sides in ((Baseline(old.runs, noise), new), (old, Baseline(new.runs, noise))):
        assert compare(*sides).step.noise_pct == pytest.approx(2.0)


def test_dependent_steps_widen_the_interval():
    rng = np.random.default_rng(10)
    free = compare(*(baseline_of(rng, 300, noise=common) for _ in "ab")).step
    bound = compare(*(baseline_of(rng, 300, noise=following(0.6)) for _ in "ab")).step
    widths = [row.interval_ms[1] - row.interval_ms[0] for row in (free, bound)]
    assert widths[1] > 1.4 * widths[0]


def test_a_comparison_is_the_same_every_time():
    old, new = pair(slower={"replay": 1.3})
    assert compare(old, new) == compare(old, new)


def test_gates_have_a_place_for_each_quantity():
    gates = Gates()
    assert gates.of("drafter_layers") == 0.02
    assert gates.of("step") == pytest.approx(0.006)
    assert gates.threshold_ns("sampling", 110_000) == 50_000
    assert gates.threshold_ns("drafter_layers", 5_700_000) == pytest.approx(114_000)
