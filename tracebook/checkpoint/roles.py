"""Which family a checkpoint is of, and what each of its modules is.

In: module patterns. Out: roles; what no family file names is `unassigned`, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracebook.checkpoint.families import Family, Role, load_families

UNASSIGNED = Role("unassigned", "unassigned", None, False, "")


def choose_family(modules: frozenset[str]) -> Family | None:
    """Choose the family that leaves the fewest module patterns unassigned.

    Args:
        modules: Distinct module patterns of the checkpoint, numbers as `#`.

    Returns:
        The best family whose required modules are there (the more specific one on a
        tie), None where none knows any module.
    """
    best: tuple[int, Family] | None = None
    for family in load_families():
        if not family.fits(modules):
            continue
        roles = [family.role(module) for module in modules]
        missed = roles.count(None)
        if missed == len(modules) or (family.whole and missed):
            continue
        if family.requires_part and all(
            role is None or role.part != family.requires_part for role in roles
        ):
            continue
        if best is None or missed < best[0]:
            best = (missed, family)
    return best[1] if best else None


def assign_roles(modules: frozenset[str]) -> tuple[str, dict[str, Role]]:
    """Give each module pattern its role.

    Returns:
        Name of the family (`unknown` where none fits) and pattern -> role.
    """
    family = choose_family(modules)
    if family is None:
        return "unknown", dict.fromkeys(modules, UNASSIGNED)
    return family.name, {module: family.role(module) or UNASSIGNED for module in modules}


def component_of(role: Role) -> str:
    """Return the name under which a role's bytes are printed."""
    if role.part == "mtp":
        return "mtp"
    if role.part in {"drafter", "draft_head"}:
        return _DRAFT_COMPONENTS.get(role.block, role.block)
    return "norm" if role.block == "final_norm" else role.block


_DRAFT_COMPONENTS: Mapping[str, str] = {
    "attention": "drafter_layers",
    "linear_attention": "drafter_layers",
    "mamba": "drafter_layers",
    "mlp": "drafter_layers",
    "experts": "drafter_layers",
    "shared_expert": "drafter_layers",
    "router": "drafter_layers",
    "norm": "drafter_layers",
    "final_norm": "drafter_layers",
    "output_layer": "draft_head",
}


def text_config(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the part of config.json that describes the language model."""
    if not config:
        return {}
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), Mapping):
            return config[key]  # type: ignore[no-any-return]
    return config
