"""Room for long arrays: what lies in files is as good as memory and leaves nothing behind."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from tracebook.errors import TraceError
from tracebook.scratch import MEMORY, Scratch


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path / "scratch")


def mapped_files(folder):
    """Files of a folder that this process has mapped, deleted or not."""
    return [
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line
    ]


def test_memory_is_not_in_files():
    assert not MEMORY.in_files
    assert len(MEMORY.empty(5, np.int64)) == 5
    assert MEMORY.zeros(3, np.int32).tolist() == [0, 0, 0]


@pytest.mark.parametrize("make", ["empty", "zeros"])
def test_an_array_in_a_file_that_has_no_name(scratch, make):
    array = getattr(scratch, make)(1000, np.int32)
    assert (array.dtype, array.shape, int(array.sum())) == (np.int32, (1000,), 0)
    array[:] = np.arange(1000)
    assert scratch.in_files
    assert list(scratch.folder.iterdir()) == []
    assert scratch.folder.stat().st_mode & 0o077 == 0
    assert array.sum() == 499_500


def test_nothing_is_lost_when_memory_is_given_back(scratch):
    arrays = [scratch.empty(5000, np.int64) for _ in range(3)]
    for number, array in enumerate(arrays):
        array[:] = number
    scratch.release()
    assert [int(array.sum()) for array in arrays] == [0, 5000, 10_000]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_a_file_goes_with_its_array(scratch):
    array = scratch.empty(5000, np.int64)
    part = array[10:20]
    assert mapped_files(scratch.folder)
    del array
    gc.collect()
    assert mapped_files(scratch.folder)  # a part is enough to keep it
    del part
    gc.collect()
    assert not mapped_files(scratch.folder)
    scratch.release()


def test_nothing_at_all(scratch):
    assert len(scratch.empty(0, np.int64)) == 0


def test_a_full_disk_is_told_before_anything_is_written(scratch, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TraceError, match="No space left") as caught:
        scratch.empty(10**9, np.int64)
    assert "8.0 GB" in caught.value.message
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TraceError, match="scratch"):
        Scratch(tmp_path / "file" / "scratch").zeros(10, np.int8)


def test_without_a_way_to_reserve_space(scratch, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    assert scratch.zeros(10, np.int64).tolist() == [0] * 10
