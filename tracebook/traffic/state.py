"""Bytes that state moves in a step: KV cache, recurrent state, convolution state.

In: layers of a `ModelState` and the settings of the run. Out: `Movement`s of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracebook.checkpoint.state import AttentionLayer, RecurrentLayer
from tracebook.phases import Phase
from tracebook.traffic.movement import Movement, Settings, moved


def kv_cache(
    phase: Phase, layers: Sequence[AttentionLayer], settings: Settings, new_tokens: int
) -> Iterator[Movement]:
    """The cache of one pass: the context read once, `new_tokens` written.

    All positions of a pass share one read of the cache. A layer with a window reads at
    most that many tokens; a sparse layer reads an index value of each token besides.
    """
    if settings.context_tokens is None:
        return
    context, width = settings.context_tokens, settings.kv_bytes
    read = write = 0
    for layer in layers:
        seen = context if layer.window is None else min(context, layer.window)
        values = seen * layer.read_values + context * layer.index_values
        read += _share(values * settings.batch * width, layer.heads, settings.ranks)
        write += _share(new_tokens * layer.write_values * width, layer.heads, settings.ranks)
    note = f"{len(layers)} layers, {context:,} tokens of context, {width} B a value"
    yield from moved(phase, "kv_cache", "read", read, settings.kv_basis, note)
    note = f"{len(layers)} layers, {new_tokens} positions, {width} B a value"
    yield from moved(phase, "kv_cache", "write", write, settings.kv_basis, note)


def _share(size: int, heads: int | None, ranks: int) -> int:
    """Bytes of one rank: whole heads each; latents and unknown heads are on every rank."""
    if ranks == 1 or heads is None:
        return size
    return size * -(-heads // ranks) // heads


def recurrent_state(
    phase: Phase, layers: Sequence[RecurrentLayer], settings: Settings
) -> Iterator[Movement]:
    """The state of the target's recurrent layers, and of the convolution before them.

    Plain decoding reads it once and writes it once. A verify pass does not know how many
    drafts will hold, so it writes a snapshot after each position, or with replay only the
    inputs from which the state is made once that is known.
    """
    if not layers:
        return
    snapshot = snapshot_bytes(layers, settings)
    basis = settings.state_basis
    per_sequence = settings.drafts + 1
    yield from moved(phase, "recurrent_state", "read", snapshot, basis, "one snapshot")
    if settings.replay:
        note = f"inputs of {settings.positions} positions"
        yield from moved(phase, "replay_inputs", "write", input_bytes(layers, settings), basis,
                         note)  # fmt: skip
    else:
        note = f"{per_sequence} snapshots" if per_sequence > 1 else "one snapshot"
        yield from moved(phase, "recurrent_state", "write", per_sequence * snapshot, basis, note)
    taps = sum(layer.conv_channels * max(layer.conv_taps - 1, 0) for layer in layers)
    more = sum(layer.conv_channels for layer in layers) * settings.drafts
    scale = settings.batch * settings.model_bytes
    note = "the last inputs of the convolution"
    yield from moved(phase, "conv_state", "read", _rank(taps * scale, settings), basis, note)
    # An engine that drafts keeps a column per draft besides (vLLM: [channels, taps - 1 + K]).
    yield from moved(
        phase, "conv_state", "write", _rank((taps + more) * scale, settings), basis, note
    )


def replayed_state(layers: Sequence[RecurrentLayer], settings: Settings) -> Iterator[Movement]:
    """What replay moves once the accepted drafts are known: state in, inputs in, state out."""
    if not settings.replay:
        return
    snapshot, basis = snapshot_bytes(layers, settings), settings.state_basis
    phase = Phase.REPLAY
    yield from moved(phase, "recurrent_state", "read", snapshot, basis, "one snapshot")
    note = f"inputs of {settings.positions} positions"
    yield from moved(phase, "replay_inputs", "read", input_bytes(layers, settings), basis, note)
    yield from moved(phase, "recurrent_state", "write", snapshot, basis, "the one commit")


def snapshot_bytes(layers: Sequence[RecurrentLayer], settings: Settings) -> int:
    """The state of all layers once, for every sequence."""
    values = sum(layer.state_values for layer in layers)
    return _rank(values * settings.state_bytes * settings.batch, settings)


def input_bytes(layers: Sequence[RecurrentLayer], settings: Settings) -> int:
    """The inputs of the recurrence at every position of a verify pass, in the model's dtype."""
    values = sum(layer.input_values for layer in layers) * settings.positions
    return _rank(values * settings.model_bytes, settings)


def _rank(size: int, settings: Settings) -> int:
    return -(-size // settings.ranks)
