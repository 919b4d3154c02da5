"""What stands between the matrices of a step: joints of layers, and joints within a layer.

In: marks and the names of the template's kernels. Layers look alike, so what stands between
two of them is told from what stands between other pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from tracebook.columns import Bools, Ints
from tracebook.kernels.marks import Mark, Marks

#: Fewer kernels than this in common may be chance.
LEAST_COMMON = 2


def layer_joints(marks: Marks, name: Ints) -> list[tuple[int, ...]]:
    """The usual sequences of names between the last matrix of a layer and the next layer's.

    What stands at the joint of two layers, a norm in most models, stands at the two ends
    of the stack as well, whatever it is called.
    """
    counts = Counter(
        names for mark, following, names in _joints(marks, name) if _next_layer(mark, following)
    )
    return [joint for joint, _ in counts.most_common(4) if joint]


def norm_lengths(marks: Marks, name: Ints, norm: Bools) -> dict[int, int]:
    """How many kernels in front of a layer's first matrix are the norm of that layer.

    Where no name tells a norm, as in an eager one of many small kernels, it is what also
    stands in front of another matrix within a layer.

    Args:
        marks: Positions whose reads are known.
        name: Name of each template position.
        norm: Positions whose class is that of a norm or an embedding.

    Returns:
        By position of the first matrix; nothing where a name tells the norm.
    """
    joints = list(_joints(marks, name))
    within = {names for mark, following, names in joints if mark.layer == following.layer}
    lengths = {}
    for mark, following, names in joints:
        inner = slice(mark.position + 1, following.position)
        if _next_layer(mark, following) and not norm[inner].any():
            common = max((common_end(names, w) for w in within), default=0)
            if common >= LEAST_COMMON:
                lengths[following.position] = common
    return lengths


def common_start(a: Sequence[int], b: Sequence[int]) -> int:
    """How many elements two sequences have in common from the first one on."""
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))


def common_end(a: Sequence[int], b: Sequence[int]) -> int:
    """How many elements two sequences have in common up to the last one."""
    return common_start(a[::-1], b[::-1])


def joint_at_end(names: Sequence[int], joints: Sequence[tuple[int, ...]]) -> int:
    """How many names at the end of a stretch are as at the joint of two layers."""
    return max((common_end(names, joint) for joint in joints), default=0)


def _joints(marks: Marks, name: Ints) -> Iterator[tuple[Mark, Mark, tuple[int, ...]]]:
    """Marks of one block that follow each other, and the names of what stands between them."""
    for mark, following in itertools.pairwise(marks.by_position()):
        if mark.block == following.block:
            inner = name[mark.position + 1 : following.position]
            yield mark, following, tuple(inner.tolist())


def _next_layer(mark: Mark, following: Mark) -> bool:
    return mark.layer is not None and following.layer == mark.layer + 1
