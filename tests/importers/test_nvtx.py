from __future__ import annotations

import sqlite3
from contextlib import closing

import polars as pl
import pytest

from tracebook.errors import RuleError
from tracebook.importers import open_source
from tracebook.importers.nvtx import LAUNCH_SCHEMA, parse_scopes, read_scopes, scope_rules

from .exports import RUNTIME, kernel, write

NVTX = "NVTX_EVENTS"
NVTX_COLUMNS = [
    *("start", "end", "eventType", "text", "textId", "globalTid", "endGlobalTid", "domainId"),
]
RUNTIME_COLUMNS = ["start", "end", "globalTid", "correlationId", "nameId"]
PID, OTHER = 100, 200


def thread(pid=PID, tid=7):
    return (1 << 48) | (pid << 24) | tid


def push(start, end, text=None, *, text_id=None, tid=None, kind=59, end_tid=None):
    tid = thread() if tid is None else tid
    return (start, end, kind, text, text_id, tid, end_tid, 0)


def call(start, end, correlation, tid=None):
    return (start, end, thread() if tid is None else tid, correlation, 1)


def scopes_of(path, ranges, calls, *, names=None, columns=NVTX_COLUMNS):
    """{correlation id: set of scope names} of an export with these rows."""
    found = read(path, ranges, calls, names=names, columns=columns)
    if found is None:
        return None
    rules = scope_rules()
    linked = {}
    for row in found.iter_rows(named=True):
        linked.setdefault(row["correlation_id"], set()).add(rules[row["scope"]].name)
    return linked


def read(path, ranges, calls, *, names=None, columns=NVTX_COLUMNS):
    kept = [NVTX_COLUMNS.index(column) for column in columns]
    tables = {
        NVTX: (columns, [[row[i] for i in kept] for row in ranges]),
        RUNTIME: (RUNTIME_COLUMNS, calls),
    }
    names = {1: "gemm", 2: "gemm", 3: "gemm"} | (names or {})
    write(path / "run.sqlite", kernels=[kernel()], names=names, tables=tables)
    with open_source(path / "run.sqlite") as source:
        return read_scopes(source)


FORWARD, SAMPLE, DRAFT = (f"gpu_model_runner: {what}" for what in ("forward", "sample", "draft"))


def test_calls_inside_a_range_belong_to_it(tmp_path):
    ranges = [push(10, 20, FORWARD), push(30, 40, SAMPLE)]
    calls = [call(5, 9, 1), call(11, 12, 2), call(19, 20, 3), call(21, 22, 4), call(30, 33, 5)]
    assert scopes_of(tmp_path, ranges, calls) == {2: {"forward"}, 3: {"forward"}, 5: {"sample"}}


def test_a_call_that_reaches_beyond_the_range_is_not_inside(tmp_path):
    assert scopes_of(tmp_path, [push(10, 20, FORWARD)], [call(19, 21, 1), call(9, 12, 2)]) == {}


def test_texts_are_read_inline_and_by_id(tmp_path):
    ranges = [push(10, 20, FORWARD), push(30, 40, text_id=9)]
    linked = scopes_of(tmp_path, ranges, [call(11, 12, 1), call(31, 32, 2)], names={9: DRAFT})
    assert linked == {1: {"forward"}, 2: {"draft"}}


@pytest.mark.parametrize("missing", ["text", "textId"])
def test_one_kind_of_text_is_enough(tmp_path, missing):
    range_ = push(10, 20, None if missing == "text" else FORWARD, text_id=9)
    columns = [column for column in NVTX_COLUMNS if column not in (missing, "endGlobalTid")]
    linked = scopes_of(tmp_path, [range_], [call(11, 12, 1)], names={9: FORWARD}, columns=columns)
    assert linked == {1: {"forward"}}


def test_ranges_hold_only_calls_of_their_thread(tmp_path):
    ranges = [push(10, 20, FORWARD), push(10, 20, DRAFT, tid=thread(OTHER))]
    calls = [call(11, 12, 1), call(11, 12, 1, thread(OTHER)), call(11, 12, 2, thread(tid=8))]
    found = read(tmp_path, ranges, calls)
    rules = scope_rules()
    assert {
        (row["pid"], row["correlation_id"], rules[row["scope"]].name)
        for row in found.rows(named=True)
    } == {(PID, 1, "forward"), (OTHER, 1, "draft")}
    assert found.schema == pl.Schema(LAUNCH_SCHEMA)


