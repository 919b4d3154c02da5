"""The stretches between two blocks of a step, and the order of what may stand in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tracebook.columns import Bools, Floats, Ints
from tracebook.kernels.classes import CLASSES
from tracebook.kernels.marks import BlockMark, Mark, Marks
from tracebook.phases import Phase

#: Blocks of layers, which all look alike.
LAYERED = frozenset({"target", "draft"})


@dataclass(frozen=True)
class Facts:
    """What is known of each template position, arrays of shape (positions,).

    `foreign` marks weight-reading kernels that the plan does not know, `collective` those by
    which ranks add up though no name says so.
    """

    kernel_class: Ints
    duration_ns: Floats
    launch: Ints
    in_graph: Bools
    name: Ints
    foreign: Bools
    collective: Bools
    speculative: bool
    recurrent: bool

    def class_name(self, position: int) -> str:
        """Class of a position by name."""
        return CLASSES[int(self.kernel_class[position])]

    def classes(self, positions: Sequence[int]) -> list[str]:
        """Classes of some positions by name."""
        return [self.class_name(p) for p in positions]

    def names(self, positions: Sequence[int]) -> list[int]:
        """Names of some positions, for comparison only."""
        return [int(self.name[p]) for p in positions]

    def last_of(self, classes: Collection[str], positions: Sequence[int]) -> int:
        """Number of the last of some positions that is of one of the classes, -1 if none is."""
        found = (n for n, p in enumerate(positions) if self.class_name(p) in classes)
        return max(found, default=-1)


@dataclass(frozen=True)
class Zone:
    """Positions between the last mark of one block and the first of another."""

    before: BlockMark
    after: BlockMark
    first_mark: Mark
    next_mark: Mark
    positions: tuple[int, ...]


#: Zone (block before, block after) -> stages in order: phase and the classes that enter it.
#: Kernels whose class enters no later stage stay where they are; the first stage is where
#: the zone begins. `*` is any other class.
STAGES: dict[tuple[str, str], tuple[tuple[Phase, frozenset[str]], ...]] = {}


def _stage(before: str, after: str, *stages: tuple[Phase, str]) -> None:
    STAGES[before, after] = tuple((p, frozenset(classes.split())) for p, classes in stages)


_GLUE = "quantize copy elementwise fill embed unknown activation"
_stage(
    "target",
    "output",
    (Phase.TARGET_LAYERS, "norm splitk_reduce moe"),
    (Phase.OUTPUT_LAYER, _GLUE),
)
for _after, _begun in (
    ("draft_context", (Phase.DRAFTER_LAYERS, "embed norm kv_write")),
    ("draft", (Phase.DRAFTER_LAYERS, "embed norm kv_write")),
    ("target", (Phase.TARGET_LAYERS, "embed")),
):
    _stage(
        "output",
        _after,
        (Phase.OUTPUT_LAYER, "splitk_reduce"),
        (
            Phase.SAMPLING,
            "sample verify select unknown elementwise fill copy norm activation quantize",
        ),
        (Phase.REPLAY, "replay gdn conv"),
        (Phase.PREPARE, "prepare draft_prepare"),
        _begun,
    )
_stage(
    "draft",
    "draft_head",
    (Phase.DRAFTER_LAYERS, "conv splitk_reduce moe"),
    (Phase.DRAFT_HEAD, "norm unknown " + _GLUE),
)
_stage(
    "draft_head",
    "draft",
    (Phase.DRAFT_HEAD, "splitk_reduce sample select unknown elementwise fill copy"),
    (Phase.PREPARE, "prepare draft_prepare"),
    (Phase.DRAFTER_LAYERS, "embed norm"),
)
_stage(
    "draft_head",
    "target",
    (Phase.DRAFT_HEAD, "splitk_reduce sample select unknown elementwise fill copy norm activation"),
    (Phase.REPLAY, "replay"),
    (Phase.PREPARE, "prepare"),
    (Phase.TARGET_LAYERS, "embed"),
)
_stage(
    "draft_context",
    "draft",
    (Phase.DRAFTER_LAYERS, "norm kv_write copy"),
    (Phase.PREPARE, "prepare draft_prepare"),
    (Phase.DRAFTER_LAYERS, "embed norm"),
)


def find_zones(marks: Marks, positions: int) -> list[Zone]:
    """The stretches between blocks, in the order of the template, cyclic."""
    ordered = marks.by_position()
    zones = []
    for mark, following in zip(ordered, [*ordered[1:], ordered[0]], strict=True):
        if mark.block == following.block and mark is not ordered[-1]:
            continue
        if mark.block == following.block and len(marks.blocks) > 1:
            continue
        span = (following.position - mark.position - 1) % positions
        inner = tuple((mark.position + 1 + i) % positions for i in range(span))
        before, after = marks.blocks[mark.block], marks.blocks[following.block]
        zones.append(Zone(before, after, mark, following, inner))
    return zones
