from __future__ import annotations

import json

import polars as pl
import pytest
from handmade import make_report

from tracebook.errors import ReportVersionError
from tracebook.report import Report, is_saved_report

#: The keys that other programs rely on (version 1 of the schema): never fewer than these.
PROMISED = {
    "trace": "path nsys_version schema_version capture_mode gpu synthetic device pid",
    "machine": "name bandwidth_gbps ceiling_gbps source",
    "run": "target drafter draft_method draft_tokens draft_head batch tokens_per_step "
    "context_tokens",
    "steps": "found kept dropped source wall_ms busy_ms idle_ms tokens_per_s",
    "total": "weight_bytes traffic_bytes weight_gbps traffic_gbps roofline_pct floor_ms "
    "ceiling_steps_per_s",
    "unclassified": "ms share names",
}
PHASE_KEYS = (
    "phase ms share kernels passes weight_bytes traffic_bytes basis weight_gbps traffic_gbps "
    "roofline_pct floor_ms evidence"
)


def test_json_has_the_promised_keys(report):
    document = json.loads(report.to_json())
    assert document["schema"] == "tracebook.report/1"
    for part, keys in PROMISED.items():
        assert set(keys.split()) <= set(document[part])
    for row in document["phases"]:
        assert set(PHASE_KEYS.split()) <= set(row)
    for summary in (document["steps"]["wall_ms"], document["phases"][0]["ms"]):
        assert set(summary) == {"median", "mean", "p05", "p95", "ci95", "n"}
        assert len(summary["ci95"]) == 2
    assert document["steps"]["dropped"] == [{"reason": "cut at the edge", "count": 2}]
    assert all(set(w) == {"code", "message", "hint"} for w in document["warnings"])
    assert document["phases"][0]["weight_bytes"] == 120_000_000


@pytest.mark.parametrize("variant", [{}, {"with_plan": False}, {"steps": 3}])
def test_a_report_comes_back_as_it_was(variant, tmp_path):
    report = make_report(**variant)
    assert Report.from_json(report.to_json()) == report
    report.save(tmp_path / "r.json")
    again = Report.load(tmp_path / "r.json")
    assert again.to_json() == report.to_json()
    assert is_saved_report(tmp_path / "r.json")


def test_the_same_run_gives_the_same_bytes():
    assert make_report().to_json() == make_report().to_json()


def test_frames_keep_their_types_without_rows_and_without_bytes(report):
    bare = make_report(with_plan=False)
    assert bare.phases.schema == report.phases.schema
    assert report.phases.schema["weight_bytes"] == pl.Int64
    assert report.phases["ms"].to_list() == [0.6, 0.2, 0.06, 0.04]
    assert report.layers.columns[:2] == ["phase", "layer"]
    assert report.matrices.columns[:3] == ["phase", "op", "matrix"]
    assert report.phases["ms_ci95_lo"][0] == 0.6


def test_keys_added_later_do_not_hurt(report):
    document = json.loads(report.to_json())
    document["new"] = 1
    document["phases"][0]["newer"] = {"a": 2}
    assert Report.from_json(json.dumps(document)) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a saved report"),
        ("[]", "not a saved report"),
        ('{"schema": "other/1"}', "'other/1'"),
        ('{"schema": "tracebook.report/x"}', "not a saved report"),
        ('{"schema": "tracebook.report/2"}', "this tracebook reads 'tracebook.report/1'"),
        ('{"schema": "tracebook.report/1"}', "damaged"),
    ],
)
def test_other_files_are_refused(text, message):
    with pytest.raises(ReportVersionError, match=message):
        Report.from_json(text)


def test_a_newer_report_names_the_remedy():
    with pytest.raises(ReportVersionError) as caught:
        Report.from_json('{"schema": "tracebook.report/7"}')
    assert "Upgrade tracebook" in caught.value.hint


def test_a_wrong_type_is_damage(report):
    document = json.loads(report.to_json())
    document["phases"][0]["kernels"] = "many"
    with pytest.raises(ReportVersionError, match="damaged"):
        Report.from_json(json.dumps(document))


def test_a_missing_report_is_an_error(tmp_path):
    with pytest.raises(ReportVersionError, match="cannot be read"):
        Report.load(tmp_path / "none.json")
