"""What can be said about a run and what to look at, as keywords of the public functions.

In: keywords of `analyze` and its kin. Out: the run description, and the kind of step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from tracebook.config import RunDescription, describe_run
from tracebook.importers.window import At
from tracebook.kernels.kinds import Choice


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
        tensor_parallel: Ranks that share the matrices of each layer.
        device: Device to examine, where the trace holds several.
        pid: Process to examine, where the trace holds several.
        from_ns: Leave out kernels before this time, in ns since the capture began, or a
            `Percent` of it.
        to_ns: Leave out kernels after this time.
        steps: Account for the first so many steady steps only, reading no more than that.
        max_memory_bytes: What may be used; half of the machine's memory by default. A trace for
            which that is too little is read into files in the cache directory.
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
    tensor_parallel: int | None
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
            "tensor_parallel",
        )
    },
}


def check_names(given: Iterable[str]) -> None:
    """Refuse keywords that are no options: left alone they would do nothing.

    Raises:
        TypeError: Naming the first of them and the nearest option.
    """
    known = list(Options.__annotations__)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise TypeError(f"There is no option {name!r}: {advice}")


def choice_of(options: Options, run: RunDescription) -> Choice:
    """Which kind of step to account for; a batch in run.toml describes, it does not choose."""
    return Choice(
        signature=options.get("signature"),
        batch=options.get("batch"),
        rows_per_sequence=1 + (run.draft_tokens or 0),
    )


def describe(path: str | Path, options: Options) -> RunDescription:
    """The run description from run.toml and options.

    Raises:
        TypeError: A keyword is no option.
        RunDescriptionError: A value cannot be.
    """
    check_names(options)
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
