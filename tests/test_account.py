from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from handmade import (
    HEAD_BYTES,
    LAYER_BYTES,
    MACHINE,
    labelled_run,
    make_report,
    make_trace,
    make_verdict,
)

from tracebook.account import account, shown
from tracebook.config import RunDescription
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.labels import LabelledKernels
from tracebook.notices import Notice


def codes(report):
    return [warning.code for warning in report.warnings]


def by_phase(report):
    return {row.phase: row for row in report.phase_rows}


def test_phases_and_idle_share_out_the_wall_time(report):
    times = {row.phase: row.ms.median for row in report.phase_rows}
    assert times == {
        "target_layers": 0.6,
        "output_layer": 0.2,
        "sampling": 0.06,  # 0.1, of which 0.04 lie under the output layer
        "unclassified": 0.04,
    }
    assert list(times) == ["target_layers", "output_layer", "sampling", "unclassified"]
    assert report.steps.idle_ms.median == 0.1
    assert report.steps.busy_ms.median == 0.9
    assert sum(times.values()) + report.steps.idle_ms.median == pytest.approx(1.0)
    assert sum(row.share for row in report.phase_rows) == pytest.approx(0.9)


def test_rates_are_bytes_over_median_time(report):
    layers = by_phase(report)["target_layers"]
    assert layers.weight_bytes == 120_000_000
    assert layers.weight_gbps == 200.0  # 0.12 GB in 0.6 ms
    assert layers.roofline_pct == 80.0
    assert layers.floor_ms == 0.48
    assert layers.basis == "exact"
    assert layers.traffic_basis == "weights only"
    assert by_phase(report)["output_layer"].basis == "derived"


def test_the_total_is_the_sum_of_the_phases(report):
    assert report.total.weight_bytes == 150_000_000
    assert report.total.weight_gbps == 150.0
    assert report.total.floor_ms == 0.6
    assert report.total.ceiling_steps_per_s == pytest.approx(1666.666667)
    assert report.steps.tokens_per_s == 1000.0


def test_phases_without_weights_have_no_rate(report):
    sampling = by_phase(report)["sampling"]
    assert sampling.weight_bytes == 0
    assert sampling.traffic_bytes is None
    assert sampling.weight_gbps is None
    assert sampling.floor_ms is None


def test_overlap_is_told(report):
    assert by_phase(report)["sampling"].kernel_sum_ms.median == 0.1
    assert report.steps.kernel_sum_ms.median == 0.94
    assert "overlap" in codes(report)


def test_layers(report):
    assert [(row.phase, row.layer, row.ms.median) for row in report.layer_rows] == [
        ("target_layers", 0, 0.3),
        ("target_layers", 1, 0.3),
        ("output_layer", None, 0.2),
        ("sampling", None, 0.06),
        ("unclassified", None, 0.04),
    ]
    assert [row.weight_bytes for row in report.layer_rows[:2]] == [LAYER_BYTES, LAYER_BYTES]


def test_matrices(report):
    assert [(row.op, row.matrix, row.kernels, row.weight_bytes) for row in report.matrix_rows] == [
        ("gate", "mlp.gate_proj", 2, 2 * LAYER_BYTES),
        ("head", "lm_head", 1, HEAD_BYTES),
        (None, None, 1, 0),
        (None, None, 1, 0),
    ]
    assert report.matrix_rows[1].weight_gbps == 150.0
    assert report.matrix_rows[2].weight_gbps is None


def test_every_detail_adds_up_to_the_step(report):
    for rows in (report.phase_rows, report.layer_rows, report.matrix_rows):
        assert sum(row.ms.mean for row in rows) == pytest.approx(report.steps.busy_ms.mean)


def test_unclassified_names_come_with_their_time(report):
    unknown = report.unclassified
    assert unknown.share == 0.04
    assert unknown.ms.median == 0.04
    assert [(entry.name, entry.kernels, entry.ms) for entry in unknown.names] == [
        ("mystery<kernel>", 1, 0.04)
    ]
    assert "unclassified" in codes(report)


def test_evidence_is_a_share_of_the_time(report):
    assert by_phase(report)["target_layers"].evidence == {"alignment": 1.0}
    assert by_phase(report)["unclassified"].evidence == {"none": 1.0}


def test_without_a_checkpoint_there_are_times_but_no_bytes():
    report = make_report(with_plan=False)
    assert by_phase(report)["target_layers"].ms.median == 0.6
    assert all(row.weight_bytes is None and row.basis is None for row in report.phase_rows)
    assert report.total.weight_bytes is None
    assert report.layer_rows[0].weight_bytes is None
    warning = next(w for w in report.warnings if w.code == "no_checkpoint")
    assert "--checkpoint" in warning.hint


