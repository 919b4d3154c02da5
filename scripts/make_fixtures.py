"""Make the saved fixtures again from their run descriptions.

Each folder of fixtures/ with a run.toml that has a [synth] table gets trace.sqlite and
truth.csv.gz. The seed stands in run.toml, so the same environment gives the same bytes.

    python scripts/make_fixtures.py [NAME ...]
"""

from __future__ import annotations

import gzip
import sys
import tomllib
from pathlib import Path

from tracebook.synth import synthesize

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MOST_BYTES = 1_000_000


def fixture_names() -> list[str]:
    """Folders whose run description says how to make a trace."""
    runs = sorted(FIXTURES.glob("*/run.toml"))
    return [run.parent.name for run in runs if "synth" in tomllib.loads(run.read_text("utf-8"))]


def make_fixture(name: str, output: Path) -> None:
    """Write trace.sqlite and truth.csv.gz of one fixture into `output`."""
    trace = output / "trace.sqlite"
    trace.unlink(missing_ok=True)
    made = synthesize(FIXTURES / name / "run.toml", trace)
    table = made.truth.write_csv().encode()
    (output / "truth.csv.gz").write_bytes(gzip.compress(table, compresslevel=9, mtime=0))
    size = trace.stat().st_size
    print(f"{name}: {made.truth.height:,} kernels, {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"{name}: more than {MOST_BYTES:,} bytes; take fewer steps in its run.toml.")


def main() -> None:
    """Make the named fixtures, or all of them."""
    for name in sys.argv[1:] or fixture_names():
        make_fixture(name, FIXTURES / name)


if __name__ == "__main__":
    main()
