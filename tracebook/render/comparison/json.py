"""A comparison as JSON: schema `tracebook.comparison/1`; keys are only added."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tracebook.compare.comparison import Comparison, Row
from tracebook.compare.outcome import Outcome
from tracebook.compare.parts import PartChange

SCHEMA = "tracebook.comparison/1"


def render(found: Comparison, outcome: Outcome | None) -> str:
    """Write everything that is known."""
    step, *parts = found.rows
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "old": {"runs": len(found.old_steps), "steps": list(found.old_steps)},
        "new": {"runs": len(found.new_steps), "steps": list(found.new_steps)},
        "step": _row(step),
        "phases": [_row(row) for row in parts if row.quantity != "idle"],
        "idle": next(_row(row) for row in parts if row.quantity == "idle"),
        "decomposition_ns": {
            "step": step.contribution_ns,
            **{row.quantity: row.contribution_ns for row in parts},
        },
        "kernels": [_part(part) for part in found.parts if part.change_ns],
        "machine_state": asdict(found.machine_state) if found.machine_state else None,
        "not_comparable": [asdict(reason) for reason in found.reasons],
        "cautions": [asdict(caution) for caution in found.cautions],
        "gates": asdict(found.gates),
    }
    if outcome is not None:
        document["outcome"] = {
            "state": outcome.state,
            "exit_code": outcome.exit_code,
            "headline": outcome.headline,
            "reasons": [asdict(reason) for reason in outcome.reasons],
            "regressions": [row.quantity for row in outcome.regressions],
        }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    content = asdict(row)
    return {"phase": content.pop("quantity"), **content}


def _part(part: PartChange) -> dict[str, Any]:
    return {**asdict(part), "change_ns": part.change_ns, "renamed": part.renamed}