def test_start_end_ranges_count_and_marks_do_not(tmp_path):
    ranges = [
        push(10, 20, FORWARD, kind=60),
        push(30, 40, SAMPLE, kind=34),
        push(50, 60, DRAFT, kind=75),
    ]
    calls = [call(11, 12, 1), call(31, 32, 2), call(51, 52, 3)]
    assert scopes_of(tmp_path, ranges, calls) == {1: {"forward"}}


@pytest.mark.parametrize(
    "range_",
    [
        push(10, None, FORWARD),
        push(10, 20, FORWARD, kind=60, end_tid=thread(tid=8)),
        push(10, 20, "ncclAllReduce"),
        push(10, 20, "a gpu_model_runner: forward"),
        push(10, 20, "gpu_model_runner: forward_eplb"),
    ],
    ids=["never ends", "ends elsewhere", "another library", "not at the start", "longer"],
)
def test_what_tells_nothing_is_left_out(tmp_path, range_):
    ranges = [range_, push(30, 40, SAMPLE)]
    linked = scopes_of(tmp_path, ranges, [call(11, 12, 1), call(31, 32, 2)])
    assert linked == {2: {"sample"}}


def test_the_end_on_the_same_thread_counts(tmp_path):
    ranges = [push(10, 20, FORWARD, end_tid=thread()), push(30, 40, SAMPLE, end_tid=0)]
    linked = scopes_of(tmp_path, ranges, [call(11, 12, 1), call(31, 32, 2)])
    assert linked == {1: {"forward"}, 2: {"sample"}}


def test_scopes_inside_each_other_all_count(tmp_path):
    ranges = [
        push(0, 100, "execute_context_0(0)_generation_4(4)"),
        push(10, 60, FORWARD),
        push(20, 50, "{'Module': 'top.model.layers.17', 'Inputs': [[1, 8]]}"),
        push(21, 30, "{'Module': 'top.model.layers.17.mlp', 'Inputs': [[1, 8]]}"),
    ]
    calls = [call(5, 6, 1), call(22, 23, 2), call(40, 41, 3), call(55, 56, 4), call(70, 71, 5)]
    step = "execute, decode"
    assert scopes_of(tmp_path, ranges, calls) == {
        1: {step},
        2: {step, "forward", "layer modules"},
        3: {step, "forward", "layer modules"},
        4: {step, "forward"},
        5: {step},
    }


def test_layers_and_ranges_are_told_apart(tmp_path):
    ranges = [
        push(at, at + 8, f"{{'Module': 'top.model.layers.{layer}', 'Outputs': []}}")
        for at, layer in ((10, 3), (20, 12), (30, 3))
    ]
    found = read(tmp_path, ranges, [call(at + 1, at + 2, at) for at in (10, 20, 30)])
    assert dict(found.select("correlation_id", "layer").rows()) == {10: 3, 20: 12, 30: 3}
    assert found["range_id"].n_unique() == 3


def test_rows_in_any_order(tmp_path):
    ranges = [push(30, 40, FORWARD), push(10, 20, FORWARD)]
    calls = [call(31, 32, 2), call(22, 23, 3), call(11, 12, 1)]
    assert scopes_of(tmp_path, ranges, calls) == {1: {"forward"}, 2: {"forward"}}


def test_text_that_is_not_utf8_does_not_stop_the_reading(tmp_path):
    path = tmp_path / "run.sqlite"
    read(tmp_path, [push(10, 20, "x"), push(30, 40, FORWARD)], [call(11, 12, 1), call(31, 32, 2)])
    with closing(sqlite3.connect(path)) as connection:
        odd = b"step[DECODE bs=1 \xff\xfe]"
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(? AS TEXT) WHERE text = 'x'", (odd,))
        connection.commit()
    with open_source(path) as source:
        found = read_scopes(source)
    names = [scope_rules()[scope].name for scope in found.sort("correlation_id")["scope"]]
    assert names == ["step, decode", "forward"]


