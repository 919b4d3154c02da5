"""Run descriptions, rules, saved reports and baselines that are broken or set traps."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.fuzz.outcome import run
from tests.fuzz.test_checkpoints import broken

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROUNDS = int(os.environ.get("TRACEBOOK_FUZZ_ROUNDS", "3")) * 12
TRACE = FIXTURES / "mtp3" / "trace.sqlite"

DESCRIPTIONS = {
    "unknown key": ("[target]\ncheckpiont = 'x'", "checkpoint"),
    "unknown table": ("[targte]\ncheckpoint = 'x'", "target"),
    "wrong type": ("[target]\ncheckpoint = 7", "quotes"),
    "a list": ("[workload]\nbatch = [1]", "quotes"),
    "no table": ("target = 7", ""),
    "bytes": (b"\xff\xfe\x00", ""),
    "no TOML": ("[", ""),
    "key twice": ("[target]\ncheckpoint = 'a'\ncheckpoint = 'b'", ""),
    "a number of 10,000 digits": ("[workload]\nbatch = " + "9" * 10_000, ""),
    "2^63": (f"[workload]\nbatch = {2**63}", ""),
    "2^40 drafts": (f"[drafter]\nmethod = 'mtp'\ndraft_tokens = {2**40}", ""),
    "2^62 of context": (f"[state]\ncontext_tokens = {2**62}", ""),
    "nan": ("[machine]\nbandwidth_gbps = nan", ""),
    "inf": ("[workload]\ntokens_per_step = inf", ""),
    "tiny": ("[machine]\nbandwidth_gbps = 1e-320", ""),
    "huge": ("[machine]\nbandwidth_gbps = 1e308", ""),
    "deep": ("[target]\ncheckpoint = " + "[" * 50_000 + "]" * 50_000, ""),
    "an escape": ('[machine]\nname = "\\u001b[2J"', ""),
    "a device": ('[target]\ncheckpoint = "/dev/zero"', ""),
    "NUL": ('[target]\ncheckpoint = "a\\u0000b"', ""),
    "a long path": (f'[target]\ncheckpoint = "{"x" * 100_000}"', ""),
    "a date": ("[target]\ncheckpoint = 2020-01-01", ""),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_a_run_description(case, tmp_path, capfd):
    text, hint = DESCRIPTIONS[case]
    file = tmp_path / "run.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    shutil.copy(TRACE, tmp_path / "trace.sqlite")
    status, _, err = run(
        ["report", str(tmp_path / "trace.sqlite")], capfd, inputs=[file], folder=tmp_path
    )
    right_all_the_same = {"huge", "tiny", "2^40 drafts", "2^62 of context", "2^63"}
    assert status == 1 or case in right_all_the_same
    assert hint in err
    assert len(err) < 10_000
    run(["predict", str(file)], capfd, inputs=[file], folder=tmp_path)
    run(
        ["synth", str(file), "-o", str(tmp_path / "m.sqlite")],
        capfd,
        inputs=[file],
        folder=tmp_path,
    )


def rule(pattern: str, **other) -> str:
    table = {"class": "gemm", "pattern": pattern, "example": "x", **other}
    return "[[rule]]\n" + "\n".join(f"{key} = {json.dumps(v)}" for key, v in table.items())


RULES = {
    "unknown key": rule("x", patern="y"),
    "unknown class": rule("x", **{"class": "gem"}),
    "class that is a list": rule("x", **{"class": ["gemm"]}),
    "pattern that is a number": rule("x").replace('"x"', "7", 1),
    "example that is a list": rule("x", example=["x"]),
    "rules that are no list": "rule = 7",
    "rules that are texts": 'rule = ["x"]',
    "bad pattern": rule("(x"),
    "look-around": rule("(?=x)x"),
    "a pattern of 1 MB": rule("x" * 1_000_000),
    "repeats of repeats": rule("((x{1,1000}){1,1000}){1,1000}"),
    "deep groups": rule("(" * 5_000 + "x" + ")" * 5_000),
    "does not match": rule("y"),
    "no TOML": "[[rule",
    "a number of 10,000 digits": "a = " + "9" * 10_000,
    "deep": "a = " + "[" * 50_000,
    "bytes": b"\xff\xfe",
}
#: Would take for ever in an engine that backtracks.
SLOW = ("(x+x+)+y|x", "(.*.*.*.*)*z|x", "(a|a)*(a|a)*$|x", "^(([a-z])+.)+[A-Z]([a-z])+$|x")


@pytest.mark.parametrize("case", RULES)
def test_rules_that_are_wrong(case, tmp_path, capfd):
    file = tmp_path / "own.toml"
    content = RULES[case]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = ["kernels", str(TRACE), "--rules", str(file), "-o", str(tmp_path / "rows.csv")]
    status, _, err = run(arguments, capfd, inputs=[file], folder=tmp_path)
    assert status == 1
    assert len(err) < 10_000
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("pattern", SLOW)
def test_patterns_that_explode_elsewhere(pattern, tmp_path, capfd):
    file = tmp_path / "own.toml"
    file.write_text(rule(pattern))
    arguments = ["kernels", str(TRACE), "--rules", str(file), "-o", str(tmp_path / "rows.csv")]
    assert run(arguments, capfd, inputs=[file], folder=tmp_path)[0] == 0


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"x": 7}', '{"(x": "gemm"}', "{" * 9_999, '{"a":' * 50_000, "\ufeff{}"]
)
def test_json_rules_that_are_wrong(text, tmp_path, capfd):
    file = tmp_path / "own.json"
    file.write_text(text)
    arguments = ["kernels", str(TRACE), "--rules", str(file), "-o", str(tmp_path / "rows.csv")]
    assert run(arguments, capfd, inputs=[file], folder=tmp_path)[0] == 1


def saved_forms(path: Path, out: Path):
    yield ["report", str(path)]
    yield ["report", str(path), "--format", "html", "-o", str(out / "x.html")]
    yield ["report", str(path), "--format", "markdown", "--detail", "layers"]
    yield ["report", str(path), "--format", "csv", "--detail", "traffic"]
    yield ["plot", str(path), "--kind", "breakdown", "-o", str(out / "x.svg")]


def test_saved_reports_edited_by_hand(tmp_path, capfd):
    sound = json.loads((FIXTURES / "mtp3" / "expected.json").read_text())
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        file = tmp_path / "saved.json"
        file.write_text(json.dumps(broken(sound, dice)))
        forms = list(saved_forms(file, tmp_path))
        run(dice.choice(forms), capfd, inputs=[file], folder=tmp_path)


def test_baselines_edited_by_hand(tmp_path, capfd):
    packed = (FIXTURES / "comparison" / "before.json.gz").read_bytes()
    sound, other = json.loads(gzip.decompress(packed)), FIXTURES / "comparison" / "after.json.gz"
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        file = tmp_path / "base.json"
        file.write_text(json.dumps(broken(sound, dice)))
        command = dice.choice(
            [
                ["diff", str(file), str(other)],
                ["check", str(other), "--baseline", str(file)],
                ["diff", str(other), str(file), "--format", "json"],
                ["report", str(file)],
            ]
        )
        run(command, capfd, inputs=[file], folder=tmp_path)


SAVED = {
    "newer report": '{"schema": "tracebook.report/99"}',
    "newer baseline": '{"schema": "tracebook.baseline/99", "runs": []}',
    "no schema": "{}",
    "cut off": '{"schema": "tracebook.report/1", "trace": {',
    "deep": '{"a":' * 60_000 + "1" + "}" * 60_000,
    "a number of 10,000 digits": '{"schema": ' + "9" * 10_000 + "}",
    "schema that is a list": '{"schema": [1]}',
    "infinite": '{"schema": "tracebook.report/1", "steps": {"found": 1e999}}',
    "an escape": '{"schema": "\\u001b[2J"}',
}


@pytest.mark.parametrize("case", SAVED)
def test_saved_files_of_another_kind(case, tmp_path, capfd):
    file = tmp_path / "saved.json"
    file.write_text(SAVED[case])
    for command in (
        ["report", str(file)],
        ["diff", str(file), str(file)],
        ["check", str(TRACE), "--baseline", str(file)],
        ["predict", str(TRACE.with_name("run.toml")), "--from", str(file)],
        ["report", str(file), "--format", "html", "-o", str(tmp_path / "x.html")],
    ):
        status, _, err = run(command, capfd, inputs=[file], folder=tmp_path)
        assert status == 1, command
        assert len(err) < 10_000
    assert not (tmp_path / "x.html").exists()
