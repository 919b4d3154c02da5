"""One case: a run, a machine, a disturbance, and what a report on it should be."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import zoo
from .engines import Run, step
from .export import write_trace, write_truth
from .program import Builder, Layout, Op
from .timeline import MACHINES, Disturbance, Row, Timeline
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Case:
    """A trace to be made, and the plan that the tool is told.

    `expect` is "report", "refuse" (no decode there) or "wrong-plan". `told`
    overrides keys of run.toml, "table.key" to value; None removes the key.
    """

    name: str
    target: str = "hybrid27-nvfp4"
    engine: str = "vllm"
    launch: str = "full"
    names: str = "real"
    schema: str = "3.20.3"
    machine: str = "gb10"
    method: str = "none"
    drafter: str | None = None
    k: int = 0
    head: str | None = None
    replay: bool = False
    ranks: int = 1
    steps: int = 24
    context: int = 600
    layout: Layout = field(default_factory=Layout)
    how: Disturbance = field(default_factory=Disturbance)
    expect: str = "report"
    negative: str = ""  # what a case without decode holds
    told: dict = field(default_factory=dict)

    def run(self) -> Run:
        target = zoo.net(self.target)
        if self.method == "mtp":
            drafter = zoo.mtp_of(target)
        else:
            drafter = zoo.net(self.drafter) if self.drafter else None
        head = zoo.head(self.head) if self.head else None
        return Run(
            target, self.engine, self.launch, self.method, drafter, self.k, head, self.replay
        )


def make(case: Case, out: Path, seed: int) -> None:
    """Write the case's directory under `out`, checkpoints beside it in `models`."""
    from .negatives import NEGATIVES  # negatives build on this module

    models, folder = out / "models", out / case.name
    models.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    rng = random.Random(f"{seed}/{case.name if case.expect != 'wrong-plan' else case.told}")
    lanes = [_lane(case, rank, seed, rng) for rank in range(case.ranks)]
    for lane in lanes:
        NEGATIVES[case.negative](case, lane) if case.negative else _decode(case, lane)
    if case.how.foreign:
        lanes.append(_foreign(lanes[0], rng))
    rows = [row for lane in lanes for row in lane.rows]
    rows = _disorder(rows, case.how, rng)
    api = [(*call, lane.pid) for lane in lanes for call in lane.api]
    copies = [(*copy, lane.device, lane.pid) for lane in lanes for copy in lane.copies]
    write_trace(
        folder / "trace.sqlite", case.schema, rows, api, copies, MACHINES[case.machine], case.ranks
    )
    write_truth(folder / "truth.csv", rows)
    (folder / "run.toml").write_text(describe(case, models))
    about = {"name": case.name, "expect": case.expect, "names": case.names, "seed": seed}
    (folder / "case.json").write_text(json.dumps(about | {"steps": case.steps}, indent=1))


def _lane(case: Case, rank: int, seed: int, rng: random.Random) -> Timeline:
    machine = MACHINES[case.machine]
    names = Vocabulary(case.engine, case.names, machine.sms, case.layout.persistent, seed)
    own = random.Random(rng.random())
    return Timeline(machine, names, case.how, own, rank, 4211 + 3 * rank, slow=case.engine == "hf")


def builder(case: Case, **more) -> Builder:
    return Builder(case.layout, case.ranks, 1, case.context, **more)


def program(case: Case, *, eager: bool = False, alternative: int = 0, batch: int = 1) -> list[Op]:
    """The ops of one step of the main kind, or of a variant of it."""
    run = case.run()
    if eager and run.launch != "none":
        run = replace(run, launch="none")
    ops = step(run, builder(case, batch=batch))
    if case.how.side:
        ops = _side_stream(ops)
    if alternative:
        ops = [
            replace(op, alternative=alternative) if op.what == "gemm" and op.n % 3 else op
            for op in ops
        ]
    return ops


def _side_stream(ops: list[Op]) -> list[Op]:
    """Copies on a second stream beside the big matrices."""
    out = []
    for number, op in enumerate(ops):
        out.append(op)
        if op.what == "gemm" and number % 7 == 0:
            out.append(
                replace(
                    op,
                    what="aux",
                    op="",
                    matrix=(),
                    weight_bytes=0,
                    n=0,
                    k=0,
                    stream=1,
                    phase=f"other|{op.phase}",
                )
            )
    return out


def _decode(case: Case, lane: Timeline) -> None:
    """Warm-up, prefill, then decode steps with whatever disturbs them."""
    how, rng = case.how, lane.rng
    main = program(case)
    other = program(case, alternative=1) if how.tactics else main
    graphs = [main, vary(main, random.Random(5), graph=True)] if how.change else [main]
    for _ in range(how.warmup):
        lane.play(program(case, eager=True), "warmup", None)
    for size in range(how.dummy, 0, -1):
        ops = program(case, eager=True, batch=8 * size)
        lane.play([op for op in ops if op.phase == "target_layers"], "warmup", None)
    if how.autotune:
        autotune(lane, main)
    if how.prefill:
        lane.play(prefill(case, 700), "prefill", None)
        lane.pause(1.0)
    for number in range(case.steps):
        ops = rng.choice(graphs) if rng.random() < how.change else main
        ops = other if rng.random() < how.tactics else ops
        ops = vary(ops, rng) if rng.random() < how.change else ops
        if how.drift:
            ops = [drifted(op, number) for op in ops]
        if number == case.steps // 2:
            lane.factor, lane.epoch = how.regime, lane.epoch + how.reinstantiate
            interlude(case, lane)
        slow = how.regime != 1.0 and number >= case.steps // 2
        lane.play(ops, "decode-slow" if slow else "decode", number)
    if how.cut:
        cut(lane)


