"""Everything that a phase moves in one step, as a list of reads and writes with their basis.

In: ledgers, the plan of the step and the settings of the run. Out: `StepTraffic`, the
movements beyond the weights; the account puts the weights that kernels were found for in
front of them. What no setting tells is left out with a notice, or assumed and named.

Activations are not counted: at decode those between two kernels stay in the cache of the
GPU (11 positions of 17,408 BF16 values are 0.38 MB). `WIDE_ACTIVATION` says from where on
that is doubtful, and a notice then tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Basis, Plan
from tracebook.checkpoint.state import ModelState, RecurrentLayer, model_state
from tracebook.config import RunDescription
from tracebook.notices import Notice
from tracebook.phases import Phase
from tracebook.traffic.movement import BYTES_OF, Movement, Settings, moved
from tracebook.traffic.state import kv_cache, recurrent_state, replayed_state
from tracebook.traffic.tables import embedding_rows, gather_rows, logits

#: Bytes of one layer's widest activation above which it may no longer stay in a cache
#: (the L2 cache of GB10 holds 24 MB, those of data centre GPUs 40 and more).
WIDE_ACTIVATION = 16_000_000

_PART_OF_METHOD = {
    "mtp": "mtp",
    "eagle3": "drafter",
    "dflash": "drafter",
    "dflash2": "drafter",
    "draft_model": "target",
}


@dataclass(frozen=True)
class Models:
    """The ledgers of a run."""

    target: Ledger
    drafter: Ledger | None = None
    draft_head: Ledger | None = None

    @cached_property
    def target_state(self) -> ModelState:
        """What the target keeps between steps."""
        return model_state(self.target, "target")


@dataclass(frozen=True)
class StepTraffic:
    """What a step moves beside its weights.

    Attributes:
        movements: Reads and writes, in the order of phases.
        assumed: Settings that nobody gave and that the bytes rest on, in words.
        notices: What is not counted, and why.
        replay: Whether recurrent state is replayed instead of stored at every position.
    """

    movements: tuple[Movement, ...] = ()
    assumed: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    replay: bool = False

    def of(self, phase: str) -> tuple[Movement, ...]:
        """The movements of one phase."""
        return tuple(movement for movement in self.movements if movement.phase == phase)


@dataclass
class _Collected:
    """What is gathered while a step is gone through."""

    assumed: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def step_traffic(
    models: Models, plan: Plan, run: RunDescription, *, replay_seen: bool | None = None
) -> StepTraffic:
    """List what one step moves beside its weights.

    Args:
        models: The ledgers.
        plan: The plan of the step; its method and number of drafts count.
        run: Settings: batch, context, dtypes, ranks, replay.
        replay_seen: Whether the trace has a replay phase; None without a trace.

    Returns:
        Bytes of one rank and one step, all sequences of the batch together.
    """
    told = _Collected()
    state = models.target_state
    drafts = (plan.draft_tokens or 0) if plan.draft_method != "none" else 0
    settings = _settings(run, state, drafts, replay_seen, told)
    if plan.draft_method != "none" and plan.draft_tokens is None:
        told.notices.append(
            Notice(
                "draft_tokens_unknown",
                "State, rows and logits are counted for one position: how many tokens are "
                "drafted is not known.",
                "Add --draft-tokens K.",
            )
        )
    movements = [
        *kv_cache(Phase.TARGET_LAYERS, state.attention, settings, settings.positions),
        *recurrent_state(Phase.TARGET_LAYERS, state.recurrent, settings),
        *embedding_rows(Phase.TARGET_LAYERS, models.target, settings, settings.positions),
        *gather_rows(Phase.TARGET_LAYERS, models.target, settings, settings.positions),
        *_heads(plan, settings),
        *_drafting(models, plan, settings, told),
        *replayed_state(state.recurrent, settings),
    ]
    told.notices += [*state.notices, *_wide_activations(plan, settings)]
    order = [phase.value for phase in Phase]
    return StepTraffic(
        movements=tuple(sorted(movements, key=lambda m: order.index(m.phase))),
        assumed=tuple(dict.fromkeys(told.assumed)),
        notices=tuple(dict.fromkeys(told.notices)),
        replay=settings.replay,
    )


def _settings(
    run: RunDescription,
    state: ModelState,
    drafts: int,
    replay_seen: bool | None,
    told: _Collected,
) -> Settings:
    """Settings of the run with what the config says in place of what nobody said."""
    model_dtype = state.dtype if state.dtype in BYTES_OF else None
    if model_dtype is None:
        model_dtype = "bfloat16"
        told.assumed.append("activations in bfloat16")
    kv_dtype = _kv_dtype(run, state, model_dtype, told)
    state_dtype, state_basis = _state_dtype(run, state, model_dtype, told)
    replay = run.replay if run.replay is not None else replay_seen
    verified_states = bool(state.recurrent) and drafts > 0
    if replay is None and verified_states:
        told.assumed.append("a snapshot of the recurrent state at each position")
    if verified_states and run.replay is not None and replay_seen not in (None, run.replay):
        told.notices.append(
            Notice(
                "replay_differs",
                f"[state] replay is {str(run.replay).lower()}, but the trace "
                f"{'has' if replay_seen else 'has no'} time in the replay phase.",
                "Correct the key, or leave it out: the trace then decides.",
            )
        )
    return Settings(
        batch=run.batch or 1,
        drafts=drafts,
        ranks=run.tensor_parallel or 1,
        context_tokens=run.context_tokens,
        kv_bytes=BYTES_OF[kv_dtype],
        kv_basis="derived" if run.kv_dtype and run.batch else "assumed",
        state_bytes=BYTES_OF[state_dtype],
        state_basis="assumed" if replay is None and verified_states else state_basis,
        model_bytes=BYTES_OF[model_dtype],
        replay=bool(replay) and verified_states,
    )


def _kv_dtype(run: RunDescription, state: ModelState, model: str, told: _Collected) -> str:
    """The dtype of the KV cache; what an engine does by itself is to follow the model."""
    if run.context_tokens is None:
        if state.attention:
            told.notices.append(
                Notice(
                    "context_unknown",
                    "KV cache traffic is not counted: the length of the context is not known.",
                    "Add --context-tokens N, the tokens in the context of a sequence.",
                )
            )
    elif run.kv_dtype is None and state.attention:
        told.assumed.append(f"KV cache in {model}")
        if state.quantised_cache:
            told.notices.append(
                Notice(
                    "kv_dtype_unsure",
                    f"The KV cache is counted in {model}, but the checkpoint carries scales for "
                    "a quantised one; which of them ran is a setting of the server.",
                    "Add --kv-dtype fp8 or --kv-dtype bfloat16.",
                )
            )
    return run.kv_dtype or model


def _state_dtype(
    run: RunDescription, state: ModelState, model: str, told: _Collected
) -> tuple[str, Basis]:
    """The dtype of the recurrent state, by setting, config or the model's own."""
    if not state.recurrent:
        return model, "derived"
    if run.gdn_dtype is not None:
        return run.gdn_dtype, "derived" if run.batch else "assumed"
    chosen = state.state_dtype if state.state_dtype in BYTES_OF else None
    if chosen is None:
        told.assumed.append(f"recurrent state in {model}")
        return model, "assumed"
    if BYTES_OF[chosen] != BYTES_OF[model]:
        values = sum(layer.state_values for layer in state.recurrent)
        told.notices.append(
            Notice(
                "state_dtype_unsure",
                f"The recurrent state is counted in {chosen}, as the config says "
                f"({values * BYTES_OF[chosen] / 1e6:.1f} MB a snapshot); run in {model}, as is "
                f"common too, it is {values * BYTES_OF[model] / 1e6:.1f} MB.",
                f"Add --gdn-dtype {chosen} or --gdn-dtype {model}.",
            )
        )
    return chosen, "derived" if run.batch else "assumed"