def test_bytes_that_are_not_trusted_are_not_given():
    report = make_report(verdict=make_verdict(bytes_trusted=False, matched_share=0.9))
    assert report.total.weight_bytes is None
    assert report.total.traffic_gbps is None
    assert all(row.weight_gbps is None for row in report.phase_rows)
    assert report.matrix_rows[0].weight_gbps is None
    assert "bytes_untrusted" in codes(report)


def test_doubtful_phases_are_told():
    report = make_report(verdict=make_verdict(phases_trusted=False, unmatched_gemm_share=0.1))
    warning = next(w for w in report.warnings if w.code == "phases_untrusted")
    assert "10.0 %" in warning.message


def test_above_the_roofline_is_shown_and_not_clipped():
    report = make_report(machine=replace(MACHINE, bandwidth_gbps=100.0))
    assert by_phase(report)["target_layers"].roofline_pct == 200.0
    told = [w.message for w in report.warnings if w.code == "above_roofline"]
    assert len(told) == 2
    assert "200.0 %" in told[0]


def test_without_a_bandwidth_there_are_rates_but_no_percent():
    notice = Notice("bandwidth_unknown", "Nobody knows.")
    report = make_report(machine=replace(MACHINE, bandwidth_gbps=None, notices=(notice,)))
    assert by_phase(report)["target_layers"].weight_gbps == 200.0
    assert by_phase(report)["target_layers"].roofline_pct is None
    assert report.total.ceiling_steps_per_s is None
    assert notice in report.warnings


def test_the_measured_ceiling_stands_beside_the_peak():
    report = make_report(machine=replace(MACHINE, ceiling_gbps=240.0))
    layers = by_phase(report)["target_layers"]
    assert layers.roofline_pct == 80.0
    assert layers.ceiling_pct == pytest.approx(83.333333)
    assert report.total.ceiling_pct == 62.5


def test_few_steps_have_no_interval():
    report = make_report(steps=5)
    assert report.steps.wall_ms.ci95 is None
    assert "few_steps" in codes(report)
    assert "few_steps" not in codes(make_report(steps=6))


def test_no_step_is_an_error():
    labelled = labelled_run(2)
    with pytest.raises(NoDecodeSteps):
        account(
            replace(labelled, steps=labelled.steps.clear()),
            trace=make_trace(),
            machine=MACHINE,
            run=RunDescription(),
        )


def test_synthetic_traces_say_so():
    assert "synthetic" in codes(make_report(trace=make_trace(synthetic=True)))
    assert "synthetic" not in codes(make_report())


@pytest.mark.parametrize(
    ("run", "tokens_per_s", "basis", "assumed"),
    [
        (RunDescription(draft_method="none", batch=1), 1000.0, "derived", ()),
        (RunDescription(draft_method="none"), 1000.0, "assumed", ("batch 1",)),
        (RunDescription(draft_method="none", batch=4), 4000.0, "derived", ()),
        (RunDescription(draft_method="dflash2", batch=1), None, None, ()),
        (
            RunDescription(draft_method="dflash2", batch=1, tokens_per_step=5.32),
            5320.0,
            "given",
            (),
        ),
    ],
)
def test_tokens_per_second(run, tokens_per_s, basis, assumed):
    report = make_report(run=run)
    assert report.steps.tokens_per_s == tokens_per_s
    assert report.run.tokens_basis == basis
    assert report.run.assumed == assumed
    assert ("tokens_unknown" in codes(report)) == (tokens_per_s is None)


def test_a_method_nobody_named_is_called_assumed():
    report = make_report(run=RunDescription(batch=1))
    assert report.run.draft_method == "none"
    assert report.run.assumed == ("draft method none",)


def test_kernels_of_no_step_count_where_they_run():
    labelled = labelled_run(6)
    rows = labelled.rows.with_columns(
        pl.when(pl.col("phase") == "unclassified").then(None).otherwise("step_id").alias("step_id")
    )
    report = account(
        replace(labelled, kernels=LabelledKernels.of(rows)),
        trace=make_trace(),
        machine=MACHINE,
        run=RunDescription(),
    )
    unknown = by_phase(report)["unclassified"]
    assert unknown.ms.median == 0.04
    assert unknown.kernels == 0


def test_paths_are_shown_without_what_leads_to_them(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert shown(tmp_path / "work" / "runs" / "a.sqlite") == "runs/a.sqlite"
    assert shown(tmp_path / "alice" / "a.sqlite") == "a.sqlite"
    assert shown("runs/a.sqlite") == "runs/a.sqlite"
    assert shown("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
