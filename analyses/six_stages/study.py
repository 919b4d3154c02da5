"""The six stages of the recipe: what bytes predict, what was measured, and what remains.

python -m analyses.six_stages.study
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from analyses.common import FIXTURES, article, cut, number, saved_report, table, write
from tracebook.config import load_run
from tracebook.predict import predict
from tracebook.prediction import Prediction
from tracebook.speculation import expected_tokens, solve_alpha

#: Phases in which bytes make the time; the rest is sampling, preparation and idle time.
MOVING = ("target_layers", "output_layer", "drafter_layers", "draft_head", "replay")


def predicted(run: str) -> Prediction:
    """A stage at the speed of the plain run, whose report is all that is learnt from."""
    return predict(load_run(FIXTURES / run / "run.toml"), learn_from=saved_report("plain-nvfp4"))


def stage(entry: dict[str, Any]) -> dict[str, Any]:
    """One stage: prediction, measurement, and by phase what lies between."""
    found = predicted(entry["run"])
    measured, drafts = entry["step_ms"], entry["drafts"]
    step = found.step_ms("learnt, by phase")
    assert step is not None
    report = saved_report(entry["run"])
    profile = {row.phase: row.ms.median for row in report.phase_rows}
    phases = {phase.phase: phase.learnt_ms or 0.0 for phase in found.phases}
    assert found.learnt is not None
    residual = {p: profile.get(p, 0.0) - phases.get(p, 0.0) for p in MOVING}
    wall = report.steps.wall_ms.median
    residual["rest"] = wall - sum(profile.get(p, 0.0) for p in MOVING) - found.learnt.rest_ms
    residual["benchmark_less_profile"] = measured - wall
    alpha = solve_alpha(entry["tokens_per_step"], drafts) if drafts else None
    return {
        "stage": entry["name"],
        "weight_gb": found.weight_bytes / 1e9,
        "traffic_gb": found.traffic_bytes / 1e9,
        "weights_only_ms": found.step_ms("learnt, weights only"),
        "predicted_ms": step,
        "benchmark_ms": measured,
        "profile_ms": entry.get("profile_ms"),
        "residual_ms": measured - step,
        "residual_by_phase_ms": residual,
        "largest_residual": max(residual, key=lambda phase: abs(residual[phase])),
        "tokens_per_step": entry["tokens_per_step"],
        "alpha": alpha,
        "weighted_tokens_per_s": entry["tokens_per_step"] / measured * 1e3,
        "predicted_tokens_per_s": entry["tokens_per_step"] / step * 1e3,
        "median_tokens_per_s": entry.get("median_tokens_per_s"),
    }


def changes() -> list[dict[str, Any]]:
    """The changes of the last two stages, phase by phase: bytes, predicted and measured."""
    runs = {entry["name"]: entry["run"] for entry in article()["stage"]}
    order = list(runs)
    rows = []
    for change in article()["change"]:
        before = predicted(runs[order[order.index(change["stage"]) - 1]])
        after = predicted(runs[change["stage"]])
        times = [
            {phase.phase: phase.learnt_ms or 0.0 for phase in found.phases}.get(change["phase"], 0)
            for found in (before, after)
        ]
        rows.append(
            {
                "change": change["name"],
                "stage": change["stage"],
                "predicted_saving_ms": times[0] - times[1],
                "measured_saving_ms": change["before_ms"] - change["after_ms"],
            }
        )
    return rows


def step_savings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the benchmark's step lost at the last two stages, and what phases explain of it."""
    steps = {entry["name"]: entry["step_ms"] for entry in article()["stage"]}
    names = list(steps)
    found = []
    for name in names[-2:]:
        explained = sum(r["measured_saving_ms"] for r in rows if r["stage"] == name)
        benchmark = steps[names[names.index(name) - 1]] - steps[name]
        found.append({"stage": name, "benchmark_ms": benchmark, "explained_ms": explained,
                      "remains_ms": benchmark - explained})  # fmt: skip
    both = {key: sum(row[key] for row in found) for key in found[0] if key != "stage"}
    return [*found, {"stage": "both together", **both}]


def fused_copy_ms() -> float:
    """What stock vLLM's second copy of the drafter's K and V rows adds at the learnt rate."""
    learnt = predicted("dflash2-k10").learnt
    assert learnt is not None
    assert learnt.moving_gbps is not None
    return 104_857_600 / (learnt.moving_gbps * 1e6)


