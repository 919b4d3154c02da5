"""A movement: bytes of one kind that a phase reads or writes, and the settings behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracebook.checkpoint.plan import Basis
from tracebook.phases import Phase

#: Bytes of one value.
BYTES_OF: dict[str, int] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3": 1,
    "float8_e5m2": 1,
    "fp8": 1,
    "int8": 1,
}


@dataclass(frozen=True)
class Movement:
    """One kind of bytes that a phase reads or writes in a step.

    Attributes:
        phase: A `Phase` value.
        name: `weights`, `kv_cache`, `recurrent_state`, `replay_inputs`, `conv_state`,
            `embedding_rows`, `gather_rows` or `logits`.
        direction: `read` or `write`.
        bytes: Of one rank and one step, all sequences together.
        basis: `exact`, `derived` or `assumed`.
        note: How they were counted, in words.
    """

    phase: str
    name: str
    direction: str
    bytes: int
    basis: Basis
    note: str


@dataclass(frozen=True)
class Settings:
    """What the bytes of state depend on.

    `context_tokens` None means that the KV cache is not counted. `kv_basis` and
    `state_basis` are `assumed` where a setting behind them was.
    """

    batch: int
    drafts: int
    ranks: int
    context_tokens: int | None
    kv_bytes: int
    kv_basis: Basis
    state_bytes: int
    state_basis: Basis
    model_bytes: int
    replay: bool

    @property
    def positions(self) -> int:
        """Positions of a verify pass, all sequences together."""
        return (self.drafts + 1) * self.batch


def moved(
    phase: Phase, name: str, direction: str, size: int, basis: Basis, note: str
) -> Iterator[Movement]:
    """One movement, none where nothing moves."""
    if size:
        yield Movement(phase.value, name, direction, size, basis, note)
