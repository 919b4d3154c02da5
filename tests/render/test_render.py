from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from handmade import make_report, make_trace, make_verdict

from tracebook.config import RunDescription
from tracebook.render import DETAILS, FORMATS, render
from tracebook.render.text import draw

VARIANTS = {
    "whole": {},
    "no checkpoint": {"with_plan": False},
    "untrusted": {"verdict": make_verdict(bytes_trusted=False, phases_trusted=False)},
    "few steps": {"steps": 2},
    "hostile": {
        "trace": make_trace(unknown_name="a\x1b[31m|<script>`x`[/red]\n\u202eé" + "y" * 300)
    },
    "speculative": {"run": RunDescription(draft_method="dflash2", draft_tokens=10)},
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return make_report(**VARIANTS[request.param])


@pytest.mark.parametrize(
    ("format_name", "detail"),
    # The page holds every detail anyhow, and draws its pictures each time.
    [(f, d) for f in FORMATS for d in DETAILS if f != "html" or d == "phases"],
)
def test_every_format_renders_every_report(variant, format_name, detail):
    text = render(variant, format_name, detail=detail)
    assert text.endswith("\n")
    nothing_moved = (format_name, detail) == ("csv", "traffic") and not variant.traffic.height
    assert "target" in text or nothing_moved
    assert "\x1b" not in text
    assert "\u202e" not in text or format_name == "json"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("detail", DETAILS)
def test_text_fits_the_width_in_plain_ascii(variant, width, detail):
    text = draw(variant, detail=detail, width=width, rich=False)
    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_colour_only_where_it_is_wanted(report, width):
    assert "\x1b[" in draw(report, detail="phases", width=width, rich=True)
    assert "█" in draw(report, detail="phases", width=max(width, 80), rich=True)


def test_no_color_is_obeyed(report, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert render(report, "text", terminal=True).isascii()
    monkeypatch.delenv("NO_COLOR")
    assert not render(report, "text", terminal=True).isascii()


def test_the_text_says_what_matters(report):
    text = draw(report, detail="phases", width=100, rich=False)
    row = next(line for line in text.splitlines() if line.startswith("target layers"))
    assert row.split() == ["target", "layers", "0.60", "60.0", "%", "##########", "0.120",
                           "200.0", "200.0", "80.0", "0.48"]  # fmt: skip
    assert "A step reads 0.150 GB of weights in 1.00 ms, 150.0 GB/s, 60.0 % of the peak." in text
    assert "The floor is 0.60 ms; the largest loss is 0.12 ms, in the target layers." in (
        " ".join(text.split())
    )
    assert text.rstrip().splitlines()[-1].strip().startswith("Hint:")


def test_narrow_terminals_keep_the_figures_that_matter(report):
    text = draw(report, detail="phases", width=40, rich=False)
    heading = next(line for line in text.splitlines() if line.startswith("phase"))
    assert heading.split() == ["phase", "ms", "all", "GB/s", "%", "of", "peak"]


def test_without_bytes_the_text_says_which_option_adds_them():
    text = draw(make_report(with_plan=False), detail="phases", width=80, rich=False)
    assert "--checkpoint" in text
    assert "A step takes 1.00 ms, 60 % of it in the target layers." in text


@pytest.mark.parametrize("format_name", ["text", "markdown", "html"])
def test_folders_of_an_absolute_path_are_not_told(report, format_name):
    old = replace(report, trace=replace(report.trace, path="/home/alice/run.sqlite"))
    text = render(old, format_name)
    assert "alice" not in text
    assert ("run" if format_name == "html" else "run.sqlite") in text


def test_csv_adds_up_to_the_step(report):
    rows = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert [row["phase"] for row in rows] == [
        "target_layers", "output_layer", "sampling", "unclassified", "idle",
    ]  # fmt: skip
    assert sum(float(row["ms_mean"]) for row in rows) == pytest.approx(1.0)
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1.0)
    assert rows[0]["weight_bytes"] == "120000000"
    assert rows[-1]["weight_bytes"] == ""


def test_markdown_escapes_what_a_trace_says():
    text = render(make_report(**VARIANTS["hostile"]), "markdown")
    assert "<script>" not in text
    assert "\\|&lt;script&gt;\\`x\\`" in text
    cells = {line.count("|") for line in text.splitlines() if line.startswith("| ")}
    assert len(cells) == 1


def test_json_is_whole_at_every_detail(report):
    document = json.loads(render(report, "json", detail="phases"))
    assert len(document["layers"]) == 5
    assert len(document["matrices"]) == 4


def test_traffic_is_listed_read_by_read(report):
    text = draw(report, detail="traffic", width=100, rich=False)
    row = next(line for line in text.splitlines() if line.split()[2:3] == ["weights"])
    assert row.split()[2:6] == ["weights", "read", "120.00", "exact"]
    assert report.traffic["bytes"].sum() == report.total.traffic_bytes
