"""Model families: what each module of a checkpoint is, as data files.

In: module patterns (names with numbers replaced by `#`). Out: part, block and op.
A family is one TOML file in `data/families`; matching is by exact name, so what no
file names stays unassigned.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tracebook.errors import RuleError

#: What a place in a checkpoint can be.
PARTS = ("target", "mtp", "drafter", "draft_head", "vision", "audio", "adapter")
#: Parts that are towers: everything below their prefix belongs to them.
TOWERS = frozenset({"vision", "audio", "adapter"})

#: What a module can be within its part.
BLOCKS = frozenset(
    {
        "attention",
        "linear_attention",
        "mamba",
        "mlp",
        "experts",
        "shared_expert",
        "router",
        "norm",
        "final_norm",
        "embedding",
        "output_layer",
        "mtp",
        "drafter_fc",
        "convolution",
        "selector",
        "gather_table",
        "adapter",
        "never_read",
    }
)

_KEYS = {
    "name",
    "extends",
    "order",
    "places",
    "layer_prefixes",
    "requires_any",
    "requires_all",
    "requires_part",
    "whole",
    "layer",
    "model",
    "mtp",
    "global",
}


@dataclass(frozen=True)
class Role:
    """What a module is: part of the checkpoint, block within it, op (None: no kernel of its own).

    `in_layer` says that the first number of the name is a layer index; `matrix` is the
    pattern relative to the layer or the place.
    """

    part: str
    block: str
    op: str | None
    in_layer: bool
    matrix: str


@dataclass(frozen=True)
class Family:
    """One family file with what it extends merged in."""

    name: str
    order: int
    places: tuple[tuple[str, str], ...]  # (prefix, part), longest prefix first
    layer_prefixes: tuple[str, ...]
    requires_any: tuple[tuple[str, ...], ...]
    requires_all: tuple[str, ...]
    requires_part: str | None
    whole: bool
    layer: dict[str, str]
    model: dict[str, str]
    mtp: dict[str, str]
    outside: dict[str, str]

    def role(self, module: str) -> Role | None:
        """Return the role of a module pattern, None where this family does not know it."""
        for prefix, part in self.places:
            if not module.startswith(prefix):
                continue
            rest = module.removeprefix(prefix)
            if part in TOWERS:
                return Role(part, part, None, False, rest)
            found = self._within(rest, part, numbered="#" in prefix)
            if found is not None:
                return found
        value = self.outside.get(module)
        return None if value is None else _role("target", value, False, module)

    def _within(self, rest: str, part: str, *, numbered: bool) -> Role | None:
        table = self.mtp if part == "mtp" else self.model
        if rest in table:
            return _role(part, table[rest], numbered, rest)
        if numbered and rest in self.layer:
            return _role(part, self.layer[rest], True, rest)
        for layer_prefix in self.layer_prefixes:
            relative = rest.removeprefix(layer_prefix)
            if relative != rest and relative in self.layer:
                return _role(part, self.layer[relative], True, relative)
        return None

    def fits(self, modules: frozenset[str]) -> bool:
        """Return whether the modules that make this family what it is are there."""

        def there(name: str) -> bool:
            return any(prefix + name in modules for prefix, _ in self.places)

        return all(there(name) for name in self.requires_all) and all(
            any(there(name) for name in names) for names in self.requires_any
        )


def _role(part: str, value: str, in_layer: bool, matrix: str) -> Role:
    block, _, op = value.partition(".")
    return Role(part, block, op or None, in_layer, matrix)


@lru_cache(maxsize=1)
def load_families() -> tuple[Family, ...]:
    """Read and validate all family files, highest `order` first.

    Raises:
        RuleError: A file is malformed.
    """
    folder = files("tracebook").joinpath("data/families")
    raw = {}
    for entry in folder.iterdir():
        if entry.name.endswith(".toml"):
            content = tomllib.loads(entry.read_text(encoding="utf-8"))
            raw[content.get("name", entry.name)] = content
    merged = (_family(_merged(raw, name)) for name in raw)
    return tuple(sorted(merged, key=lambda family: (-family.order, family.name)))


def _merged(raw: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Lay a family over the one that it extends; its own places come first."""
    own = raw[name]
    if extra := set(own) - _KEYS:
        raise RuleError(f"families/{name}: unknown keys {sorted(extra)}.")
    base_name = own.get("extends")
    if base_name is None:
        return own
    if base_name not in raw:
        raise RuleError(f"families/{name}: extends the unknown family {base_name!r}.")
    base = _merged(raw, base_name)
    needs = ("requires_any", "requires_all", "requires_part", "whole")
    result = {**{key: value for key, value in base.items() if key not in needs}, **own}
    for table in ("layer", "model", "mtp", "global"):
        result[table] = {**base.get(table, {}), **own.get(table, {})}
    own_parts = {place["part"] for place in own.get("places", [])}
    if not own_parts & {"drafter", "draft_head"}:
        result["places"] = [*own.get("places", []), *base.get("places", [])]
    result["layer_prefixes"] = [*own.get("layer_prefixes", []), *base.get("layer_prefixes", [])]
    return result


def _family(content: dict[str, Any]) -> Family:
    name = content["name"]
    places: list[tuple[str, str]] = []
    for place in content.get("places", []):
        if place["part"] not in PARTS:
            raise RuleError(f"families/{name}: unknown part {place['part']!r}.")
        places.extend((prefix, place["part"]) for prefix in place["prefixes"])
    for table in ("layer", "model", "mtp", "global"):
        for module, value in content.get(table, {}).items():
            if value.partition(".")[0] not in BLOCKS:
                raise RuleError(f"families/{name}: {module!r} has the unknown block {value!r}.")
    return Family(
        name=name,
        order=content.get("order", 0),
        places=tuple(sorted(places, key=lambda place: -len(place[0]))),
        layer_prefixes=tuple(content.get("layer_prefixes", ["layers.#."])),
        requires_any=tuple(tuple(names) for names in content.get("requires_any", [])),
        requires_all=tuple(content.get("requires_all", [])),
        requires_part=content.get("requires_part"),
        whole=content.get("whole", False),
        layer=content.get("layer", {}),
        model=content.get("model", {}),
        mtp=content.get("mtp", {}),
        outside=content.get("global", {}),
    )
