from __future__ import annotations

import pytest

from tracebook.config import RunDescription, describe_run, is_hub_id, load_run
from tracebook.errors import RunDescriptionError

FULL = """
[machine]
name = "dgx-spark"
ceiling_gbps = 240
[target]
checkpoint = "target"
[drafter]
method = "dflash2"
checkpoint = "../drafter.headers.json.gz"
draft_tokens = 10
[draft_head]
checkpoint = "org/head"
[state]
gdn_dtype = "bfloat16"
kv_dtype = "fp8"
context_tokens = 512
[workload]
batch = 1
tokens_per_step = 5.32
[synth]
anything = ["goes", 1]
"""


def written(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path):
    run = load_run(written(tmp_path, FULL))
    assert run == RunDescription(
        machine="dgx-spark",
        ceiling_gbps=240.0,
        target=str(tmp_path / "target"),
        drafter=str(tmp_path.parent / "drafter.headers.json.gz"),
        draft_method="dflash2",
        draft_tokens=10,
        draft_head="org/head",
        gdn_dtype="bfloat16",
        kv_dtype="fp8",
        context_tokens=512,
        batch=1,
        tokens_per_step=5.32,
    )


def test_run_toml_beside_the_trace_is_found(tmp_path):
    written(tmp_path, "[workload]\nbatch = 3\n")
    assert describe_run(tmp_path / "trace.sqlite").batch == 3
    (tmp_path / "elsewhere").mkdir()
    assert describe_run(tmp_path / "elsewhere" / "trace.sqlite") == RunDescription()


def test_a_named_run_file_replaces_the_one_beside(tmp_path):
    written(tmp_path, "[workload]\nbatch = 3\n")
    other = tmp_path / "other.toml"
    other.write_text("[workload]\ntokens_per_step = 2\n")
    run = describe_run(tmp_path / "trace.sqlite", run_file=other)
    assert (run.batch, run.tokens_per_step) == (None, 2.0)


def test_flags_win(tmp_path, monkeypatch):
    written(tmp_path, FULL)
    monkeypatch.chdir(tmp_path.parent)
    run = describe_run(
        tmp_path / "trace.sqlite",
        flags={"draft_tokens": 7, "target": "./model", "batch": None},
    )
    assert run.draft_tokens == 7
    assert run.target == str(tmp_path.parent / "model")
    assert run.batch == 1


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[machin]\nname = 'x'", "no table is called [machin]", "'machine'"),
        ("[machine]\nbandwith_gbps = 273", "no key 'bandwith_gbps'", "'bandwidth_gbps'"),
        ("[machine]\nbandwidth_gbps = '273'", "must be a number", "quotes"),
        ("[machine]\nbandwidth_gbps = 0", "above 0", ""),
        ("[machine]\nbandwidth_gbps = inf", "above 0", ""),
        ("[workload]\nbatch = 1.0", "whole number", ""),
        ("[workload]\nbatch = true", "must be a number", ""),
        ("[workload]\nbatch = 0", "1 or more", ""),
        ("[drafter]\nmethod = 'dflash3'", "cannot be 'dflash3'", "'dflash"),
        ("[state]\nkv_dtype = 'bf16'", "cannot be 'bf16'", ""),
        ("[target]\ncheckpoint = 5", "must be a text", ""),
        ("[target]\ncheckpoint = ' '", "must be a text", ""),
        ("target = 'x'", "must be a table", "[target]"),
        ("[machine", "not valid TOML", ""),
        ("[drafter]\nmethod = 'none'\ndraft_tokens = 3", "'none'", "--draft-method"),
    ],
)
def test_what_cannot_be_is_refused_with_the_place(tmp_path, text, message, hint):
    path = written(tmp_path, text)
    with pytest.raises(RunDescriptionError) as caught:
        load_run(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_missing_run_file_is_refused(tmp_path):
    with pytest.raises(RunDescriptionError, match="cannot be read"):
        describe_run(tmp_path / "t.sqlite", run_file=tmp_path / "no.toml")


def test_a_wrong_flag_names_the_flag(tmp_path):
    with pytest.raises(RunDescriptionError, match="--bandwidth must be a number above 0"):
        describe_run(tmp_path / "t.sqlite", flags={"bandwidth_gbps": -1.0})


def test_a_flag_can_contradict_the_file(tmp_path):
    written(tmp_path, FULL)
    with pytest.raises(RunDescriptionError, match="--drafter, --draft-tokens, --draft-head"):
        describe_run(tmp_path / "t.sqlite", flags={"draft_method": "none"})


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("Qwen/Qwen3-8B", True),
        ("model", False),
        ("./model", False),
        ("~/model", False),
        ("/a/b", False),
        ("a/b/c", False),
        ("headers/target.headers.json.gz", False),
        ("models/x.safetensors", False),
    ],
)
def test_hub_ids(text, is_id):
    assert is_hub_id(text) is is_id


def test_replay_is_a_switch(tmp_path):
    assert load_run(written(tmp_path, "[state]\nreplay = false\n")).replay is False
    path = written(tmp_path, "[state]\nreplay = true\n")
    assert load_run(path).replay is True
    flags = {"replay": False, "gdn_dtype": "float32", "kv_dtype": "fp8"}
    described = describe_run(path, run_file=path, flags=flags)
    assert (described.replay, described.gdn_dtype, described.kv_dtype) == (False, "float32", "fp8")


@pytest.mark.parametrize("value", ['"yes"', "1"])
def test_a_switch_is_true_or_false(tmp_path, value):
    with pytest.raises(RunDescriptionError, match="must be true or false"):
        load_run(written(tmp_path, f"[state]\nreplay = {value}\n"))
