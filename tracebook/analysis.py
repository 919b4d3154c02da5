"""The main job: a trace and a checkpoint in, a report out.

In: paths and what the user said about the run. Out: a `Report`, or the labelled
kernels before the account (`examine`). This module only joins the stages: each does
its work elsewhere.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import polars as pl

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
from tracebook.config import FLAGS, REMOTE, DraftMethod, RunDescription, is_hub_id
from tracebook.errors import CheckpointError, RunDescriptionError, TraceError
from tracebook.importers import open_source
from tracebook.importers.nvtx import read_scopes
from tracebook.kernels.doubt import Alternatives
from tracebook.kernels.label import label_kernels
from tracebook.kernels.labels import Labelled
from tracebook.kernels.notdecode import check_tokens
from tracebook.kernels.nvtx import NvtxAgreement, compare_scopes
from tracebook.machine import Machine, resolve_machine
from tracebook.notices import Notice
from tracebook.opening import (
    growing_windows,
    kernels_between,
    open_within,
    refuse_words_beyond,
)
from tracebook.options import Options, check_names, choice_of, describe
from tracebook.report import Report
from tracebook.trace import Trace
from tracebook.traffic import Models, step_traffic


@dataclass(frozen=True)
class Examined:
    """A trace with its kernels labelled, and what is known about the run.

    `nvtx` is how far the labels agree with the engine's scopes, None where it opened none.
    """

    trace: Trace
    run: RunDescription
    machine: Machine
    labelled: Labelled
    models: Models | None = None
    nvtx: NvtxAgreement | None = None


def analyze(path: str | Path, **options: Unpack[Options]) -> Report:
    """Tell where a decode step spends its time, in bytes and GB/s per phase.

    Args:
        path: An Nsight Systems export (or a report that nsys can export).
        **options: See `Options`; `run.toml` beside the trace is read, options win.

    Raises:
        TypeError: A keyword is no option.
        TracebookError: The trace, the checkpoint or an option cannot be used; the
            message says which, the hint what to do.
    """
    return account_for(examine(path, **options))


if analyze.__doc__ is not None and Options.__doc__ is not None:  # not so with python -OO
    _listed = inspect.cleandoc(Options.__doc__).partition("Attributes:\n")[2]
    analyze.__doc__ = f"{inspect.cleandoc(analyze.__doc__)}\n\nOptions:\n{_listed}"


def account_for(examined: Examined) -> Report:
    """The account of a trace whose kernels are labelled."""
    report = account(
        examined.labelled,
        trace=examined.trace,
        machine=examined.machine,
        run=examined.run,
        models=examined.models,
    )
    facts = report.trace
    if Path(examined.trace.info.path).is_absolute():  # its folders were not meant to be told
        facts = replace(facts, path=Path(facts.path).name)
    return replace(report, trace=facts, nvtx=examined.nvtx)


def examine(path: str | Path, **options: Unpack[Options]) -> Examined:
    """Label the kernels of a trace, without the account.

    Raises:
        TracebookError: As `analyze`; `NoDecodeSteps` where nothing repeats.
    """
    check_names(options)
    if options.get("steps") is not None:
        return _first_steps(Path(path), options)
    trace = open_for(path, options)
    return _label(path, options, trace, launches_in_scopes(path))


def examine_in_words(
    path: str | Path, bytes_per_kernel: int, **options: Unpack[Options]
) -> Examined:
    """As `examine`, for what tells every kernel in words: those must fit into memory.

    Args:
        path: The trace.
        bytes_per_kernel: What a row in words takes.
        **options: As `analyze`.

    Raises:
        TracebookError: As `examine`, or they would not fit.
    """
    check_names(options)
    path, allowed = Path(path), options.get("max_memory_bytes")
    if options.get("steps") is None:  # told before the work, not after it
        asked = kernels_between(path, options.get("from_ns"), options.get("to_ns"))
        refuse_words_beyond(path, asked, bytes_per_kernel, allowed)
    examined = examine(path, **options)
    refuse_words_beyond(path, examined.trace.kernels.height, bytes_per_kernel, allowed)
    return examined


def _first_steps(path: Path, options: Options) -> Examined:
    """Widen the window until it holds the steps that are wanted."""
    wanted = options["steps"] or 0
    asked = (options.get("from_ns"), options.get("to_ns"))
    launches = launches_in_scopes(path)
    for begin, end, last in growing_windows(path, wanted, *asked):
        part: Options = {**options, "from_ns": begin, "to_ns": end}
        try:
            examined = _label(path, part, open_for(path, part), launches)
        except TraceError:  # no kernels or no steps yet: warm-up or prefill
            if last:
                raise
            continue
        labelled = examined.labelled
        believed = labelled.verdict is None or labelled.verdict.phases_trusted
        if last or (believed and labelled.steps.height >= wanted):
            break
    return keep_first(examined, wanted)


def keep_first(examined: Examined, wanted: int) -> Examined:
    """Account for the first `wanted` steady steps only."""
    labelled = examined.labelled
    kept = labelled.steps.head(wanted)
    end = int(kept["end_ns"].max())  # type: ignore[arg-type]
    notice = Notice(
        "first_steps",
        f"The first {kept.height} steady steps are accounted for, to {end / 1e9:.3f} s.",
        "Leave out --steps to look at all of them.",
    )
    notices = (*labelled.notices, notice)
    return replace(examined, labelled=replace(labelled, steps=kept, notices=notices))


def _label(
    path: str | Path, options: Options, trace: Trace, launches: pl.DataFrame | None
) -> Examined:
    run = describe(path, options)
    run, models, notices = models_of_run(run, trace.info.model_hint)
    return examine_trace(trace, run, models, options, launches, notices)


def examine_trace(
    trace: Trace,
    run: RunDescription,
    models: Models | None,
    options: Options,
    launches: pl.DataFrame | None,
    notices: tuple[Notice, ...] = (),
) -> Examined:
    """Label the kernels of a trace that is open already.

    Args:
        trace: The capture.
        run: The run description.
        models: Ledgers of the checkpoints, None without a target.
        options: What to look at: device, pid, rules and kind of step.
        launches: What `launches_in_scopes` told.
        notices: Warnings that arose on the way.

    Raises:
        NoDecodeSteps: Nothing repeats.
    """
    plan, alternatives = _laid_out(run, models)
    if plan is not None and models is not None:
        moved = step_traffic(models, plan, run).movements
        plan = replace(plan, state_bytes=sum(movement.bytes for movement in moved))
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
        choice=choice_of(options, run),
    )
    if labelled.device != device:
        machine = _machine(trace, labelled.device, run)
    if labelled.kinds and (labelled.verdict is None or not labelled.verdict.bytes_trusted):
        notices += tuple(check_tokens(labelled.kinds[0], run.batch))
    # Of several devices or processes the labels tell which one was taken.
    capture = [n for n in capture_notices(trace) if not n.code.startswith("several_")]
    planned = labelled.plan.notices if labelled.plan is not None else ()
    nvtx: NvtxAgreement | None = None
    conflicts: tuple[Notice, ...] = ()
    if launches is not None:
        nvtx, conflicts = compare_scopes(labelled, trace, launches)
    told = (*capture, *notices, *planned, *labelled.notices, *conflicts)
    return Examined(trace, run, machine, replace(labelled, notices=told), models, nvtx)


def launches_in_scopes(path: str | Path) -> pl.DataFrame | None:
    """Launches made inside the engine's NVTX scopes, None where the capture has none."""
    with open_source(Path(path)) as source:
        return read_scopes(source)


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
    if source.startswith(REMOTE) or Path(source).exists() or not is_hub_id(source):
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
            "Add --draft-method mtp, or --drafter PATH (in Python: draft_method=, drafter=).",
        )


def _machine(trace: Trace, device: int | None, run: RunDescription) -> Machine:
    return resolve_machine(
        trace.info,
        device,
        name=run.machine,
        bandwidth_gbps=run.bandwidth_gbps,
        ceiling_gbps=run.ceiling_gbps,
    )
