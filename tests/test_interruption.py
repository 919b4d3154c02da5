"""Whatever stops a command, nothing half-written stays and the next run works."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
ROUNDS = int(os.environ.get("TRACEBOOK_FUZZ_ROUNDS", "1"))
TRACE = FIXTURES / "mtp3" / "trace.sqlite"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)

#: What each command writes below `out`, and how.
COMMANDS = {
    "report": ("r.html", ["report", str(TRACE), "--format", "html", "-o", "{out}/r.html"]),
    "kernels": ("k.parquet", ["kernels", str(TRACE), "-o", "{out}/k.parquet"]),
    "save": ("s.json.gz", ["save", str(TRACE), "-o", "{out}/s.json.gz"]),
    "trim": ("t.sqlite", ["trim", str(TRACE), "-o", "{out}/t.sqlite"]),
    "export": ("e.json", ["export", str(TRACE), "--perfetto", "{out}/e.json"]),
    "synth": ("m.sqlite", ["synth", str(FIXTURES / "mtp3/run.toml"), "-o", "{out}/m.sqlite"]),
    "tag": ("store/baselines.db", ["baseline", "tag", "x", str(TRACE), "--store", "{out}/store"]),
    "index": ("cache/tracebook/index", ["index", str(TRACE)]),
}


def arguments(name: str, out: Path) -> list[str]:
    words = [word.replace("{out}", str(out)) for word in COMMANDS[name][1]]
    return [sys.executable, "-m", "tracebook", *words]


def environment(out: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(out / "cache"), "POLARS_MAX_THREADS": "1"}


def run(name: str, out: Path, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments(name, out), env=environment(out), capture_output=True, text=True, **more
    )


def content(path: Path):
    """Bytes, or of a store its rows without the time, or of a folder all its files."""
    if path.name == "baselines.db":
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return None
            tags = connection.execute("SELECT DISTINCT name, steps, document FROM tags").fetchall()
            orphans = "SELECT count(*) FROM phases WHERE tag_id NOT IN (SELECT id FROM tags)"
            assert connection.execute(orphans).fetchone() == (0,)
            return tags or None
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix != ".lock")
        return [(p.name, p.read_bytes()) for p in files if ".part" not in str(p)] or None
    return path.read_bytes() if path.exists() else None


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What each command writes when nothing stops it, and how long it takes."""
    made = {}
    for name, (target, _) in COMMANDS.items():
        out = tmp_path_factory.mktemp(name)
        done = run(name, out)
        assert done.returncode == 0, done.stderr
        made[name] = content(out / target)
        assert made[name]
    return made


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("name", COMMANDS)
def test_stopped_at_a_random_point(name, seed, tmp_path, whole):
    dice = random.Random(f"{name} {seed}")
    before = TRACE.read_bytes()
    target = tmp_path / COMMANDS[name][0]
    for number in dice.sample(SIGNALS, k=len(SIGNALS) if ROUNDS > 1 else 2):
        process = subprocess.Popen(
            arguments(name, tmp_path),
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            process.wait(dice.uniform(0.2, 1.4))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        _, told = process.communicate(timeout=30)
        if process.returncode != -signal.SIGKILL:
            assert b"fault in tracebook" not in told
            left = [p for p in tmp_path.rglob("*") if ".part" in p.name and p.parent == tmp_path]
            assert not left, number
        if target.exists():
            assert content(target) in (None, whole[name]), number
    done = run(name, tmp_path)
    if done.returncode and name == "synth":  # it was made whole before the signal came
        assert "exists already" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert content(target) == whole[name]
    assert TRACE.read_bytes() == before


def no_room() -> None:
    """No file of this process may grow beyond a few bytes: what a full disk does to it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(name, tmp_path):
    done = run(name, tmp_path, preexec_fn=no_room)
    assert done.returncode == 1
    assert "Error: " in done.stderr
    assert "Hint: " in done.stderr
    assert "fault in tracebook" not in done.stderr
    target = tmp_path / COMMANDS[name][0]
    assert not target.exists() or content(target) is None
    assert not [p for p in tmp_path.rglob("*") if ".part" in p.name]
    assert run(name, tmp_path).returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_was_there_stays_when_the_disk_is_full(name, tmp_path, whole):
    if name == "synth":
        pytest.skip("it never replaces a file")
    assert run(name, tmp_path).returncode == 0
    run(name, tmp_path, preexec_fn=no_room)
    assert content(tmp_path / COMMANDS[name][0]) == whole[name]


def test_a_folder_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    from tracebook.cli import main

    file = tmp_path / "file"
    file.write_text("no folder")  # holds for root too, whom permissions do not stop
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    for name in COMMANDS:
        words = [word.replace("{out}", str(file)) for word in COMMANDS[name][1]]
        assert main(words) == 1, name
        told = capsys.readouterr().err
        assert "Hint: " in told, name
        assert "fault" not in told, name


@pytest.mark.skipif(os.name != "posix" or not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "tracebook", "report", str(TRACE)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "fault in tracebook" not in done.stderr


@pytest.mark.parametrize("name", ["index", "tag"])
def test_two_processes_at_once(name, tmp_path, whole):
    both = [
        subprocess.Popen(
            arguments(name, tmp_path), env=environment(tmp_path), stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in both:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    assert content(tmp_path / COMMANDS[name][0]) == whole[name]
    if name == "tag":
        with closing(sqlite3.connect(tmp_path / "store" / "baselines.db")) as connection:
            assert connection.execute("SELECT count(*) FROM tags").fetchone() == (2,)


def test_the_trace_may_lie_where_nothing_can_be_written(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    shutil.copy(TRACE, folder / "trace.sqlite")
    folder.chmod(0o500)
    try:
        command = [sys.executable, "-m", "tracebook", "report", str(folder / "trace.sqlite")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        assert [p.name for p in folder.iterdir()] == ["trace.sqlite"]
    finally:
        folder.chmod(0o700)
