"""Lay runs of kernels in time: launches, gaps, graph replays, copies and API calls.

In: the runs of a capture with durations. Out: a `Capture`, everything that the export
has a row for, in time order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracebook.synth.calibrate import Integers
from tracebook.synth.nodes import Node, Segment

MAIN_STREAM, COPY_STREAM = 7, 21
#: The CPU runs this far ahead of the GPU with asynchronous scheduling.
CPU_LEAD_NS = 1_200_000
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
_PINNED, _DEVICE = 1, 2

_GRAPH_LAUNCH = "cudaGraphLaunch_v10000"
_COPY = "cudaMemcpyAsync_v3020"
_RECORD = "cudaEventRecordWithFlags_v11010"


@dataclass(frozen=True)
class Run:
    """One pass over segments: a warm-up run, a prefill, a step.

    `durations_ns` and `gaps_ns` (after each node) are in the order of the nodes;
    `pause_ns` comes before the run.
    """

    kind: str
    segments: tuple[Segment, ...]
    durations_ns: Integers
    gaps_ns: Integers
    step_id: int | None = None
    pause_ns: int = 0


@dataclass(frozen=True)
class KernelEvent:
    """One kernel execution."""

    node: Node
    start_ns: int
    end_ns: int
    correlation_id: int
    graph: int | None
    graph_node_id: int | None
    run: Run


@dataclass(frozen=True)
class ApiCall:
    """One call of the runtime or driver API."""

    name: str
    start_ns: int
    end_ns: int
    correlation_id: int


@dataclass(frozen=True)
class Copy:
    """One asynchronous memory copy."""

    start_ns: int
    end_ns: int
    stream: int
    correlation_id: int
    size_bytes: int
    kind: int
    source_kind: int
    target_kind: int


@dataclass
class Capture:
    """All events of a capture."""

    kernels: list[KernelEvent] = field(default_factory=list)
    calls: list[ApiCall] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    end_ns: int = 0


def lay_out(runs: Sequence[Run], *, start_ns: int, rng: np.random.Generator) -> Capture:
    """Put runs one after the other.

    Args:
        runs: In order of time.
        start_ns: When the first run begins.
        rng: For the times of API calls and copies.
    """
    clock = _Clock(Capture(), rng, start_ns)
    for run in runs:
        clock.play(run)
    clock.capture.end_ns = clock.gpu_ns
    return clock.capture


class _Clock:
    """Time on the GPU and on the CPU while a capture is laid out."""

    def __init__(self, capture: Capture, rng: np.random.Generator, start_ns: int) -> None:
        self.capture = capture
        self.gpu_ns = start_ns
        self._rng = rng
        self._cpu_ns = 0
        self._correlation = 1000

    def play(self, run: Run) -> None:
        """Append one run."""
        if run.kind == "capture":
            self._capture_graphs(run)
            return
        self.gpu_ns += run.pause_ns
        self._cpu_ns = max(self._cpu_ns, self.gpu_ns - CPU_LEAD_NS)
        if run.kind != "warmup":
            self._copy_inputs()
        index = 0
        for segment in run.segments:
            graph_correlation = None
            if segment.graph is not None:
                graph_correlation = self._call(_GRAPH_LAUNCH, 60_000, 110_000)
            for position, node in enumerate(segment.nodes, start=1):
                correlation = graph_correlation or self._call(_launch_name(node), 2_500, 5_000)
                end_ns = self.gpu_ns + int(run.durations_ns[index])
                node_id = None if segment.graph is None else segment.graph << 32 | position
                self.capture.kernels.append(
                    KernelEvent(node, self.gpu_ns, end_ns, correlation, segment.graph, node_id, run)
                )
                if node.op == "count_sampled":
                    self._copy_outputs(end_ns)
                self.gpu_ns = end_ns + int(run.gaps_ns[index])
                index += 1

    def _capture_graphs(self, run: Run) -> None:
        """Graph capture: API calls only, the GPU stands still."""
        self._cpu_ns = max(self._cpu_ns, self.gpu_ns)
        graphs = {segment.graph for segment in run.segments if segment.graph is not None}
        for _ in graphs:
            self._call("cudaStreamBeginCapture_v10000", 3_000, 6_000)
            self._cpu_ns += run.pause_ns // (2 * len(graphs))
            self._call("cudaStreamEndCapture_v10000", 300_000, 500_000)
            self._call("cudaGraphInstantiateWithFlags_v11040", 4_000_000, 6_000_000)
        self.gpu_ns = max(self._cpu_ns + CPU_LEAD_NS, self.gpu_ns + run.pause_ns)

    def _call(self, name: str, shortest_ns: int, longest_ns: int) -> int:
        """Make one API call and return its correlation id."""
        self._correlation += 1
        start_ns = self._cpu_ns + int(self._rng.integers(300, 1_200))
        end_ns = start_ns + int(self._rng.integers(shortest_ns, longest_ns))
        self.capture.calls.append(ApiCall(name, start_ns, end_ns, self._correlation))
        self._cpu_ns = end_ns
        return self._correlation

    def _copy_inputs(self) -> None:
        """Small pinned copies that end just before the run's first kernel."""
        for ahead_ns, size in ((6_200, 64), (4_300, 32), (2_400, 8)):
            correlation = self._call(_COPY, 2_000, 4_000)
            start_ns = self.gpu_ns - ahead_ns
            end_ns = start_ns + int(self._rng.integers(900, 1_500))
            self.capture.copies.append(
                Copy(
                    start_ns, end_ns, MAIN_STREAM, correlation, size,
                    HOST_TO_DEVICE, _PINNED, _DEVICE,
                )
            )  # fmt: skip

    def _copy_outputs(self, ready_ns: int) -> None:
        """The sampled tokens go to the host on a stream of their own."""
        self._call(_RECORD, 700, 1_500)
        correlation = self._call(_COPY, 2_000, 4_000)
        start_ns = ready_ns + int(self._rng.integers(1_000, 3_000))
        end_ns = start_ns + int(self._rng.integers(1_100, 1_900))
        self.capture.copies.append(
            Copy(start_ns, end_ns, COPY_STREAM, correlation, 88, DEVICE_TO_HOST, _DEVICE, _PINNED)
        )


def _launch_name(node: Node) -> str:
    """The API call that launches such a kernel: Triton uses the driver, CUTLASS 3 a cluster."""
    if node.name == node.short and not node.short.startswith("nvjet"):
        return "cuLaunchKernelEx"
    return (
        "cudaLaunchKernelExC_v11060" if node.short == "device_kernel" else "cudaLaunchKernel_v7000"
    )
