"""Makes an Nsight Systems export from a run description: fixtures, demos, tests."""

from __future__ import annotations

from tracebook.synth.make import Synthetic, synthesize

__all__ = ["Synthetic", "synthesize"]
