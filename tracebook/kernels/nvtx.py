"""The engine's own NVTX scopes, held against the phases that were found without them.

In: labelled kernels, and which launch was made inside which scope. Out: the share of
kernel time on which both agree, and a warning where they do not. The labels are not
changed: two answers that were found apart are worth more than one.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracebook.importers.nvtx import ScopeRule, scope_rules
from tracebook.kernels.labels import Labelled
from tracebook.notices import Notice
from tracebook.phases import Phase
from tracebook.trace import Trace
from tracebook.units import ms, rounded

#: Time in conflict with a scope, as a share of the kernel time of the steps, that is told.
CONFLICT_SHARE = 0.01
#: A scope that is contradicted by most of its time is told even where it is short.
SMALL_CONFLICT_SHARE, MOST = 0.001, 0.5

#: Phases that say nothing which a scope could contradict.
_SILENT = (Phase.UNCLASSIFIED.value, Phase.OTHER.value)
#: A module of a layer may be the drafter's, and all-reduces belong to no layer.
_OTHER_LAYERS = (*_SILENT, Phase.DRAFTER_LAYERS.value, Phase.COMMUNICATION.value)


@dataclass(frozen=True)
class ScopeAgreement:
    """One scope against the labels.

    Attributes:
        scope: Its name in `data/nvtx.toml`.
        kernels: Kernels that were launched inside it, in all kept steps (in the whole
            capture for scopes that are no decode).
        ms: Their summed durations.
        agreement: Share of that time whose label fits the scope, of what has a label
            that could; None where nothing has.
    """

    scope: str
    kernels: int
    ms: float
    agreement: float | None


@dataclass(frozen=True)
class NvtxAgreement:
    """All scopes; `agreement` counts each kernel once, as fitting where all its scopes fit."""

    scopes: tuple[ScopeAgreement, ...]
    agreement: float | None


def compare_scopes(
    labelled: Labelled, trace: Trace, launches: pl.DataFrame
) -> tuple[NvtxAgreement | None, tuple[Notice, ...]]:
    """Hold the labels against the scopes that the kernels were launched in.

    Args:
        labelled: What the kernel stages found.
        trace: The capture, which knows the launch of each kernel.
        launches: LAUNCH_SCHEMA of the same capture.

    Returns:
        The agreement, None where no kernel was launched inside a scope, and a warning
        (`nvtx_conflict`) where labels and scopes contradict each other.
    """
    rules = scope_rules()
    linked = _linked(labelled, trace, launches)
    judged = pl.concat(
        [_judged(part, rules[scope]) for (scope,), part in linked.group_by("scope")]
        or [linked.with_columns(agrees=pl.lit(None, pl.Boolean))]
    )
    if judged.is_empty():
        return None, ()
    scopes = judged.group_by("scope").agg(
        kernels=pl.col("kernel_id").n_unique(),
        ns=pl.col("ns").sum(),
        agreement=_share_agreeing(),
        against=pl.col("ns").filter(~pl.col("agrees")).sum(),
    )
    scopes = scopes.join(_largest_misfit(judged), on="scope", how="left").sort("scope")
    each = (
        judged.filter(pl.col("step_id").is_not_null())
        .group_by("kernel_id")
        .agg(pl.col("ns").first(), pl.col("agrees").min())
    )
    agreement = each.select(_share_agreeing()).item()
    rows = scopes.iter_rows(named=True)
    found = tuple(
        ScopeAgreement(
            rules[row["scope"]].name, row["kernels"], ms(row["ns"]), _rounded(row["agreement"])
        )
        for row in rows
    )
    in_steps = labelled.kernels.select("step_id", "start_ns", "end_ns").drop_nulls("step_id")
    step_ns = int((in_steps["end_ns"] - in_steps["start_ns"]).sum())
    return NvtxAgreement(found, _rounded(agreement)), _conflicts(scopes, rules, step_ns)


def _linked(labelled: Labelled, trace: Trace, launches: pl.DataFrame) -> pl.DataFrame:
    """Labelled kernels with the scopes that launched them, one row for each pair."""
    rows = labelled.kernels.select(
        "kernel_id", "step_id", "phase", "layer", "start_ns", "end_ns"
    ).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = rows.drop("start_ns", "end_ns")
    rows = rows.join(trace.kernels.select("kernel_id", "correlation_id"), on="kernel_id")
    if labelled.pid is not None:
        launches = launches.filter(pl.col("pid") == labelled.pid)
    elif launches["pid"].n_unique() > 1:
        # Correlation ids of several processes overlap.
        launches = launches.clear()
    scopes = launches.select("correlation_id", "scope", "range_id", scope_layer="layer")
    return rows.join(scopes.unique(), on="correlation_id")


def _judged(linked: pl.DataFrame, rule: ScopeRule) -> pl.DataFrame:
    """Whether each kernel's label fits the scope; null where it says nothing about it."""
    inside = pl.col("step_id").is_not_null()
    if rule.kind == "absent":
        return linked.with_columns(agrees=~inside)
    linked = linked.filter(inside)
    phase = pl.col("phase")
    if rule.kind == "phases":
        fits = phase.is_in(list(rule.phases))
        return linked.with_columns(agrees=pl.when(~phase.is_in(_SILENT)).then(fits))
    if rule.kind == "layer":
        layered = phase.is_in(_OTHER_LAYERS) | (
            (phase == Phase.TARGET_LAYERS) & pl.col("layer").is_null()
        )
        fits = (phase == Phase.TARGET_LAYERS) & (pl.col("layer") == pl.col("scope_layer"))
        return linked.with_columns(agrees=pl.when(~layered).then(fits.fill_null(value=False)))
    return _one_to_one(linked)


