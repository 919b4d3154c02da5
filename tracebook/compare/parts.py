"""Kernels and matrices behind a change: who became slower, who is new, who is gone.

Kernels are matched by what they do and only then by name, so that a kernel which is
renamed, fused or split does not look like one that is gone and one that is new:

1. what reads weights, by phase, layer and matrix; where one side reads several matrices
   in one kernel and the other in several, those are put together;
2. the rest by phase, layer, op and kernel class;
3. what then stands alone, by phase and name, and at last by name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tracebook.compare.baseline import Part

Status = Literal["slower", "faster", "new", "gone"]


@dataclass(frozen=True)
class PartChange:
    """One kind of kernel, over all layers that it changed in.

    Attributes:
        phase: Phase on the new side (on the old one, where it is gone).
        op: What it does, where known.
        matrix: Matrices read; several are joined by "+".
        kernel_class: Class of the kernels, several joined by "+".
        layers: Number of layers, 0 outside layers.
        status: What became of it.
        old_ns: Time in a step.
        new_ns: Time in a step.
        old_kernels: Kernels in a step.
        new_kernels: Kernels in a step.
        old_names: Names of the kernels.
        new_names: Names of the kernels.
        old_phase: Where it was counted before, if in another phase.
    """

    phase: str
    op: str | None
    matrix: str | None
    kernel_class: str
    layers: int
    status: Status
    old_ns: int
    new_ns: int
    old_kernels: int
    new_kernels: int
    old_names: tuple[str, ...]
    new_names: tuple[str, ...]
    old_phase: str | None = None

    @property
    def change_ns(self) -> int:
        """New minus old time."""
        return self.new_ns - self.old_ns

    @property
    def renamed(self) -> bool:
        """Whether it is done by other kernels than before."""
        return bool(self.old_names and self.new_names) and self.old_names != self.new_names


@dataclass
class _Pair:
    """Parts of both sides that do the same."""

    old: list[Part] = field(default_factory=list)
    new: list[Part] = field(default_factory=list)

    def side(self, number: int) -> list[Part]:
        return self.new if number else self.old


_Key = Callable[[Part], Hashable]


def part_changes(old: Sequence[Part], new: Sequence[Part]) -> tuple[PartChange, ...]:
    """Match two lists of parts; the largest changes come first.

    The changes add up to the difference between the two lists, whatever is matched.
    """
    atoms = _fused(old, new)
    pairs = _paired((old, new), lambda part: _role(part, atoms))
    by_name: tuple[_Key, ...] = (lambda part: (part.phase, part.name), lambda part: part.name)
    for key in by_name:
        alone = [pair for pair in pairs if not (pair.old and pair.new)]
        kept = [pair for pair in pairs if pair.old and pair.new]
        left = ([p for pair in alone for p in pair.side(n)] for n in (0, 1))
        pairs = kept + _paired(tuple(left), key)
    grouped: dict[Hashable, list[_Pair]] = {}
    for pair in pairs:
        grouped.setdefault(_kind(pair), []).append(pair)
    changes = [_change(group) for group in grouped.values()]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_ns), change.phase)))


def _paired(sides: Iterable[Iterable[Part]], key: _Key) -> list[_Pair]:
    pairs: dict[Hashable, _Pair] = {}
    for number, parts in enumerate(sides):
        for part in parts:
            pairs.setdefault(key(part), _Pair()).side(number).append(part)
    return list(pairs.values())


def _role(part: Part, atoms: dict[Hashable, Hashable]) -> Hashable:
    if part.matrix is not None:
        return _root(atoms, _atoms(part)[0])
    return (part.phase, part.layer, part.op, None, part.kernel_class)


def _atoms(part: Part) -> list[Hashable]:
    return [(part.phase, part.layer, one) for one in (part.matrix or "").split("+")]


def _fused(*sides: Sequence[Part]) -> dict[Hashable, Hashable]:
    """Matrices that some kernel of either side reads together: each points to another."""
    above: dict[Hashable, Hashable] = {}
    for side in sides:
        for part in side:
            if part.matrix is not None:
                first, *rest = (_root(above, atom) for atom in _atoms(part))
                for other in rest:
                    above[other] = first
    return above


def _root(above: dict[Hashable, Hashable], atom: Hashable) -> Hashable:
    while above.setdefault(atom, atom) != atom:
        atom = above[atom]
    return atom


def _kind(pair: _Pair) -> Hashable:
    """What pairs of several layers must share to be told as one."""
    parts = pair.new or pair.old
    return (
        parts[0].phase,
        _joined(part.op for part in parts),
        _joined(part.matrix for part in parts),
        _joined(part.kernel_class for part in parts),
        bool(pair.old),
        bool(pair.new),
        None if parts[0].matrix or parts[0].op else tuple(sorted({p.name for p in pair.old})),
    )


def _change(pairs: Sequence[_Pair]) -> PartChange:
    old = [part for pair in pairs for part in pair.old]
    new = [part for pair in pairs for part in pair.new]
    shown = new or old
    old_ns, new_ns = (sum(part.ns for part in side) for side in (old, new))
    status: Status = "slower" if new_ns >= old_ns else "faster"
    if not old or not new:
        status = "new" if new else "gone"
    was = old[0].phase if old else None
    return PartChange(
        phase=shown[0].phase,
        op=_joined(part.op for part in shown),
        matrix=_joined(part.matrix for part in shown),
        kernel_class=_joined(part.kernel_class for part in shown) or "unknown",
        layers=len({part.layer for part in shown if part.layer is not None}),
        status=status,
        old_ns=old_ns,
        new_ns=new_ns,
        old_kernels=sum(part.kernels for part in old),
        new_kernels=sum(part.kernels for part in new),
        old_names=tuple(sorted({part.name for part in old})),
        new_names=tuple(sorted({part.name for part in new})),
        old_phase=was if was != shown[0].phase else None,
    )


def _joined(values: Iterable[str | None]) -> str | None:
    pieces = dict.fromkeys(piece for value in values if value for piece in value.split("+"))
    return "+".join(pieces) or None
