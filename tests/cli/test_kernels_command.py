from __future__ import annotations

import csv
import io
from dataclasses import replace

import polars as pl
import pytest
from handmade import MACHINE, labelled_run, make_trace

from tracebook.analysis import Examined
from tracebook.cli import main
from tracebook.config import RunDescription
from tracebook.errors import NoDecodeSteps
from tracebook.kernels.classes import classify_names, load_rules
from tracebook.kernels.labels import LabelledKernels
from tracebook.trace import KERNEL_SCHEMA

COLUMNS = (
    "kernel_id,step_id,phase,layer,op,matrix,kernel_class,start_ns,end_ns,weight_bytes,evidence"
)


def trace_of(rows):
    """A trace that holds the kernels of some rows."""
    kernels = rows.select(
        pl.col(name) if name in rows.columns else pl.lit(None).alias(name) for name in KERNEL_SCHEMA
    ).cast(pl.Schema(KERNEL_SCHEMA))
    return replace(make_trace(), kernels=kernels)


def class_only(rows):
    """Rows as they are where no step was found."""
    empty = ("step_id", "layer", "op", "matrix", "weight_bytes")
    return rows.with_columns(
        *(pl.lit(None, dtype=rows.schema[name]).alias(name) for name in empty),
        phase=pl.lit("unclassified"),
        evidence=pl.lit("name"),
    )


@pytest.fixture
def examined(monkeypatch):
    """Replace the examination by a hand-made one; `lose` kernels of another device."""
    everything = labelled_run(2)
    trace = trace_of(everything.rows)

    def install(*, lose=0, error=None):
        kept = everything.rows.head(everything.rows.height - lose)

        def examine(_path, _bytes, **_options):
            if error is not None:
                raise error
            return Examined(
                trace,
                RunDescription(),
                MACHINE,
                replace(everything, kernels=LabelledKernels.of(kept)),
            )

        monkeypatch.setattr("tracebook.kernel_table.examine_in_words", examine)
        monkeypatch.setattr("tracebook.kernel_table.open_for", lambda *_: trace)
        monkeypatch.setattr(
            "tracebook.kernel_table.classify_only", lambda *_: class_only(everything.rows)
        )

    return install


def test_rows_on_stdout_in_the_promised_columns(examined, capsys):
    examined()
    assert main(["kernels", "run.sqlite"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == COLUMNS
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 10
    assert rows[0]["matrix"] == "mlp.gate_proj"
    assert rows[3]["layer"] == ""
    assert [int(row["start_ns"]) for row in rows] == sorted(int(row["start_ns"]) for row in rows)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_in_a_file(examined, tmp_path, name):
    examined()
    out = tmp_path / name
    assert main(["kernels", "run.sqlite", "-o", str(out)]) == 0
    frame = pl.read_csv(out) if name.endswith("csv") else pl.read_parquet(out)
    assert ",".join(frame.columns) == COLUMNS
    assert frame["weight_bytes"].sum() == 2 * 150_000_000
    assert list(tmp_path.iterdir()) == [out]


def test_kernels_that_were_not_examined_are_there_too(examined, capsys):
    examined(lose=3)
    assert main(["kernels", "run.sqlite"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 10
    assert [row["phase"] for row in rows[-3:]] == ["unclassified"] * 3
    assert rows[-3]["kernel_class"] == "gemm"


def test_without_decode_steps_the_class_remains(examined, capsys):
    examined(error=NoDecodeSteps("Nothing repeats.", "Record more."))
    assert main(["kernels", "run.sqlite", "-o", "-"]) == 0
    streams = capsys.readouterr()
    assert "Warning: Nothing repeats.\nHint: Record more.\n" in streams.err
    rows = list(csv.DictReader(io.StringIO(streams.out)))
    assert {row["phase"] for row in rows} == {"unclassified"}
    assert {row["step_id"] for row in rows} == {""}
    assert rows[3]["kernel_class"] == "sample"


def test_unknown_names_come_as_rules_that_load(examined, tmp_path, capsys):
    examined()
    assert main(["kernels", "run.sqlite", "--unclassified"]) == 0
    text = capsys.readouterr().out
    assert "# 2 kernels, 0.080 ms" in text
    rules = tmp_path / "mine.toml"
    rules.write_text(text.replace('class = "unknown"', 'class = "moe"'))
    names = make_trace().names
    classes = classify_names(names, load_rules(rules)).sort("name_id")["kernel_class"].to_list()
    assert classes[2] == "moe"


def test_other_files_are_wrong_usage(examined, capsys):
    examined()
    assert main(["kernels", "run.sqlite", "-o", "rows.xlsx"]) == 2
    assert ".parquet" in capsys.readouterr().err
