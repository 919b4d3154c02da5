"""How a step begins: the names of its first kernels, by which steps of any kind are found.

Slices begin at an anchor somewhere in a step. Once the cut is known a step is recognized by
its first kernels, whose names are the same whatever the batch or the number of drafts is.
"""

from __future__ import annotations

import numpy as np

from tracebook.columns import CHUNK, Ints
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.steps import Slice
from tracebook.kernels.template import Template

#: Numbers of first kernels that are tried, the fewest first.
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Slices that are looked at, and the share of them in which a step begins just once.
SAMPLED, RELIABLE = 32, 0.9


def how_steps_begin(kernels: Kernels, template: Template, cut: int) -> Ints | None:
    """Names of the first kernels of a step, as many as it takes to occur once in it.

    Args:
        kernels: The launch sequence.
        template: Whose slices each hold the begin of one step.
        cut: Template position at which a step begins.

    Returns:
        Names as `Kernels.name` numbers them; None where nothing marks the begin reliably.
    """
    turned = np.roll(template.source, -cut)
    every = max(1, len(template.slices) // SAMPLED)
    sample = [*template.slices[:-1:every], template.slices[-1]]
    for count in COUNTS:
        names = kernels.name[turned[:count]]
        hits = [len(step_begins(kernels, piece, names)) for piece in sample]
        # A capture that ends with a step leaves a slice in which none begins.
        if hits[-1] == 0 and len(hits) > 2:
            hits.pop()
        if hits.count(1) >= RELIABLE * len(hits):
            return names
    return None


def step_begins(kernels: Kernels, stretch: Slice, names: Ints) -> Ints:
    """Kernels of a stretch from which on these names follow each other, in order."""
    found = [np.zeros(0, dtype=np.int64)]
    for first in range(stretch.first, stretch.end, CHUNK):
        end = min(first + CHUNK, stretch.end)
        name = kernels.name[first : min(end + len(names) - 1, len(kernels))]
        at = np.flatnonzero(name[: end - first] == names[0])
        at = at[at + len(names) <= len(name)]
        for number in range(1, len(names)):
            at = at[name[at + number] == names[number]]
        found.append(at + first)
    return np.concatenate(found)
