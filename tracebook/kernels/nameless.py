"""What cannot be told between two blocks where names say nothing: it is left unclassified.

Sampling, preparation and the commit of state are small kernels between blocks. Names tell
them apart. Without names only this is known: the kernel that reads the logits is among the
longest behind a head, a launch that ends or begins with a block belongs to it, and every
pass of a drafter begins with the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracebook.columns import Bools, Ints
from tracebook.kernels.classes import CHOOSES, CLASSES
from tracebook.kernels.joints import common_end
from tracebook.phases import Phase

#: An engine with a kernel of one of these has names that tell; a class without a name does not.
TELLING = frozenset({*CHOOSES, "prepare", "draft_prepare", "replay"})
#: The embedding gather, and perhaps a norm that is not yet fused with an addition, stand in
#: front of what the begin of the layers has in common with the joints of layers.
LEAD = 2
#: With so many kernels in common the norm is among them, and only the gather stands in front.
WHOLE_NORM = 2


def is_nameless(kernel_class: Ints) -> bool:
    """Whether no kernel of the template has a name that tells sampling or preparation."""
    return not np.isin(kernel_class, [CLASSES.index(name) for name in TELLING]).any()


def pass_starts(first: Sequence[int], later: Sequence[Sequence[int]]) -> int | None:
    """How many kernels each pass of a drafter begins with, before its first matrix.

    Args:
        first: Names of the stretch in front of the first pass, which other work precedes.
        later: The same for the other passes.

    Returns:
        The number of kernels that all of them end with; None with a single pass.
    """
    return min((common_end(first, other) for other in later), default=None)


def unknowable(
    before: str, after: str, told: Bools, duration_ns: Sequence[float], cut: int | None, lead: int
) -> Bools:
    """Kernels between two blocks whose phase nothing tells, shape (kernels,).

    Args:
        before: Phase of the block in front.
        after: Phase of the block behind.
        told: Kernels that a launch or their likeness to other places has told.
        duration_ns: Their durations.
        cut: Number of the kernel that begins the step, None where it is not among them.
        lead: So many kernels in front of those told at the end may belong to the block behind.
    """
    count = len(told)
    if before not in (Phase.OUTPUT_LAYER, Phase.DRAFT_HEAD) or not count:
        return np.zeros(count, dtype=bool)
    open_ones = ~told
    front = min([count if cut is None else cut, *np.flatnonzero(told).tolist()])
    # What reads the logits is long; whatever comes before it can only be part of the choice.
    if front:
        open_ones[: int(np.argmax(duration_ns[:front])) + 1] = False
    if cut is not None and after == Phase.TARGET_LAYERS:
        # Behind the place where a step begins its inputs are prepared. In front of it the last
        # one ends, where nothing else follows its sampler.
        if before == Phase.OUTPUT_LAYER and front == cut:
            open_ones[:cut] = False
        open_ones[cut : max(cut, count - trailing(told) - lead)] = False
    return np.asarray(open_ones)


def lead(told: Bools, *, launched: bool) -> int:
    """How many kernels in front of those told at the end may belong to the layers as well."""
    if launched:
        return 0
    return 1 if trailing(told) >= WHOLE_NORM else LEAD


def trailing(told: Bools) -> int:
    """How many kernels at the end are told, without a gap."""
    return next((n for n, known in enumerate(told[::-1]) if not known), len(told))
