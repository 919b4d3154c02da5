"""Scores the command line on generated cases: python -m tests.accuracy.score DIR...

Only the public interface is used: `tracebook kernels` for the labels,
`tracebook report --format json` for steps, bytes, warnings and exit codes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from .table import render

PHASES = ("target_layers", "output_layer", "drafter_layers", "draft_head", "replay")
SMALL = ("sampling", "prepare", "communication", "other")
OUTSIDE = ("unclassified", "prefill", "warmup", "idle", "")
#: Warnings that say "this plan is not what ran".
PLAN_CODES = re.compile(r"plan|unlike|untrusted|roofline|peak|rank|doubt|drafter|checkpoint|head")
NOT_ABOUT_THE_PLAN = {"no_checkpoint", "tokens_unknown", "bandwidth_unknown"}
#: Reasons for a refusal that are about the trace, not about a file or a table.
NO_DECODE = re.compile(r"[Nn]o (steady )?decode|does not read|repeats")
#: Reads whose matrix has no agreed name: a copy that only exists in the engine.
UNNAMED = ("kv_copy",)


def tool(*args: str) -> tuple[int, str, str, float]:
    """Run `tracebook`; exit code, stdout, stderr, seconds."""
    program = Path(sys.executable).with_name("tracebook")
    start = time.perf_counter()
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr, time.perf_counter() - start


def score(folder: Path) -> dict[str, Any]:
    """All figures of one case; `failed` names what went wrong, if anything did."""
    about = json.loads((folder / "case.json").read_text())
    trace = str(folder / "trace.sqlite")
    code, out, err, seconds = tool("report", trace, "--format", "json")
    found: dict[str, Any] = {**about, "exit": code, "report_s": round(seconds, 2)}
    message = err.strip().splitlines()
    reasoned = code == 0 or bool(NO_DECODE.search(err))
    if (not reasoned and about["expect"] != "report") or "fault in" in err or code not in (0, 1):
        return found | {"failed": " ".join(message[:2])[:200]}
    report = json.loads(out) if code == 0 else None
    codes = [w["code"] for w in report["warnings"]] if report else []
    found["warnings"] = codes
    found["refused"] = code == 1
    if code == 1:
        found["message"] = " ".join(message)[:200]
    if about["expect"] == "refuse":
        return found | {"ok": code == 1}
    plan_said = [c for c in codes if PLAN_CODES.search(c) and c not in NOT_ABOUT_THE_PLAN]
    found["called_out"] = bool(plan_said) or code == 1
    if about["expect"] == "wrong-plan":
        return found | {"ok": found["called_out"]}
    found["false_alarm"] = bool(plan_said)
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows.csv"
        code, _, err, seconds = tool("kernels", trace, "-o", str(rows))
        found["kernels_s"] = round(seconds, 2)
        if code or not rows.exists():
            return found | {"failed": " ".join(err.strip().splitlines()[:2])[:200]}
        labels = read_labels(rows)
    truth = read_truth(folder / "truth.csv")
    found |= compare(truth, labels)
    if report:
        found |= compare_report(truth, report, found["lane"])
    return found


def read_labels(path: Path) -> pl.DataFrame:
    """The tool's rows, all text columns filled."""
    columns = ("phase", "matrix", "op", "layer", "step_id")
    frame = pl.read_csv(path, infer_schema_length=0)
    return frame.select(
        pl.col("kernel_id").cast(pl.Int64),
        *(pl.col(c).fill_null("").alias(f"tool_{c}") for c in columns),
    )


def read_truth(path: Path) -> pl.DataFrame:
    numbers = ("kernel_id", "weight_bytes", "start_ns", "end_ns")
    frame = pl.read_csv(path, infer_schema_length=0).with_columns(
        pl.col(numbers).cast(pl.Int64), pl.exclude(numbers).fill_null("")
    )
    return frame.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))


def compare(truth: pl.DataFrame, labels: pl.DataFrame) -> dict[str, Any]:
    """Labels against truth, over the steady steps of the lane that the tool took."""
    both = truth.join(labels, on="kernel_id", how="left").with_columns(
        pl.col("^tool_.*$").fill_null("")
    )
    steady = both.filter(pl.col("step_id") != "")
    taken = steady.filter(pl.col("tool_step_id") != "").group_by("lane").len().sort("len")
    lane = taken["lane"][-1] if len(taken) else steady["lane"][0]
    both, steady = both.filter(pl.col("lane") == lane), steady.filter(pl.col("lane") == lane)
    right = pl.col("phase").str.split("|").list.contains(pl.col("tool_phase"))
    steady = steady.with_columns(right=right)
    covered = steady.filter(pl.col("tool_step_id") != "")
    wrong = steady.filter(~pl.col("right") & ~pl.col("tool_phase").is_in(OUTSIDE))
    found = {
        "lane": lane,
        "covered": _share(covered, steady),
        "phase_time": _share(steady.filter("right"), steady),
        "phase_time_covered": _share(covered.filter("right"), covered),
        "wrong_time": _share(wrong, steady),
        "phases": {p: _precision_recall(steady, p) for p in (*PHASES, *SMALL)},
        "confusion": _confusion(steady),
    }
    return found | _layers(steady, covered) | _steps(both)


def _share(part: pl.DataFrame, whole: pl.DataFrame) -> float | None:
    total = whole["ns"].sum()
    return part["ns"].sum() / total if total else None


