"""A check as JUnit XML: one test case for each quantity, one for the comparison itself."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tracebook.compare.comparison import Comparison, Row
from tracebook.compare.outcome import Outcome, judge, sentence
from tracebook.render.comparison.words import clean


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Write the suite; worse is a failure, unknown is skipped, undecided is an error."""
    judged = outcome or judge(found)
    suite = ET.Element("testsuite", name="tracebook")
    comparison = ET.SubElement(suite, "testcase", classname="tracebook", name="comparable")
    undecided = judged.state in ("not_comparable", "machine_state")
    if undecided:
        text = " ".join(reason.message for reason in judged.reasons)
        error = ET.SubElement(comparison, "error", message=clean(judged.headline))
        error.text = clean(text)
    else:
        for row in found.rows:
            _case(suite, row)
    cases = list(suite)
    counts = {tag: sum(case.find(tag) is not None for case in cases)
              for tag in ("failure", "error", "skipped")}  # fmt: skip
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    ET.indent(suite)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(suite, encoding='unicode')}\n"


def _case(suite: ET.Element, row: Row) -> None:
    case = ET.SubElement(suite, "testcase", classname="tracebook", name=row.quantity)
    if row.verdict == "worse":
        ET.SubElement(case, "failure", message=f"slower: {sentence(row)}")
    elif row.verdict == "unknown":
        ET.SubElement(case, "skipped", message="the steps vary too much to tell")
