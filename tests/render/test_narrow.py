"""Narrow terminals: nothing is cut, and what is left out is told."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import tracebook
from tracebook.cli.bytes_command import _summary
from tracebook.compare.baseline import load
from tracebook.compare.comparison import compare
from tracebook.render import comparison
from tracebook.render.ledger import render_text
from tracebook.render.sweep import render_sweep
from tracebook.render.text import draw
from tracebook.render.wrapping import fill
from tracebook.sweep import Row

ROOT = Path(__file__).parents[2]
PHASES = ("target", "output", "drafter", "draft", "replay", "sampling", "prepare")


@pytest.fixture(scope="module")
def recipe():
    return tracebook.analyze(ROOT / "fixtures" / "full-recipe" / "trace.sqlite")


def test_no_heading_is_cut_at_40(recipe):
    text = draw(recipe, detail="phases", width=40, rich=False)
    broken = [line.split() for line in text.splitlines()]
    assert ["all", "%", "of"] in broken
    assert ["phase", "ms", "GB/s", "peak"] in broken
    assert max(map(len, text.splitlines())) <= 40


@pytest.mark.parametrize("detail", ["phases", "layers", "matrices", "steps"])
@pytest.mark.parametrize("width", [40, 60])
def test_what_is_left_out_is_told(recipe, detail, width):
    text = draw(recipe, detail=detail, width=width, rich=False)
    assert max(map(len, text.splitlines())) <= width
    told = " ".join(text.split())
    assert "Left out at this width: share, G" in told
    assert ("GB/s, % of ceiling" if width == 60 else "floor ms") in told


def test_all_phases_of_single_steps_fit_80(recipe):
    text = draw(recipe, detail="steps", width=80, rich=False)
    heading = next(line for line in text.splitlines() if line.split()[:2] == ["step", "target"])
    assert heading.split() == ["step", *PHASES[:4]]
    row = next(line for line in text.splitlines() if line.split()[:1] == ["3"])
    assert len(row.split()) == 2 + len(PHASES) + 1
    assert "Left out at this width: start ms." in text


@pytest.mark.parametrize("width", [40, 60, 70])
def test_tables_of_a_comparison_fit(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    place = ROOT / "fixtures" / "comparison"
    found = compare(load(place / "before.json.gz"), load(place / "after.json.gz"))
    text = comparison.render(found, None, "text")
    assert max(map(len, text.splitlines())) <= width
    assert "95 % interval, ms, p." in " ".join(text.split())
    assert "gate_proj+" in text and "another" in text


def test_a_wide_terminal_shows_p_values_too(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    place = ROOT / "fixtures" / "comparison"
    found = compare(load(place / "before.json.gz"), load(place / "after.json.gz"))
    heading = next(x for x in comparison.render(found, None, "text").splitlines() if "old ms" in x)
    assert heading.split()[-4] == "p"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_of_runs_fits(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        Row(path=f"runs/{name}-of-a-recipe-with-a-long-name-{name}/trace.sqlite", steps=7,
            step_ms=99.6, tokens_per_s=53.4, weight_bytes=20_830_000_000, weight_gbps=209.1,
            roofline_pct=77.8, slowest="target_layers")
        for name in ("one", "two")
    ]  # fmt: skip
    text = render_sweep(rows, "text")
    assert max(map(len, text.splitlines())) <= width
    assert "99.60" in text and "77.8" in text
    assert ("Left out at this width: steps" in text) == (width < 80)


def test_a_figure_stays_with_its_percent_sign():
    sentence = "linear attention takes 31.3 % of it"
    for width in range(12, 30):
        lines = fill(sentence, width).splitlines()
        assert not any(line.startswith("%") for line in lines)
        assert " ".join(lines) == sentence


@pytest.mark.parametrize("rich", [False, True])
def test_a_ledger_fits_a_terminal_and_its_usual_width(rich, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    bundle = ROOT / "fixtures" / "headers" / "target-nvfp4.headers.json.gz"
    summary = _summary(bundle, "none", None, None, None)
    for columns in (40, 60, None):
        size = None if columns is None else os.terminal_size((columns, 24))
        monkeypatch.setattr(
            shutil, "get_terminal_size", lambda usual, size=size: size or os.terminal_size(usual)
        )
        text = render_text([summary], bandwidth_gbps=None, terminal=rich)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert max(map(len, plain.splitlines())) <= (columns or 80)
        assert "Left out at this width:" in plain and "\n  %" not in plain
        assert re.search(r"total +23,417,339,744 +23\.42", plain)
