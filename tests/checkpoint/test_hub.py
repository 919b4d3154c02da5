"""Headers of a remote model, from a server on this machine that honours ranges."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from small_files import header_of

from tracebook.checkpoint import build_ledger, read_checkpoint
from tracebook.checkpoint.header import save_bundle
from tracebook.cli import main
from tracebook.errors import BadHeader, CheckpointError

pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")

COMMIT = "c0ffee"
H = 64


def file_bytes(tensors, pad=0):
    """A whole file, its header blown up by `pad` blanks, its data zeros."""
    header = header_of(tensors)
    raw = json.dumps(header).encode() + b" " * pad
    data = max(entry["data_offsets"][1] for entry in header.values())
    return len(raw).to_bytes(8, "little") + raw + bytes(data)


LAYER = {
    "model.embed_tokens.weight": ("BF16", [256, H]),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [H, H]),
    "model.layers.0.self_attn.k_proj.weight": ("BF16", [H, H]),
    "model.layers.0.self_attn.v_proj.weight": ("BF16", [H, H]),
    "model.layers.0.self_attn.o_proj.weight": ("BF16", [H, H]),
    "model.norm.weight": ("BF16", [H]),
    "lm_head.weight": ("BF16", [256, H]),
}
MTP = {"mtp.fc.weight": ("BF16", [H, 2 * H]), "mtp.norm.weight": ("BF16", [H])}


class Hub(ThreadingHTTPServer):
    """A model repository: its files, what was asked of it, whether it honours ranges."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.sent = 0
        self.ranges = True

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append((path, self.headers.get("range")))
        if path.startswith("/api/models/org/model"):
            siblings = [{"rfilename": name} for name in self.server.files]
            info = {"id": "org/model", "sha": COMMIT, "siblings": siblings}
            return self.reply(200, json.dumps(info).encode(), "application/json")
        name = path.removeprefix(f"/org/model/resolve/{COMMIT}/")
        content = self.server.files.get(name)
        if content is None:
            return self.reply(404, b"not found")
        asked = self.headers.get("range")
        if asked is None or not self.server.ranges:
            return self.reply(200, content)
        first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        end = first + len(part) - 1
        return self.reply(206, part, content_range=f"bytes {first}-{end}/{len(content)}")

    def reply(self, status, body, kind="application/octet-stream", content_range=None):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if content_range:
            self.send_header("content-range", content_range)
        self.end_headers()
        try:
            self.wfile.write(body)
            self.server.sent += len(body)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started = Hub()
    monkeypatch.setattr("tracebook.checkpoint.hub.ENDPOINT", started.endpoint)
    thread = threading.Thread(target=started.serve_forever, daemon=True)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()
    thread.join()


def indexed(*parts):
    """Files of several shards with an index over all of them."""
    names = {tensor: name for name, tensors in parts for tensor in tensors}
    files = {name: file_bytes(tensors) for name, tensors in parts}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
    return files


def test_the_index_is_read_first_so_no_shard_is_missed(server):
    server.files = indexed(("model.safetensors", LAYER), ("model_mtp.safetensors", MTP))
    server.files["config.json"] = b'{"dtype": "bfloat16"}'
    server.files["consolidated.safetensors"] = file_bytes(MTP)
    found = read_checkpoint("hub://org/model")
    assert (found.name, found.source) == ("org/model", "hub")
    assert set(found.tensors["name"]) == {*LAYER, *MTP}
    assert found.config == {"dtype": "bfloat16"}
    assert [notice.code for notice in found.warnings] == ["stray_files"]
    assert build_ledger(found).bytes_of("mtp") == (2 * H * H + H) * 2
    paths = [path for path, _ in server.asked]
    assert paths[1].endswith("index.json")
    assert not any("consolidated" in path for path in paths)


def test_weights_are_not_fetched(server):
    big = LAYER | {"lm_head.weight": ("BF16", [200_000, H])}
    server.files = {"model.safetensors": file_bytes(big)}
    found = read_checkpoint("hub://org/model")
    assert found.payload_bytes > 25_000_000
    assert server.sent < 110_000
    assert [asked for path, asked in server.asked if "resolve" in path] == ["bytes=0-99999"]


def test_a_long_header_takes_a_second_request_for_the_rest(server):
    content = file_bytes(LAYER, pad=150_000)
    server.files = {"model.safetensors": content}
    found = read_checkpoint("hub://org/model")
    assert set(found.tensors["name"]) == set(LAYER)
    length = int.from_bytes(content[:8], "little")
    assert [asked for _, asked in server.asked[1:]] == [
        "bytes=0-99999",
        f"bytes=100000-{7 + length}",
    ]


def test_without_an_index_every_file_counts(server):
    server.files = {"model.safetensors": file_bytes(LAYER), "mtp.safetensors": file_bytes(MTP)}
    assert set(read_checkpoint("hub://org/model@main").tensors["name"]) == {*LAYER, *MTP}
    assert server.asked[0][0] == "/api/models/org/model/revision/main"


def test_a_server_without_ranges_is_refused_before_it_sends_weights(server):
    server.files = {"model.safetensors": file_bytes(LAYER, pad=150_000)}
    server.ranges = False
    with pytest.raises(CheckpointError, match="does not send parts"):
        read_checkpoint("hub://org/model")


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        ({"model.gguf": b"GGUF"}, CheckpointError, r"no .safetensors file on the hub \(but model"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1"},
         BadHeader, "git-lfs"),
        ({"model.safetensors": b"\xff" * 64}, BadHeader, "probably not"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}'},
         CheckpointError, "gone.safetensors, which is not on the hub"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(server, files, error, said):
    server.files = files
    with pytest.raises(error, match=said):
        read_checkpoint("hub://org/model")


def test_an_unknown_model_is_said(server):
    with pytest.raises(CheckpointError, match="org/other cannot be read from the hub"):
        read_checkpoint("hub://org/other")


def test_a_bundle_of_a_remote_model_stands_in_for_it(server, tmp_path, capsys):
    server.files = indexed(("model.safetensors", LAYER), ("model_mtp.safetensors", MTP))
    bundle = tmp_path / "m.headers.json.gz"
    save_bundle("hub://org/model", bundle)
    remote, local = read_checkpoint("hub://org/model"), read_checkpoint(bundle)
    assert local.tensors.equals(remote.tensors)
    assert main(["bytes", "hub://org/model", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
