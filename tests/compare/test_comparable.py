from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from step_noise import baseline_of

from tracebook.compare.comparable import comparable

TRACE = {"gpu": "NVIDIA GB10", "capture_mode": "node", "synthetic": False}
RUN = {"batch": 1, "draft_method": "dflash2", "draft_tokens": 10, "context_tokens": 512}


def run_with(steps=30, *, checkpoint_bytes=None, trusted=True, **facts):
    report = {
        "trace": TRACE | {key: value for key, value in facts.items() if key in TRACE},
        "run": RUN | {key: value for key, value in facts.items() if key in RUN},
    }
    (run,) = baseline_of(np.random.default_rng(0), steps, report=report).runs
    return dataclasses.replace(run, checkpoint_bytes=checkpoint_bytes, phases_trusted=trusted)


def codes(old, new, min_steps=20):
    found = comparable([old], [new], min_steps=min_steps)
    return [n.code for n in found.reasons], [n.code for n in found.cautions]


def test_equal_runs_may_be_compared():
    assert codes(run_with(), run_with()) == ([], [])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"gpu": "NVIDIA H200"}, "other_gpu"),
        ({"capture_mode": "graph"}, "other_capture_mode"),
        ({"batch": 8}, "other_batch"),
        ({"draft_tokens": 7}, "other_draft_tokens"),
        ({"draft_method": "mtp"}, "other_draft_method"),
        ({"steps": 19}, "too_few_steps"),
    ],
)
def test_reasons(change, code):
    found = comparable([run_with()], [run_with(**change)], min_steps=20)
    assert [reason.code for reason in found.reasons] == [code]
    assert found.reasons[0].hint
    value = next(iter(change.values()))
    assert str(value) in found.reasons[0].message


def test_other_bytes_are_refused_with_the_phase():
    bf16, nvfp4 = (
        {"target": 5, "drafter": 34},
        {"target": 5, "drafter": 12},
    )
    found = comparable(
        [run_with(checkpoint_bytes=bf16)], [run_with(checkpoint_bytes=nvfp4)], min_steps=20
    )
    assert [reason.code for reason in found.reasons] == ["other_checkpoint_bytes"]
    assert "drafter differs: it has 34 bytes in one run and 12" in found.reasons[0].message
    assert codes(run_with(checkpoint_bytes=bf16), run_with(checkpoint_bytes=bf16)) == ([], [])


def test_other_bytes_for_another_number_of_drafts_are_one_reason():
    old = run_with(checkpoint_bytes={"drafter": 10})
    new = run_with(checkpoint_bytes={"drafter": 7}, draft_tokens=7)
    assert codes(old, new) == (["other_draft_tokens"], [])


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (run_with(gpu=None), run_with(), "unknown_gpu"),
        (run_with(checkpoint_bytes={"target": 5}), run_with(), "unknown_checkpoint"),
        (run_with(trusted=False), run_with(), "phases_not_trusted"),
        (run_with(context_tokens=4096), run_with(), "other_context"),
        (run_with(synthetic=True), run_with(), "some_synthetic"),
    ],
)
def test_cautions_do_not_prevent(old, new, code):
    assert codes(old, new) == ([], [code])


def test_many_short_runs_make_no_long_one():
    short = [run_with(6) for _ in range(5)]
    found = comparable(short, [run_with()], min_steps=20)
    assert "a run of 6 steady steps" in found.reasons[0].message
