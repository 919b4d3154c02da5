"""Ledgers of the article's checkpoints, and a way to write small safetensors files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_files import Tensors, header_of, write_header

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import Ledger, build_ledger

HEADERS = Path(__file__).parents[2] / "fixtures" / "headers"


@cache
def _article_ledger(name: str) -> Ledger:
    return build_ledger(read_checkpoint(HEADERS / f"{name}.headers.json.gz"))


@pytest.fixture(scope="session")
def article() -> Callable[[str], Ledger]:
    """Ledger of one of the six checkpoints, by name."""
    return _article_ledger


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a safetensors file of these tensors into the test's folder."""

    def _write(tensors: Tensors, name: str = "model.safetensors", **config: Any) -> Path:
        path = write_header(tmp_path / name, header_of(tensors))
        if config:
            (tmp_path / "config.json").write_text(json.dumps(config))
        return path

    return _write
