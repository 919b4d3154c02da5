from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tracebook.capture import capture_notices
from tracebook.notices import Notice
from tracebook.trace import KERNEL_SCHEMA, NAME_SCHEMA, Trace, TraceInfo


def trace(count=2000, *, mode="node", notices=(), devices=(0,), pids=(5,)):
    rows = {name: [0] * count for name in KERNEL_SCHEMA}
    rows["device"] = [devices[i % len(devices)] for i in range(count)]
    rows["pid"] = [pids[i % len(pids)] for i in range(count)]
    return Trace(
        info=TraceInfo(path=Path("run.sqlite"), capture_mode=mode, notices=notices),
        kernels=pl.DataFrame(rows, schema=KERNEL_SCHEMA),
        names=pl.DataFrame(schema=NAME_SCHEMA),
    )


def codes(**arguments):
    return [notice.code for notice in capture_notices(trace(**arguments))]


def test_a_sound_capture_has_no_notice():
    assert codes() == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"devices": (0, 1)}, "several_devices"),
        ({"pids": (5, 6)}, "several_processes"),
        ({"count": 999}, "few_kernels"),
        ({"mode": "unknown"}, "capture_mode_unknown"),
    ],
)
def test_each_fault_has_its_code_and_a_remedy(arguments, code):
    notices = capture_notices(trace(**arguments))
    assert [notice.code for notice in notices] == [code]
    assert notices[0].hint


def test_numbers_are_named_and_long_lists_cut():
    notice = capture_notices(trace(devices=tuple(range(12))))[0]
    assert "12 devices" in notice.message
    assert "0, 1, 2, 3, 4, 5, 6, 7 and 4 more" in notice.message
    assert "--device" in notice.hint


def test_unknown_processes_are_not_counted():
    assert codes(pids=(5, None)) == []


def test_what_the_importer_noticed_comes_first():
    lost = Notice("rows_dropped", "3 kernel rows were left out.")
    assert codes(notices=(lost,), mode="unknown") == ["rows_dropped", "capture_mode_unknown"]


def test_rows_that_repeat_are_counted():
    rows = [(i, 10 * (i // 2), 10 * (i // 2) + 5) for i in range(2000)]  # each kernel twice
    frame = pl.DataFrame(rows, schema=["kernel_id", "start_ns", "end_ns"], orient="row")
    whole = trace()
    doubled = whole.kernels.drop("kernel_id", "start_ns", "end_ns").hstack(frame)
    (notice,) = capture_notices(Trace(whole.info, doubled.select(*KERNEL_SCHEMA), whole.names))
    assert notice.code == "rows_repeated"
    assert notice.message.startswith("1,000 kernel rows repeat")
    streams = doubled.with_columns(stream=pl.int_range(2000))  # at once, on streams of their own
    assert capture_notices(Trace(whole.info, streams.select(*KERNEL_SCHEMA), whole.names)) == ()
