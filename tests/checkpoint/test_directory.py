"""Directories: index, strays, links of the Hugging Face cache, unfinished downloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_files import Tensors, header_of, write_header

from tracebook.checkpoint.header import read_checkpoint, save_bundle
from tracebook.checkpoint.hf_cache import find_in_hf_cache, locate
from tracebook.errors import BadHeader, CheckpointError

A: Tensors = {"a": ("F32", [4])}
B: Tensors = {"b": ("F32", [8])}


def put(folder: Path, name: str, tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_header(folder / name, header_of(tensors))


def index(folder: Path, weight_map: dict[str, str], **metadata: int) -> None:
    text = json.dumps({"metadata": metadata, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def codes(folder: Path) -> list[str]:
    return [notice.code for notice in read_checkpoint(folder).warnings]


def test_index_first_and_strays_left_out(tmp_path: Path) -> None:
    put(tmp_path, "model.safetensors", A)
    put(tmp_path, "model_mtp.safetensors", B)
    put(tmp_path, "consolidated.safetensors", {"c": ("F32", [100])})
    index(tmp_path, {"a": "model.safetensors", "b": "model_mtp.safetensors"}, total_size=5)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.payload_bytes == 48  # never the index's own total
    assert checkpoint.total_size == 5
    (notice,) = checkpoint.warnings
    assert notice.code == "stray_files"
    assert "consolidated.safetensors" in notice.message


def test_without_index_every_file_counts(tmp_path: Path) -> None:
    put(tmp_path, "one.safetensors", A)
    put(tmp_path, "two.safetensors", B)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.tensors["file"].to_list() == ["one.safetensors", "two.safetensors"]
    assert checkpoint.warnings == ()


def test_config_is_read_beside_the_weights(tmp_path: Path) -> None:
    file = put(tmp_path, "model.safetensors", A)
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    assert read_checkpoint(tmp_path).config == {"model_type": "x"}
    assert read_checkpoint(file).config == {"model_type": "x"}


def test_names_of_index_and_headers_are_compared_both_ways(tmp_path: Path) -> None:
    put(tmp_path, "model.safetensors", A)
    index(tmp_path, {"gone": "model.safetensors"})
    assert codes(tmp_path) == ["index_names_missing", "not_in_index"]


def test_missing_shard(tmp_path: Path) -> None:
    put(tmp_path, "model.safetensors", A)
    index(tmp_path, {"a": "model.safetensors", "b": "other.safetensors"})
    with pytest.raises(CheckpointError, match=r"other\.safetensors: named by the index but not in"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/abs.safetensors"])
def test_index_must_stay_in_its_directory(tmp_path: Path, name: str) -> None:
    index(tmp_path, {"a": name})
    with pytest.raises(CheckpointError, match="not a file here"):
        read_checkpoint(tmp_path)


def test_one_tensor_in_two_files_counts_once(tmp_path: Path) -> None:
    put(tmp_path, "one.safetensors", A)
    put(tmp_path, "two.safetensors", {**A, **B})
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.payload_bytes == 48
    assert [n.code for n in checkpoint.warnings] == ["repeated_tensor"]
    put(tmp_path, "three.safetensors", {"a": ("F16", [4])})
    assert codes(tmp_path) == ["repeated_tensor", "repeated_tensor_differs"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), r"no \.safetensors file"),
        (("pytorch_model.bin",), "only pickled weights"),
        ((".cache/huggingface/download/x.incomplete",), "unfinished download"),
        (("blobs/0123.incomplete",), "unfinished download"),
    ],
)
def test_directories_without_weights(tmp_path: Path, files: tuple[str, ...], words: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", "{", r"config\.json: not valid JSON"),
        ("config.json", "[]", "not an object"),
        ("model.safetensors.index.json", "{}", "no weight_map"),
    ],
)
def test_broken_json_beside_the_weights(tmp_path: Path, name: str, text: str, words: str) -> None:
    put(tmp_path, "model.safetensors", A)
    (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path)


def test_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        read_checkpoint(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content",
    [
        b'{"files": 3}',
        b'{"a": 1}',
        b'{"files": {"m": {"size": 1}}}',
        b'{"files": {}, "config": 3}',
        b"\x1f\x8b garbage",
        b"nothing",
    ],
)
def test_damaged_bundles(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.headers.json.gz"
    path.write_bytes(content)
    with pytest.raises(BadHeader):
        read_checkpoint(path)


def test_cut_off_bundle(tmp_path: Path) -> None:
    put(tmp_path / "m", "model.safetensors", A)
    whole = tmp_path / "whole.headers.json.gz"
    save_bundle(tmp_path / "m", whole)
    cut = tmp_path / "cut.headers.json.gz"
    cut.write_bytes(whole.read_bytes()[:-12])
    with pytest.raises(BadHeader, match="cut off"):
        read_checkpoint(cut)


def test_bundle_says_the_same_as_the_directory(tmp_path: Path) -> None:
    put(tmp_path / "m", "model.safetensors", A)
    put(tmp_path / "m", "mtp.safetensors", B)
    index(tmp_path / "m", {"a": "model.safetensors", "b": "mtp.safetensors"})
    (tmp_path / "m" / "config.json").write_text('{"model_type": "x"}')
    save_bundle(tmp_path / "m", tmp_path / "m.headers.json.gz")
    again = read_checkpoint(tmp_path / "m.headers.json.gz")
    first = read_checkpoint(tmp_path / "m")
    assert again.tensors.equals(first.tensors)
    assert (again.config, again.name) == (first.config, first.name)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path / "hub"


def cached(cache: Path, model: str, commit: str = "abc123", ref: str | None = "main") -> Path:
    """A model as the cache keeps it: the snapshot links to a blob."""
    folder = cache / f"models--{model.replace('/', '--')}"
    put(folder / "blobs", "0" * 64, A)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs") / ("0" * 64))
    if ref:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    return snapshot


def test_model_in_the_cache(cache: Path) -> None:
    snapshot = cached(cache, "org/model")
    assert find_in_hf_cache("org/model") == snapshot == locate("org/model")
    checkpoint = read_checkpoint(snapshot)
    assert (checkpoint.name, checkpoint.payload_bytes) == ("org/model", 16)
    assert find_in_hf_cache("org/model@abc123") == snapshot
    assert find_in_hf_cache("org/other") is None


def test_the_only_snapshot_serves_without_a_ref(cache: Path) -> None:
    snapshot = cached(cache, "org/model", ref=None)
    assert find_in_hf_cache("org/model") == snapshot


def test_two_snapshots_without_a_ref_are_not_guessed(cache: Path) -> None:
    cached(cache, "org/model", ref=None)
    folder = cache / "models--org--model"
    (folder / "snapshots" / "def456").mkdir()
    assert find_in_hf_cache("org/model") is None


def test_two_links_to_one_blob_count_once(cache: Path) -> None:
    snapshot = cached(cache, "org/model")
    (snapshot / "copy.safetensors").symlink_to(Path("../../blobs") / ("0" * 64))
    checkpoint = read_checkpoint(snapshot)
    assert checkpoint.payload_bytes == 16
    assert [n.code for n in checkpoint.warnings] == ["same_file"]


def test_broken_link_is_named(cache: Path) -> None:
    snapshot = cached(cache, "org/model")
    (cache / "models--org--model" / "blobs" / ("0" * 64)).unlink()
    with pytest.raises(BadHeader, match="broken link"):
        read_checkpoint(snapshot)


def test_unfinished_download_is_named(cache: Path) -> None:
    blobs = cache / "models--org--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "00.incomplete").write_bytes(b"")
    with pytest.raises(CheckpointError, match="unfinished download"):
        read_checkpoint(locate("org/model"))


def test_cached_tokenizer_is_no_model(cache: Path) -> None:
    snapshot = cache / "models--org--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text("{}")
    assert find_in_hf_cache("org/model") is None


@pytest.mark.parametrize("model_id", ["../../etc", "a/b/c", "", "..", "a/..", "x y"])
def test_ids_that_are_none(cache: Path, model_id: str) -> None:
    assert find_in_hf_cache(model_id) is None


def test_hub_id_that_is_not_there(cache: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a path nor a model"):
        locate("org/model")
