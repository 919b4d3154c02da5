from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tracebook
from tracebook.options import Options
from tracebook.ranks import analyze_ranks
from tracebook.report import Report


def test_public_names_are_what_they_say():
    assert callable(tracebook.analyze)
    assert tracebook.Report.__name__ == "Report"
    assert callable(tracebook.analyze)  # a submodule of that name would have taken its place


TRACE = Path(__file__).parents[1] / "fixtures" / "mtp3" / "trace.sqlite"


def test_public_names_are_listed():
    program = "import tracebook; print({'analyze', 'Report'} <= set(dir(tracebook)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "True"


def test_an_option_that_is_none_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match="no option 'drafter_tokens': did you mean 'draft_tokens'"):
        tracebook.analyze(TRACE, drafter_tokens=7)
    with pytest.raises(TypeError, match=r"no option 'bogus': known are checkpoint, .*run_file\."):
        tracebook.analyze(TRACE, bogus=1)
    with pytest.raises(TypeError, match="no option 'bogus'"):
        analyze_ranks(TRACE, bogus=1)


def test_help_lists_the_options():
    for name in Options.__annotations__:
        assert f"    {name}: " in tracebook.analyze.__doc__


def test_a_report_says_in_a_line_what_it_is_of():
    text = repr(Report.load(TRACE.with_name("expected.json")))
    assert text.startswith("<Report ")
    assert "step " in text
    assert "target_layers " in text
    assert "\n" not in text
    assert len(text) < 300


def test_importing_the_package_is_light():
    program = "import sys, tracebook; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
