"""The `synth` command."""

from __future__ import annotations

import polars as pl
from click.testing import CliRunner

from tracebook.cli.synth_command import synth_command
from tracebook.synth.truth import TRUTH_SCHEMA

from .exports import query


def test_flags_win_over_the_table(dense_run, tmp_path):
    dense_run.write_text(dense_run.read_text() + '[synth]\nsteps = 9\nschema = "3.25.0"\n')
    output, truth = tmp_path / "out.sqlite", tmp_path / "truth.csv"
    arguments = [str(dense_run), "-o", str(output), "--truth", str(truth)]
    result = CliRunner().invoke(synth_command, [*arguments, "--steps", "2", "--schema", "3.7.2"])
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    table = pl.read_csv(truth, schema=TRUTH_SCHEMA)
    assert table["step_id"].drop_nulls().unique().sort().to_list() == [0, 1]
    kernels = query(output, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert kernels == [(table.height,)]


def test_a_truth_of_an_unknown_kind_is_refused_before_anything_is_made(dense_run, tmp_path):
    output = tmp_path / "out.sqlite"
    arguments = [str(dense_run), "-o", str(output), "--truth", str(tmp_path / "truth.txt")]
    result = CliRunner().invoke(synth_command, arguments)
    assert result.exit_code != 0
    assert not output.exists()
