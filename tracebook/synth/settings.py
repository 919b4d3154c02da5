"""What a synthetic run is made of: the `[synth]` table of a run description.

In: run.toml. Out: `SynthSettings`; every value not given has the default stated here.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tracebook.errors import RunDescriptionError
from tracebook.phases import STEP_PHASES

Launch = Literal["graph", "eager"]
StateCommit = Literal["snapshots", "replay"]


@dataclass(frozen=True)
class SynthSettings:
    """How a synthetic trace is made.

    Attributes:
        seed: Seed of every random number.
        steps: Steady decode steps.
        schema: Version of the nsys export schema.
        launch: `graph` puts the layers into CUDA graphs, `eager` launches each kernel.
        state_commit: How a verify pass keeps recurrent states: a snapshot per position,
            or small records that are replayed once acceptance is known.
        weight_gbps: Bandwidth of weight reads where no phase time is given.
        state_gbps: Bandwidth of reading and writing recurrent states.
        jitter: Standard deviation of the logarithm of each duration.
        graph_gap_us: Mean gap between the kernels of a graph.
        eager_gap_us: Mean gap between kernels that are launched one by one.
        edge_gap_us: Gap at the edge of a step, used where `step_ms` is not given.
        step_ms: Wanted median of a step's wall time.
        phases_ms: Wanted median per phase and step.
        warmup: Whether an eager run, autotuning and graph capture come first.
        prefill_tokens: Tokens of the prompt, 0 for no prefill.
        cut: Whether the capture ends within a step.
        model: Model named in the captured command line.
    """

    seed: int = 0
    steps: int = 20
    schema: str = "3.25.0"
    launch: Launch = "graph"
    state_commit: StateCommit = "snapshots"
    weight_gbps: float = 220.0
    state_gbps: float = 200.0
    jitter: float = 0.015
    graph_gap_us: float = 0.3
    eager_gap_us: float = 1.2
    edge_gap_us: float = 250.0
    step_ms: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    warmup: bool = True
    prefill_tokens: int = 512
    cut: bool = True
    model: str = "synthetic/model"


_CHOICES = {"launch": get_args(Launch), "state_commit": get_args(StateCommit)}
_MAY_BE_ZERO = ("seed", "prefill_tokens", "jitter", "graph_gap_us", "eager_gap_us", "edge_gap_us")


def load_settings(path: Path) -> SynthSettings:
    """Read the `[synth]` table of a run description.

    Args:
        path: run.toml; without the table every default holds.

    Raises:
        RunDescriptionError: The file cannot be read, a key is unknown, or a value is
            of the wrong type or out of range.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunDescriptionError(
            f"The run description {path} cannot be read: {error}.",
            "Give a TOML file with a [target] table.",
        ) from error
    table = document.get("synth", {})
    if not isinstance(table, dict):
        raise RunDescriptionError(f"{path}: synth must be a table.", "Write it as [synth].")
    known = {item.name: item for item in dataclasses.fields(SynthSettings)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise RunDescriptionError(
                f"{path}: [synth] has no key {name!r}.", f"Known keys: {', '.join(known)}."
            )
        values[name] = _checked(f"{path}: [synth] {name}", name, value)
    return SynthSettings(**values)


def _checked(where: str, name: str, value: Any) -> Any:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise RunDescriptionError(
                f"{where} cannot be {value!r}.", f"One of: {', '.join(_CHOICES[name])}."
            )
        return value
    if name in ("schema", "model"):
        return _of_type(where, value, str)
    if name in ("warmup", "cut"):
        return _of_type(where, value, bool)
    if name == "phases_ms":
        return _phase_times(where, value)
    if name in ("seed", "steps", "prefill_tokens"):
        _of_type(where, value, int)
    return _amount(where, value, least_is_zero=name in _MAY_BE_ZERO)


def _of_type(where: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RunDescriptionError(f"{where} must be of type {kind.__name__}, not {value!r}.")
    return value


def _amount(where: str, value: Any, *, least_is_zero: bool = False) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and not least_is_zero):
        raise RunDescriptionError(f"{where} must be a number above 0, not {value!r}.")
    return value


def _phase_times(where: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise RunDescriptionError(f"{where} must be a table.", "Write it as [synth.phases_ms].")
    known = [str(phase) for phase in STEP_PHASES]
    for phase, milliseconds in value.items():
        if phase not in known:
            raise RunDescriptionError(
                f"{where} names no phase {phase!r}.", f"Known phases: {', '.join(known)}."
            )
        _amount(f"{where}.{phase}", milliseconds)
    return {phase: float(milliseconds) for phase, milliseconds in value.items()}
