"""The command `tracebook bytes`, run in process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tracebook.cli.bytes_command import bytes_command
from tracebook.errors import CheckpointError

HEADERS = Path(__file__).parents[2] / "fixtures" / "headers"
TARGET = str(HEADERS / "target-nvfp4.headers.json.gz")


def run(*args: str) -> Result:
    return CliRunner().invoke(bytes_command, list(args), catch_exceptions=False)


def test_text_names_m_its_rule_and_the_ceiling() -> None:
    result = run(TARGET, "--bandwidth", "273")
    words = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "M, read by one step: 19,103,683,968 bytes (19.10 GB, exact)" in words
    assert "The rule: M = every matrix" in words
    assert "Ceiling at 273 GB/s: 14.29 tokens per second (70.0 ms a step)" in words
    assert "5.86 bits per weight" in words


def test_piped_text_is_ascii_without_escapes() -> None:
    text = run(TARGET).stdout
    assert text.isascii()
    assert "\x1b" not in text


def test_without_bandwidth_says_what_to_add() -> None:
    assert "add --bandwidth GBPS" in " ".join(run(TARGET).stdout.split())


def test_narrow_output_keeps_within_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(len(line) for line in run(TARGET).stdout.splitlines()) <= 60


def test_machine_by_name() -> None:
    content = json.loads(run(TARGET, "--machine", "dgx-spark", "--format", "json").stdout)
    assert content["bandwidth_gbps"] == 273


def test_json_adds_up() -> None:
    content = json.loads(run(TARGET, "--format", "json", "--bandwidth", "273").stdout)
    assert content["schema"] == "tracebook.ledger/1"
    (checkpoint,) = content["checkpoints"]
    assert checkpoint["payload_bytes"] == 23_417_339_744
    assert sum(part["bytes"] for part in checkpoint["components"]) == 23_417_339_744
    assert sum(part["share"] for part in checkpoint["components"]) == pytest.approx(1, abs=1e-5)
    assert checkpoint["step"]["bytes"] == 19_103_683_968
    assert checkpoint["step"]["ceiling_steps_per_s"] == pytest.approx(14.2904, abs=1e-4)


def test_whole_recipe() -> None:
    args = ["--draft-method", "dflash2", "--draft-tokens", "10", "--format", "json"]
    args += ["--drafter", str(HEADERS / "drafter-nvfp4.headers.json.gz")]
    args += ["--draft-head", str(HEADERS / "drafthead-fp8.headers.json.gz")]
    step = json.loads(run(TARGET, *args).stdout)["checkpoints"][0]["step"]
    assert step["bytes"] == 19_103_683_968 + 1_107_438_368 + 512_363_904
    assert step["optional"] == {"kv_copy": 104_857_600}


def test_several_checkpoints() -> None:
    content = json.loads(run(TARGET, TARGET, "--format", "json").stdout)
    assert len(content["checkpoints"]) == 2
    assert run(TARGET, TARGET, "--draft-method", "mtp").exit_code == 2


def test_save_gives_back_the_same_bundle(tmp_path: Path) -> None:
    path = tmp_path / "copy.headers.json.gz"
    assert run(TARGET, "--save", str(path)).exit_code == 0
    assert path.read_bytes() == Path(TARGET).read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_save_as_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    run(TARGET, "--save", str(path))
    assert len(json.loads(path.read_text())["files"]) == 2


def test_drafting_options_need_a_method() -> None:
    assert run(TARGET, "--draft-tokens", "3").exit_code == 2


def test_unknown_path() -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        run("not/there.safetensors")
