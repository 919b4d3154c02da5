"""Exports for Perfetto hold what the labels say, in the documented formats."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tracebook.analysis import examine
from tracebook.cli import main
from tracebook.perfetto import _varint, to_json, to_pftrace, tracks_of

TRACE = Path(__file__).parents[1] / "fixtures" / "full-recipe" / "trace.sqlite"


@pytest.fixture(scope="module")
def examined():
    return examine(TRACE)


@pytest.fixture(scope="module")
def tracks(examined):
    return tracks_of(examined)


def test_tracks_show_steps_phases_layers_matrices_and_streams(tracks, examined):
    named = {track.name: track for track in tracks.tracks}
    assert list(named) == ["steps", "phases", "layers", "matrices", "stream 7"]
    assert len(named["steps"].slices) == 7
    assert len(named["stream 7"].slices) == examined.labelled.rows.height
    rows = examined.labelled.rows
    kept = rows.filter(pl.col("step_id").is_not_null())
    # 64 target layers and 5 of the drafter in each of 7 steps.
    assert len(named["layers"].slices) == 7 * 69
    read = sum(one.args.get("weight_bytes", 0) for one in named["matrices"].slices)
    assert read == kept["weight_bytes"].sum()


def test_slices_of_a_track_do_not_overlap(tracks):
    for track in tracks.tracks:
        for before, after in zip(track.slices, track.slices[1:], strict=False):
            assert before.start_ns + before.duration_ns <= after.start_ns, track.name


def test_json_keeps_every_nanosecond(tracks, examined):
    document = json.loads(to_json(tracks))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    threads = {
        event["tid"]: event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    kernels = [event for event in events if threads[event["tid"]] == "stream 7"]
    rows = examined.labelled.rows.sort("start_ns", "kernel_id")
    assert [round(event["ts"] * 1e3) for event in kernels] == rows["start_ns"].to_list()
    assert [round((event["ts"] + event["dur"]) * 1e3) for event in kernels] == (
        rows["end_ns"].to_list()
    )
    head = next(event for event in kernels if event["args"].get("matrix") == "lm_head")
    assert head["args"]["phase"] == "output_layer"
    assert head["args"]["weight_bytes"] == 1_271_895_040


def test_kernels_without_a_stream_may_overlap(examined):
    from dataclasses import replace

    from tracebook.kernels.labels import LabelledKernels

    rows = examined.labelled.rows.head(4).with_columns(
        stream=pl.lit(None, pl.Int64),
        start_ns=pl.Series([0, 5, 6, 20]),
        end_ns=pl.Series([10, 9, 8, 30]),
    )
    labelled = replace(examined.labelled, kernels=LabelledKernels.of(rows))
    tracks = tracks_of(replace(examined, labelled=labelled))
    lanes = {track.name: len(track.slices) for track in tracks.tracks if "stream" in track.name}
    assert lanes == {"stream unknown": 2, "stream unknown (2)": 1, "stream unknown (3)": 1}


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (1, "01"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")]
)
def test_varints_are_those_of_the_protobuf_specification(value, encoded):
    assert _varint(value).hex() == encoded


def test_perfetto_reads_its_own_format(tracks):
    pb = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed"
    )
    trace = pb.Trace.FromString(to_pftrace(tracks))
    descriptors = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert descriptors[0].process.process_name == tracks.title
    assert [d.name for d in descriptors[1:]] == [track.name for track in tracks.tracks]
    assert {d.parent_uuid for d in descriptors[1:]} == {descriptors[0].uuid}
    (interned,) = [p.interned_data for p in trace.packet if p.HasField("interned_data")]
    names = {entry.iid: entry.name for entry in interned.event_names}
    keys = {entry.iid: entry.name for entry in interned.debug_annotation_names}
    texts = {entry.iid: entry.str.decode() for entry in interned.debug_annotation_string_values}
    stream = descriptors[-1].uuid
    packets = [p for p in trace.packet if p.HasField("track_event")]
    begins = [p for p in packets if p.track_event.track_uuid == stream
              and p.track_event.type == pb.TrackEvent.TYPE_SLICE_BEGIN]  # fmt: skip
    ends = [p for p in packets if p.track_event.track_uuid == stream
            and p.track_event.type == pb.TrackEvent.TYPE_SLICE_END]  # fmt: skip
    assert len(begins) == len(ends) == len(tracks.tracks[-1].slices)
    for begin, end, one in zip(begins, ends, tracks.tracks[-1].slices, strict=True):
        assert names[begin.track_event.name_iid] == one.name
        assert (begin.timestamp, end.timestamp) == (one.start_ns, one.start_ns + one.duration_ns)
        told = {}
        for note in begin.track_event.debug_annotations:
            kind = note.WhichOneof("value")
            value = getattr(note, kind)
            told[keys[note.name_iid]] = texts[value] if kind == "string_value_iid" else value
        assert told == one.args


@pytest.mark.parametrize("ending", [".json", ".pftrace"])
def test_the_command_writes_both(tmp_path, ending, capsys):
    out = tmp_path / f"out{ending}"
    assert main(["export", str(TRACE), "--perfetto", str(out)]) == 0
    assert out.stat().st_size > 100_000
    assert capsys.readouterr().out == ""


def test_other_endings_are_refused(tmp_path, capsys):
    assert main(["export", str(TRACE), "--perfetto", str(tmp_path / "out.txt")]) == 2
    assert ".pftrace" in capsys.readouterr().err
