"""How many experts a step reads: the share of expert weights for the positions of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracebook.checkpoint.ledger import Ledger
from tracebook.checkpoint.plan import Basis
from tracebook.checkpoint.roles import text_config
from tracebook.notices import Notice

#: Names that configs give to the number of experts and to how many a token is routed to.
_EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_TOP_K_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_top_k",
    "moe_topk",
    "experts_per_token",
)


@dataclass(frozen=True)
class ExpertUse:
    """Share of a layer's expert bytes that one pass reads, with its basis."""

    share: float
    basis: Basis
    notice: Notice | None = None


def expected_distinct(experts: int, top_k: int, positions: int) -> float:
    """Expected number of distinct experts for `positions` tokens routed independently.

    E(1 - (1 - k/E)^positions); for one position it is k exactly.
    """
    return experts * (1.0 - (1.0 - top_k / experts) ** positions)


def expert_use(ledger: Ledger, positions: int) -> ExpertUse | None:
    """Return the share of expert weights that a pass over `positions` tokens reads.

    Args:
        ledger: A ledger; its config says experts and experts per token.
        positions: Tokens in the pass.

    Returns:
        None where the model has no experts. Without the config's numbers all experts are
        assumed to be read, and a notice says so.
    """
    if ledger.modules.filter(pl.col("block") == "experts").is_empty():
        return None
    config = text_config(ledger.checkpoint.config)
    experts = next((config[key] for key in _EXPERT_KEYS if _positive(config.get(key))), None)
    top_k = next((config[key] for key in _TOP_K_KEYS if _positive(config.get(key))), None)
    if experts is None or top_k is None or top_k > experts:
        return ExpertUse(
            1.0,
            "assumed",
            Notice(
                "experts_unknown",
                f"{ledger.checkpoint.name} has experts, but its config does not say how many of "
                "them a token is routed to; all are counted as read.",
                "Put config.json beside the weights.",
            ),
        )
    return ExpertUse(expected_distinct(experts, top_k, positions) / experts, "derived")


def _positive(value: object) -> bool:
    return type(value) is int and value > 0
