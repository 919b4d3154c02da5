"""The cache: complete or absent, limited, private, and what it tells of itself."""

from __future__ import annotations

import os
import time

import pytest

from tracebook import cache
from tracebook.cli import main
from tracebook.errors import TracebookError


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRACEBOOK_CACHE_GB", raising=False)


@pytest.fixture
def source(tmp_path):
    def make(content):
        path = tmp_path / "source"
        path.write_bytes(content)
        return path

    return make


def writing(size, folder=False):
    def make(path):
        if folder:
            path.mkdir()
            path = path / "part"
        path.write_bytes(b"x" * size)

    return make


def age(path, seconds):
    old = time.time() - seconds
    os.utime(path, (old, old))


def test_files_and_folders_are_kept(source):
    for folder in (False, True):
        made = cache.cached("things", source(b"a"), f".{folder}", writing(10, folder))
        assert made.is_dir() == folder
        assert cache.find_cached("things", made.stem, f".{folder}") == made
    assert [entry.size_bytes for entry in cache.entries()] == [10, 10]
    assert made.parent.stat().st_mode & 0o077 == 0 or os.name == "nt"


def test_what_fails_leaves_nothing(source):
    def fails(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached("things", source(b"a"), ".x", fails)
    assert cache.entries() == ()
    assert [p.suffix for p in (cache.cache_dir() / "things").iterdir()] == [".lock"]


def test_the_entry_not_used_for_longest_goes_first(source, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_CACHE_GB", "0.0000025")  # 2500 bytes
    first = cache.cached("things", source(b"1"), ".x", writing(1000))
    second = cache.cached("things", source(b"2"), ".x", writing(1000))
    age(first, 900)
    age(second, 800)
    assert cache.cached("things", source(b"1"), ".x", writing(1000)) == first  # a use
    third = cache.cached("things", source(b"3"), ".x", writing(1000))
    assert first.exists()
    assert not second.exists()
    assert third.exists()


def test_what_was_used_just_now_stays_even_beyond_the_limit(source, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_CACHE_GB", "0")
    first = cache.cached("things", source(b"1"), ".x", writing(1000))
    second = cache.cached("things", source(b"2"), ".x", writing(1000))
    assert first.exists()
    assert second.exists()


@pytest.mark.parametrize("given", ["many", "-1", "inf", "nan"])
def test_a_limit_that_is_none(source, monkeypatch, given):
    monkeypatch.setenv("TRACEBOOK_CACHE_GB", given)
    with pytest.raises(TracebookError, match="TRACEBOOK_CACHE_GB"):
        cache.cached("things", source(b"1"), ".x", writing(1))


def test_the_commands(source, capsys):
    cache.cached("exports", source(b"1"), ".sqlite", writing(3_000_000))
    cache.cached("index", source(b"2"), ".index", writing(1_000_000, folder=True))
    leftover = cache.cache_dir() / "exports" / "killed.part"
    leftover.mkdir()
    (leftover.with_suffix(".lock")).touch()
    assert main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    assert "4.00 MB of 20.00 GB" in out
    assert "exports  1, 3.00 MB" in out
    assert main(["cache", "clear"]) == 0
    assert "2 entries" in capsys.readouterr().out
    assert cache.entries() == ()
    assert not leftover.exists()
