"""Traps of the file format: each is named by a message of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import BITS, header_of, write_header

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.safetensors_header import (
    FileHeader,
    check_entries,
    parse_header,
    read_file_header,
)
from tracebook.errors import BadHeader
from tracebook.printable import printable

F32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def refused(path: Path) -> str:
    with pytest.raises(BadHeader) as caught:
        read_checkpoint(path)
    return caught.value.message


def codes(path: Path) -> list[str]:
    return [notice.code for notice in read_checkpoint(path).warnings]


def test_full_size_file_with_a_hole_for_data(write: Callable[..., Path]) -> None:
    checkpoint = read_checkpoint(write({"a": ("F32", [2, 3]), "b": ("BF16", [5])}))
    assert checkpoint.tensors.select("name", "dtype", "bytes").rows() == [
        ("a", "F32", 24),
        ("b", "BF16", 10),
    ]
    assert checkpoint.warnings == ()


@pytest.mark.parametrize("missing", [1, 24])
def test_truncated_data_is_accepted_with_both_sizes(tmp_path: Path, missing: int) -> None:
    whole = 8 + len(json.dumps({"a": F32})) + 24
    path = write_header(tmp_path / "m.safetensors", {"a": F32}, size=whole - missing)
    checkpoint = read_checkpoint(path)
    assert checkpoint.payload_bytes == 24
    (notice,) = checkpoint.warnings
    assert notice.code == "truncated"
    assert f"{whole:,}" in notice.message
    assert f"{whole - missing:,}" in notice.message


def test_trailing_bytes_are_said_and_not_counted(tmp_path: Path) -> None:
    whole = 8 + len(json.dumps({"a": F32})) + 24
    path = write_header(tmp_path / "m.safetensors", {"a": F32}, size=whole + 7)
    checkpoint = read_checkpoint(path)
    assert [n.code for n in checkpoint.warnings] == ["trailing_bytes"]
    assert "7 bytes after" in checkpoint.warnings[0].message
    assert checkpoint.payload_bytes == 24


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ([32, 56], "hole"),
        ([16, 40], "overlaps"),
        ([0, 24], "overlaps"),
        ([30, 6], "ends before it begins"),
    ],
)
def test_offsets_that_do_not_tile(tmp_path: Path, second: list[int], words: str) -> None:
    header = {"a": F32, "b": {**F32, "data_offsets": second}}
    assert words in refused(write_header(tmp_path / "m.safetensors", header))


def test_first_offset_must_be_zero(tmp_path: Path) -> None:
    header = {"a": {**F32, "data_offsets": [8, 32]}}
    assert "hole" in refused(write_header(tmp_path / "m.safetensors", header))


def test_order_in_the_header_is_free(tmp_path: Path) -> None:
    header = {"b": {**F32, "data_offsets": [24, 48]}, "a": F32}
    assert read_checkpoint(write_header(tmp_path / "m.safetensors", header)).payload_bytes == 48


def test_size_that_dtype_and_shape_contradict(tmp_path: Path) -> None:
    header = {"a": {**F32, "shape": [2, 4]}}
    message = refused(write_header(tmp_path / "m.safetensors", header))
    assert "should be 32 bytes, its offsets say 24" in message


def test_four_bit_tensor_off_a_byte(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}
    assert "does not end on a byte" in refused(write_header(tmp_path / "m.safetensors", header))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
        b'{"a":{},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"a":1,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"__metadata__":{"x":"1","x":"2"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b'{"a:b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a\\u003ab":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
    ],
)
def test_duplicate_keys(tmp_path: Path, text: bytes) -> None:
    assert "occurs twice" in refused(write_header(tmp_path / "m.safetensors", text, size=500))


def test_colons_in_names_are_no_duplicates() -> None:
    assert list(parse_header(b'{"a:b":{"dtype":"U8"},"c::":{}}', "m")) == ["a:b", "c::"]


def test_scalars_and_empty_tensors(write: Callable[..., Path]) -> None:
    checkpoint = read_checkpoint(write({"s": ("F32", []), "none": ("F32", [0, 5])}))
    assert checkpoint.tensors["bytes"].to_list() == [4, 0]


def test_unknown_dtype_counts_by_its_offsets(tmp_path: Path) -> None:
    header = {"a": {"dtype": "I4", "shape": [7], "data_offsets": [0, 4]}}
    checkpoint = read_checkpoint(write_header(tmp_path / "m.safetensors", header))
    assert checkpoint.payload_bytes == 4
    assert [n.code for n in checkpoint.warnings] == ["unknown_dtype"]
    assert "I4" in checkpoint.warnings[0].message


def test_metadata_that_is_not_text_and_extra_fields_are_accepted(tmp_path: Path) -> None:
    header: dict[str, Any] = {"__metadata__": {"n": 3, "l": [1]}, "a": {**F32, "extra": True}}
    assert codes(write_header(tmp_path / "m.safetensors", header)) == []


def test_leading_space_and_padding(tmp_path: Path) -> None:
    raw = b"  " + json.dumps({"a": F32}).encode() + b"     "
    path = write_header(tmp_path / "m.safetensors", raw, size=8 + len(raw) + 24)
    assert codes(path) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"abc", "too short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs pointer"),
        ((2**63).to_bytes(8, "little") + b"{}", "above the limit"),
        ((100_000_001).to_bytes(8, "little") + b"{}", "above the limit"),
        ((50).to_bytes(8, "little") + b"{}", "truncated inside the header"),
        ((2).to_bytes(8, "little") + b"{]", "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not an object"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "not JSON"),
    ],
)
def test_files_that_are_no_safetensors(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert words in refused(path)


def test_header_limit_can_be_raised_or_lowered(write: Callable[..., Path]) -> None:
    path = write({"a": ("U8", [1])})
    with pytest.raises(BadHeader, match="above the limit of 20"):
        read_file_header(path, "m", max_header_bytes=20)


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [1], "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]},
        {"dtype": "U8", "shape": [0, 2**70], "data_offsets": [0, 0]},
        {"dtype": "U8", "shape": [2**70], "data_offsets": [0, 2**70]},
        {"dtype": "U8", "shape": [1], "data_offsets": [0]},
        {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]},
        {"dtype": "U8", "shape": [1], "data_offsets": ["0", "1"]},
        {"dtype": None, "shape": [1], "data_offsets": [0, 1]},
        "text",
        None,
    ],
)
def test_malformed_entries_name_the_tensor(entry: Any) -> None:
    with pytest.raises(BadHeader, match="'bad'"):
        check_entries(FileHeader("m", 100, 8, {"good": F32, "bad": entry}))


def test_nested_json_bomb_is_refused(tmp_path: Path) -> None:
    path = write_header(tmp_path / "m.safetensors", b"[" * 200_000, size=300_000)
    assert "not JSON" in refused(path)


tensors = st.dictionaries(
    st.text(min_size=1, max_size=12).filter(
        lambda name: name != "__metadata__" and printable(name) == name
    ),
    st.tuples(
        st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 6).map(lambda n: 8 * n), max_size=3)
    ).map(lambda pair: (pair[0], pair[1] or [8])),
    min_size=1,
    max_size=20,
)


@given(tensors)
def test_sizes_come_back_whatever_the_names(content: dict[str, tuple[str, list[int]]]) -> None:
    header = header_of(content)
    raw = json.dumps(header).encode()
    columns = check_entries(FileHeader("m", 8 + len(raw), None, parse_header(raw, "m")))
    assert columns.names == list(content)
    assert columns.shapes == [shape for _, shape in content.values()]
    assert sum(columns.bytes) == columns.data_bytes
    assert columns.bytes == [
        entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()
    ]


@given(tensors, st.data())
def test_moving_one_offset_is_always_noticed(
    content: dict[str, tuple[str, list[int]]], data: st.DataObject
) -> None:
    header = header_of(content)
    name = data.draw(st.sampled_from(sorted(header)))
    which = data.draw(st.sampled_from([0, 1]))
    header[name]["data_offsets"][which] += data.draw(st.sampled_from([-1, 1, 8]))
    with pytest.raises(BadHeader):
        check_entries(FileHeader("m", 0, None, header))
