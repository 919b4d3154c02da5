from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from step_noise import baseline_of

from tracebook.compare.baseline import Baseline, Part
from tracebook.compare.comparison import compare
from tracebook.compare.outcome import judge
from tracebook.render.comparison import CHECK_FORMATS, render

EVIL = "evil\x1b[31m<kernel>|*_name_*%0A::error::"


def compared(**change):
    rng = np.random.default_rng(13)
    sides = []
    for changes, name, ns in (({}, "old_gemm", 5_000_000), (change, EVIL, 5_400_000)):
        (run,) = baseline_of(rng, 60, **changes).runs
        part = Part("drafter_layers", 0, None, None, "gemm", name, 1, ns)
        sides.append(Baseline((dataclasses.replace(run, parts=(part,)),)))
    return compare(*sides)


@pytest.mark.parametrize("format_name", CHECK_FORMATS)
@pytest.mark.parametrize("change", [{}, {"slower": {"drafter_layers": 1.08}}, {"everything": 1.2}])
def test_every_format_says_what_came_out(format_name, change):
    found = compared(**change)
    outcome = judge(found)
    text = render(found, outcome, format_name)
    assert "\x1b" not in text
    assert text.endswith("\n")
    if format_name != "junit" or outcome.state == "machine_state":
        assert outcome.headline.split(";")[0] in text.replace("%25", "%").replace("\n", " ") or (
            format_name in ("text", "markdown")
        )


def test_text_adds_up_in_its_sentence():
    text = render(compared(slower={"drafter_layers": 1.08}), None, "text")
    assert "ms longer: drafter layers +0.4" in text
    assert "slower, by another kernel" in text
    assert "Regression" not in text  # a diff does not judge


@pytest.mark.parametrize("format_name", ["text", "markdown", "html"])
def test_verdict_names_the_phases_that_are_worse_where_the_step_is_the_same(format_name):
    # By a gate of its own the step stays the same, although the drafter is slower.
    rng = np.random.default_rng(13)
    sides = [baseline_of(rng, 60, slower=slower) for slower in ({}, {"drafter_layers": 1.06})]
    text = render(compare(*sides), None, format_name)
    assert "step: same; worse: drafter layers" in text


def test_page_shows_commands_as_code():
    page = render(compared(), None, "html")
    assert "(<code>tracebook calibrate</code>)" in page
    assert "`" not in page[: page.index("<script")]


def test_text_without_a_change():
    assert "No regression" in render(compared(), judge(compared()), "text")


def test_markdown_escapes_names():
    text = render(compared(), None, "markdown")
    assert "evil?\\[31m" in text
    lengths = {line.replace("\\|", "").count("|") for line in text.splitlines() if "evil" in line}
    assert lengths == {8}


def test_github_escapes_line_ends():
    found = compared(slower={"drafter_layers": 1.08})
    for line in render(found, judge(found), "github").splitlines():
        assert line.startswith(("::error title=", "::notice title="))


def test_junit_is_xml():
    found = compared(slower={"drafter_layers": 1.08})
    suite = ET.fromstring(render(found, judge(found), "junit"))
    assert [case.get("name") for case in suite if case.find("failure") is not None] == [
        "drafter_layers"
    ]
