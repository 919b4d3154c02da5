"""The kernels of a capture for Perfetto's viewer: steps, phases, layers and matrices as tracks.

In: an examined trace. Out: Chrome's JSON trace format, or Perfetto's own protobuf. Both
hold the same tracks and slices; times are ns since the capture began.

Sources: "Trace Event Format" (Chromium project) and protos/perfetto/trace of Perfetto, whose
field numbers stand beside each message below.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from tracebook.analysis import Examined

Args = dict[str, str | int | float]


@dataclass(frozen=True)
class Slice:
    """A stretch on a track: start and duration in ns, and what is said about it."""

    name: str
    start_ns: int
    duration_ns: int
    args: Args


@dataclass(frozen=True)
class Track:
    """A line of the viewer; its slices do not overlap and are in order of start."""

    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class TrackSet:
    """All tracks of one device and process, under one heading."""

    title: str
    pid: int
    tracks: tuple[Track, ...]


def tracks_of(examined: Examined) -> TrackSet:
    """Lay out the kernels of an examined trace.

    Streams come last, one track each; a kernel that starts before the one ahead of it on
    its track has ended (where the export knows no streams) goes to a further track.
    """
    labelled, info = examined.labelled, examined.trace.info
    rows = labelled.rows.join(
        examined.trace.names.select("name_id", "name"), on="name_id", how="left"
    )
    kernels = rows.sort("start_ns", "kernel_id").to_dicts()
    gpu = next((g.name for g in info.gpus if g.device == labelled.device), "GPU")
    title = f"{gpu}, device {labelled.device}" + (" (synthetic trace)" if info.synthetic else "")
    tracks = [
        Track("steps", tuple(_steps(labelled.steps))),
        Track("phases", tuple(_runs(kernels, ("step_id", "phase"), lambda k: str(k["phase"])))),
        Track("layers", tuple(_runs(kernels, ("step_id", "phase", "layer"), _layer))),
        Track("matrices", tuple(_runs(kernels, ("step_id", "layer", "matrix"), _matrix))),
        *_streams(kernels),
    ]
    filled = tuple(track for track in tracks if track.slices)
    return TrackSet(title, labelled.pid or 1, filled)


def _steps(steps: pl.DataFrame) -> Iterator[Slice]:
    for row in steps.iter_rows(named=True):
        wall = row["end_ns"] - row["start_ns"]
        yield Slice(f"step {row['step_id']}", row["start_ns"], wall, {"kernels": row["kernels"]})


def _layer(kernel: dict[str, Any]) -> str | None:
    return None if kernel["layer"] is None else f"{kernel['phase']} {kernel['layer']}"


def _matrix(kernel: dict[str, Any]) -> str | None:
    return None if kernel["matrix"] is None else str(kernel["matrix"])


def _runs(kernels: Sequence[dict[str, Any]], keys: Sequence[str], named: Any) -> Iterator[Slice]:
    """Neighbours that agree in some columns as one slice, cut where the next one begins."""
    found = []
    for _, members in groupby(kernels, key=lambda kernel: [kernel[key] for key in keys]):
        group = list(members)
        name = named(group[0])
        if name is not None and group[0]["step_id"] is not None:
            found.append((name, group))
    for number, (name, group) in enumerate(found):
        start = group[0]["start_ns"]
        end = max(kernel["end_ns"] for kernel in group)
        if number + 1 < len(found):
            end = max(min(end, found[number + 1][1][0]["start_ns"]), start)
        weight_bytes = sum(kernel["weight_bytes"] or 0 for kernel in group)
        yield Slice(name, start, end - start, _figures(weight_bytes, end - start, len(group)))


def _figures(weight_bytes: int, duration_ns: int, kernels: int) -> Args:
    args: Args = {"kernels": kernels}
    if weight_bytes:
        args["weight_bytes"] = weight_bytes
        if duration_ns:
            args["weight_gbps"] = round(weight_bytes / duration_ns, 3)
    return args


def _streams(kernels: Sequence[dict[str, Any]]) -> list[Track]:
    lanes: dict[tuple[int | None, int], list[Slice]] = {}
    for kernel in kernels:
        stream, lane = kernel["stream"], 0
        while (held := lanes.setdefault((stream, lane), [])) and (
            held[-1].start_ns + held[-1].duration_ns > kernel["start_ns"]
        ):
            lane += 1
        held.append(_kernel(kernel))
    order = sorted(lanes, key=lambda key: (key[0] is None, key[0] or 0, key[1]))
    return [
        Track(_stream_name(stream) + (f" ({lane + 1})" if lane else ""), tuple(lanes[stream, lane]))
        for stream, lane in order
    ]


def _stream_name(stream: int | None) -> str:
    return "stream unknown" if stream is None else f"stream {stream}"


def _kernel(kernel: dict[str, Any]) -> Slice:
    duration = kernel["end_ns"] - kernel["start_ns"]
    told = ("kernel_id", "step_id", "phase", "layer", "op", "matrix", "kernel_class", "evidence")
    args: Args = {name: kernel[name] for name in told if kernel[name] is not None}
    if kernel["weight_bytes"]:
        args |= _figures(kernel["weight_bytes"], duration, 1)
    return Slice(str(kernel["name"]), kernel["start_ns"], duration, args)


def to_json(found: TrackSet) -> str:
    """Tracks in Chrome's JSON format, which Perfetto and chrome://tracing open."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": found.pid, "args": {"name": found.title}}
    ]
    for tid, track in enumerate(found.tracks, 1):
        place = {"pid": found.pid, "tid": tid}
        events += [
            {"ph": "M", "name": "thread_name", **place, "args": {"name": track.name}},
            {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": tid}},
        ]
        category = track.name.split()[0]
        for one in track.slices:
            times = {"ts": one.start_ns / 1e3, "dur": one.duration_ns / 1e3}  # microseconds
            events.append(
                {"ph": "X", "cat": category, "name": one.name, **place, **times, "args": one.args}
            )
    head = '{"displayTimeUnit":"ns","otherData":{"made_by":"tracebook"},"traceEvents":[\n'
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f"{head}{lines}\n]}}\n"


#: Everything is in one sequence of packets, whose texts are told once in its first packet.
_SEQUENCE = 1
_CLEARED, _NEEDED = 1, 2  # TracePacket.SequenceFlags
_BEGIN, _END = 1, 2  # TrackEvent.Type
_IN_ORDER = 3  # TrackDescriptor.ChildTracksOrdering.EXPLICIT
_GROUP_UUID = 1


def to_pftrace(found: TrackSet) -> bytes:
    """Tracks in Perfetto's protobuf format."""
    names: dict[str, int] = {}
    keys: dict[str, int] = {}
    texts: dict[str, int] = {}
    events = []
    for uuid, track in enumerate(found.tracks, _GROUP_UUID + 1):
        for one in track.slices:
            named = names.setdefault(one.name, len(names) + 1)
            begin = _uint(9, _BEGIN) + _uint(11, uuid) + _uint(10, named)
            begin += b"".join(
                _message(4, _annotation(key, value, keys, texts)) for key, value in one.args.items()
            )
            events.append(_event(one.start_ns, begin))
            events.append(_event(one.start_ns + one.duration_ns, _uint(9, _END) + _uint(11, uuid)))
    heading = (
        _uint(1, _GROUP_UUID)
        + _uint(11, _IN_ORDER)
        + _message(3, _uint(1, found.pid) + _text(6, found.title))
    )
    packets = [_packet(_message(60, heading) + _uint(13, _CLEARED))]
    for rank, track in enumerate(found.tracks):
        uuid = rank + _GROUP_UUID + 1
        descriptor = _uint(1, uuid) + _text(2, track.name) + _uint(5, _GROUP_UUID) + _uint(12, rank)
        packets.append(_packet(_message(60, descriptor)))
    interned = b"".join(
        _message(field, _uint(1, number) + _text(2, text))
        for field, table in ((2, names), (3, keys), (29, texts))
        for text, number in table.items()
    )
    packets.append(_packet(_message(12, interned) + _uint(13, _NEEDED)))
    return b"".join(packets + events)


def _annotation(
    key: str, value: str | int | float, keys: dict[str, int], texts: dict[str, int]
) -> bytes:
    """DebugAnnotation: name_iid 1, int_value 4, double_value 5, string_value_iid 17."""
    named = _uint(1, keys.setdefault(key, len(keys) + 1))
    if isinstance(value, str):
        return named + _uint(17, texts.setdefault(value, len(texts) + 1))
    if isinstance(value, float):
        return named + _varint(5 << 3 | 1) + struct.pack("<d", value)
    return named + _uint(4, value)


def _event(time_ns: int, event: bytes) -> bytes:
    """TracePacket: timestamp 8, track_event 11, sequence_flags 13."""
    return _packet(_uint(8, time_ns) + _message(11, event) + _uint(13, _NEEDED))


def _packet(content: bytes) -> bytes:
    """Trace: packet 1; TracePacket: trusted_packet_sequence_id 10."""
    return _message(1, content + _uint(10, _SEQUENCE))


def _uint(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode("utf-8", "replace"))


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Base 128, lowest group first; the top bit says that more follows."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
