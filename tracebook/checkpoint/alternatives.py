"""Other plans that a run may have followed instead of the one that was said.

A wrong number of draft tokens, a drafter that was forgotten or never ran, another head
or another number of ranks: each leaves the same kernels behind, and comparing how well
the plans fit tells which it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Plan
from tracebook.checkpoint.plan_builder import build_plan
from tracebook.errors import TracebookError

SEQUENTIAL = ("mtp", "eagle3", "draft_model")
#: Draft passes tried where none or another number was said.
TOKENS_TRIED = 5
RANKS_TRIED = (1, 2, 4, 8)


def plan_alternatives(
    target: Ledger,
    *,
    drafter: Ledger | None = None,
    draft_head: Ledger | None = None,
    method: str = "none",
    draft_tokens: int | None = None,
    ranks: int = 1,
    batch: int = 1,
) -> list[Plan]:
    """Lay out what else may have run, given the same checkpoints.

    Args:
        target: Ledger of the target.
        drafter: Ledger of the drafter, if one was said.
        draft_head: Ledger of a draft head, if one was said.
        method: Draft method that was said.
        draft_tokens: Draft tokens that were said.
        ranks: Tensor-parallel ranks that were said.
        batch: Sequences decoded at once.

    Returns:
        Plans, the likelier mistakes first; none of them is the plan that was said.
    """
    plans: list[Plan] = []
    for changes in _changes(drafter, draft_head, method, draft_tokens, ranks):
        said = {
            "drafter": drafter,
            "draft_head": draft_head,
            "method": method,
            "draft_tokens": draft_tokens,
            "ranks": ranks,
            "batch": batch,
        }
        try:
            plans.append(build_plan(target, **{**said, **changes}))  # type: ignore[arg-type]
        except TracebookError:
            # This checkpoint cannot run that way (no MTP head, say): nothing to compare.
            continue
    return plans


def _changes(
    drafter: Ledger | None,
    draft_head: Ledger | None,
    method: str,
    draft_tokens: int | None,
    ranks: int,
) -> Iterator[Mapping[str, object]]:
    """What to change of what was said."""
    if method in SEQUENTIAL:
        said = draft_tokens or 1
        near = sorted(range(1, max(TOKENS_TRIED, said + 2) + 1), key=lambda k: abs(k - said))
        yield from ({"draft_tokens": k} for k in near if k != said and abs(k - said) <= 2)
    if method != "none":
        yield {"method": "none", "drafter": None, "draft_head": None, "draft_tokens": None}
    if draft_head is not None:
        yield {"draft_head": None}
    if method == "none":
        yield from ({"method": "mtp", "draft_tokens": k} for k in range(1, TOKENS_TRIED + 1))
    yield from ({"ranks": other} for other in RANKS_TRIED if other != ranks)
