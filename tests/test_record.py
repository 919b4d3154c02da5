"""The command that records a run."""

from __future__ import annotations

import pytest

from tracebook.cli import main
from tracebook.record import recording

ALWAYS = {
    "--trace=cuda,nvtx",
    "--cuda-graph-trace=node",
    "--sample=none",
    "--cpuctxsw=none",
    "--trace-fork-before-exec=true",
}


def flags(planned):
    return {flag for flag, _ in planned.reasons}


@pytest.mark.parametrize("command", [["vllm", "serve", "m"], ["./mine"], ["llama-cli", "-m", "x"]])
def test_what_every_decode_capture_needs(command):
    planned = recording(command, output="out")
    assert flags(planned) >= ALWAYS | {"--output=out"}
    assert all(reason for _, reason in planned.reasons)
    assert planned.words[:2] == ("nsys", "profile")
    start = planned.words.index(command[0])
    assert planned.words[start : start + len(command)] == tuple(command)


@pytest.mark.parametrize(
    ("command", "engine", "ranged"),
    [
        (["vllm", "serve", "m"], "vLLM", True),
        (["/opt/venv/bin/vllm", "serve", "m"], "vLLM", True),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vLLM", True),
        (["python", "-m", "sglang.launch_server", "--model-path", "m"], "SGLang", True),
        (["build/bin/llama-server", "-m", "m.gguf"], "llama.cpp", False),
        (["python", "mine.py"], None, False),
    ],
)
def test_engines_differ_in_whether_they_mark_a_range(command, engine, ranged):
    planned = recording(command)
    assert planned.engine == engine
    assert ("--capture-range=cudaProfilerApi" in flags(planned)) == ranged
    assert ("--delay=60" in flags(planned)) != ranged
    assert bool(planned.steps) == (engine is not None)


def test_vllm_is_told_to_obey_the_range_unless_it_was_already():
    assert recording(["vllm", "serve", "m"]).added == ("--profiler-config.profiler=cuda",)
    told = ["vllm", "serve", "m", "--profiler-config", '{"profiler": "cuda"}']
    assert recording(told).added == ()
    assert recording(["vllm", "serve", "m"], capture_range=False).added == ()


def test_the_user_decides_about_the_range():
    mine = recording(["./mine"], capture_range=True)
    assert "--capture-range-end=stop" in flags(mine)
    timed = recording(["./mine"], delay_s=5, duration_s=7)
    assert {"--delay=5", "--duration=7"} <= flags(timed)


def test_the_command_prints_what_a_shell_understands(capsys):
    assert main(["record", "-o", "my run", "--", "vllm", "serve", "a b", "--port", "1"]) == 0
    out = capsys.readouterr().out
    assert "'--output=my run'" in out
    assert "vllm serve 'a b' --port 1 --profiler-config.profiler=cuda" in out


def test_run_runs_it(tmp_path, monkeypatch, capfd):
    fake = tmp_path / "nsys"
    fake.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    fake.chmod(0o755)
    monkeypatch.setenv("TRACEBOOK_NSYS", str(fake))
    assert main(["record", "--run", "--", "./mine", "--flag"]) == 1
    streams = capfd.readouterr()
    assert streams.out.startswith("profile --trace=cuda,nvtx")
    assert streams.out.strip().endswith("./mine --flag")
    assert "exit code 3" in streams.err