def test_nothing_known_is_none(tmp_path):
    assert read(tmp_path, [push(10, 20, "aten::mm")], [call(11, 12, 1)]) is None


@pytest.mark.parametrize("calls", [[], [call(11, 12, None)]], ids=["none", "without an id"])
def test_scopes_without_any_call_launch_nothing(tmp_path, calls):
    assert scopes_of(tmp_path, [push(10, 20, FORWARD)], calls) == {}


def test_an_export_without_ranges_or_calls_is_none(tmp_path):
    tables = {NVTX: (NVTX_COLUMNS, [push(10, 20, FORWARD)])}
    write(tmp_path / "no-calls.sqlite", kernels=[kernel()], tables=tables)
    write(tmp_path / "neither.sqlite", kernels=[kernel()])
    for name in ("no-calls", "neither"):
        with open_source(tmp_path / f"{name}.sqlite") as source:
            assert read_scopes(source) is None


def test_a_directory_export_tells_the_same(tmp_path):
    calls = [call(11, 12, 1), call(31, 32, 2)]
    folder = tmp_path / "export"
    folder.mkdir()
    ranges = [push(10, 20, FORWARD), push(30, 40, text_id=9)]
    frames = {
        NVTX: pl.DataFrame(ranges, schema=NVTX_COLUMNS, orient="row"),
        RUNTIME: pl.DataFrame(calls, schema=RUNTIME_COLUMNS, orient="row"),
        "StringIds": pl.DataFrame({"id": [1, 9], "value": ["gemm", DRAFT]}),
    }
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    with open_source(folder) as source:
        found = read_scopes(source)
    named = {c: scope_rules()[s].name for c, s in found.select("correlation_id", "scope").rows()}
    assert named == {1: "forward", 2: "draft"}


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("v2_gpu_model_runner: draft", "draft"),
        ("execute_new_0_cached_8", "execute, step"),
        ("execute_new_2_cached_8", "execute, new requests"),
        ("execute_context_0(0)_generation_16(64)", "execute, decode"),
        ("execute_context_1(700)_generation_16(16)", "execute, prefill"),
        ("execute_4_context_0(sq0sk0)_generation_4(sq4sk2048)", "execute, decode"),
        ("step[DECODE bs=16]", "step, decode"),
        ("decode[bs=4 tok=4 p=0 e=0 d=4]", "step, decode"),
        ("step[EXTEND bs=1 toks=512]", "step, prefill"),
        ("step[MIXED bs=3]", "step, prefill"),
        ("{'Module': 'top.model.layers.61.self_attn', 'Inputs': []}", "layer modules"),
        ("{'Module': 'top.lm_head', 'Inputs': []}", "output layer module"),
        ("{'Module': 'top.model.norm', 'Inputs': []}", None),
        ("schedule: allocate_slots", None),
    ],
)
def test_texts_of_engines(tmp_path, text, scope):
    linked = scopes_of(tmp_path, [push(10, 20, text)], [call(11, 12, 1)])
    assert linked == (None if scope is None else {1: {scope}})


GOOD = {
    "name": "x",
    "starts": ["x"],
    "pattern": "x",
    "kind": "phases",
    "phases": ["sampling"],
    "example": "x",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pattern": "("}, "bad pattern"),
        ({"kind": "sometimes"}, "unknown kind or phase"),
        ({"phases": ["thinking"]}, "unknown kind or phase"),
        ({"example": "y"}, "own example"),
    ],
)
def test_a_wrong_scope_is_refused(change, said):
    assert [rule.name for rule in parse_scopes({"scopes": [GOOD]})] == ["x"]
    with pytest.raises(RuleError, match=said):
        parse_scopes({"scopes": [GOOD | change]})


def test_a_scope_without_a_key_is_refused():
    for key in GOOD.keys() - {"phases"}:
        with pytest.raises(RuleError, match=key):
            parse_scopes({"scopes": [{k: v for k, v in GOOD.items() if k != key}]})
