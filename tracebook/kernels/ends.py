"""What the ends of a run of steps tell about where a step begins.

In the steady state asynchronous scheduling closes every pause, and names may say nothing.
But a run of steps begins behind a pause and ends with the last kernel before one, or with
the capture: there the border of a step can be seen, once or twice in the whole trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracebook.columns import Bools, Floats, Ints
from tracebook.kernels.edit import dense_head, match_positions
from tracebook.kernels.sequence import Kernels
from tracebook.kernels.template import Template

#: A pause counts when it is this many times what is usual before that kernel, or this time
#: where usually there is none, and it counts in full when it is that many times as long.
RARE, SURE = 4.0, 128.0
NO_PAUSE_NS = 5_000.0
#: Runs of steps whose ends are looked at, the longest first.
MOST_RUNS = 8
#: Kernels around a run that are laid along the template at a time, the insertions and deletions
#: that may be needed for it, and how many may be missing in the end before the search is over.
STRETCH, MOST_EDITS, SLACK = 128, 96, 16


@dataclass(frozen=True)
class Ends:
    """Votes by template position for a step that begins there, arrays of shape (positions,).

    `pauses` come from the most unusual pause at each end of a run, weighed by how unusual it
    is, `limits` from the first and last kernel of the capture where a step can begin there,
    `borders` from where runs begin as well as end in the midst of other work; each adds up to
    1 at most.
    """

    pauses: Floats
    limits: Floats
    borders: Floats


@dataclass(frozen=True)
class _End:
    """Kernels at an end of a run: the first of them, and their template positions or -1."""

    first: int
    place: Ints


def find_ends(kernels: Kernels, template: Template, gap_ns: Floats, may_begin: Bools) -> Ends:
    """See where runs of steps begin and end.

    Args:
        kernels: The launch sequence.
        template: With slices that begin at an anchor, not where a step begins.
        gap_ns: Usual idle time before the kernel at each position.
        may_begin: Positions at which a step can begin: a capture that begins or ends within
            layers, or work that stalls there, tells nothing.
    """
    positions = len(template.symbol)
    pauses: list[tuple[int, float]] = []
    limits: list[tuple[int, float]] = []
    # The end of one kind of work may look like that of a step, or its begin: not both.
    heads: list[tuple[int, float]] = []
    tails: list[tuple[int, float]] = []
    runs = sorted(template.runs(), key=len, reverse=True)[:MOST_RUNS]
    for run in runs:
        head, tail = _head(kernels, template, run[0]), _tail(kernels, template, run[-1])
        at_limit = head.first == 0, tail.first + len(tail.place) == len(kernels)
        begins = _begins(head.place, positions)[0], _begins(tail.place, positions)[-1]
        for end, begin, limit, others in zip(
            (head, tail), begins, at_limit, (heads, tails), strict=True
        ):
            if not limit:
                others.append((int(begin), 1.0))
            elif begin >= 0 and may_begin[begin]:
                # Behind the start of a capture the first launches are late: no pause counts.
                limits.append((int(begin), 1.0))
                continue
            pauses += _unusual_pause(kernels, gap_ns, may_begin, end)
    borders = np.minimum(_mean_votes(heads, positions), _mean_votes(tails, positions))
    return Ends(_mean_votes(pauses, positions), _mean_votes(limits, positions), borders)


def _head(kernels: Kernels, template: Template, number: int) -> _End:
    """A slice that begins a run, and the kernels in front of it that are the template's."""
    first, positions = template.slices[number].first, len(template.symbol)
    # Laid along from behind, where the run is.
    turned = _matched(
        template.symbol[::-1], kernels.symbol[max(0, first - 2 * positions) : first][::-1]
    )
    before = np.where(turned >= 0, positions - 1 - turned, -1)[::-1]
    return _End(first - len(before), np.concatenate([before, template.places[number]]))


def _tail(kernels: Kernels, template: Template, number: int) -> _End:
    """A slice that ends a run, and the kernels behind it that are the template's."""
    piece = template.slices[number]
    behind = kernels.symbol[piece.end : piece.end + 2 * len(template.symbol)]
    place = np.concatenate([template.places[number], _matched(template.symbol, behind)])
    return _End(piece.first, place)


def _matched(wanted: Ints, region: Ints) -> Ints:
    """Positions of the kernels at the start of a region, for as far as they match densely."""
    found = np.zeros(0, dtype=np.int64)
    following = 0
    while len(found) < len(wanted):
        part = region[len(found) : len(found) + STRETCH]
        laid = match_positions(wanted[following : following + STRETCH], part, MOST_EDITS)
        if laid is None or not (laid >= 0).any():
            break
        kept = laid[: dense_head(laid)]
        found = np.append(found, np.where(kept >= 0, kept + following, -1))
        following = int(found.max()) + 1
        if len(kept) < STRETCH - SLACK:
            break
    return found


def _unusual_pause(
    kernels: Kernels, gap_ns: Floats, may_begin: Bools, end: _End
) -> list[tuple[int, float]]:
    """Template position that begins behind the most unusual pause, and how unusual (0..1)."""
    begins = _begins(end.place, len(gap_ns))
    gap = kernels.gap_ns[end.first : end.first + len(begins)]
    begins = begins[: len(gap)]
    times = gap / np.maximum(gap_ns[begins], NO_PAUSE_NS)
    times[(begins >= 0) & ~may_begin[begins]] = 0.0
    at = int(times.argmax())
    if times[at] <= RARE:
        return []
    return [(int(begins[at]), min(1.0, float(np.log(times[at]) / np.log(SURE))))]


def _begins(place: Ints, positions: int) -> Ints:
    """Template position at which each kernel and the one behind the last begins, -1 unknown."""
    behind = np.where(place >= 0, (place + 1) % positions, -1)
    return np.where(np.append(place, -1) >= 0, np.append(place, -1), np.insert(behind, 0, -1))


def _mean_votes(votes: list[tuple[int, float]], positions: int) -> Floats:
    """Mean vote for each position; those for no position count as well."""
    total = np.zeros(positions)
    for position, weight in votes:
        if position >= 0:
            total[position] += weight / len(votes)
    return total