def _one_to_one(linked: pl.DataFrame) -> pl.DataFrame:
    """A kernel fits where its range lies mostly in its step, and its step mostly in its range."""
    shared = linked.group_by("range_id", "step_id").agg(shared=pl.col("ns").sum())
    largest = pl.col("shared") == pl.col("shared").max()
    pairs = shared.with_columns(agrees=largest.over("range_id") & largest.over("step_id"))
    pairs = pairs.drop("shared")
    return linked.join(pairs, on=["range_id", "step_id"])


def _largest_misfit(judged: pl.DataFrame) -> pl.DataFrame:
    """Per scope the phase, `instead`, that most of the time in conflict has."""
    misfits = judged.filter(~pl.col("agrees")).group_by("scope", "phase").agg(pl.col("ns").sum())
    longest = misfits.sort("ns", "phase", descending=[True, False]).unique(
        "scope", keep="first", maintain_order=True
    )
    return longest.select("scope", instead="phase")


def _share_agreeing() -> pl.Expr:
    """Time that fits, as a share of the time that was judged; null where none was."""
    judged = pl.col("ns").filter(pl.col("agrees").is_not_null()).sum()
    fitting = pl.col("ns").filter(pl.col("agrees")).sum()
    return pl.when(judged > 0).then(fitting / judged)


def _rounded(share: float | None) -> float | None:
    return None if share is None else rounded(share)


def _conflicts(
    scopes: pl.DataFrame, rules: tuple[ScopeRule, ...], step_ns: int
) -> tuple[Notice, ...]:
    """The warning, where enough time contradicts a scope."""
    parts = []
    for row in scopes.iter_rows(named=True):
        share = row["against"] / max(step_ns, 1)
        wrong = 1 - (1.0 if row["agreement"] is None else row["agreement"])
        if share > CONFLICT_SHARE or (share > SMALL_CONFLICT_SHARE and wrong > MOST):
            rule = rules[row["scope"]]
            parts.append(
                f"{100 * wrong:.1f} % of the kernel time of '{rule.name}' "
                f"({ms(row['against']):.2f} ms in all) {_complaint(rule, row['instead'])}"
            )
    if not parts:
        return ()
    return (
        Notice(
            "nvtx_conflict",
            "The engine's NVTX scopes contradict the labels: " + "; ".join(parts) + ".",
            "Scopes are linked by launch, not by time, so the labels are in doubt: check "
            "--checkpoint, --drafter, --draft-method and --draft-tokens.",
        ),
    )


def _complaint(rule: ScopeRule, phase: str) -> str:
    """What is wrong with kernels of a scope, in words."""
    if rule.kind == "absent":
        return "lies in steady decode steps"
    if rule.kind == "step":
        return "lies in another step than the rest of its range"
    if rule.kind == "layer" and phase == Phase.TARGET_LAYERS:
        return "is labelled with another layer"
    return f"is labelled otherwise, mostly as {phase}"
