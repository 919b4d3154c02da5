from __future__ import annotations

import json
from pathlib import Path

import pytest
from handmade import make_report, make_trace

from tracebook.cli import main
from tracebook.report import Report


@pytest.fixture
def analyzed(monkeypatch):
    """Replace the analysis; keep what it was asked."""
    asked = {}

    def analyze(path, **options):
        asked.update(options, path=path)
        return make_report(trace=make_trace(synthetic=True))

    monkeypatch.setattr("tracebook.analysis.analyze", analyze)
    return asked


def test_text_goes_to_stdout_in_ascii(analyzed, capsys):
    assert main(["report", "run.sqlite"]) == 0
    streams = capsys.readouterr()
    assert streams.out.isascii()
    assert "target layers" in streams.out
    assert "synthesised" in streams.out
    assert streams.err == ""


def test_every_flag_arrives(analyzed, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text("")
    flags = (
        "--checkpoint a --drafter b --draft-method dflash2 --draft-tokens 10 --draft-head c "
        "--bandwidth 273 --machine m --ceiling-gbps 240 --context-tokens 512 --batch 2 "
        "--signature 15b6 --tensor-parallel 4 --kv-dtype fp8 --gdn-dtype bfloat16 --no-replay "
        "--tokens-per-step 5.32 --device 1 --pid 99 --from 1.5s --to 2000ms --steps 5 "
        "--max-memory 8GB "
        f"--rules {rules} --run r.toml"
    )
    assert main(["report", "run.sqlite", *flags.split()]) == 0
    assert analyzed == {
        "path": Path("run.sqlite"),
        "checkpoint": "a",
        "drafter": "b",
        "draft_method": "dflash2",
        "draft_tokens": 10,
        "draft_head": "c",
        "bandwidth": 273.0,
        "machine": "m",
        "ceiling_gbps": 240.0,
        "context_tokens": 512,
        "kv_dtype": "fp8",
        "gdn_dtype": "bfloat16",
        "replay": False,
        "batch": 2,
        "signature": "15b6",
        "tokens_per_step": 5.32,
        "tensor_parallel": 4,
        "device": 1,
        "pid": 99,
        "from_ns": 1_500_000_000,
        "to_ns": 2_000_000_000,
        "steps": 5,
        "max_memory_bytes": 8_000_000_000,
        "rules": rules,
        "run_file": Path("r.toml"),
    }


def test_json_keeps_stdout_clean_and_warns_on_stderr(analyzed, capsys):
    assert main(["report", "run.sqlite", "--format", "json"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["schema"] == "tracebook.report/1"
    assert "Warning: This trace was synthesised" in streams.err


@pytest.mark.parametrize("format_name", ["text", "json", "csv", "markdown"])
def test_output_goes_to_a_file(analyzed, tmp_path, capsys, format_name):
    out = tmp_path / "out.txt"
    assert main(["report", "run.sqlite", "--format", format_name, "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert "target" in out.read_text()
    assert list(tmp_path.iterdir()) == [out]


def test_a_failure_leaves_the_old_file(analyzed, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.txt"
    out.write_text("old")

    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    assert main(["report", "run.sqlite", "-o", str(out)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_missing_directory_is_told(analyzed, tmp_path, capsys):
    assert main(["report", "run.sqlite", "-o", str(tmp_path / "no" / "out.txt")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_input_is_never_written_over(analyzed, tmp_path, capsys):
    trace = tmp_path / "run.sqlite"
    trace.write_bytes(b"trace")
    assert main(["report", str(trace), "-o", str(tmp_path / "." / "run.sqlite")]) == 1
    assert "is the input itself" in capsys.readouterr().err
    assert trace.read_bytes() == b"trace"


def test_a_saved_report_is_shown_again(tmp_path, capsys):
    saved = tmp_path / "r.json"
    make_report().save(saved)
    assert main(["report", str(saved), "--format", "json"]) == 0
    assert Report.from_json(capsys.readouterr().out) == make_report()


def test_a_saved_report_takes_no_options(tmp_path, capsys):
    saved = tmp_path / "r.json"
    make_report().save(saved)
    assert main(["report", str(saved), "--bandwidth", "273"]) == 2
    assert "bandwidth" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "3"], "unit"),
        (["--draft-method", "magic"], "magic"),
        (["--detail", "atoms"], "atoms"),
        (["--bandwith", "1"], "--bandwidth"),
    ],
)
def test_wrong_usage_is_2(analyzed, args, said, capsys):
    assert main(["report", "run.sqlite", *args]) == 2
    assert said in capsys.readouterr().err