def drifted(op: Op, number: int) -> Op:
    """Attention splits a growing context over more blocks, every few tokens one more."""
    eager = op.what in ("attn", "combine") and not op.launch
    return replace(op, alternative=number // 5) if eager else op


def interlude(case: Case, lane: Timeline) -> None:
    """Halfway: other kinds of steps, as a second request comes and goes."""
    for number in range(case.how.mixed):
        lane.play(prefill(case, 300 + 50 * number, head=True), "mixed", None)
    if case.how.batch2:
        ops = program(case, batch=2)
        for _ in range(case.how.batch2):
            lane.play(ops, "batch2", None)


def prefill(case: Case, rows: int, *, head: bool = False) -> list[Op]:
    """A chunk of a prompt through the target, eager."""
    run = replace(case.run(), method="none", drafter=None, k=0, launch="none", replay=False)
    b = builder(case)
    b.batch, b.verify = rows, "prefill_gdn"
    ops = step(run, b)
    swap = {"attn": "prefill_attn"}
    return [
        replace(op, what=swap.get(op.what, op.what), traffic=0.0)
        for op in ops
        if op.what not in ("conv", "combine")
    ]


def autotune(lane: Timeline, ops: list[Op]) -> None:
    """Every tactic of every shape, several times over."""
    seen = {}
    for op in ops:
        if op.what == "gemm":
            seen.setdefault((op.n, op.k, op.fmt), replace(op, launch=""))
    for op in seen.values():
        for tactic in range(4):
            trial = [Op("autotune", op.phase)] + [replace(op, alternative=tactic)] * 3
            lane.play(trial, "autotune", None)


def vary(ops: list[Op], rng: random.Random, *, graph: bool = False) -> list[Op]:
    """Glue inserted and removed inside one segment; inside graphs only for a second graph."""
    loose = {"prep_extra", "sample_extra", "aux", "combine", "permute", "gate", "norm"}
    out: list[Op] = []
    for number, op in enumerate(ops):
        free = graph or not op.launch
        if (
            free
            and op.what in loose
            and not op.weight_bytes
            and rng.random() < (0.06 if graph else 0.3)
        ):
            continue
        out.append(op)
        following = ops[number + 1] if number + 1 < len(ops) else op
        inside = (following.phase, following.layer, following.launch) == (
            op.phase,
            op.layer,
            op.launch,
        )
        if free and inside and rng.random() < (0.012 if graph or len(ops) > 400 else 0.05):
            what = rng.choice(("aux", "permute", "prep_extra", "cat"))
            out.append(Op(what, op.phase, op.layer, launch=op.launch, rows=op.rows))
    return out


def cut(lane: Timeline) -> None:
    """The capture ends inside the last step: what is left of it is no whole step."""
    last = max(row.step for row in lane.rows if row.step is not None)
    inside = [n for n, row in enumerate(lane.rows) if row.step == last]
    keep = inside[int(len(inside) * lane.rng.uniform(0.2, 0.8))]
    del lane.rows[keep:]
    for row in lane.rows:
        if row.step == last:
            row.step, row.kind = None, "cut"
    end = lane.rows[-1].end
    lane.api = [call for call in lane.api if call[0] < end]
    lane.copies = [copy for copy in lane.copies if copy[0] < end]


def _foreign(lane: Timeline, rng: random.Random) -> Timeline:
    """Another process on the same GPU, with correlation ids of the same range."""
    other = Timeline(lane.machine, lane.names, lane.how, random.Random(rng.random()), 0, 9377)
    end, other.host = lane.rows[-1].end, lane.rows[0].start * 0.97
    beat = [Op(what, "other") for what in ("norm", "silu", "cat", "permute", "argmax")]
    while other.host < end:
        other.play(beat, "foreign", None)
        other.pause(rng.uniform(4, 9))
    return other


def _disorder(rows: list[Row], how: Disturbance, rng: random.Random) -> list[Row]:
    """Row order of the file, and the rows that the profiler lost."""
    rows = [row for row in rows if rng.random() >= how.drop]
    if how.shuffle:
        rng.shuffle(rows)
    else:
        rows.sort(key=lambda row: row.start)
        for at in range(0, len(rows) - 40, 400):  # buffers are flushed out of order
            rows[at : at + 20], rows[at + 20 : at + 40] = (
                rows[at + 20 : at + 40],
                rows[at : at + 20],
            )
    return rows


def describe(case: Case, models: Path) -> str:
    """run.toml, saving the checkpoints that it names."""
    machine = MACHINES[case.machine]
    keys: dict[str, object] = {}
    if case.machine == "gb10":
        keys["machine.name"] = "dgx-spark"
    else:
        keys["machine.bandwidth_gbps"] = machine.peak_gbps
    keys["target.checkpoint"] = case.target
    keys["drafter.method"] = case.method
    if case.drafter:
        keys["drafter.checkpoint"] = case.drafter
    if case.k:
        keys["drafter.draft_tokens"] = case.k
    if case.head:
        keys["draft_head.checkpoint"] = case.head
    keys["state.gdn_dtype"] = "float32" if case.layout.gdn_float32 else "bfloat16"
    keys |= {
        "state.kv_dtype": "bfloat16",
        "state.context_tokens": case.context,
        "workload.batch": 1,
    }
    if case.ranks > 1:
        keys["workload.tensor_parallel"] = case.ranks
    keys |= case.told
    tables: dict[str, list[str]] = {}
    for key, value in keys.items():
        if value is None:
            continue
        table, _, name = key.partition(".")
        if name == "checkpoint":
            ckpt = zoo.head(value) if value in zoo.HEADS else zoo.net(value).ckpt
            value = f"../models/{ckpt.save(models).name}"
        tables.setdefault(table, []).append(f"{name} = {json.dumps(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items())
