"""Parts of a capture: the first N steps, and how much memory a report may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracebook import analyze
from tracebook.analysis import examine
from tracebook.cli import main
from tracebook.cli.options import memory_size
from tracebook.errors import NoDecodeSteps, TraceError
from tracebook.importers import capture_extent
from tracebook.importers.window import Percent
from tracebook.kernel_table import kernel_table
from tracebook.opening import (
    BASE_BYTES,
    REPORT_BYTES_PER_KERNEL,
    TABLE_BYTES_PER_KERNEL,
    growing_windows,
    open_within,
    refuse_words_beyond,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
FIXTURE = FIXTURES / "full-recipe" / "trace.sqlite"


@pytest.mark.parametrize("name", ["full-recipe", "plain-nvfp4", "mtp3"])
def test_the_first_steps_are_those_of_the_whole(name):
    path = FIXTURES / name / "trace.sqlite"
    whole = examine(path).labelled.steps
    first = examine(path, steps=3).labelled.steps
    assert first.height == 3
    assert first.rows() == whole.head(3).rows()


def test_the_report_counts_them_and_says_so():
    report = analyze(FIXTURE, steps=3)
    assert report.steps.kept == 3
    assert "first_steps" in [warning.code for warning in report.warnings]


def test_more_steps_than_there_are():
    assert analyze(FIXTURE, steps=1000).steps.kept == analyze(FIXTURE).steps.kept


def test_no_steps_in_the_part_that_is_asked_for():
    with pytest.raises(NoDecodeSteps):
        analyze(FIXTURE, steps=3, to_ns=Percent(5.0))


def test_windows_grow_to_the_end_and_not_beyond():
    first, last = 42_000_000, 1_211_926_332  # SELECT min(start), max("end") of the saved run
    windows = list(growing_windows(FIXTURE, 1, None, None))
    assert windows[-1] == (first, last + 1, True)
    assert all(begin == first for begin, _, _ in windows)
    lengths = [end - begin for begin, end, _ in windows]
    assert lengths == sorted(lengths)
    part = list(growing_windows(FIXTURE, 1, 100_000_000, Percent(50.0)))
    assert part == [(100_000_000, first + round((last - first) / 2), True)]


def test_the_extent_of_a_capture():
    assert capture_extent(FIXTURE) == (10_630, None)
    assert capture_extent(FIXTURE, exact=True) == (10_630, (42_000_000, 1_211_926_332))


def test_what_would_take_too_much_memory_goes_to_files():
    needed = BASE_BYTES + REPORT_BYTES_PER_KERNEL * 10_630
    assert not open_within(FIXTURE, max_memory_bytes=needed).scratch.in_files
    assert open_within(FIXTURE, max_memory_bytes=needed - 1).scratch.in_files


def test_less_than_the_program_itself_takes_is_refused():
    with pytest.raises(TraceError) as caught:
        open_within(FIXTURE, max_memory_bytes=BASE_BYTES - 1)
    assert "200 MB" in caught.value.message
    assert "--max-memory 200MB" in caught.value.hint


def test_rows_in_words_are_refused_before_the_work(monkeypatch):
    needed = BASE_BYTES + TABLE_BYTES_PER_KERNEL * 10_630
    refuse_words_beyond(FIXTURE, 10_630, TABLE_BYTES_PER_KERNEL, needed)
    monkeypatch.setattr("tracebook.analysis.examine", None)
    with pytest.raises(TraceError) as caught:
        kernel_table(FIXTURE, max_memory_bytes=needed - 1)
    assert "10,630 kernels" in caught.value.message
    assert "--steps" in caught.value.hint


def test_rows_in_words_of_a_few_steps_are_not_refused():
    allowed = BASE_BYTES + TABLE_BYTES_PER_KERNEL * 10_630 - 1
    assert kernel_table(FIXTURE, max_memory_bytes=allowed, steps=1).rows.height < 10_630
    with pytest.raises(TraceError, match="kernels there"):
        kernel_table(FIXTURE, max_memory_bytes=allowed, steps=1000)


@pytest.mark.parametrize("words", [["kernels"], ["export", "--perfetto", "{out}/run.json"]])
def test_the_commands_that_need_rows_in_words_say_so(words, tmp_path, capsys):
    words = [word.replace("{out}", str(tmp_path)) for word in words]
    assert main([*words, str(FIXTURE), "--max-memory", "200MB"]) == 1
    told = capsys.readouterr().err
    assert "memory are needed" in told
    assert "--max-memory" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("512MiB", 2**29)]
)
def test_how_memory_is_written(text, size):
    assert memory_size(text) == size


@pytest.mark.parametrize("given", ["8", "8TB", "much"])
def test_memory_without_a_unit_is_usage(given, capsys):
    assert main(["report", str(FIXTURE), "--max-memory", given]) == 2
