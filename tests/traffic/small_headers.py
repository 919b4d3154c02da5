"""Ledgers of small BF16 checkpoints that are nothing but a header and a config."""

from __future__ import annotations

import json
from math import prod

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import build_ledger


def ledger_of(folder, tensors, **config):
    """The ledger of BF16 tensors (name -> shape) with this config.json."""
    header, end = {}, 0
    for name, shape in tensors.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    (folder / "config.json").write_text(json.dumps(config))
    return build_ledger(read_checkpoint(path))
