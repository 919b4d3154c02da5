"""The real nsys, where scripts/install-nsys.sh has put one, and a report that it recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".nsys"

PROGRAM = """
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>
int main(void) {
  for (int i = 0; i < 20; i++) { nvtxRangePushA("step"); usleep(1000); nvtxRangePop(); }
  usleep(100000);
  return 0;
}
"""


def _find() -> Path | None:
    """`.nsys/nsys`, or TRACEBOOK_NSYS where CI or a developer has set it."""
    named = os.environ.get("TRACEBOOK_NSYS")
    places = [Path(named)] if named else [PLACE / "nsys"]
    return next((place for place in places if place.is_file()), None)


#: Looked for once: tests set the variable to other programs.
_FOUND = _find()


def binary() -> Path | None:
    """The real nsys, None where there is none."""
    return _FOUND


needs_nsys = pytest.mark.skipif(
    binary() is None, reason="no nsys: scripts/install-nsys.sh puts one into .nsys/"
)
needs_recipes = pytest.mark.skipif(
    binary() is None or not (PLACE / "python" / "bin" / "python3").exists(),
    reason="no Python for recipes: scripts/install-nsys.sh --recipes makes one",
)


def record(folder: Path) -> Path:
    """Record an NVTX-annotated program; skips where nothing can compile it."""
    nsys = binary()
    assert nsys is not None
    include = nsys.resolve().parent / "nvtx" / "include"
    compiler = shutil.which("cc")
    if compiler is None or not include.is_dir():
        pytest.skip("no C compiler, or this nsys ships no NVTX headers")
    (folder / "program.c").write_text(PROGRAM)
    source, program = folder / "program.c", folder / "program"
    subprocess.run([compiler, f"-I{include}", source, "-o", program, "-ldl"], check=True)
    subprocess.run(
        [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none",
         "--output", folder / "run", program],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "run.nsys-rep"
