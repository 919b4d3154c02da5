"""Broken and hostile traces through the commands. `make fuzz` runs more rounds."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.fuzz.outcome import peak_bytes, run
from tests.fuzz.traces import MUTATIONS

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROUNDS = int(os.environ.get("TRACEBOOK_FUZZ_ROUNDS", "3"))
SEED = int(os.environ.get("TRACEBOOK_FUZZ_SEED", "0"))
#: Traces are small here, so this is the part of the bound that does not grow with them.
MOST_BYTES = 500_000_000


def commands(trace: Path, out: Path):
    """One of them for each round."""
    yield ["report", str(trace)]
    yield ["kernels", str(trace), "-o", str(out / "rows.csv")]
    yield ["doctor", str(trace)]
    yield ["trim", str(trace), "-o", str(out / "slim.sqlite")]
    yield ["report", str(trace), "--format", "json", "--detail", "steps"]
    yield ["save", str(trace), "-o", str(out / "saved.json")]
    yield ["report", str(trace), "--format", "html", "-o", str(out / "page.html")]
    yield ["doctor", str(trace), "--secrets"]
    yield ["report", str(trace), "--steps", "3"]
    yield ["kernels", str(trace), "--unclassified"]
    yield ["report", str(trace), "--all-ranks"]
    yield ["report", str(trace), "--from", "20%", "--to", "70%", "--format", "markdown"]
    yield ["index", str(trace)]
    yield ["export", str(trace), "--perfetto", str(out / "run.json")]


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_trace(mutation, seed, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dice = random.Random(f"{mutation.__name__} {seed}")
    name = dice.choice(["full-recipe", "mtp3", "plain-fp8"])
    trace = tmp_path / "trace.sqlite"
    shutil.copy(FIXTURES / name / "trace.sqlite", trace)
    if dice.random() < 0.7:  # else there is no checkpoint, and structure must tell
        text = (FIXTURES / name / "run.toml").read_text()
        (tmp_path / "run.toml").write_text(text.replace('"../', f'"{FIXTURES}/'))
    mutation(trace, dice)
    held = peak_bytes()
    choices = list(commands(trace, tmp_path))
    for number in {0, seed % len(choices), dice.randrange(len(choices))}:
        run(choices[number], capfd, inputs=[trace], folder=tmp_path)
    assert peak_bytes() - held < MOST_BYTES + 2 * trace.stat().st_size
