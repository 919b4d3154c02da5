"""Make the saved runs that docs and tests compare: before and after a slower drafter.

Both are synthetic traces of the full recipe with 40 steps; in the second one the drafter
takes 6 % longer and a matrix kernel of it has another name.

    python scripts/make_saved_runs.py
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from tracebook.compare.baseline import Baseline, write
from tracebook.compare.record import record
from tracebook.synth import synthesize

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
STEPS = 40
DRAFTER_MS = 5.7


def main() -> None:
    """Write fixtures/comparison/before.json.gz and after.json.gz."""
    described = (FIXTURES / "full-recipe" / "run.toml").read_text("utf-8")
    described = described.replace("../headers/", f"{FIXTURES / 'headers'}/")
    described = re.sub(r"^step_ms = .*\n", "", described, flags=re.MULTILINE)
    for name, seed, factor in (("before", 21, 1.0), ("after", 22, 1.06)):
        with tempfile.TemporaryDirectory() as place:
            toml, trace = Path(place, "run.toml"), Path(place, "run.sqlite")
            old = f"drafter_layers = {DRAFTER_MS}"
            assert old in described
            toml.write_text(described.replace(old, f"drafter_layers = {DRAFTER_MS * factor:.3f}"))
            synthesize(toml, trace, steps=STEPS, seed=seed)
            run = record(trace)
        if factor > 1:
            parts = tuple(
                replace(part, name="cutlass::device_kernel<new_tactic>")
                if part.phase == "drafter_layers" and part.matrix == "mlp.down_proj"
                else part
                for part in run.parts
            )
            run = replace(run, parts=parts)
        write(Baseline((run,)), FIXTURES / "comparison" / f"{name}.json.gz", packed=True)


if __name__ == "__main__":
    main()
