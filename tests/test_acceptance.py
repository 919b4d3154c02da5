"""Benchmark results and metrics scrapes in the forms that vLLM writes."""

from __future__ import annotations

import json

import pytest

from tracebook.acceptance import read_acceptance
from tracebook.cli import main
from tracebook.errors import RunDescriptionError

METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e9
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 400.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 250.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 182.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 34.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 41.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 9.79
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
"""


def written(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_counters_of_a_server_are_summed_over_engines(tmp_path):
    found = read_acceptance(written(tmp_path, METRICS))
    assert found.tokens_per_step == pytest.approx(5.32)  # 1 + 432 / 100
    assert found.draft_tokens == 10
    assert found.per_position == (0.84, 0.41)
    # 100 steps of 97.9 ms with 5.32 tokens each
    assert found.weighted_tokens_per_s == pytest.approx(54.34, abs=0.01)
    assert found.median_tokens_per_s is None


def test_counters_of_two_models_are_refused(tmp_path):
    two = METRICS.replace('engine="1",model_name="m"', 'engine="1",model_name="n"')
    with pytest.raises(RunDescriptionError, match="2 models"):
        read_acceptance(written(tmp_path, two))


DETAILED = {
    # 21 tokens in 4 steps of 0.1 s; 11 in 10 steps; 11 in 5 steps; one that failed.
    "output_lens": [21, 11, 11, 0],
    "itls": [[0.1] * 4, [0.1] * 10, [0.1] * 5, []],
}


def test_median_request_and_all_tokens_are_two_rates(tmp_path):
    found = read_acceptance(written(tmp_path, DETAILED))
    assert found.requests == 3
    assert found.weighted_tokens_per_s == pytest.approx(40 / 1.9)
    assert found.median_tokens_per_s == pytest.approx(20)
    assert found.tokens_per_step == pytest.approx(40 / 19)
    assert found.median_tokens_per_step == pytest.approx(2)


def test_counts_of_the_benchmark_win_over_intervals(tmp_path):
    found = read_acceptance(
        written(
            tmp_path,
            DETAILED
            | {
                "spec_decode_num_drafts": 200,
                "spec_decode_draft_tokens": 2000,
                "spec_decode_accepted_tokens": 870,
                "spec_decode_acceptance_length": 9.9,
                "spec_decode_per_position_acceptance_rates": [0.9, 0.8],
            },
        )
    )
    assert found.tokens_per_step == pytest.approx(5.35)
    assert found.draft_tokens == 10
    assert found.per_position == (0.9, 0.8)


def test_a_short_result_has_the_acceptance_length(tmp_path):
    short = {"spec_decode_acceptance_length": 4.78, "median_tpot_ms": 20.0}
    found = read_acceptance(written(tmp_path, short))
    assert found.tokens_per_step == 4.78
    assert found.median_tokens_per_s == 50


@pytest.mark.parametrize("content", [{}, {"median_tpot_ms": 3.0}, "", "# only comments\n"])
def test_a_file_that_tells_nothing_is_refused(tmp_path, content):
    with pytest.raises(RunDescriptionError, match="does not tell"):
        read_acceptance(written(tmp_path, content))


def test_broken_and_missing_files_are_refused(tmp_path):
    with pytest.raises(RunDescriptionError, match="not valid JSON"):
        read_acceptance(written(tmp_path, "{"))
    with pytest.raises(RunDescriptionError, match="cannot be read"):
        read_acceptance(tmp_path / "none")


def test_the_flag_takes_a_file(tmp_path, monkeypatch):
    asked = {}

    def analyze(_path, **options):
        asked.update(options)
        raise RunDescriptionError("stop here")

    monkeypatch.setattr("tracebook.analysis.analyze", analyze)
    main(["report", "x.sqlite", "--tokens-per-step", str(written(tmp_path, METRICS))])
    assert asked["tokens_per_step"] == pytest.approx(5.32)
    assert main(["report", "x.sqlite", "--tokens-per-step", "no-such-file"]) == 1
