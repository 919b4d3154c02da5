"""The runs of a synthetic capture: warm-up, prefill, steady steps, a cut last step.

In: a run description. Out: `Capture` and what it was made from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracebook.checkpoint.header import read_checkpoint
from tracebook.checkpoint.ledger import Ledger, build_ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_builder import build_plan
from tracebook.checkpoint.roles import text_config
from tracebook.config import RunDescription, load_run
from tracebook.errors import RunDescriptionError
from tracebook.synth.calibrate import Floats, Integers, Pace, calibrate, edge_gaps_ns, whole_ns
from tracebook.synth.models import Models, module_formats, shape_of
from tracebook.synth.nodes import Node, NodeFactory, Segment
from tracebook.synth.settings import SynthSettings
from tracebook.synth.step import StepMaker
from tracebook.synth.timeline import Capture, Run, lay_out
from tracebook.synth.vocabulary import load_vocabulary

_START_NS = 30_000_000
_PAUSE_NS = 12_000_000
_CAPTURE_PAUSE_NS = 90_000_000
#: Share of the nodes of the last step that the capture still holds.
_CUT_SHARE = 0.35
_GAP_SPREAD = 0.25
_EDGE_SPREAD = 0.04


def make_capture(run_file: Path, settings: SynthSettings) -> Capture:
    """Make all events of the run that a description tells of.

    Raises:
        RunDescriptionError: The description cannot be met.
        CheckpointError: A checkpoint cannot be read or lacks what is needed.
    """
    maker = _step_maker(load_run(run_file), settings)
    rng = np.random.default_rng(settings.seed)
    step = maker.decode_step()
    pace, runs = _steady(step, settings, rng)
    before = _before(maker, step, pace, rng)
    after = [_cut(step, pace, settings, rng)] if settings.cut else []
    return lay_out([*before, *runs, *after], start_ns=_START_NS, rng=rng)


def _step_maker(described: RunDescription, settings: SynthSettings) -> StepMaker:
    if described.target is None:
        raise RunDescriptionError(
            "The run description names no target.", 'Add [target] checkpoint = "PATH".'
        )
    _refuse_unknown(described)
    target = build_ledger(read_checkpoint(described.target))
    drafter = _ledger(described.drafter)
    head = _ledger(described.draft_head)
    plan = build_plan(
        target,
        drafter=drafter,
        draft_head=head,
        method=described.draft_method or "none",
        draft_tokens=described.draft_tokens,
    )
    models = _models(described, target, drafter, head, plan)
    return StepMaker(
        NodeFactory(load_vocabulary(), models, settings),
        plan,
        models,
        settings,
        _aux_layers(drafter),
    )


def _refuse_unknown(described: RunDescription) -> None:
    """Refuse runs whose kernels the vocabulary does not describe."""
    if described.machine not in (None, "dgx-spark"):
        raise RunDescriptionError(
            f"The synthesizer knows no kernels of the machine {described.machine!r}.",
            'It knows [machine] name = "dgx-spark".',
        )
    for name in ("batch", "tensor_parallel"):
        if (getattr(described, name) or 1) != 1:
            raise RunDescriptionError(
                f"The synthesizer makes runs of one sequence on one GPU, not {name} = "
                f"{getattr(described, name)}.",
                "Set it to 1.",
            )


def _ledger(checkpoint: str | None) -> Ledger | None:
    return None if checkpoint is None else build_ledger(read_checkpoint(checkpoint))


def _models(
    described: RunDescription,
    target: Ledger,
    drafter: Ledger | None,
    head: Ledger | None,
    plan: Plan,
) -> Models:
    dtypes = {
        "gdn_dtype": described.gdn_dtype or "bfloat16",
        "kv_dtype": described.kv_dtype or "bfloat16",
    }
    shape = shape_of(target, recurrent_layers=len(plan.recurrent_layers), **dtypes)
    own_shape = drafter is not None and described.draft_method != "mtp"
    return Models(
        target=shape,
        drafter=shape_of(drafter, recurrent_layers=0, **dtypes)
        if drafter is not None and own_shape
        else shape,
        formats=module_formats(*(ledger for ledger in (target, drafter, head) if ledger)),
        head_part="draft_head" if head is not None else "target",
        context_tokens=described.context_tokens or 0,
    )


def _aux_layers(drafter: Ledger | None) -> tuple[int, ...]:
    """Target layers whose hidden states the drafter reads, as its config names them."""
    if drafter is None:
        return ()
    config = text_config(drafter.checkpoint.config)
    return tuple(config.get("dflash_config", {}).get("target_layer_ids", ()))


def _steady(
    step: tuple[Segment, ...], settings: SynthSettings, rng: np.random.Generator
) -> tuple[Pace, list[Run]]:
    nodes = _nodes(step)
    jitter = rng.lognormal(0.0, settings.jitter, (settings.steps, len(nodes)))
    pace = calibrate(nodes, jitter, settings)
    durations = whole_ns(pace.durations_ns(nodes) * jitter)
    gaps = np.stack([_gaps_ns(step, settings, rng) for _ in range(settings.steps)])
    gaps[:, -1] = 0
    wobble = rng.lognormal(0.0, _EDGE_SPREAD, settings.steps)
    gaps[:, -1] = edge_gaps_ns((durations + gaps).sum(axis=1), wobble, settings)
    runs = [Run("decode", step, durations[i], gaps[i], step_id=i) for i in range(settings.steps)]
    return pace, runs


def _before(
    maker: StepMaker, step: tuple[Segment, ...], pace: Pace, rng: np.random.Generator
) -> list[Run]:
    settings = maker.settings
    runs = []
    if settings.warmup:
        runs.append(_single("warmup", maker.warm_up(), pace, settings, rng))
        runs.append(_single("warmup", maker.tuning(), pace, settings, rng))
        runs.append(_pause(step))
    if settings.prefill_tokens:
        runs.append(_single("prefill", maker.prefill(), pace, settings, rng))
    return runs


def _single(
    kind: str,
    segments: tuple[Segment, ...],
    pace: Pace,
    settings: SynthSettings,
    rng: np.random.Generator,
) -> Run:
    nodes = _nodes(segments)
    jitter: Floats = rng.lognormal(0.0, settings.jitter, len(nodes))
    durations = whole_ns(pace.durations_ns(nodes) * jitter)
    gaps = _gaps_ns(segments, settings, rng)
    gaps[-1] = _PAUSE_NS // 4
    return Run(kind, segments, durations, gaps, pause_ns=_PAUSE_NS)


def _pause(step: tuple[Segment, ...]) -> Run:
    nothing: Integers = np.zeros(0, dtype=np.int64)
    return Run("capture", step, nothing, nothing, pause_ns=_CAPTURE_PAUSE_NS)


def _cut(
    step: tuple[Segment, ...], pace: Pace, settings: SynthSettings, rng: np.random.Generator
) -> Run:
    """The step that the capture's end cuts off, within the target's layers."""
    kept = int(len(_nodes(step)) * _CUT_SHARE)
    segments = []
    for segment in step:
        segments.append(Segment(segment.nodes[:kept], segment.graph))
        kept -= len(segments[-1].nodes)
        if kept == 0:
            break
    nodes = _nodes(segments)
    jitter: Floats = rng.lognormal(0.0, settings.jitter, len(nodes))
    durations = whole_ns(pace.durations_ns(nodes) * jitter)
    return Run("cut", tuple(segments), durations, _gaps_ns(segments, settings, rng))


def _gaps_ns(
    segments: tuple[Segment, ...] | list[Segment],
    settings: SynthSettings,
    rng: np.random.Generator,
) -> Integers:
    """Gap after each node: short within a graph, longer where each kernel is launched."""
    mean_us = np.concatenate(
        [
            np.full(
                len(segment.nodes),
                settings.eager_gap_us if segment.graph is None else settings.graph_gap_us,
            )
            for segment in segments
        ]
    )
    # The gap behind a graph's last node is that of the eager launch that follows.
    ends = np.cumsum([len(segment.nodes) for segment in segments]) - 1
    mean_us[ends] = settings.eager_gap_us
    gaps: Integers = np.rint(1e3 * mean_us * rng.lognormal(0.0, _GAP_SPREAD, len(mean_us))).astype(
        np.int64
    )
    return gaps


def _nodes(segments: tuple[Segment, ...] | list[Segment]) -> list[Node]:
    return [node for segment in segments for node in segment.nodes]
