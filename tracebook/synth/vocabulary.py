"""The kernel vocabulary: names, launch shapes and durations, read from data files.

It belongs to the synthesizer alone; classification has rules of its own.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tracebook.errors import RuleError


@dataclass(frozen=True)
class SmallKernel:
    """A kernel that reads no weight matrix.

    `grid` and `states` are sums of products of numbers and symbols (see `evaluate`);
    durations in us; `states` are recurrent states moved, `logits` passes over them.
    """

    short: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    registers: int
    us: float
    name: str = ""
    shared_bytes: int = 0
    us_per_token: float = 0.0
    states: str = "0"
    kv: bool = False
    logits: float = 0.0


@dataclass(frozen=True)
class GemmKernel:
    """A kernel that reads weight matrices, and when it is chosen (empty: always)."""

    mode: str
    short: str
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    efficiency: float
    formats: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    name: str = ""
    tile: int = 0
    axis: str = "x"
    persistent: bool = False

    def fits(self, *, mode: str, weight_format: str, component: str, matrix: str, op: str) -> bool:
        """Whether this kernel serves a matrix of that kind."""
        return (
            self.mode == mode
            and weight_format in (self.formats or (weight_format,))
            and component in (self.components or (component,))
            and matrix.rpartition(".")[2] in (self.matrices or (matrix.rpartition(".")[2],))
            and op in (self.ops or (op,))
        )

    def grid(self, rows: int, sm_count: int) -> tuple[int, int, int]:
        """Blocks for a matrix of `rows` output features."""
        if self.persistent:
            return (sm_count, 1, 1)
        tiles = math.ceil(rows / self.tile)
        return (tiles, 1, 1) if self.axis == "x" else (1, tiles, 1)


@dataclass(frozen=True)
class Vocabulary:
    """All kernels of one engine."""

    small: Mapping[str, SmallKernel]
    gemms: tuple[GemmKernel, ...]


@lru_cache(maxsize=1)
def load_vocabulary() -> Vocabulary:
    """Read the vocabulary of vLLM's V2 runner.

    Raises:
        RuleError: A data file has an unknown or missing key.
    """
    kernels = read_data("vllm_kernels.toml")["kernel"]
    gemms = read_data("vllm_gemms.toml")["gemm"]
    return Vocabulary(
        small={key: _entry(SmallKernel, f"kernel.{key}", entry) for key, entry in kernels.items()},
        gemms=tuple(_entry(GemmKernel, f"gemm {i}", entry) for i, entry in enumerate(gemms)),
    )


def read_data(name: str) -> dict[str, Any]:
    """Read a data file of the synthesizer."""
    text = files("tracebook").joinpath("data", "synth", name).read_text(encoding="utf-8")
    return tomllib.loads(text)


def evaluate(expression: str, symbols: Mapping[str, int]) -> int:
    """Value of a sum of products, such as `1+tokens` or `layers*value_heads`.

    Raises:
        RuleError: A symbol is unknown.
    """
    try:
        return sum(
            math.prod(
                int(factor) if factor.isdigit() else symbols[factor] for factor in term.split("*")
            )
            for term in expression.split("+")
        )
    except KeyError as error:
        raise RuleError(f"Synthesizer data: {expression!r} uses the unknown {error}.") from error


def _entry(kind: type[Any], where: str, entry: dict[str, Any]) -> Any:
    try:
        return kind(
            **{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()},
        )
    except TypeError as error:
        raise RuleError(f"Synthesizer data, {where}: {error}.") from error