def _heads(plan: Plan, settings: Settings) -> Iterator[Movement]:
    """Logits of the verified positions and of the drafts."""
    for block in plan.blocks:
        rows = max((read.rows or 0 for read in block.reads if read.op == "head"), default=0)
        if block.name == "output":
            yield from logits(Phase.OUTPUT_LAYER, Phase.SAMPLING, rows, settings.positions,
                              settings)  # fmt: skip
        elif block.name == "draft_head":
            per_pass = settings.batch
            if plan.draft_method in ("dflash", "dflash2"):
                per_pass *= max(settings.drafts, 1)
            yield from logits(Phase.DRAFT_HEAD, Phase.DRAFT_HEAD, rows, per_pass, settings)


def _drafting(
    models: Models, plan: Plan, settings: Settings, told: _Collected
) -> Iterator[Movement]:
    """Cache, embedding rows and gather tables of the drafter, pass by pass."""
    part = _PART_OF_METHOD.get(plan.draft_method)
    if part is None:
        return
    ledger = models.drafter or models.target
    state = model_state(ledger, part)
    told.notices += state.notices
    has_own = ledger is not models.target and part == "target"
    embedding = ledger if has_own else models.target
    phase = Phase.DRAFTER_LAYERS
    if part == "drafter" and plan.draft_method != "eagle3":
        # The block of mask tokens, and the K and V of the context just verified.
        yield from kv_cache(phase, state.attention, settings, 2 * settings.positions)
        yield from embedding_rows(phase, embedding, settings, settings.positions)
        yield from gather_rows(Phase.DRAFT_HEAD, ledger, settings, settings.batch)
        return
    for block in (block for block in plan.blocks if block.name == "draft"):
        layers = {read.layer for read in block.reads}
        new = settings.positions if block.pass_index == 0 else settings.batch
        attention = tuple(layer for layer in state.attention if layer.layer in layers)
        yield from kv_cache(phase, attention, settings, new)
        yield from _one_token_state(phase, state.recurrent, settings)
        yield from embedding_rows(phase, embedding, settings, new)


