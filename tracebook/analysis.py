"""The main job: a trace and a checkpoint in, a report out.

In: paths and what the user said about the run. Out: a `Report`, or the labelled
kernels before the account (`examine`). This module only joins the stages: each does
its work elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tracebook.account import account
from tracebook.capture import capture_notices
from tracebook.checkpoint import (
    Ledger,
    Plan,
    build_ledger,
    build_plan,
    read_checkpoint,
)
from tracebook.checkpoint.alternatives import plan_alternatives
from tracebook.checkpoint.hf_cache import find_in_hf_cache
from tracebook.config import FLAGS, DraftMethod, RunDescription, describe_run, is_hub_id
from tracebook.errors import CheckpointError, RunDescriptionError, TraceError
from tracebook.importers.window import At
from tracebook.kernels.attempts import Alternatives
from tracebook.kernels.kinds import Choice
from tracebook.kernels.label import label_kernels
from tracebook.kernels.labels import Labelled
from tracebook.machine import Machine, resolve_machine
from tracebook.notices import Notice
from tracebook.opening import growing_windows, open_within
from tracebook.report import Report
from tracebook.trace import Trace
from tracebook.traffic import Models


class Options(TypedDict, total=False):
    """Everything that can be said about a run and about what to look at.

    Attributes:
        checkpoint: Target: a directory, a file, a header bundle or a cached hub id.
        drafter: Checkpoint of the drafter (not for mtp).
        draft_method: none, mtp, eagle3, dflash, dflash2 or draft_model.
        draft_tokens: Tokens drafted per step, K.
        draft_head: Checkpoint of a draft head of its own.
        bandwidth: Published peak of the machine in GB/s.
        machine: Name in the machine table.
        ceiling_gbps: Measured read ceiling in GB/s.
        context_tokens: Tokens in the context of each sequence.
        kv_dtype: Dtype of the KV cache.
        gdn_dtype: Dtype of the recurrent state.
        replay: Whether recurrent state is replayed; by default the trace tells.
        batch: Sequences decoded at once; selects the steps of that batch.
        signature: Kind of step to account for, by the hash that reports list.
        tokens_per_step: Tokens that a step yields, all sequences together.
        device: Device to examine, where the trace holds several.
        pid: Process to examine, where the trace holds several.
        from_ns: Leave out kernels before this time, in ns since the capture began, or a
            `Percent` of it.
        to_ns: Leave out kernels after this time.
        steps: Account for the first so many steady steps only, reading no more than that.
        max_memory_bytes: What may be used; half of the machine's memory by default.
        rules: Kernel rules of your own, tried before the shipped ones.
        run_file: Run description to use instead of run.toml beside the trace.
    """

    checkpoint: str | Path | None
    drafter: str | Path | None
    draft_method: str | None
    draft_tokens: int | None
    draft_head: str | Path | None
    bandwidth: float | None
    machine: str | None
    ceiling_gbps: float | None
    context_tokens: int | None
    kv_dtype: str | None
    gdn_dtype: str | None
    replay: bool | None
    batch: int | None
    signature: str | None
    tokens_per_step: float | None
    device: int | None
    pid: int | None
    from_ns: At | None
    to_ns: At | None
    steps: int | None
    max_memory_bytes: int | None
    rules: str | Path | None
    run_file: str | Path | None


#: Options that are fields of the run description under another name.
_FIELD_OF = {
    "checkpoint": "target",
    "bandwidth": "bandwidth_gbps",
    **{
        name: name
        for name in (
            "drafter",
            "draft_method",
            "draft_tokens",
            "draft_head",
            "machine",
            "ceiling_gbps",
            "context_tokens",
            "kv_dtype",
            "gdn_dtype",
            "replay",
            "batch",
            "tokens_per_step",
        )
    },
}


@dataclass(frozen=True)
class Examined:
    """A trace with its kernels labelled, and what is known about the run."""

    trace: Trace
    run: RunDescription
    machine: Machine
    labelled: Labelled
    models: Models | None = None


def analyze(path: str | Path, **options: Unpack[Options]) -> Report:
    """Tell where a decode step spends its time, in bytes and GB/s per phase.

    Args:
        path: An Nsight Systems export (or a report that nsys can export).
        **options: See `Options`; `run.toml` beside the trace is read, options win.

    Raises:
        TracebookError: The trace, the checkpoint or an option cannot be used; the
            message says which, the hint what to do.
    """
    examined = examine(path, **options)
    return account(
        examined.labelled,
        trace=examined.trace,
        machine=examined.machine,
        run=examined.run,
        models=examined.models,
    )


def examine(path: str | Path, **options: Unpack[Options]) -> Examined:
    """Label the kernels of a trace, without the account.

    Raises:
        TracebookError: As `analyze`; `NoDecodeSteps` where nothing repeats.
    """
    if options.get("steps") is not None:
        return _first_steps(Path(path), options)
    return _label(path, options, open_for(path, options))


def _first_steps(path: Path, options: Options) -> Examined:
    """Widen the window until it holds the steps that are wanted."""
    wanted = options["steps"] or 0
    asked = (options.get("from_ns"), options.get("to_ns"))
    for begin, end, last in growing_windows(path, wanted, *asked):
        part: Options = {**options, "from_ns": begin, "to_ns": end}
        try:
            examined = _label(path, part, open_for(path, part))
        except TraceError:  # no kernels or no steps yet: warm-up or prefill
            if last:
                raise
            continue
        labelled = examined.labelled
        believed = labelled.verdict is None or labelled.verdict.phases_trusted
        if last or (believed and labelled.steps.height >= wanted):
            break
    kept = labelled.steps.head(wanted)
    end = int(kept["end_ns"].max())  # type: ignore[arg-type]
    notice = Notice(
        "first_steps",
        f"The first {kept.height} steady steps are accounted for, to {end / 1e9:.3f} s.",
        "Leave out --steps to look at all of them.",
    )
    notices = (*labelled.notices, notice)
    return replace(examined, labelled=replace(labelled, steps=kept, notices=notices))


def _label(path: str | Path, options: Options, trace: Trace) -> Examined:
    run = describe(path, options)
    run, models, notices = models_of_run(run, trace.info.model_hint)
    plan, alternatives = _laid_out(run, models)
    device = options.get("device")
    machine = _machine(trace, device, run)
    rules = options.get("rules")
    labelled = label_kernels(
        trace,
        plan,
        peak_gbps=machine.bandwidth_gbps,
        device=device,
        pid=options.get("pid"),
        rules=Path(rules) if rules is not None else None,
        alternatives=alternatives,
        choice=_choice(options, run),
    )
    if labelled.device != device:
        machine = _machine(trace, labelled.device, run)
    # Of several devices or processes the labels tell which one was taken.
    capture = [n for n in capture_notices(trace) if not n.code.startswith("several_")]
    planned = labelled.plan.notices if labelled.plan is not None else ()
    labelled = replace(labelled, notices=(*capture, *notices, *planned, *labelled.notices))
    return Examined(trace, run, machine, labelled, models)


def _choice(options: Options, run: RunDescription) -> Choice:
    """Which kind of step to account for; a batch in run.toml describes, it does not choose."""
    return Choice(
        signature=options.get("signature"),
        batch=options.get("batch"),
        rows_per_sequence=1 + (run.draft_tokens or 0),
    )


def describe(path: str | Path, options: Options) -> RunDescription:
    """The run description from run.toml and options."""
    given: Mapping[str, Any] = options
    flags = {
        field: str(value) if isinstance(value, Path) else value
        for name, field in _FIELD_OF.items()
        if (value := given.get(name)) is not None
    }
    run_file = options.get("run_file")
    return describe_run(
        Path(path), run_file=Path(run_file) if run_file is not None else None, flags=flags
    )


def open_for(path: str | Path, options: Options) -> Trace:
    """Open the part of a trace that the options ask for."""
    return open_within(
        Path(path),
        max_memory_bytes=options.get("max_memory_bytes"),
        device=options.get("device"),
        pid=options.get("pid"),
        from_ns=options.get("from_ns"),
        to_ns=options.get("to_ns"),
    )


def plan_of_step(
    run: RunDescription, model_hint: str | None
) -> tuple[RunDescription, Plan | None, tuple[Notice, ...], Alternatives]:
    """Read the checkpoints and lay out what one step must read.

    Args:
        run: The run description.
        model_hint: Model named in the captured command line; looked up in the local
            Hugging Face cache where no checkpoint is given.

    Returns:
        The description with what the checkpoints told, the plan (None without a
        target), notices, and what lays out other plans in case this one fits badly.

    Raises:
        CheckpointError: A checkpoint cannot be read.
        RunDescriptionError: The drafter's method is not said and cannot be told.
    """
    run, models, notices = models_of_run(run, model_hint)
    plan, alternatives = _laid_out(run, models)
    return run, plan, notices, alternatives


def models_of_run(
    run: RunDescription, model_hint: str | None = None
) -> tuple[RunDescription, Models | None, tuple[Notice, ...]]:
    """Read the headers of target, drafter and draft head.

    Args:
        run: The run description.
        model_hint: As for `plan_of_step`.

    Returns:
        The description with what the checkpoints told, the ledgers (None without a
        target) and notices.

    Raises:
        CheckpointError: A checkpoint cannot be read.
        RunDescriptionError: The drafter's method is not said and cannot be told.
    """
    run, notices = _with_hinted_target(run, model_hint)
    if run.target is None:
        return run, None, notices
    ledgers = {
        name: build_ledger(read_checkpoint(_located(source)))
        for name in ("target", "drafter", "draft_head")
        if (source := getattr(run, name)) is not None
    }
    if run.draft_method is None and "drafter" in ledgers:
        run = replace(run, draft_method=_method_of(ledgers["drafter"]))
    _refuse_half_a_drafter(run)
    told = [notice for ledger in ledgers.values() for notice in ledger.notices]
    return run, Models(**ledgers), (*notices, *told)


def _laid_out(run: RunDescription, models: Models | None) -> tuple[Plan | None, Alternatives]:
    """The plan of a step of these models, and what lays out others."""
    if models is None:
        return None, tuple
    target, said = models.target, plan_settings(run, models)
    plan = build_plan(target, **said)

    def alternatives() -> list[Plan]:
        return plan_alternatives(target, **said)

    return plan, alternatives


def plan_settings(run: RunDescription, models: Models) -> dict[str, Any]:
    """What `build_plan` needs to know beside the target."""
    return {
        "drafter": models.drafter,
        "draft_head": models.draft_head,
        "method": run.draft_method or "none",
        "draft_tokens": run.draft_tokens,
        "ranks": run.tensor_parallel or 1,
        "batch": run.batch or 1,
    }


def _with_hinted_target(
    run: RunDescription, model_hint: str | None
) -> tuple[RunDescription, tuple[Notice, ...]]:
    """Take the target from the captured command line where the user named none."""
    if run.target is not None or model_hint is None:
        return run, ()
    if find_in_hf_cache(model_hint) is None:
        return run, (
            Notice(
                "model_not_cached",
                f"The captured command line names {model_hint}, which is not in the local "
                "Hugging Face cache.",
                "Give its headers with --checkpoint.",
            ),
        )
    return replace(run, target=model_hint), (
        Notice(
            "model_from_command_line",
            f"The checkpoint is {model_hint}, named in the captured command line and found "
            "in the local Hugging Face cache.",
            "Use --checkpoint if another one ran.",
        ),
    )


def _located(source: str) -> str:
    """A hub id as the directory that the local cache holds for it."""
    if Path(source).exists() or not is_hub_id(source):
        return source
    found = find_in_hf_cache(source)
    if found is None:
        raise CheckpointError(
            f"{source} is neither a path nor in the local Hugging Face cache.",
            "Nothing is downloaded here: give a directory, a file or a header bundle.",
        )
    return str(found)


#: Architecture names of drafters (config.json, `architectures`) and the method they serve.
_METHOD_OF_ARCHITECTURE: tuple[tuple[str, DraftMethod], ...] = (
    ("dflash2", "dflash2"),
    ("dflash", "dflash"),
    ("eagle3", "eagle3"),
)


def _method_of(drafter: Ledger) -> DraftMethod:
    """Tell the draft method by the architecture that the drafter's config names."""
    names = [str(name) for name in (drafter.checkpoint.config or {}).get("architectures") or ()]
    for part, method in _METHOD_OF_ARCHITECTURE:
        if any(part in name.lower() for name in names):
            return method
    raise RunDescriptionError(
        f"The drafter {drafter.checkpoint.name} does not tell its method (architectures: "
        f"{', '.join(names) or 'none'}).",
        "Name it with --draft-method: eagle3, dflash, dflash2 or draft_model.",
    )


def _refuse_half_a_drafter(run: RunDescription) -> None:
    """Refuse drafting that is spoken of without saying how it is done."""
    said = [FLAGS[name] for name in ("draft_tokens", "draft_head") if getattr(run, name)]
    if run.draft_method is None and said:
        raise RunDescriptionError(
            f"{' and '.join(said)} is given, but not how tokens are drafted.",
            "Add --draft-method mtp, or --drafter PATH.",
        )


def _machine(trace: Trace, device: int | None, run: RunDescription) -> Machine:
    return resolve_machine(
        trace.info,
        device,
        name=run.machine,
        bandwidth_gbps=run.bandwidth_gbps,
        ceiling_gbps=run.ceiling_gbps,
    )
