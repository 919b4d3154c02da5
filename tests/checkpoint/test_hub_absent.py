"""Without the extra, a remote model is refused with the way to get it."""

from __future__ import annotations

import sys

import pytest

from tracebook.checkpoint import read_checkpoint
from tracebook.config import resolve_source
from tracebook.errors import CheckpointError


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="huggingface_hub") as caught:
        read_checkpoint("hub://org/model")
    assert "nsys-tracebook[hub]" in caught.value.hint


def test_a_remote_name_is_never_taken_for_a_path(tmp_path):
    assert resolve_source("hub://org/model@v1", tmp_path) == "hub://org/model@v1"
