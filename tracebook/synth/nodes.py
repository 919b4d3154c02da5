"""Kernels before they have a time: what runs, what it reads, how long it would take.

In: the plan's reads, the vocabulary and the sizes of the models.
Out: `Node` objects. `NodeFactory` keeps account of the reads: each is given to exactly
one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracebook.checkpoint.plan import Read
from tracebook.errors import CheckpointError
from tracebook.synth.models import Models, Shape
from tracebook.synth.settings import SynthSettings
from tracebook.synth.vocabulary import GemmKernel, SmallKernel, Vocabulary, evaluate

#: Fixed cost of a kernel that reads weights, before the first byte arrives.
LAUNCH_NS = 1500.0
#: Bandwidth of plain reads and writes of activations, caches and logits.
COPY_GBPS = 200.0


@dataclass(frozen=True)
class Node:
    """One kernel launch without a time.

    `duration_ns` is the time before calibration and jitter. `matrix` is None and
    `weight_bytes` 0 for kernels that read no weight matrix.
    """

    short: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    duration_ns: float
    phase: str
    op: str
    layer: int | None = None
    matrix: str | None = None
    weight_bytes: int = 0


@dataclass(frozen=True)
class Segment:
    """Nodes that are launched together: as one graph (`graph` is its number) or one by one."""

    nodes: tuple[Node, ...]
    graph: int | None = None


class NodeFactory:
    """Makes nodes and keeps account of the reads that were given to a kernel."""

    def __init__(self, vocabulary: Vocabulary, models: Models, settings: SynthSettings) -> None:
        self._vocabulary = vocabulary
        self._models = models
        self._settings = settings
        self._mode = "decode"
        self.taken: list[Read] = []

    def in_mode(self, mode: str) -> NodeFactory:
        """Return a factory of the same data for `decode` or `prefill` with an empty account."""
        other = NodeFactory(self._vocabulary, self._models, self._settings)
        other._mode = mode
        return other

    def small(
        self, key: str, phase: str, *, shape: Shape, tokens: int = 1, layer: int | None = None
    ) -> Node:
        """Make a kernel that reads no weight matrix.

        Args:
            key: Entry of the vocabulary.
            phase: Phase it belongs to.
            shape: Sizes of the model it works for.
            tokens: Positions it works on.
            layer: Layer index, None outside layers.
        """
        kernel = self._vocabulary.small[key]
        symbols = self._symbols(shape, tokens)
        grid = tuple(evaluate(axis, symbols) for axis in kernel.grid)
        return Node(
            short=kernel.short,
            name=kernel.name or kernel.short,
            grid=(grid[0], grid[1], grid[2]),
            block=kernel.block,
            registers=kernel.registers,
            shared_bytes=kernel.shared_bytes,
            duration_ns=self._small_duration_ns(kernel, shape, tokens, symbols),
            phase=phase,
            op=key,
            layer=layer,
        )

    def gemm(self, reads: Sequence[Read], *, component: str, tokens: int) -> Node:
        """Make the kernel that reads these matrices together.

        Args:
            reads: Reads of one fused matrix, in the order of the plan.
            component: `target`, `output`, `mtp`, `mtp_head`, `drafter` or `draft_head`.
            tokens: Positions that are multiplied.
        """
        self.taken.extend(reads)
        first = reads[0]
        weight_format = self._models.format_of(first, component)
        kernel = next(
            entry
            for entry in self._vocabulary.gemms
            if entry.fits(
                mode=self._mode,
                weight_format=weight_format,
                component=component,
                matrix=first.matrix,
                op=first.op,
            )
        )
        return self._weight_node(kernel, reads, tokens)

    def tactics(self, reads: Sequence[Read], *, component: str, tokens: int) -> tuple[Node, ...]:
        """Make one kernel for each way in which this format could be multiplied."""
        weight_format = self._models.format_of(reads[0], component)
        return tuple(
            self._weight_node(kernel, reads, tokens)
            for kernel in self._vocabulary.gemms
            if kernel.mode == self._mode and weight_format in kernel.formats
        )

    def _weight_node(self, kernel: GemmKernel, reads: Sequence[Read], tokens: int) -> Node:
        first = reads[0]
        weight_bytes = sum(read.weight_bytes for read in reads)
        gbps = self._settings.weight_gbps * kernel.efficiency
        rows = sum(read.rows or 0 for read in reads)
        return Node(
            short=kernel.short,
            name=kernel.name or kernel.short,
            grid=kernel.grid(rows, self._models.sm_count),
            block=kernel.block,
            registers=kernel.registers,
            shared_bytes=kernel.shared_bytes,
            # Further positions add a little compute: 0.1 % each (chosen).
            duration_ns=LAUNCH_NS + weight_bytes / gbps * (1 + 0.001 * min(tokens - 1, 32)),
            phase=first.phase,
            op="+".join(read.op for read in reads),
            layer=first.layer,
            matrix="+".join(read.matrix for read in reads),
            weight_bytes=weight_bytes,
        )

    def quantize(self, read: Read, phase: str, *, component: str, tokens: int) -> tuple[Node, ...]:
        """Make the activation quantisation in front of a matrix; none in front of BF16."""
        weight_format = self._models.format_of(read, component)
        if weight_format == "bf16":
            return ()
        key = "quantize_fp4" if weight_format == "nvfp4" else "quantize_fp8"
        shape = self._models.target
        return (self.small(key, phase, shape=shape, tokens=tokens, layer=read.layer),)

    def format_of(self, read: Read, component: str) -> str:
        """Weight format of a matrix: `nvfp4`, `fp8`, `fp8_block` or `bf16`."""
        return self._models.format_of(read, component)

    def _symbols(self, shape: Shape, tokens: int) -> Mapping[str, int]:
        return {
            "tokens": tokens,
            "layers": shape.recurrent_layers,
            "value_heads": shape.value_heads,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "sm": self._models.sm_count,
        }

    def _small_duration_ns(
        self, kernel: SmallKernel, shape: Shape, tokens: int, symbols: Mapping[str, int]
    ) -> float:
        state_bytes = evaluate(kernel.states, symbols) * shape.state_bytes
        kv_bytes = self._models.context_tokens * shape.kv_token_bytes if kernel.kv else 0
        logit_bytes = kernel.logits * tokens * shape.vocabulary * 4
        return (
            1e3 * (kernel.us + kernel.us_per_token * (tokens - 1))
            + state_bytes / self._settings.state_gbps
            + (kv_bytes + logit_bytes) / COPY_GBPS
        )


def take(reads: Iterable[Read], *ops: str) -> tuple[Read, ...]:
    """Return the reads of these ops, in the order of the plan.

    Raises:
        CheckpointError: There is none.
    """
    found = tuple(read for read in reads if read.op in ops)
    if not found:
        raise CheckpointError(
            f"The synthesizer finds no {' or '.join(ops)} matrix in the plan.",
            "It knows dense decoder layers with full attention or Gated DeltaNet.",
        )
    return found
