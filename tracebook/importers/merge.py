"""The order of rows that come as pages which are each sorted by time.

An export is nearly in order: only rows around the borders of pages start before one of an
earlier page ends, and only these move. Where processes follow one another in the file all
rows do; they are then merged in chunks of time, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tracebook.scratch import Scratch

Segment = tuple[int, int]

#: Rows of a chunk of time, and one of how many rows is looked at to find where chunks end.
_CHUNK_ROWS = 262_144
_SAMPLED = 1_024


def unsettled(start: NDArray[np.int64], pages: Sequence[Segment]) -> list[Segment]:
    """Parts of pages whose rows' places are not certain when the pages are put together.

    Args:
        start: Start of each row in ns, shape (n,).
        pages: From and to of each page, none of them empty, each sorted by start.

    Returns:
        From and to of the parts, ascending, at most two of a page.
    """
    latest = np.maximum.accumulate([start[last - 1] for _, last in pages])
    soonest = np.minimum.accumulate([start[first] for first, _ in reversed(pages)])[::-1]
    found = []
    for number, (first, last) in enumerate(pages):
        page = start[first:last]
        low, high = 0, len(page)
        if number:
            low = int(np.searchsorted(page, latest[number - 1], side="right"))
        if number + 1 < len(pages):
            high = max(low, int(np.searchsorted(page, soonest[number + 1], side="left")))
        found += [(first, first + low), (first + high, last)]
    return [(first, last) for first, last in found if first < last]


def merge_order(
    start: NDArray[np.int64], end: NDArray[np.int64], parts: Sequence[Segment], scratch: Scratch
) -> NDArray[np.int64]:
    """Positions of the rows of sorted parts in the order of (start, end, position).

    Args:
        start: Start of each row in ns, shape (n,).
        end: End of each row in ns, shape (n,).
        parts: From and to of each part, ascending, each sorted by (start, end, position).
        scratch: Where the result lies.
    """
    order = scratch.empty(sum(last - first for first, last in parts), np.int64)
    begins, at = [first for first, _ in parts], 0
    for border in (*_borders(start, parts), None):
        ends = [
            last if border is None else begin + int(np.searchsorted(start[begin:last], border))
            for begin, (_, last) in zip(begins, parts, strict=True)
        ]
        ranges = [np.arange(a, b) for a, b in zip(begins, ends, strict=True) if a < b]
        begins = ends
        if ranges:
            rows = np.concatenate(ranges)
            order[at : at + len(rows)] = rows[np.lexsort((end[rows], start[rows]))]
            at += len(rows)
    return order


def _borders(start: NDArray[np.int64], parts: Sequence[Segment]) -> list[int]:
    """Times, ascending, between which about a chunk of rows starts."""
    samples = np.sort(np.concatenate([start[a:b:_SAMPLED] for a, b in parts] or [start[:0]]))
    return [int(time) for time in np.unique(samples[:: _CHUNK_ROWS // _SAMPLED][1:])]
