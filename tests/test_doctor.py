"""What the doctor says of sound, poor and unusable captures."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from importers.exports import NAMES, RUNTIME, capture, kernel, write

from tracebook.cli import main
from tracebook.doctor import diagnose
from tracebook.errors import TraceError

FIXTURE = Path(__file__).parents[1] / "fixtures" / "full-recipe" / "trace.sqlite"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def states(diagnosis):
    found: dict[str, list[str]] = {}
    for finding in diagnosis.findings:
        found.setdefault(finding.topic, []).append(finding.state)
    return found


@pytest.fixture(scope="module")
def sound():
    return diagnose(FIXTURE)


def test_a_sound_capture_is_fit(sound):
    assert sound.fit
    assert states(sound) == {
        "tables": ["good"],
        "mode": ["good"],
        "kernels": ["good"],
        "window": ["good"],
        "steps": ["doubtful"],  # seven steps only
        "share": ["good"],
    }
    with closing(sqlite3.connect(f"file:{FIXTURE}?mode=ro", uri=True)) as db:
        (kernels,) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    assert f"{kernels:,} kernels" in next(f.text for f in sound.findings if f.topic == "kernels")


def test_a_graph_level_capture_is_unfit(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables={GRAPHS: (["start", "end"], [(1, 2)])}
        | capture(("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph")),
    )
    found = diagnose(path)
    assert not found.fit
    assert "--cuda-graph-trace=node" in found.findings[-1].hint


def test_missing_tables_are_named_with_what_is_lost(tmp_path):
    found = diagnose(write(tmp_path / "run.sqlite", kernels=[kernel()]))
    told = " ".join(f.text for f in found.findings if f.topic == "tables")
    assert RUNTIME in told
    assert "TARGET_INFO_GPU" in told
    assert "StringIds" not in told
    assert states(found)["steps"] == ["bad"]


def test_graph_mode_without_graphs_hides_nothing(tmp_path):
    path = write(
        tmp_path / "run.sqlite",
        kernels=[kernel()],
        tables=capture(("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph")),
    )
    assert states(diagnose(path))["mode"] == ["doubtful"]


def test_a_long_capture(tmp_path):
    path = write(tmp_path / "run.sqlite", kernels=[kernel(0, 10), kernel(301 * 10**9, 302 * 10**9)])
    assert states(diagnose(path))["window"] == ["doubtful"]


def test_what_is_no_trace_is_an_error(tmp_path):
    with pytest.raises(TraceError):
        diagnose(tmp_path / "none.sqlite")


def graph_run(path, starts, *, long_ns=80_000_000):
    """A graph-level capture: the step's graph at `starts`, and a short graph more often."""
    rows = [(start, start + long_ns, 7) for start in starts]
    rows += [(start + n * 1000, start + n * 1000 + 10, 8) for start in starts for n in (1, 2, 3)]
    rows += [(0, 5, 7)]  # a start of 0 stands for unknown
    return write(path, names=NAMES, tables={GRAPHS: (["start", "end", "graphExecId"], rows)})


def overhead(tmp_path, period_ns, steps=5):
    starts = [1_000_000 + n * period_ns for n in range(steps)]
    path = graph_run(tmp_path / "graph.sqlite", starts)
    return next(f for f in diagnose(FIXTURE, path).findings if f.topic == "overhead")


def test_the_cost_of_tracing_is_the_ratio_of_the_steps(tmp_path):
    # The saved run's step takes 99.6 ms (its about.toml); 83 ms make 20 %.
    found = overhead(tmp_path, 83_000_000)
    assert found.state == "doubtful"
    assert "99.60 ms here and 83.00 ms" in found.text
    assert "+20.0 %" in found.text


def test_a_small_cost_is_fine(tmp_path):
    assert overhead(tmp_path, 98_000_000).state == "good"


def test_a_second_capture_without_graphs(tmp_path):
    assert "launched 3 times" in overhead(tmp_path, 83_000_000, steps=2).text
    nothing = write(tmp_path / "none.sqlite", kernels=[kernel()])
    found = diagnose(FIXTURE, nothing).findings[-1]
    assert found.topic == "overhead"
    assert "--cuda-graph-trace=graph" in found.hint


def test_the_command(tmp_path, capsys):
    assert main(["doctor", str(FIXTURE), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == FIXTURE.name  # folders are not told
    assert told["fit"] is True
    unfit = write(tmp_path / "run.sqlite", kernels=[kernel()])
    assert main(["doctor", str(unfit)]) == 1
    assert "NO  steps" in capsys.readouterr().out
