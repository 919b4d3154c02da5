"""What the real nsys does and writes, so that the stand-in of the other tests stays true."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from real_nsys import binary, needs_nsys, record

from tracebook import nsys
from tracebook.errors import MissingTable, NsysError
from tracebook.importers import open_trace

pytestmark = needs_nsys


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(binary()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def changed(recorded, tmp_path):
    """A copy of the report whose bytes were put through a function."""

    def make(change):
        path = tmp_path / "changed.nsys-rep"
        path.write_bytes(change(recorded.read_bytes()))
        return path

    return make


def failure(path):
    with pytest.raises(NsysError) as caught:
        nsys.export(path)
    assert caught.value.hint
    return caught.value.message


def test_a_report_is_exported_with_the_ranges_of_the_program(recorded):
    with closing(sqlite3.connect(nsys.export(recorded))) as export:
        query = "SELECT count(*), min(text) FROM NVTX_EVENTS"
        assert export.execute(query).fetchone() == (20, "step")


def test_a_report_without_kernels_says_that_cuda_was_not_traced(recorded):
    with pytest.raises(MissingTable, match="CUDA was not traced"):
        open_trace(recorded)


def test_the_version_stands_in_the_report(recorded):
    assert nsys.report_version(recorded) == nsys.nsys_version(binary())


@pytest.mark.parametrize("kept", [300, 100_000])
def test_a_truncated_report(changed, kept):
    assert "truncated or damaged" in failure(changed(lambda content: content[:kept]))


def test_a_report_of_a_newer_nsys_names_both_versions(changed):
    ours = nsys.nsys_version(binary())
    older = ours.split(".")[0].encode() + b"@"
    newer = changed(lambda content: content.replace(older, b"2099@", 1))
    message = failure(newer)
    assert "2099." in message
    assert ours in message


def test_something_else_under_the_name_of_a_report(changed):
    assert "truncated or damaged" in failure(changed(lambda content: bytes(reversed(content))))
