"""Lays the kernels of steps on the clock of one process: host, launches, streams."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import groupby

from .program import Op
from .vocabulary import Kernel, Vocabulary, stable

US = 1000.0


@dataclass(frozen=True)
class Machine:
    """A GPU: published peak, share of it that decode kernels reach, fixed cost."""

    key: str
    gpu: str
    peak_gbps: float
    sms: int
    reach: float = 0.82
    fixed_us: float = 1.6
    tflops: float = 200.0


MACHINES = {
    "gb10": Machine("gb10", "NVIDIA GB10", 273, 48, 0.83, 1.5, 90),
    "h100": Machine("h100", "NVIDIA H100 80GB HBM3", 3352, 132, 0.80, 2.2, 600),
    "h200": Machine("h200", "NVIDIA H200", 4917, 132, 0.78, 2.3, 600),
    "a100": Machine("a100", "NVIDIA A100-SXM4-40GB", 1555, 108, 0.84, 2.0, 220),
    "rtx5090": Machine("rtx5090", "NVIDIA GeForce RTX 5090", 1792, 170, 0.88, 1.8, 300),
}


@dataclass(frozen=True)
class Disturbance:
    """What makes a capture unlike the textbook; each switchable."""

    jitter: float = 0.025  # sigma of the log of a duration
    bias: float = 0.0  # per-shape bandwidth, up to this share either way
    outliers: float = 0.0  # share of kernels that take several times as long
    shuffle: bool = False
    drop: float = 0.0
    change: float = 0.0  # share of steps whose glue differs
    tactics: float = 0.0  # share of steps with other GEMM tactics
    asynchronous: bool = False
    side: bool = False
    overlap: bool = False  # programmatic launch: a kernel starts before its forerunner ends
    warmup: int = 2
    autotune: bool = False
    prefill: bool = True
    mixed: int = 0
    batch2: int = 0
    regime: float = 1.0  # slow-down from the middle on
    reinstantiate: bool = False
    cut: bool = True
    middle_us: float = 0.0  # the host waits for the verdict before it drafts on
    hiccups: float = 0.0  # share of steps in which the host stalls somewhere for milliseconds
    dummy: int = 0  # eager target passes of other batch sizes before the capture of graphs
    drift: bool = False  # eager attention takes other grids as the context grows
    foreign: bool = False  # an unrelated process on the same GPU


@dataclass
class Row:
    """One kernel row and what is true of it."""

    start: int
    end: int
    kernel: Kernel
    stream: int
    correlation: int
    node: int | None
    graph: int | None
    device: int
    pid: int
    op: Op
    step: int | None
    kind: str
    weight_bytes: int


@dataclass
class Timeline:
    """The clock of one process on one device."""

    machine: Machine
    names: Vocabulary
    how: Disturbance
    rng: random.Random
    device: int = 0
    pid: int = 4211
    slow: bool = False  # a host that launches slowly (eager Python)
    rows: list[Row] = field(default_factory=list)
    api: list[tuple] = field(default_factory=list)  # start, end, name, correlation
    copies: list[tuple] = field(
        default_factory=list
    )  # start, end, bytes, kind, stream, correlation
    host: float = 3e8
    gpu: float = 3e8
    side: float = 3e8
    step_start: float = 3e8
    correlation: int = 900
    factor: float = 1.0
    epoch: int = 0
    graphs: dict = field(default_factory=dict)

    def play(self, ops: list[Op], kind: str, step: int | None) -> None:
        """Run one step's ops; the host waits for the GPU unless asynchronous."""
        rng = self.rng
        if self.how.asynchronous:
            self.host = max(self.host, self.step_start)
        else:
            self.host = max(self.host, self.gpu) + rng.uniform(60, 260) * US
        self.step_start = self.gpu
        self._copy_in()
        stall = rng.randrange(1, 60) if rng.random() < self.how.hiccups else 0
        verdict = False
        for launch, group in groupby(self._launches(ops), key=lambda pair: pair[0]):
            part = [op for _, op in group]
            if verdict and self.how.middle_us and part[0].what not in ("reject", "post"):
                self.host = max(
                    self.host, self.gpu + self.how.middle_us * rng.uniform(0.7, 1.5) * US
                )
                verdict = False
            if launch[0] == stall:
                self.host = max(self.host, self.gpu) + rng.uniform(2, 15) * 1e6
            self._launch(launch[1], part, kind, step)
            verdict = verdict or any(op.what == "reject" for op in part)
        self._copy_out()

    @staticmethod
    def _launches(ops: list[Op]):
        """Number launches: a graph's nodes share one, eager kernels have one each."""
        number, last = 0, None
        for op in ops:
            if not op.launch or op.launch != last:
                number += 1
            last = op.launch
            yield (number, op.launch), op

    def _launch(self, graph: str, ops: list[Op], kind: str, step: int | None) -> None:
        pairs = [(op, kernel) for op in ops for kernel in self.names.kernels(op)]
        if not pairs:
            return
        if graph:
            self._run(
                pairs,
                self._call("cudaGraphLaunch_v10000", 8 + 0.02 * len(pairs)),
                graph,
                kind,
                step,
            )
            return
        for pair in pairs:
            cost = self.rng.uniform(5, 12) if self.slow else self.rng.uniform(2.2, 4.5)
            name = (
                "cuLaunchKernelEx"
                if "triton" in pair[1].name or pair[1].name[0] == "_"
                else "cudaLaunchKernel_v7000"
            )
            self._run([pair], self._call(name, cost), "", kind, step)

    def _call(self, name: str, cost_us: float) -> int:
        self.correlation += self.rng.choice((1, 1, 1, 2, 3))
        start = self.host
        self.host += cost_us * US
        self.api.append((int(start), int(self.host - 300), name, self.correlation))
        return self.correlation

    def _run(self, pairs, correlation: int, graph: str, kind: str, step: int | None) -> None:
        nodes, graph_id = self._nodes(graph, pairs) if graph else ([None] * len(pairs), None)
        ready = self.host + 2500
        for (op, kernel), node in zip(pairs, nodes, strict=True):
            duration = self.duration(op, kernel)
            free = self.side if op.stream else self.gpu
            start = max(ready, free + self._gap(bool(graph)) * US)
            if self.rows and not op.stream:
                start = max(start, self.rows[-1].start + 250)
            end = start + duration
            self.rows.append(
                Row(
                    int(start),
                    max(int(end), int(start) + 300),
                    kernel,
                    7 + 13 * op.stream,
                    correlation,
                    node,
                    graph_id,
                    self.device,
                    self.pid,
                    op,
                    step,
                    kind,
                    op.weight_bytes if kernel.main else 0,
                )
            )
            if op.stream:
                self.side = end
            else:
                self.gpu = max(self.gpu, end)

    def _gap(self, in_graph: bool) -> float:
        if self.how.overlap:
            return self.rng.uniform(-1.4, 0.3)
        return self.rng.uniform(0.5, 1.2) if in_graph else self.rng.uniform(0.7, 1.8)

    def _nodes(self, graph: str, pairs) -> tuple[list[int], int]:
        """Node ids of this graph: stable over replays, in no telling order."""
        key = (self.epoch, graph, tuple((k.name, k.grid, op.layer, op.op) for op, k in pairs))
        if key not in self.graphs:
            number = len(self.graphs) + 11 + 40 * self.epoch
            order = list(range(1, len(pairs) + 1))
            random.Random(number).shuffle(order)
            self.graphs[key] = ([(number << 32) + 2 * i for i in order], number)
        return self.graphs[key]

    def duration(self, op: Op, kernel: Kernel) -> float:
        """Time in ns: fixed cost, bytes over the reached bandwidth, noise."""
        m, moved = self.machine, 0.0
        if kernel.main:
            moved = op.weight_bytes + op.traffic
        reach = m.peak_gbps * m.reach
        if op.weight_bytes:
            reach *= 1 + self._bias(op)
        base = kernel.us if kernel.us else m.fixed_us
        time = base * US + moved / reach
        if op.rows > 64 and op.n:
            time = max(time, 2.0 * op.n * op.k * op.rows / (m.tflops * 1e3))
        elif op.rows > 64:
            time *= 1 + op.rows / 128
        time *= math.exp(self.rng.gauss(0, self.how.jitter)) * self.factor
        if op.what == "allreduce":  # the faster rank waits for the slower
            time *= math.exp(abs(self.rng.gauss(0, 0.4)))
        if self.rng.random() < self.how.outliers:
            time *= self.rng.uniform(1.5, 8)
        return time

    def _bias(self, op: Op) -> float:
        """The same kernel on the same shape is always as far from the mean."""
        key = f"{self.names.seed}/{op.fmt}/{op.n}/{op.k}/{op.alternative}"
        return self.how.bias * (stable(key) % 2001 / 1000 - 1)

    def _copy_in(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            correlation = self._call("cudaMemcpyAsync_v3020", 2.0)
            start = max(self.host + 1500, self.gpu - self.rng.uniform(0, 30) * US)
            size = self.rng.choice((4, 8, 64, 256, 2048))
            self.copies.append((int(start), int(start + 900), size, 1, 7, correlation))

    def _copy_out(self) -> None:
        correlation = self._call("cudaMemcpyAsync_v3020", 2.0)
        start = self.gpu + self.rng.uniform(1, 6) * US
        self.copies.append((int(start), int(start + 1100), 8, 2, 24, correlation))

    def pause(self, ms: float) -> None:
        """Nothing runs for a while."""
        self.host = max(self.host, self.gpu) + ms * 1e6
