"""No command lets out what is planted in a trace, and the count of it is right."""

from __future__ import annotations

import json

import pytest
from planted import MARK, plant

from tracebook.cli import main
from tracebook.secrets import secret_kinds, secrets_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted"))


def commands(trace, out):
    """Every command that reads a trace, in every form it can write."""
    run, saved = str(trace), str(out / "saved.json")
    yield ["save", run, "-o", saved]
    yield ["save", run, "-o", str(out / "packed.json.gz")]
    for form in ("text", "json", "csv", "markdown", "html"):
        yield ["report", run, "--format", form]
        yield ["report", run, "--format", form, "-o", str(out / f"report.{form}")]
    for detail in ("layers", "matrices", "traffic", "steps"):
        yield ["report", run, "--detail", detail]
    yield ["report", run, "--format", "json", "--detail", "steps"]
    yield ["report", run, "--all-ranks"]
    yield ["report", run, run, "--format", "csv"]
    yield ["report", run, "--debug", "--pid", "99"]
    yield ["report", run, "--debug", "--steps", "3", "--format", "json"]
    yield ["kernels", run, "-o", str(out / "rows.csv")]
    yield ["kernels", run, "-o", str(out / "rows.parquet")]
    yield ["kernels", run, "--unclassified"]
    yield ["doctor", run]
    yield ["doctor", run, "--format", "json"]
    yield ["doctor", run, "--secrets"]
    yield ["doctor", run, "--secrets", "--format", "json"]
    yield ["trim", run, "-o", str(out / "slim.sqlite")]
    yield ["trim", run, "-o", str(out / "slim2.sqlite"), "--steps", "2"]
    yield ["plot", run, "--kind", "timeline", "-o", str(out / "timeline.svg")]
    yield ["export", run, "--perfetto", str(out / "run.json")]
    yield ["export", run, "--perfetto", str(out / "run.pftrace")]
    yield ["index", run]
    yield ["report", run, "--format", "json"]
    yield ["cache", "info"]
    yield ["diff", saved, run, "--format", "json"]
    yield ["check", run, "--baseline", saved]
    yield ["baseline", "tag", "main", run, "--store", str(out / "store")]
    yield ["baseline", "show", "main", "--format", "json", "--store", str(out / "store")]
    yield ["doctor", run, "--debug", "--overhead", str(out / "missing")]


def test_nothing_gets_out(trace, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = trace.read_bytes()
    assert MARK.encode() in before
    for arguments in commands(trace, tmp_path):
        main(arguments)
        told = capfd.readouterr()
        for text in (told.out, told.err):
            assert MARK.lower() not in text.lower(), arguments
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 15
    for path in written:
        assert MARK.encode() not in path.read_bytes(), path
        assert MARK not in path.name
    assert trace.read_bytes() == before
    assert sorted(path.name for path in trace.parent.iterdir()) == ["run.toml", "trace.sqlite"]


def test_kinds_are_counted_and_a_slim_trace_has_none(trace, tmp_path):
    counts = {(held.kind, held.table): held.count for held in secrets_of(trace)}
    assert counts["command lines", "META_DATA_CAPTURE"] == 4 + 3  # planted, and the fixture's
    assert counts["environment variables", "META_DATA_CAPTURE"] == 1
    assert counts["host names", "META_DATA_EXPORT"] == 1
    assert counts["host names", "TARGET_INFO_SYSTEM_ENV"] == 1
    assert counts["user names", "TARGET_INFO_SYSTEM_ENV"] == 1
    assert counts["paths", "ANALYSIS_FILE"] == 1
    assert counts["tokens, keys and passwords", "TARGET_INFO_SYSTEM_ENV"] == 1
    assert counts["tokens, keys and passwords", "NVTX_EVENTS"] == 2  # text and jsonText
    slim = tmp_path / "slim.sqlite"
    assert main(["trim", str(trace), "-o", str(slim)]) == 0
    assert secrets_of(slim) == ()


def test_json_names_kinds_only(trace, capsys):
    assert main(["doctor", str(trace), "--secrets", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["path"] == "trace.sqlite"
    assert {"kind", "table", "count"} == set(document["secrets"][0])


@pytest.mark.parametrize("secret", secret_kinds(), ids=lambda secret: secret.example)
def test_each_kind_takes_its_example(secret):
    pattern = secret.name or secret.pattern
    assert pattern is None or pattern.search(secret.example)


@pytest.mark.parametrize("harmless", ["void gemm<float>(int)", "cutlass::device_kernel<a/b>", "7"])
def test_harmless_texts_are_none(harmless):
    assert not [s.kind for s in secret_kinds() if s.pattern and s.pattern.search(harmless)]
