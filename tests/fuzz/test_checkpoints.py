"""Checkpoints that are broken or set traps, through `tracebook bytes` and `report`."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from tests.fuzz.outcome import peak_bytes, run

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROUNDS = int(os.environ.get("TRACEBOOK_FUZZ_ROUNDS", "3")) * 20
TRACE = FIXTURES / "full-recipe" / "trace.sqlite"


def framed(raw: bytes, data: int = 0) -> bytes:
    return len(raw).to_bytes(8, "little") + raw + bytes(data)


def entry(shape, begin, end, dtype="BF16"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header(**tensors) -> bytes:
    return json.dumps(tensors).encode()


TRAPS = {
    "empty": b"",
    "seven bytes": b"1234567",
    "no data, no header": framed(b"{}"),
    "length 2^64 - 1": b"\xff" * 8 + b"{}",
    "length 2^63": (2**63).to_bytes(8, "little") + b"{}",
    "length beyond the file": (10**6).to_bytes(8, "little") + b"{}",
    "length 0": bytes(8),
    "not utf-8": framed(b'{"\xff\xfe": 1}'),
    "a list": framed(b"[1, 2]"),
    "a number of 10,000 digits": framed(b'{"a": ' + b"9" * 10_000 + b"}"),
    "deep lists": framed(b"[" * 200_000 + b"]" * 200_000),
    "deep objects": framed(b'{"a":' * 200_000 + b"1" + b"}" * 200_000),
    "deep entry": framed(b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    "NaN": framed(b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}', 4),
    "negative size": framed(header(a=entry([-2], 0, 4)), 4),
    "negative offset": framed(header(a=entry([2], -4, 0)), 4),
    "2^63 bytes": framed(header(a=entry([2**62], 0, 2**63))),
    "2^62 bytes each": framed(
        header(a=entry([2**61], 0, 2**62), b=entry([2**61 - 1], 2**62, 2**63 - 2))
    ),
    "float offsets": framed(header(a=entry([2], 0.0, 4.0)), 4),
    "true as a size": framed(header(a=entry([True, 2], 0, 4)), 4),
    "product beyond all": framed(header(a=entry([2**62] * 100_000, 0, 4)), 4),
    "a zero behind a product": framed(header(a=entry([2**62] * 50_000 + [0], 0, 0)), 4),
    "overlap": framed(header(a=entry([2], 0, 4), b=entry([2], 2, 6)), 6),
    "hole": framed(header(a=entry([2], 0, 4), b=entry([2], 8, 12)), 12),
    "key twice": framed(
        b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, '
        b'"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}',
        1,
    ),
    "escape in a name": framed(header(**{"\x1b[2Jlayers.0.weight": entry([2], 0, 4)}), 4),
    "escape in a dtype": framed(header(a=entry([2], 0, 4, "\x1b[31m")), 4),
    "half a surrogate": framed(
        b'{"\\ud800": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', 1
    ),
    "markup in a name": framed(header(**{"[bold]model.layers.0.[/]": entry([2], 0, 4)}), 4),
    "a name of 1 MB": framed(header(**{"x" * 1_000_000: entry([2], 0, 4)}), 4),
    "a layer of 10^30": framed(
        header(**{f"model.layers.{10**30}.mlp.up_proj.weight": entry([2, 2], 0, 8)}), 8
    ),
    "pointer of git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}
#: These are odd and can be counted all the same.
COUNTED = {
    "markup in a name",
    "a name of 1 MB",
    "a layer of 10^30",
    "2^62 bytes each",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_file_that_sets_a_trap(trap, tmp_path, capfd):
    file = tmp_path / "model.safetensors"
    file.write_bytes(TRAPS[trap])
    held = peak_bytes()
    for form in ("text", "json"):
        arguments = ["bytes", str(file), "--format", form]
        status, out, _ = run(arguments, capfd, inputs=[file], folder=tmp_path)
        assert status == (0 if trap in COUNTED else 1)
        assert len(out) < 100_000 or trap == "a name of 1 MB"
    run(["report", str(TRACE), "--checkpoint", str(file)], capfd, inputs=[file], folder=tmp_path)
    assert peak_bytes() - held < 500_000_000


GOOD = header(**{"model.layers.0.mlp.up_proj.weight": entry([2, 2], 0, 8)})

INDEXES = {
    "path traversal": {"weight_map": {"a": "../../../../etc/passwd"}},
    "absolute path": {"weight_map": {"a": "/etc/passwd"}},
    "a device": {"weight_map": {"a": "/dev/zero"}},
    "NUL in a name": {"weight_map": {"a": "model\x00.safetensors"}},
    "no text": {"weight_map": {"a": ["model.safetensors"]}},
    "a dictionary": {"weight_map": {"a": {}}},
    "empty name": {"weight_map": {"a": ""}},
    "itself": {"weight_map": {"a": "model.safetensors.index.json"}},
    "a name of 5,000 letters": {"weight_map": {"a": "x" * 5000}},
    "an escape": {"weight_map": {"a": "\x1b[2J.safetensors"}},
    "no map": {"weight_map": 7},
    "a list": [1],
}


@pytest.mark.parametrize("case", INDEXES)
def test_an_index_that_points_elsewhere(case, tmp_path, capfd):
    (tmp_path / "model.safetensors").write_bytes(framed(GOOD, 8))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps(INDEXES[case]))
    status, out, err = run(["bytes", str(tmp_path)], capfd, inputs=[index], folder=tmp_path)
    assert status == 1
    assert "root:" not in out + err


def test_links_that_lead_nowhere_or_in_circles(tmp_path, capfd):
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    assert run(["bytes", str(tmp_path)], capfd, inputs=[], folder=tmp_path)[0] == 1
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "pool")
    (tmp_path / "pool").symlink_to(loop)
    for command in (["bytes", str(loop)], ["report", str(loop)], ["doctor", str(loop)]):
        assert run(command, capfd, inputs=[], folder=tmp_path)[0] == 1
    around = tmp_path / "around"
    around.mkdir()
    (around / "model.safetensors").write_bytes(framed(GOOD, 8))
    (around / "again").symlink_to(around)
    assert run(["bytes", str(around)], capfd, inputs=[], folder=around)[0] == 0
    (around / "model.safetensors.index.json").symlink_to("model.safetensors.index.json")
    assert run(["bytes", str(around)], capfd, inputs=[], folder=around)[0] in (0, 1)


CONFIGS = (
    *(b"[]", b"{", b"\xff\xfe", b"7", b"{" * 99_999, b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    b'{"num_hidden_layers": 1e999}',
    json.dumps({"num_hidden_layers": "many", "architectures": 7}).encode(),
    json.dumps({"num_hidden_layers": -1, "hidden_size": 2**80}).encode(),
    json.dumps({"text_config": [], "architectures": ["\x1b[2J"], "layer_types": 5}).encode(),
    json.dumps({"text_config": {"text_config": {}}, "quantization_config": "x"}).encode(),
    json.dumps({"quantization_config": {"quant_method": ["\x1b"], "config_groups": 1}}).encode(),
    json.dumps({"num_hidden_layers": 10**9, "layer_types": ["full_attention"] * 9}).encode(),
    json.dumps({"head_dim": 0, "num_attention_heads": 0, "num_key_value_heads": 0}).encode(),
)


@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_a_config_that_is_anything(number, tmp_path, capfd):
    (tmp_path / "model.safetensors").write_bytes(framed(GOOD, 8))
    config = tmp_path / "config.json"
    config.write_bytes(CONFIGS[number])
    run(["bytes", str(tmp_path)], capfd, inputs=[config], folder=tmp_path)
    arguments = ["report", str(TRACE), "--checkpoint", str(tmp_path), "--draft-method", "none"]
    run(arguments, capfd, inputs=[config], folder=tmp_path)


def broken(value, dice: random.Random):
    """A JSON value of which one part is another."""
    odd = [None, -1, 0, 2**63, 2**70, 1.5, "", "\x1b[2J", [], {}, True, "9" * 50, ["a"], {"a": 1}]
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(list(value))
        return {**value, key: broken(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        at = dice.randrange(len(value))
        return [*value[:at], broken(value[at], dice), *value[at + 1 :]]
    return dice.choice(odd)


def test_bundles_with_one_part_changed(tmp_path, capfd):
    packed = FIXTURES / "headers" / "target-nvfp4.headers.json.gz"
    sound = json.loads(gzip.decompress(packed.read_bytes()))
    sound["files"] = {  # few tensors, or most changes would hit one of thousands alike
        name: {**file, "header": dict(list(file["header"].items())[:40])}
        for name, file in sound["files"].items()
    }
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        bundle = tmp_path / "x.headers.json"
        bundle.write_text(json.dumps(broken(sound, dice)))
        command = dice.choice([["bytes"], ["bytes", "--format", "json"]])
        run([*command, str(bundle)], capfd, inputs=[bundle], folder=tmp_path)


def test_bundles_with_bytes_changed(tmp_path, capfd):
    sound = (FIXTURES / "headers" / "drafter-bf16.headers.json.gz").read_bytes()
    plain = gzip.decompress(sound)
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        content = bytearray(dice.choice([sound, plain]))
        for _ in range(dice.choice([1, 3, 30])):
            content[dice.randrange(len(content))] = dice.randrange(256)
        del content[dice.choice([len(content), dice.randrange(len(content))]) :]
        bundle = tmp_path / "x.headers.json.gz"
        bundle.write_bytes(content)
        run(["bytes", str(bundle)], capfd, inputs=[bundle], folder=tmp_path)


def test_a_bundle_that_unpacks_without_end(tmp_path, capfd):
    bundle = tmp_path / "bomb.headers.json.gz"
    bundle.write_bytes(gzip.compress(b" " * 300_000_000, 1))
    held = peak_bytes()
    assert run(["bytes", str(bundle)], capfd, inputs=[bundle], folder=tmp_path)[0] == 1
    assert peak_bytes() - held < 500_000_000