def _precision_recall(steady: pl.DataFrame, phase: str) -> list[float | None] | None:
    """[precision, recall] by kernel time, None where neither side has the phase."""
    is_there, said = steady.filter(phase=phase), steady.filter(tool_phase=phase)
    if is_there.is_empty() and said.is_empty():
        return None
    return [_share(said.filter("right"), said), _share(is_there.filter("right"), is_there)]


def _confusion(steady: pl.DataFrame) -> list[list[Any]]:
    """The largest errors: true phase, said phase, share of the time."""
    total = steady["ns"].sum()
    bad = steady.filter(~pl.col("right")).group_by("phase", "tool_phase").agg(pl.col("ns").sum())
    rows = bad.sort("ns", descending=True).head(4).iter_rows()
    return [[a, b, round(ns / total, 5)] for a, b, ns in rows]


def _layers(steady: pl.DataFrame, covered: pl.DataFrame) -> dict[str, Any]:
    def of_time(frame: pl.DataFrame) -> float | None:
        target = frame.filter((pl.col("phase") == "target_layers") & (pl.col("layer") != ""))
        hit = (pl.col("tool_layer") == pl.col("layer")) & pl.col("right")
        return _share(target.filter(hit), target)

    def of_count(frame: pl.DataFrame) -> float | None:
        reads = frame.filter((pl.col("weight_bytes") > 0) & ~pl.col("op").is_in(UNNAMED))
        hits = sum(
            layer == said and modules(matrix) == modules(said_matrix)
            for layer, said, matrix, said_matrix in reads.select(
                "layer", "tool_layer", "matrix", "tool_matrix"
            ).iter_rows()
        )
        return hits / len(reads) if len(reads) else None

    return {
        "layer_time": of_time(steady),
        "layer_time_covered": of_time(covered),
        "matrices": of_count(steady),
        "matrices_covered": of_count(covered),
    }


def modules(text: str) -> frozenset[str]:
    """A matrix as a set of module paths; experts lose their numbers, roots their prefix."""
    found = set()
    for part in re.split(r"[+,]\s*", text):
        path = re.sub(r"\.(\d+|\*|#|N|\{[^}]*\})(?=\.|$)", "", part.strip())
        path = re.sub(r"^(model\.|language_model\.|mtp\.)+", "", path).removesuffix(".weight")
        found.add(path)
    return frozenset(found - {""})


def _steps(both: pl.DataFrame) -> dict[str, Any]:
    """Steps of truth, steps of the tool, and how well their first kernels meet."""
    order = both.sort("start_ns").with_row_index("at")
    first = lambda column: (  # noqa: E731
        order.filter(pl.col(column) != "").group_by(column).agg(pl.col("at").min()).sort("at")["at"]
    )
    true_first, said_first = first("step_id").to_list(), set(first("tool_step_id").to_list())
    exact = sum(at in said_first for at in true_first)
    near = sum(at not in said_first and bool({at - 1, at + 1} & said_first) for at in true_first)
    steady = (pl.col("step_id") != "").cast(pl.Float64).mean()
    said = order.filter(pl.col("tool_step_id") != "").group_by("tool_step_id").agg(steady=steady)
    return {
        "steps": len(true_first),
        "steps_said": len(said),
        "extra": len(said.filter(pl.col("steady") < 0.5)),
        "exact": exact,
        "near": near,
    }


def compare_report(truth: pl.DataFrame, report: dict[str, Any], lane: str) -> dict[str, Any]:
    """Kept steps, and per phase the bytes and the time against truth."""
    steady = truth.filter((pl.col("step_id") != "") & (pl.col("lane") == lane))
    steps = max(1, steady["step_id"].n_unique())
    found = {"kept": report["steps"]["kept"], "found": report["steps"]["found"]}
    bytes_off, ms_off = {}, {}
    said = {row["phase"]: row for row in report["phases"]}
    for phase in PHASES:
        mine = steady.filter(phase=phase)
        if mine.is_empty():
            continue
        row = said.get(phase, {})
        weights, ms = mine["weight_bytes"].sum() / steps, mine["ns"].sum() / steps / 1e6
        if weights > 1e7 and row.get("weight_bytes") is not None:
            bytes_off[phase] = round(row["weight_bytes"] / weights - 1, 4)
        if row.get("ms"):
            ms_off[phase] = round(row["ms"]["mean"] / ms - 1, 4)
    return found | {"bytes_off": bytes_off, "ms_off": ms_off}


def main() -> None:
    parser = argparse.ArgumentParser(description="score tracebook on generated cases")
    parser.add_argument("dirs", nargs="+", type=Path, help="a family's directory, or cases")
    parser.add_argument("--only", default="*", help="shell pattern of case names")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = []
    for folder in args.dirs:
        one = (folder / "case.json").exists()
        cases += (
            [folder] if one else sorted(p.parent for p in folder.glob(f"{args.only}/case.json"))
        )
    results = []
    for case in cases:
        results.append(score(case))
        print(
            f"\r{len(results)}/{len(cases)}", end="", file=sys.stderr, flush=True
        ) if sys.stderr.isatty() else None
    print("\r", end="", file=sys.stderr)
    print(json.dumps(results, indent=1) if args.json else render(results))


if __name__ == "__main__":
    main()
