"""One decode step as segments, in the order of vLLM's V2 runner.

In: the plan of the step. Out: its segments: preparation, target graph, eager output
layer and sampler, replay, drafter. Source of the order: vLLM `v1/worker/gpu/
model_runner.py` and `spec_decode/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracebook.checkpoint.plan import Block, Plan, Read
from tracebook.errors import CheckpointError, RunDescriptionError
from tracebook.phases import Phase
from tracebook.synth.drafting import block_drafter, sequential_drafter
from tracebook.synth.layers import LayerStyle, decoder_layer
from tracebook.synth.models import Models
from tracebook.synth.nodes import Node, NodeFactory, Segment, take
from tracebook.synth.settings import SynthSettings

#: Number of the target's graph; drafter graphs follow.
TARGET_GRAPH = 1
#: How often an autotuner runs each tactic.
TRIES = 3


@dataclass(frozen=True)
class StepMaker:
    """Makes steps of one run.

    Attributes:
        factory: Makes nodes.
        plan: What a step reads.
        models: Sizes of the models.
        settings: How the run was made.
        aux_layers: Target layers whose hidden states a block drafter reads.
    """

    factory: NodeFactory
    plan: Plan
    models: Models
    settings: SynthSettings
    aux_layers: tuple[int, ...] = ()

    def decode_step(self) -> tuple[Segment, ...]:
        """Make one steady decode step.

        Raises:
            RunDescriptionError: The draft method is not one the synthesizer knows.
            CheckpointError: A matrix of the plan was given to no kernel.
        """
        maker = replace(self, factory=self.factory.in_mode("decode"))
        tokens = maker.tokens
        segments = (
            Segment(maker._preparation(tokens)),
            Segment(maker.target(tokens), TARGET_GRAPH),
            Segment((*maker.output_layer(tokens), *maker._sampler(tokens), *maker._replay())),
            *maker._drafter(tokens),
        )
        maker._check_all_read()
        if self.settings.launch == "eager":
            return tuple(Segment(segment.nodes) for segment in segments)
        return segments

    @property
    def tokens(self) -> int:
        """Positions of one step: the drafts and the token before them."""
        return (self.plan.draft_tokens or 0) + 1

    def target(self, tokens: int, *, prefill: bool = False) -> tuple[Node, ...]:
        """Make the target's layers with the embedding gather and the final norm."""
        phase, shape = Phase.TARGET_LAYERS, self.models.target
        style = LayerStyle(
            phase, "target", shape, tokens, self._recurrence(tokens, prefill), prefill
        )
        nodes = [self.factory.small("embedding", phase, shape=shape, tokens=tokens)]
        for reads in by_layer(self._block("target").reads):
            nodes.extend(decoder_layer(self.factory, reads, style))
            if reads[0].layer in self.aux_layers:
                layer = reads[0].layer
                nodes.append(
                    self.factory.small("aux_copy", phase, shape=shape, tokens=tokens, layer=layer)
                )
        nodes.append(self.factory.small("final_norm", phase, shape=shape, tokens=tokens))
        return tuple(nodes)

    def output_layer(self, tokens: int) -> tuple[Node, ...]:
        """Make gather, quantisation and output layer."""
        phase, reads = Phase.OUTPUT_LAYER, self._block("output").reads
        gather = self.factory.small("hidden_gather", phase, shape=self.models.target, tokens=tokens)
        quantize = self.factory.quantize(reads[0], phase, component="output", tokens=tokens)
        return (gather, *quantize, self.factory.gemm(reads, component="output", tokens=tokens))

    def prefill(self) -> tuple[Segment, ...]:
        """Make one prompt: everything eager, large tiles, chunked recurrence."""
        maker = replace(self, factory=self.factory.in_mode("prefill"))
        tokens = self.settings.prefill_tokens
        prepare = self._small_ones(Phase.PREPARE, 1, "staged_write", "prefill_inputs")
        prepare += self._small_ones(Phase.PREPARE, 1, "block_tables", "slot_mappings")
        return (
            Segment((*prepare, *maker.target(tokens, prefill=True))),
            Segment((*self.output_layer(1), *self._sampler(1))),
        )

    def warm_up(self) -> tuple[Segment, ...]:
        """Make one eager run of the target, as it comes before graphs are captured."""
        return (Segment((*self.target(self.tokens), *self.output_layer(self.tokens))),)

    def tuning(self) -> tuple[Segment, ...]:
        """Make an autotuner's tries of the first layer's MLP: a delay before each tactic."""
        reads = next(by_layer(self._block("target").reads))
        delay = self.factory.small("delay", Phase.WARMUP, shape=self.models.target)
        tries = [
            node
            for ops in (("gate", "up", "gate_up"), ("down",))
            for node in self.factory.tactics(
                take(reads, *ops), component="target", tokens=self.tokens
            )
        ]
        return (Segment(tuple(node for tactic in tries for node in (delay, *[tactic] * TRIES))),)

    def _preparation(self, tokens: int) -> tuple[Node, ...]:
        keys = ["staged_write", "staged_write", "position_lengths", "combine_tokens"]
        if tokens > 1:
            keys.append("expand_mapping")
        keys += ["block_tables", "slot_mappings"]
        return self._small_ones(Phase.PREPARE, tokens, *keys)

    def _sampler(self, tokens: int) -> tuple[Node, ...]:
        if tokens == 1:
            keys = ["logits_cast", "temperature", "gumbel", "argmax", "token_gather"]
        else:
            keys = ["logits_cast", "temperature", "logits_stats", "cumulative", "residual_mass"]
            keys += ["rejection", "resample", "insert_resampled"]
        keys += ["count_sampled", "post_update"]
        return self._small_ones(Phase.SAMPLING, tokens, *keys)

    def _replay(self) -> tuple[Node, ...]:
        if self.settings.state_commit != "replay":
            return ()
        if not self.plan.recurrent_layers:
            raise RunDescriptionError(
                "[synth] state_commit is replay, but the target has no recurrent layer.",
                "Leave the key out.",
            )
        return self._small_ones(Phase.REPLAY, 1, "commit_plan", "commit_state", "compact_conv")

    def _drafter(self, tokens: int) -> tuple[Segment, ...]:
        method = self.plan.draft_method
        if method == "none":
            return ()
        if method == "mtp":
            return sequential_drafter(self.factory, self.plan, self.models, tokens)
        if method in ("dflash", "dflash2"):
            return block_drafter(self.factory, self.plan, self.models, tokens)
        raise RunDescriptionError(
            f"The synthesizer does not know the draft method {method!r}.",
            "It knows none, mtp, dflash and dflash2.",
        )

    def _recurrence(self, tokens: int, prefill: bool) -> str:
        if prefill:
            return "chunked"
        return "packed" if tokens == 1 else self.settings.state_commit

    def _small_ones(self, phase: Phase, tokens: int, *keys: str) -> tuple[Node, ...]:
        shape = self.models.target
        return tuple(self.factory.small(key, phase, shape=shape, tokens=tokens) for key in keys)

    def _block(self, name: str) -> Block:
        return next(block for block in self.plan.blocks if block.name == name)

    def _check_all_read(self) -> None:
        """Each read of the plan belongs to exactly one kernel of the step."""
        taken, planned = self.factory.taken, list(self.plan.reads)
        if sorted(map(id, taken)) != sorted(map(id, planned)):
            missed = [read.matrix for read in planned if read not in taken]
            raise CheckpointError(
                f"The synthesizer leaves matrices of the plan unread: {', '.join(missed[:5])}.",
                "It knows dense decoder layers, MTP and DFlash drafters.",
            )


def by_layer(reads: Sequence[Read]) -> Iterator[tuple[Read, ...]]:
    """Split the reads of a block into those of each layer."""
    for layer in dict.fromkeys(read.layer for read in reads):
        yield tuple(read for read in reads if read.layer == layer)
