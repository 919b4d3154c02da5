"""The workflows of docs/github-actions.md are run, with a synthetic capture for the recording."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tracebook.synth import synthesize

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "github-actions.md"
STEPS = 24


def scripts(block: str) -> list[str]:
    """What the `run` keys of a workflow hold, in order."""
    found = []
    for indent, mark, rest in re.findall(
        r"^( *)-? *run: *(\||)((?:.*\n)(?:(?! *-)(?:\1 {2,}.*)?\n)*)", block, re.MULTILINE
    ):
        del indent
        found.append(textwrap.dedent(rest.partition("\n")[2]) if mark else rest.strip())
    return found


def workflows() -> list[list[str]]:
    return [scripts(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)]


def test_the_page_is_read_as_it_is_meant():
    check, warn, calibrate = workflows()
    assert check[:2] == ["pip install nsys-tracebook", "bash decode/record.sh"]
    assert len(check) == 5
    assert check[3].startswith("tracebook check run.json --baseline decode/baseline.json")
    assert len(check[4].strip().splitlines()) == 2
    assert len(warn) == 1
    assert len(calibrate) == 3
    assert calibrate[1].startswith("for n in 1 2 3; do\n  bash decode/record.sh\n")


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> Path:
    """A plain run, recorded four times, and once with a slower output layer."""
    place = tmp_path_factory.mktemp("captures")
    described = (ROOT / "fixtures" / "plain-fp8" / "run.toml").read_text()
    described = described.replace("../headers/", f"{ROOT / 'fixtures' / 'headers'}/")
    described = re.sub(r"^step_ms = .*\n", "", described, flags=re.MULTILINE)
    (place / "run.toml").write_text(described)
    for seed in range(4):
        synthesize(place / "run.toml", place / f"{seed}.sqlite", steps=STEPS, seed=seed)
    slower = place / "slower.toml"
    slower.write_text(described.replace("output_layer = ", "output_layer = 12.6 # "))
    assert slower.read_text() != described
    synthesize(slower, place / "slower.sqlite", steps=STEPS, seed=9)
    return place


@pytest.fixture
def repository(tmp_path, captures, monkeypatch) -> Path:
    """A checkout with decode/, and programs that stand in for the runner's."""
    programs, decode = tmp_path / "bin", tmp_path / "decode"
    programs.mkdir()
    decode.mkdir()
    (programs / "pip").write_text("#!/bin/sh\n")
    python = shlex.quote(sys.executable)
    (programs / "tracebook").write_text(f'#!/bin/sh\nexec {python} -m tracebook.cli "$@"\n')
    code = "import sys; from tracebook.cli import main; sys.exit(main())"
    (programs / "tracebook").write_text(f'#!/bin/sh\nexec {python} -c "{code}" "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    shutil.copy(captures / "run.toml", decode / "run.toml")
    use_capture(tmp_path, captures, "0")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path


def use_capture(repository: Path, captures: Path, *names: str) -> None:
    """Let decode/record.sh leave these captures, one after the other."""
    queue = repository / "queue"
    queue.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        shutil.copy(captures / f"{name}.sqlite", queue / f"{number}.sqlite")
    (repository / "decode" / "record.sh").write_text(
        'next=$(ls queue | head -n 1)\nmv "queue/$next" decode/run.sqlite\n'
    )


def play(repository: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the runner does."""
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=repository, capture_output=True, text=True, check=False
    )


def test_every_command_runs(repository, captures):
    check, warn, calibrate = workflows()
    use_capture(repository, captures, "0", "1", "2", "3", "slower")
    for script in (*calibrate, *check):
        done = play(repository, script)
        assert done.returncode == 0, (script, done.stderr)
    assert "No regression" in (repository / "summary.md").read_text()
    assert (repository / "junit.xml").read_text().count("<testcase") > 4
    assert (repository / "diff.md").read_text()

    for script, status in zip(check, (0, 0, 0, 3, 0), strict=True):
        done = play(repository, script)
        assert done.returncode == status, (script, done.stderr)
        if status == 3:
            assert "::error title=tracebook check::Slower in the output layer" in done.stdout
    assert "<failure" in (repository / "junit.xml").read_text()
    assert play(repository, warn[0]).returncode == 1