def compute() -> tuple[dict[str, Any], str]:
    """The result as data and as Markdown."""
    rows = [stage(entry) for entry in article()["stage"]]
    parts = changes()
    savings = step_savings(parts)
    seven, ten = rows[2], rows[3]
    longer = expected_tokens(solve_alpha(seven["tokens_per_step"], 7), 10)
    plain = saved_report("plain-nvfp4")
    no_replay = predict(
        replace(load_run(FIXTURES / "full-recipe" / "run.toml"), replay=False),
        learn_from=plain,
    ).step_ms("learnt, by phase")
    result = {
        "learnt_from": {
            "step_ms": plain.steps.wall_ms.median,
            "weight_gbps": plain.total.weight_gbps,
            "traffic_gbps": plain.total.traffic_gbps,
        },
        "stages": rows,
        "tokens_at_10_from_alpha_at_7": longer,
        "tokens_at_10_measured": ten["tokens_per_step"],
        "changes": parts,
        "savings": savings,
        "fused_copy_ms": fused_copy_ms(),
        "full_recipe_without_replay_ms": no_replay,
    }
    return cut(result), _text(result)


def _text(result: dict[str, Any]) -> str:
    rows = result["stages"]
    stages = table(
        ["stage", "weights GB", "all GB", "weights only ms", "predicted ms", "profile ms",
         "benchmark ms", "residual ms", "largest in", "tokens/step", "alpha",
         "tokens/s", "predicted tokens/s", "median tokens/s"],
        [
            [
                r["stage"], number(r["weight_gb"], 2), number(r["traffic_gb"], 2),
                number(r["weights_only_ms"]), number(r["predicted_ms"]), number(r["profile_ms"]),
                number(r["benchmark_ms"]),
                number(r["residual_ms"], sign=True),
                r["largest_residual"].replace("_", " "),
                number(r["tokens_per_step"], 2), number(r["alpha"], 3),
                number(r["weighted_tokens_per_s"]), number(r["predicted_tokens_per_s"]),
                number(r["median_tokens_per_s"]),
            ]
            for r in rows
        ],
    )  # fmt: skip
    parts = list(rows[0]["residual_by_phase_ms"])
    residuals = table(
        ["stage", *(part.replace("_", " ") for part in parts), "sum"],
        [
            [
                r["stage"],
                *(number(r["residual_by_phase_ms"][p], 2, sign=True) for p in parts),
                number(r["residual_ms"], 2, sign=True),
            ]
            for r in rows
        ],
    )
    changed = table(
        ["change", "predicted saving ms", "measured in the profile ms"],
        [
            [
                c["change"], number(c["predicted_saving_ms"], sign=True),
                number(c["measured_saving_ms"], sign=True),
            ]
            for c in result["changes"]
        ],
    )  # fmt: skip
    saved = table(
        ["stage", "off the benchmark's step ms", "explained by phases ms", "remains ms"],
        [
            [
                s["stage"], number(s["benchmark_ms"]), number(s["explained_ms"]),
                number(s["remains_ms"], sign=True),
            ]
            for s in result["savings"]
        ],
    )  # fmt: skip
    return f"""# Result

Learnt from the plain run alone: {number(result["learnt_from"]["weight_gbps"])} GB/s of weights,
{number(result["learnt_from"]["traffic_gbps"])} GB/s of all traffic.

{stages}

The acceptance fitted at 7 drafts predicts
{number(result["tokens_at_10_from_alpha_at_7"], 2)} tokens per step at 10;
{number(result["tokens_at_10_measured"], 2)} were measured.

## Where each residual lies, in ms

Profile less prediction for each phase and for the rest (sampling, preparation, idle time), and
the benchmark's step less the profile's. The parts add up to the residual.

{residuals}

Stock vLLM reads a second, fused copy of the drafter's K and V rows, which the prediction leaves
out: {number(result["fused_copy_ms"], 2)} ms of the drafter's residual.

## What the last two changes took off the step

{changed}

{saved}

Without replay the full recipe would take {number(result["full_recipe_without_replay_ms"])} ms.
"""


if __name__ == "__main__":
    write(Path(__file__).parent, *compute())
