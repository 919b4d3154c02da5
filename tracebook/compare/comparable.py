"""Whether two sides may be compared at all, and what to mind if they may."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tracebook.compare.baseline import Run
from tracebook.notices import Notice


@dataclass(frozen=True)
class Comparable:
    """Reasons against a comparison (none: go on), and cautions that do not prevent it."""

    reasons: tuple[Notice, ...]
    cautions: tuple[Notice, ...]


#: Code, table and key of the report, how it is called, what to do.
_FACTS = (
    ("other_gpu", "trace", "gpu", "GPU", "Compare runs on one kind of GPU."),
    ("other_capture_mode", "trace", "capture_mode", "capture mode",
     "Record both with the same --cuda-graph-trace."),
    ("other_batch", "run", "batch", "batch", "Record both with one batch size."),
    ("other_draft_method", "run", "draft_method", "draft method", "Draft in one way."),
    ("other_draft_tokens", "run", "draft_tokens", "number of draft tokens",
     "Record both with the same --draft-tokens."),
)  # fmt: skip

#: Below this a run has no median to speak of, however many others stand beside it.
LEAST_STEPS_OF_RUN = 8

_CHECKPOINT_HINT = "Compare runs of one checkpoint, or save a new baseline for the new one."


def comparable(old: Sequence[Run], new: Sequence[Run], *, min_steps: int) -> Comparable:
    """Hold the runs of two sides against each other.

    Args:
        old: Runs of the baseline.
        new: Runs to be judged.
        min_steps: Fewest steps of a side.
    """
    reasons: list[Notice] = []
    cautions: list[Notice] = []
    runs = (*old, *new)
    for code, table, key, called, hint in _FACTS:
        values = _distinct(run.fact(table, key) for run in runs)
        known = [value for value in values if value is not None]
        if len(known) > 1:
            reasons.append(Notice(code, _differ(called, old, new, table, key), hint))
        elif known and len(values) > 1:
            cautions.append(
                Notice(f"unknown_{key}", f"Not every run tells its {called} ({known[0]}).", None)
            )
    if not reasons:  # another batch or K reads other bytes of the same checkpoint
        _compare_checkpoints(old, new, reasons, cautions)
    for side, side_runs in (("baseline", old), ("new run", new)):
        steps, least = sum(run.steps for run in side_runs), min(run.steps for run in side_runs)
        if steps < min_steps or least < LEAST_STEPS_OF_RUN:
            few = f"{steps} steady steps; {min_steps} are needed to tell a change from noise"
            if steps >= min_steps:
                few = f"a run of {least} steady steps; each needs {LEAST_STEPS_OF_RUN}"
            reasons.append(
                Notice("too_few_steps", f"The {side} has {few}.", "Record a longer capture.")
            )
    if not all(run.phases_trusted for run in runs):
        cautions.append(
            Notice(
                "phases_not_trusted",
                "The plan of the checkpoint does not explain the kernels of every run, so phases "
                "may be mislabelled; the whole step is not touched by this.",
                "Check --checkpoint and the drafting options with `tracebook report`.",
            )
        )
    contexts = _distinct(run.fact("run", "context_tokens") for run in runs)
    if len(contexts) > 1:
        named = ", ".join("not said" if c is None else str(c) for c in contexts)
        cautions.append(
            Notice(
                "other_context",
                f"The runs differ in their context length ({named}): attention takes longer in "
                "a longer context.",
                None,
            )
        )
    synthetic = [bool(run.fact("trace", "synthetic")) for run in runs]
    if any(synthetic):
        code, which = ("synthetic", "The") if all(synthetic) else ("some_synthetic", "Some of the")
        text = f"{which} runs are synthetic: their times come from a model, not from a GPU."
        cautions.append(Notice(code, text, None))
    return Comparable(tuple(reasons), tuple(cautions))


def _compare_checkpoints(
    old: Sequence[Run], new: Sequence[Run], reasons: list[Notice], cautions: list[Notice]
) -> None:
    """Refuse other bytes; say so where they are not known."""
    sizes = [run.checkpoint_bytes for run in (*old, *new)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        if known:
            cautions.append(
                Notice(
                    "unknown_checkpoint",
                    "Not every run has a checkpoint, so it cannot be told whether they read "
                    "the same bytes.",
                    "Give --checkpoint when saving.",
                )
            )
        return
    first = old[0].checkpoint_bytes or {}
    for size in known:
        if size != first:
            name = next(n for n in sorted({*size, *first}) if size.get(n, 0) != first.get(n, 0))
            reasons.append(
                Notice(
                    "other_checkpoint_bytes",
                    f"The checkpoint of the {name.replace('_', ' ')} differs: it has "
                    f"{first.get(name, 0):,} bytes in one run and {size.get(name, 0):,} in "
                    "another.",
                    _CHECKPOINT_HINT,
                )
            )
            return


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order; a list is none of the facts that are compared."""
    return list(dict.fromkeys(value if not isinstance(value, list) else None for value in values))


def _differ(called: str, old: Sequence[Run], new: Sequence[Run], table: str, key: str) -> str:
    sides = [
        " and ".join(str(value) for value in _distinct(run.fact(table, key) for run in side))
        for side in (old, new)
    ]
    return f"The {called} differs: {sides[0]} in the baseline, {sides[1]} in the new run."
