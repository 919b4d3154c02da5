"""From a run description to an export and its truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tracebook.errors import RunDescriptionError
from tracebook.synth.capture import make_capture
from tracebook.synth.export import file_order, write_export
from tracebook.synth.settings import SynthSettings, load_settings
from tracebook.synth.truth import truth_of


@dataclass(frozen=True)
class Synthetic:
    """A synthetic trace: its file, the truth about it, the settings it was made with."""

    path: Path
    truth: pl.DataFrame
    settings: SynthSettings


def synthesize(
    run_file: Path,
    output: Path,
    *,
    steps: int | None = None,
    seed: int | None = None,
    schema: str | None = None,
) -> Synthetic:
    """Write a synthetic Nsight Systems export.

    Args:
        run_file: Run description; its optional `[synth]` table says how.
        output: SQLite file to make.
        steps: Steady steps, instead of what the table says.
        seed: Seed of all random numbers, likewise.
        schema: Version of the export's schema, likewise.

    Returns:
        The trace with its truth (TRUTH_SCHEMA).

    Raises:
        RunDescriptionError: The description is wrong or the output exists.
        CheckpointError: A checkpoint cannot be read.
    """
    if output.is_file() or output.is_dir():
        raise RunDescriptionError(f"{output} exists already.", "Remove it or give another name.")
    settings = load_settings(run_file)
    settings = replace(
        settings,
        steps=settings.steps if steps is None else steps,
        seed=settings.seed if seed is None else seed,
        schema=settings.schema if schema is None else schema,
    )
    capture = make_capture(run_file, settings)
    order = file_order(len(capture.kernels), np.random.default_rng(settings.seed + 1))
    write_export(capture, output, settings, order)
    return Synthetic(output, truth_of(capture, order), settings)
