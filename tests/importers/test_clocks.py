from __future__ import annotations

import hashlib
import sqlite3

import pytest

from tracebook.importers.clocks import processor_clock

NAMES = [
    (0x100, 1, "SYS Clock Frequency [MHz]"),
    (0x100, 2, "GPC Clock Frequency [MHz]"),
    (0x101, 2, "GPC Clock Frequency [MHz]"),
]
#: (timestamp, typeId, metricId, value): GPU 0 at 2400, then at 2100; GPU 1 at 900.
SAMPLES = [
    *((t, 0x100, 1, 7) for t in range(10)),
    *((t, 0x100, 2, 2400 if t < 5 else 2100) for t in range(10)),
    *((t, 0x101, 2, 900) for t in range(10)),
]


def export(path, names=NAMES, samples=SAMPLES, value="value"):
    db = sqlite3.connect(path)
    db.execute("create table TARGET_INFO_GPU_METRICS (typeId, sourceId, metricId, metricName)")
    db.execute(f"create table GPU_METRICS (timestamp, typeId, metricId, {value})")
    for kind, metric, name in names:
        db.execute("insert into TARGET_INFO_GPU_METRICS values (?, 0, ?, ?)", (kind, metric, name))
    db.executemany("insert into GPU_METRICS values (?, ?, ?, ?)", samples)
    db.commit()
    db.close()
    return path


@pytest.mark.parametrize(
    ("device", "window", "clock"),
    [(0, (0, 4), 2400.0), (0, (5, 9), 2100.0), (1, (0, 9), 900.0)],
)
def test_median_of_the_device_in_the_window(tmp_path, device, window, clock):
    path = export(tmp_path / "run.sqlite")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    found = processor_clock(path, device=device, from_ns=window[0], to_ns=window[1])
    assert found == ("GPC Clock Frequency [MHz]", clock)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]


def test_one_gpu_needs_no_device(tmp_path):
    path = export(tmp_path / "run.sqlite", names=NAMES[:2])
    assert processor_clock(path, device=None, from_ns=0, to_ns=4) == (NAMES[1][2], 2400.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"names": NAMES[:1]},
        {"samples": []},
        {"value": "amount"},
        {"samples": [(1, 0x100, 2, "text"), (2, 0x100, 2, None), (3, 0x100, 2, 0)]},
    ],
)
def test_exports_that_do_not_tell(tmp_path, changes):
    path = export(tmp_path / "run.sqlite", **changes)
    assert processor_clock(path, device=0, from_ns=0, to_ns=9) is None


def test_other_files(tmp_path):
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report")
    sqlite3.connect(tmp_path / "empty.sqlite").execute("create table other (id)").connection.close()
    for name in ("run.nsys-rep", "empty.sqlite", "absent.sqlite"):
        assert processor_clock(tmp_path / name, device=0, from_ns=0, to_ns=9) is None
