"""What a user did wrong is told as what it is, with what to do and the right exit status."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tracebook.cli import main
from tracebook.units import counted, size_text

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACE = str(FIXTURES / "mtp3" / "trace.sqlite")
RUN = str(FIXTURES / "mtp3" / "run.toml")
LEARNT = str(FIXTURES / "plain-nvfp4" / "expected.json")
HEADERS = str(FIXTURES / "headers" / "target-nvfp4.headers.json.gz")
SAVED = str(FIXTURES / "comparison" / "before.json.gz")


def told(capsys, *words: str) -> tuple[int, str]:
    status = main(list(words))
    return status, " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["report", "doctor", "kernels"])
def test_our_own_files_are_known(command, capsys):
    status, text = told(capsys, command, HEADERS)
    assert status == 1
    assert "holds the headers of a checkpoint" in text
    assert f"--checkpoint {HEADERS}" in text
    status, text = told(capsys, command, SAVED)
    assert status == 1
    assert "is a saved run, not a trace" in text
    assert "tracebook diff" in text


def test_unpacked_headers_are_known(tmp_path, capsys):
    file = tmp_path / "x.headers.json"
    file.write_bytes(gzip.decompress(Path(HEADERS).read_bytes()))
    assert "--checkpoint" in told(capsys, "report", str(file))[1]
    assert "--checkpoint" in told(capsys, "doctor", str(file))[1]


def test_other_packed_files_are_still_to_be_unpacked(tmp_path, capsys):
    file = tmp_path / "x.gz"
    for content in (b"SQLite format 3\0" * 100, b'{"a": 1}', b""):
        file.write_bytes(gzip.compress(content))
        assert "compressed (gzip)" in told(capsys, "doctor", str(file))[1]
    file.write_bytes(b"\x1f\x8bnothing of the kind")
    assert "compressed (gzip)" in told(capsys, "doctor", str(file))[1]


@pytest.mark.parametrize(
    "window", [["--from", "50%", "--to", "10%"], ["--from", "1s", "--to", "200ms"]]
)
@pytest.mark.parametrize("more", [[], ["--steps", "3"]])
def test_a_window_that_ends_before_it_begins(window, more, capsys):
    status, text = told(capsys, "report", TRACE, *window, *more)
    assert status == 1
    assert "ends before it begins" in text


def test_a_pattern_without_files(tmp_path, capsys):
    status, text = told(capsys, "report", str(tmp_path / "*.sqlite"))
    assert status == 1
    assert f"No file matches {tmp_path}/*.sqlite." in text
    assert main(["report", TRACE, str(tmp_path / "*.sqlite")]) == 1
    assert "Failed: *.sqlite: No file matches *.sqlite." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", TRACE, "--draft-tokens", "0"], "1 or more, not 0"),
        (["report", TRACE, "--bandwidth", "-3"], "above 0"),
        (["report", TRACE, "--from", "150%"], "from 0 to 100"),
        (["report", TRACE, "--max-memory", "1KB"], "MB, GB, MiB and GiB"),
        (["report", TRACE, TRACE, "--format", "html"], "tracebook plot --kind breakdown"),
        (["predict", RUN, "--alpha", "1.5"], "0<=x<=1"),
        (["predict", RUN, "--alpha", "0.5", "--tokens-per-step", "2"], "give one of them"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(words, said, capsys):
    status, text = told(capsys, *words)
    assert status == 2
    assert said in text


def test_what_a_file_says_is_1(tmp_path, capsys):
    run = tmp_path / "run.toml"
    run.write_text("[drafter]\ndraft_tokens = 0\n")
    status, text = told(capsys, "report", TRACE, "--run", str(run))
    assert status == 1
    assert "Correct the value" not in text


def test_binary_files_are_called_so(capsys):
    status, text = told(capsys, "predict", TRACE)
    assert status == 1
    assert "is no TOML text" in text
    status, text = told(capsys, "predict", RUN, "--from", TRACE)
    assert status == 1
    assert "is no JSON text" in text
    assert "codec" not in text


def test_a_missing_run_description_names_no_option_that_predict_lacks(tmp_path, capsys):
    assert "--run" not in told(capsys, "predict", str(tmp_path / "no.toml"))[1]


def test_what_was_learnt_from_is_named(monkeypatch, capsys):
    monkeypatch.chdir(FIXTURES)
    for given, shown in ((LEARNT, "expected.json"), ("plain-nvfp4/expected.json",) * 2):
        assert main(["predict", RUN, "--from", given]) == 0
        assert f"learnt   {shown}, 8 steps" in capsys.readouterr().out


def test_verification_without_nsys_fails_before_the_report(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TRACEBOOK_NSYS", str(tmp_path / "none"))
    assert main(["report", TRACE, "--verify"]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "--verify-against" in streams.err


def test_sizes_have_a_unit_that_suits_them():
    assert size_text(20_000_000_000) == "20.00 GB"
    assert size_text(100_000_000) == "0.10 GB"
    assert size_text(1_234_567) == "1.23 MB"
    assert size_text(12_345) == "12.35 kB"
    assert size_text(0) == "0 bytes"


def test_one_is_no_plural(tmp_path, capsys):
    assert [counted(n, "step") for n in (0, 1, 2_000)] == ["0 steps", "1 step", "2,000 steps"]
    out = tmp_path / "slim.sqlite"
    assert main(["trim", TRACE, "--steps", "1", "-o", str(out)]) == 0
    text = capsys.readouterr().err
    assert ": 1 step, " in text
    assert "0.00" not in text


def test_a_saved_run_tells_its_steps(tmp_path, capsys):
    out = tmp_path / "run.json"
    assert main(["save", TRACE, "--steps", "1", "-o", str(out)]) == 0
    assert f"Saved {out}: 1 step.\n" in capsys.readouterr().err


def test_a_benchmark_file_that_cannot_be_read(capsys):
    text = told(capsys, "report", TRACE, "--tokens-per-step", TRACE)[1]
    assert "is binary, not text" in text
    assert "codec" not in text
    assert "Errno" not in told(capsys, "report", TRACE, "--tokens-per-step", "nope")[1]