def _one_token_state(
    phase: Phase, layers: tuple[RecurrentLayer, ...], settings: Settings
) -> Iterator[Movement]:
    """The state of a draft model with recurrent layers: one read and one write a pass."""
    size = sum(layer.state_values for layer in layers) * settings.state_bytes * settings.batch
    size = -(-size // settings.ranks)
    for direction in ("read", "write"):
        yield from moved(phase, "recurrent_state", direction, size, settings.state_basis, "a pass")


def _wide_activations(plan: Plan, settings: Settings) -> list[Notice]:
    rows = max((read.rows or 0 for read in plan.reads if read.op != "head"), default=0)
    size = rows * settings.positions * settings.model_bytes
    if size <= WIDE_ACTIVATION:
        return []
    return [
        Notice(
            "activations_not_counted",
            f"Activations are not counted, though the widest takes {size / 1e6:.0f} MB for "
            f"{settings.positions} positions and may not stay in the GPU's cache.",
            "The true traffic is higher than shown.",
        )
    ]


def together(movements: Iterable[Movement]) -> tuple[Movement, ...]:
    """Add up movements of one phase, name, direction and basis (passes of a drafter)."""
    sums: dict[tuple[str, str, str, Basis], Movement] = {}
    for movement in movements:
        key = (movement.phase, movement.name, movement.direction, movement.basis)
        before = sums.get(key)
        if before is None:
            sums[key] = movement
        else:
            note = before.note if before.note == movement.note else "several passes"
            sums[key] = Movement(*key[:3], before.bytes + movement.bytes, movement.basis, note)
    return tuple(sums.values())
