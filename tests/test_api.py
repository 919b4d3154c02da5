from __future__ import annotations

import subprocess
import sys

import tracebook


def test_public_names_are_what_they_say():
    assert callable(tracebook.analyze)
    assert tracebook.Report.__name__ == "Report"
    assert callable(tracebook.analyze)  # a submodule of that name would have taken its place


def test_importing_the_package_is_light():
    program = "import sys, tracebook; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
