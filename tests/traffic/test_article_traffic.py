"""Traffic of the article's runs, against figures counted by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tracebook.checkpoint import build_ledger, build_plan, read_checkpoint
from tracebook.config import RunDescription
from tracebook.traffic import Models, step_traffic, together

HEADERS = Path(__file__).parents[2] / "fixtures" / "headers"


@cache
def ledger(name):
    return build_ledger(read_checkpoint(HEADERS / f"{name}.headers.json.gz"))


def traffic(method="none", drafts=None, drafter=None, head=None, **run):
    models = Models(ledger("target-nvfp4"), drafter and ledger(drafter), head and ledger(head))
    plan = build_plan(models.target, drafter=models.drafter, draft_head=models.draft_head,
                      method=method, draft_tokens=drafts)  # fmt: skip
    settings = {"batch": 1, "kv_dtype": "bfloat16", "gdn_dtype": "bfloat16"} | run
    return step_traffic(models, plan, RunDescription(**settings))


def size(found, phase, name, direction):
    return sum(m.bytes for m in found.of(phase) if (m.name, m.direction) == (name, direction))


def test_cache_of_34000_tokens():
    found = traffic(context_tokens=34_000)
    read = size(found, "target_layers", "kv_cache", "read")
    assert read == 34_000 * 65_536  # 16 layers, K and V of 4 heads of 256 in BF16
    assert round(read / 1e9, 2) == 2.23
    fp8 = traffic(context_tokens=34_000, kv_dtype="fp8")
    assert round(size(fp8, "target_layers", "kv_cache", "read") / 1e9, 2) == 1.11


@pytest.mark.parametrize(
    ("dtype", "snapshot", "eleven"),
    [("bfloat16", 75_497_472, 830_472_192), ("float32", 150_994_944, 1_660_944_384)],
)
def test_snapshots(dtype, snapshot, eleven):
    found = traffic("dflash2", 10, "drafter-bf16", gdn_dtype=dtype, replay=False)
    assert size(found, "target_layers", "recurrent_state", "read") == snapshot
    assert size(found, "target_layers", "recurrent_state", "write") == eleven
    plain = traffic(gdn_dtype=dtype)
    assert size(plain, "target_layers", "recurrent_state", "write") == snapshot


def test_the_config_asks_for_float32_and_that_is_said():
    found = traffic(gdn_dtype=None)
    assert size(found, "target_layers", "recurrent_state", "read") == 150_994_944
    assert "state_dtype_unsure" in [notice.code for notice in found.notices]


def test_verifying_without_a_word_on_replay_is_assumed_to_store_snapshots():
    found = traffic("dflash2", 10, "drafter-bf16")
    assert found.assumed == ("a snapshot of the recurrent state at each position",)
    assert {m.basis for m in found.movements if m.name == "recurrent_state"} == {"assumed"}


def test_convolution_state_is_2_95_mb_at_three_columns():
    assert size(traffic(), "target_layers", "conv_state", "read") == 48 * 10_240 * 3 * 2
    verify = traffic("dflash2", 10, "drafter-bf16")
    assert size(verify, "target_layers", "conv_state", "write") == 48 * 10_240 * 13 * 2


def test_gather_tables_cost_rows_not_tables():
    found = traffic("dflash2", 10, "drafter-bf16")
    rows = size(found, "draft_head", "gather_rows", "read")
    assert rows == (160 + 161) * 512
    drafter = ledger("drafter-bf16")
    whole, tables = drafter.payload_bytes, drafter.bytes_of("gather_table")
    assert round(whole / 16.7e6) == 230  # GB/s by the whole file
    assert round((whole - tables) / 16.7e6) == 215


def test_the_drafter_looks_back_2048_tokens_at_most():
    short, long = (traffic("dflash2", 10, "drafter-bf16", context_tokens=n) for n in (512, 34_000))
    per_token = 5 * 2 * 8 * 128 * 2
    assert size(short, "drafter_layers", "kv_cache", "read") == 512 * per_token
    assert size(long, "drafter_layers", "kv_cache", "read") == 2048 * per_token


def test_each_mtp_pass_reads_its_cache_and_a_row():
    found = traffic("mtp", 3, context_tokens=1000)
    assert size(found, "drafter_layers", "kv_cache", "read") == 3 * 1000 * 2 * 4 * 256 * 2
    # Four positions in the first pass, one in each of the other two.
    assert size(found, "drafter_layers", "embedding_rows", "read") == 6 * 10_240
    passes = [m for m in found.movements if m.phase == "drafter_layers" and m.name == "kv_cache"]
    assert len(passes) == 6
    assert {m.bytes for m in together(passes)} == {
        3 * 1000 * 4096,
        6 * 4096,
    }


def test_logits_are_written_once_and_read_once():
    found = traffic("dflash2", 10, "drafter-bf16", "drafthead-fp8")
    assert size(found, "output_layer", "logits", "write") == 11 * 248_320 * 2
    assert size(found, "sampling", "logits", "read") == 11 * 248_320 * 2
    assert size(found, "draft_head", "logits", "read") == 10 * 100_032 * 2


def test_ranks_share_heads_states_and_scores():
    one, two = (traffic(context_tokens=100, tensor_parallel=n) for n in (1, 2))
    for name in ("kv_cache", "recurrent_state", "conv_state"):
        assert size(two, "target_layers", name, "read") * 2 == size(
            one, "target_layers", name, "read"
        )
    assert size(two, "output_layer", "logits", "write") * 2 == 248_320 * 2
    assert size(two, "sampling", "logits", "read") == 248_320 * 2


def test_replay_contradicting_the_trace_is_said():
    models = Models(ledger("target-nvfp4"), ledger("drafter-bf16"))
    plan = build_plan(models.target, drafter=models.drafter, method="dflash2", draft_tokens=10)
    run = RunDescription(batch=1, gdn_dtype="bfloat16", replay=True)
    found = step_traffic(models, plan, run, replay_seen=False)
    assert "replay_differs" in [notice.code for notice in found.notices]
    assert not step_traffic(models, plan, RunDescription(batch=1), replay_seen=False).replay
    assert step_traffic(models, plan, RunDescription(batch=1), replay_seen=True).replay
