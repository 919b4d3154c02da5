"""The scores as a compact text table, and the family's summary."""

from __future__ import annotations

from typing import Any

MAIN = ("target_layers", "output_layer", "drafter_layers", "draft_head", "replay")
SHORT = ("targ", "out", "draf", "head", "repl")
#: What issue-level targets ask for: worst phase precision/recall and layers, by names.
WANTED = {"generic": (0.95, 0.97)}
WANTED_NAMED = (0.98, 0.99)


def percent(value: float | None) -> str:
    return "    -" if value is None else f"{100 * value:5.1f}"


def worst_phase(result: dict[str, Any]) -> float | None:
    """The smallest precision or recall over the five main phases."""
    values = [v for p in MAIN for v in (result["phases"][p] or []) if v is not None]
    return min(values) if values else None


def passed(result: dict[str, Any]) -> bool:
    """Whether a case meets what is asked of it."""
    if result.get("failed"):
        return False
    if "ok" in result:
        return bool(result["ok"])
    if result["refused"]:
        return False
    phase, layer = WANTED.get(result["names"], WANTED_NAMED)
    return (
        (worst_phase(result) or 0) >= phase
        and (result["layer_time"] or 0) >= layer
        and result["exact"] + result["near"] == result["steps"]
        and result["extra"] == 0
        and not result["false_alarm"]
    )


def render(results: list[dict[str, Any]]) -> str:
    """One line a case, then counts. Per phase the smaller of precision and recall."""
    head = f"{'case':<54} {'ok':<3}" + "".join(f"{s:>6}" for s in SHORT)
    head += "  phase wrong layer  matr  steps kept exact near extra   s  said"
    lines = [head]
    for result in sorted(results, key=lambda r: (r["expect"], r["name"])):
        lines.append(
            f"{result['name']:<54} {'ok' if passed(result) else '--':<3}" + _figures(result)
        )
    return "\n".join([*lines, "", *_summary(results)])


def _figures(result: dict[str, Any]) -> str:
    codes = ",".join(result.get("warnings", [])) or result.get("message", "")
    if result.get("failed"):
        return f" FAILED {result['failed']}"
    if "phases" not in result:
        return f" exit {result['exit']} {codes[:120]}"
    cells = []
    for phase in MAIN:
        pair = [v for v in result["phases"][phase] or [] if v is not None]
        cells.append(" " + percent(min(pair) if pair else None))
    tail = "  " + " ".join(
        percent(result[k]) for k in ("phase_time", "wrong_time", "layer_time", "matrices")
    )
    tail += (
        f" {result['steps']:6} {result.get('kept', '-'):>4} {result['exact']:5} {result['near']:4}"
    )
    return "".join(cells) + tail + f" {result['extra']:5} {result['report_s']:4.1f} {codes[:70]}"


def _summary(results: list[dict[str, Any]]) -> list[str]:
    out = []
    for expect in ("report", "refuse", "wrong-plan"):
        some = [r for r in results if r["expect"] == expect]
        if some:
            good = sum(map(passed, some))
            out.append(f"{expect}: {good} of {len(some)} as wanted")
    right = [r for r in results if "false_alarm" in r]
    if right:
        alarms = sum(r["false_alarm"] for r in right)
        out.append(f"false alarms on right plans: {alarms} of {len(right)}")
    failed = [r["name"] for r in results if r.get("failed")]
    if failed:
        out.append(f"crashed: {', '.join(failed)}")
    return out
