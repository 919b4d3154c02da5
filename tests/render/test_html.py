from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from handmade import make_report, make_trace

import tracebook
from tracebook.phases import STEP_PHASES
from tracebook.render import render
from tracebook.render.page import Html, element, script_json, table
from tracebook.report import Report

ROOT = Path(__file__).parents[2]
VOID = {"meta", "link", "input", "br", "img"}


class Balance(HTMLParser):
    """Collects identifiers and notes every tag that is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.faults = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append((tag, self.getpos()))


@pytest.fixture(scope="module")
def recipe():
    return tracebook.analyze(ROOT / "fixtures" / "full-recipe" / "trace.sqlite")


def test_the_page_is_well_formed_and_asks_for_nothing(recipe):
    page = render(recipe, "html")
    balance = Balance()
    balance.feed(page)
    assert balance.faults == []
    assert balance.open == []
    assert len(balance.ids) == len(set(balance.ids))
    for match in re.finditer(r'(?:src|href)="([^"]*)"', page):
        assert match[1].startswith(("#", "data:")), match[0]
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_a_step_of_1500_kernels_stays_below_3_mb(recipe):
    assert len(recipe.median_step.name) > 1000
    assert len(render(recipe, "html").encode()) < 2_000_000


def test_the_same_report_gives_the_same_page(recipe):
    assert render(recipe, "html") == render(recipe, "html")


def test_a_report_without_steps_says_what_is_missing():
    page = render(Report.from_json(make_report().to_json()), "html")
    assert "--detail steps" in page
    assert "<canvas" not in page


def test_every_phase_and_figure_is_defined(report):
    page = render(report, "html")
    for row in report.phase_rows:
        assert row.phase in {phase.value for phase in STEP_PHASES}
    defined = page[page.index('id="words"') :]
    for term in ("% of peak", "floor ms", "all GB/s", "idle", "unclassified"):
        assert f"<dt>{term}</dt>" in defined


def test_data_cannot_end_its_script():
    told = script_json({"name": "</script><!--&\u2028"})
    assert "<" not in told
    assert ">" not in told
    assert "\u2028" not in told


def test_elements_escape_all_but_markup():
    assert element("td", "<b>", title='"') == '<td title="&quot;">&lt;b&gt;</td>'
    assert element("td", Html("<b>x</b>")) == "<td><b>x</b></td>"


def test_cells_carry_the_value_they_sort_by():
    markup = table(["a", "b"], [["x", "1,234.5"], ["y", "-"], ["z", "85.1 %"]], left=[0], label="t")
    assert re.findall(r'<td data-sort="([^"]*)">', markup) == ["1234.5", "85.1"]
    assert "<td>-</td>" in markup


def test_jupyter_shows_the_report_in_short():
    hostile = make_report(trace=make_trace(unknown_name="<script>"))
    shown = hostile._repr_html_()
    assert "A step reads 0.150 GB of weights" in shown
    assert "target layers" in shown
    assert "<script" not in shown
