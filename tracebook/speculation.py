"""Arithmetic of speculative decoding: tokens per step, acceptance, the best number of drafts.

In: acceptance per position, number of drafts, step times. Out: expected tokens and what
follows from them. Each draft is taken to be accepted with the same probability, on its own
(Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding,
2023); a step keeps drafts up to the first that is not accepted, and adds one token.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracebook.errors import RunDescriptionError

#: Bisection halves an interval of one: 60 times is beyond what a float resolves.
_HALVINGS = 60


def expected_tokens(alpha: float, drafts: int) -> float:
    """Tokens that a step yields: 1 + a + ... + a^K = (1 - a^(K+1)) / (1 - a).

    Args:
        alpha: Acceptance per position, 0 to 1.
        drafts: Drafted tokens per step, K; 0 is plain decoding.
    """
    # The sum itself, so that alpha = 1 (K + 1 tokens) needs no case of its own.
    return sum(alpha**position for position in range(drafts + 1))


def solve_alpha(tokens_per_step: float, drafts: int) -> float:
    """The acceptance per position that yields this many tokens per step.

    Raises:
        RunDescriptionError: No acceptance does: below one token or above K + 1.
    """
    if drafts < 1:
        raise RunDescriptionError("Without drafts there is no acceptance to solve for.")
    if not 1.0 <= tokens_per_step <= drafts + 1:
        raise RunDescriptionError(
            f"{drafts} drafts yield between 1 and {drafts + 1} tokens per step, "
            f"not {tokens_per_step:g}.",
            "Check --tokens-per-step (of one sequence) and --draft-tokens.",
        )
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if expected_tokens(middle, drafts) < tokens_per_step:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def break_even_alpha(step_ms: float, plain_ms: float, drafts: int) -> float | None:
    """The acceptance from which drafting beats plain decoding.

    Args:
        step_ms: Time of a step with `drafts` drafts.
        plain_ms: Time of a step without.
        drafts: K.

    Returns:
        None where no acceptance is enough.
    """
    needed = step_ms / plain_ms
    if needed <= 1.0:
        return 0.0
    return None if needed > drafts + 1 else solve_alpha(needed, drafts)


def best_drafts(alpha: float, step_ms: Mapping[int, float]) -> int:
    """The number of drafts with the most tokens per second; the smallest of equal ones.

    Args:
        alpha: Acceptance per position.
        step_ms: Step time by number of drafts, 0 included if plain decoding is a choice.
    """
    return min(step_ms, key=lambda k: (-expected_tokens(alpha, k) / step_ms[k], k))


def longest_paying(alpha: float, step_ms: Mapping[int, float]) -> int | None:
    """The largest number of drafts that still beats plain decoding (key 0), None if none does."""
    paying = [k for k, ms in step_ms.items() if k and expected_tokens(alpha, k) * step_ms[0] > ms]
    return max(paying, default=None)
