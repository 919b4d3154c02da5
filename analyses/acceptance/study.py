"""Acceptance, tokens per step, and how many drafts pay: MTP against a block drafter.

python -m analyses.acceptance.study
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analyses.common import FIXTURES, article, cut, number, saved_report, table, write
from tracebook.config import load_run
from tracebook.predict import predict
from tracebook.prediction import Prediction
from tracebook.speculation import expected_tokens, solve_alpha

RUNS = {"MTP": "mtp3", "DFlash2 in BF16": "dflash2-k10", "full recipe": "full-recipe"}
SHOWN = (1, 2, 3, 5, 7, 8, 10, 12, 15, 16)


def swept(run: str) -> Prediction:
    """A run over the number of drafts, at the speed of the plain run."""
    return predict(
        load_run(FIXTURES / run / "run.toml"), learn_from=saved_report("plain-nvfp4"), sweep=True
    )


def curve(name: str, run: str) -> dict[str, Any]:
    """Step time and tokens per second over K, and what follows."""
    found = swept(run)
    speculation = found.speculation
    assert speculation is not None
    growth = (found.sweep[16].step_ms - found.sweep[1].step_ms) / 15
    return {
        "drafter": name,
        "alpha": speculation.alpha,
        "best_drafts": speculation.best_draft_tokens,
        "longest_paying": speculation.longest_paying,
        "ms_per_draft": growth,
        "step_ms": {row.draft_tokens: row.step_ms for row in found.sweep},
        "tokens_per_s": {row.draft_tokens: row.tokens_per_s for row in found.sweep},
        "break_even_alpha": {row.draft_tokens: row.break_even_alpha for row in found.sweep[1:]},
    }


def kinds() -> list[dict[str, Any]]:
    """Kinds of prompts under the full recipe: their acceptance, and the step it implies."""
    return [
        {
            "kind": kind["name"],
            "tokens_per_step": kind["tokens_per_step"],
            "alpha": solve_alpha(kind["tokens_per_step"], 10),
            "tokens_per_s": 1e3 / kind["token_ms"],
            "implied_step_ms": kind["token_ms"] * kind["tokens_per_step"],
        }
        for kind in article()["prompt_kind"]
    ]


def compute() -> tuple[dict[str, Any], str]:
    """The result as data and as Markdown."""
    stages = [
        {
            "stage": entry["name"],
            "drafts": entry["drafts"],
            "tokens_per_step": entry["tokens_per_step"],
            "alpha": solve_alpha(entry["tokens_per_step"], entry["drafts"]),
            "published_alpha": entry["alpha"],
        }
        for entry in article()["stage"]
        if entry["drafts"]
    ]
    seven = next(s for s in stages if s["drafts"] == 7)
    curves = [curve(name, run) for name, run in RUNS.items()]
    fp8 = article()["fp8_mtp"]
    result = {
        "stages": stages,
        "tokens_at_10_from_alpha_at_7": expected_tokens(seven["alpha"], 10),
        "curves": curves,
        "fp8_study_best": max(fp8, key=lambda row: row["tokens_per_s"])["drafts"],
        "prompt_kinds": kinds(),
    }
    return cut(result), _text(result, fp8)


def _text(result: dict[str, Any], fp8: list[dict[str, Any]]) -> str:
    stages = table(
        ["stage", "drafts", "tokens/step", "alpha", "published"],
        [
            [
                s["stage"], str(s["drafts"]), number(s["tokens_per_step"], 2),
                number(s["alpha"], 3), number(s["published_alpha"], 3),
            ]
            for s in result["stages"]
        ],
    )  # fmt: skip
    curves = result["curves"]
    rates = table(
        ["K", *(f"{c['drafter']} {what}" for c in curves for what in ("ms", "tokens/s"))],
        [
            [
                str(k),
                *(number(c[key][k]) for c in curves for key in ("step_ms", "tokens_per_s")),
            ]
            for k in SHOWN
        ],
    )
    verdicts = table(
        ["drafter", "alpha", "ms per further draft", "best K up to 16", "break-even alpha at 3",
         "at 10"],
        [
            [
                c["drafter"], number(c["alpha"], 3), number(c["ms_per_draft"], 2),
                str(c["best_drafts"]), number(c["break_even_alpha"][3], 3),
                number(c["break_even_alpha"][10], 3),
            ]
            for c in curves
        ],
    )  # fmt: skip
    prompts = table(
        ["prompts", "tokens/step", "alpha", "tokens/s", "implied step ms"],
        [
            [
                k["kind"], number(k["tokens_per_step"]), number(k["alpha"], 3),
                number(k["tokens_per_s"]), number(k["implied_step_ms"]),
            ]
            for k in result["prompt_kinds"]
        ],
    )  # fmt: skip
    measured = ", ".join(f"{row['tokens_per_s']:g} at {row['drafts']}" for row in fp8)
    return f"""# Result

{stages}

The acceptance fitted at 7 drafts predicts
{number(result["tokens_at_10_from_alpha_at_7"], 2)} tokens per step at 10; measured 5.35.

## Over the number of drafts

{rates}

{verdicts}

An independent FP8 run of MTP measured {measured} tokens per second: best near
{result["fp8_study_best"]} too.

## Kinds of prompts, full recipe

{prompts}
"""


if __name__ == "__main__":
    write(Path(__file__).parent, *compute())
