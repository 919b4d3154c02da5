"""Launch order: kernels in the order the host launched them, not as streams interleave.

Two kernels on different streams may swap places from step to step; the order in
which they were launched does not. Within one process correlation ids count
launches, and all nodes of one graph launch share one id. On a single stream kernels
start in the order of their launch, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracebook.columns import CHUNK, Bools, Floats, Ints, Values, gather_groups, index_type, parts
from tracebook.kernels.numbering import Numbering
from tracebook.scratch import MEMORY, Scratch

#: Where more than this share of kernels has no correlation id, start order is used.
MISSING_IDS = 0.01
#: A later launch whose start lies this far before an earlier one's contradicts the order.
BACK_NS = 2_000_000
BACK_SHARE = 0.001
#: One of so many ids is looked at to divide them in parts of about one size.
_SAMPLE = 1024
#: What is summed for each node: launches that begin with it, all that have it and its time in
#: them, and the same of those that are whole at the begin.
_SUMS = 5
_FIRST, _SEEN, _SEEN_NS, _WHOLE, _WHOLE_NS = range(_SUMS)
#: No id, and no node.
_NONE = -(2**63)


@dataclass(frozen=True)
class Launches:
    """The order of launch of the kernels of one device and process.

    Attributes:
        order: Position by start of each kernel in launch order; None where they are the same.
        in_graph: Per kernel in launch order, whether its launch has several kernels or it is
            a graph node.
        ids: Correlation ids by start.
        by_id: Whether the ids tell the launches; else neighbours that share one are together.
    """

    order: Ints | None
    in_graph: Bools
    ids: Values
    by_id: bool

    def __getitem__(self, index: Ints) -> Ints:
        """A number per kernel in launch order, equal within one launch, rising."""
        at = index if self.order is None else self.order[index]
        if self.by_id:
            return np.asarray(self.ids[at])
        at = np.array(at, dtype=np.int64)
        while True:  # back to the first kernel of each launch
            own, before = self.ids[at], self.ids[np.maximum(at - 1, 0)]
            same = (at > 0) & (own == before) & (own != _NONE)
            if not same.any():
                return at
            at[same] -= 1


@dataclass(frozen=True)
class _Columns:
    """What the order is found by, by start; `ids` without gaps. `nodes`: of graphs, if any."""

    ids: Values
    start_ns: Values
    kernel_id: Values
    node: Values
    nodes: bool
    scratch: Scratch

    def __len__(self) -> int:
        return len(self.ids)


def launch_order(
    kernels: pl.DataFrame, rows: Ints | None = None, scratch: Scratch = MEMORY
) -> Launches:
    """Order the kernels of one device and process by launch.

    Args:
        kernels: KERNEL_SCHEMA, sorted by start.
        rows: Those of the device and process, None for all.
        scratch: Where arrays of one value per kernel go.

    Returns:
        Launch order; start order where ids do not help.
    """
    ids = Values(kernels["correlation_id"], _NONE, rows)
    node = Values(kernels["graph_node_id"], _NONE, rows)
    missing = 0
    if kernels["correlation_id"].null_count():
        missing = len(ids) - sum(len(own) for own in _known(ids))
    if not len(ids) or missing > MISSING_IDS * len(ids):
        return _by_start(ids, node, scratch)
    columns = _Columns(
        ids=_filled(ids, scratch) if missing else ids,
        start_ns=Values(kernels["start_ns"], at=rows),
        kernel_id=Values(kernels["kernel_id"], at=rows),
        node=node,
        nodes=kernels["graph_node_id"].null_count() < len(kernels),
        scratch=scratch,
    )
    launches = _as_started(columns)
    if launches is None:
        launches = _sorted(columns)
    return _by_start(ids, node, scratch) if launches is None else launches


def _by_start(ids: Values, node: Values, scratch: Scratch) -> Launches:
    """Start order; each kernel its own launch unless ids say otherwise."""
    in_graph = scratch.empty(len(ids), bool)
    for part in parts(len(ids)):
        in_graph[part] = node[part] != _NONE
    return Launches(None, in_graph, ids, by_id=False)


def _filled(ids: Values, scratch: Scratch) -> Values:
    """Ids with each gap filled by the one before it, the first ones by the one behind them."""
    filled = scratch.empty(len(ids), np.int64)
    last = next(int(own[0]) for own in _known(ids) if len(own))
    for part in parts(len(ids)):
        own = np.concatenate(([last], ids[part]))
        at = np.where(own == _NONE, 0, np.arange(len(own)))
        filled[part] = own[np.maximum.accumulate(at)[1:]]
        last = int(filled[part.stop - 1])
    return Values(filled)


def _known(ids: Values) -> Iterator[Ints]:
    """The ids that are there, by part."""
    for part in parts(len(ids)):
        own = ids[part]
        yield own[own != _NONE]


def _as_started(columns: _Columns) -> Launches | None:
    """Launches where start order is launch order already, as on a single stream; else None."""
    in_graph = columns.scratch.empty(len(columns), bool)
    number = columns.scratch.empty(len(columns) if columns.nodes else 0, np.int32)
    means = _NodeMeans()
    last, origin = _NONE, 0
    for part in parts(len(columns)):
        ids, start = columns.ids[part], columns.start_ns[part]
        if ids[0] < last or (ids[1:] < ids[:-1]).any():
            return None
        same = _same(ids, last)
        in_graph[part] = same
        in_graph[part][:-1] |= same[1:]
        if same[0]:
            in_graph[part.start - 1] = True
        if columns.nodes:
            begun = _begun(start, ~same, origin)
            node = means.add(columns.node[part], start - begun, ~same)
            in_graph[part] |= node > 0
            means.mixed |= bool((same[1:] & ((node[1:] > 0) != (node[:-1] > 0))).any())
            means.mixed |= bool(same[0] and (node[0] > 0) != (number[part.start - 1] > 0))
            number[part], origin = node, int(begun[-1])
        last = int(ids[-1])
    if means.is_cut():
        _count_whole(columns, number, means)
    launches = Launches(None, in_graph, columns.ids, by_id=True)
    return launches if not columns.nodes or _rising(columns, number, means) else None


def _count_whole(columns: _Columns, number: Ints, means: _NodeMeans) -> None:
    """Count launches that have their first kernels; ids rise."""
    origin, last = 0, _NONE
    for part in parts(len(columns)):
        ids, start = columns.ids[part], columns.start_ns[part]
        new = ~_same(ids, last)
        begun = _begun(start, new, origin)
        means.add_whole(number[part], start - begun, new)
        origin, last = int(begun[-1]), int(ids[-1])


def _rising(columns: _Columns, number: Ints, means: _NodeMeans) -> bool:
    """Whether kernels stand at their usual place within each launch; ids rise."""
    usual = means.means()
    origin, last, last_place = 0, _NONE, 0.0
    for part in parts(len(columns)):
        ids, node = columns.ids[part], number[part]
        same = _same(ids, last)
        place = usual[node]
        if means.mixed:
            begun = _begun(columns.start_ns[part], ~same, origin)
            place = np.where(node > 0, place, columns.start_ns[part] - begun)
            origin = int(begun[-1])
        if (same[1:] & (place[1:] < place[:-1])).any() or (same[0] and place[0] < last_place):
            return False
        last, last_place = int(ids[-1]), float(place[-1])
    return True


def _same(ids: Ints, last: int) -> Bools:
    """Whether each kernel belongs to the launch of the one before it; `last` is ahead of all."""
    same = np.empty(len(ids), dtype=bool)
    same[0] = ids[0] == last
    np.equal(ids[1:], ids[:-1], out=same[1:])
    return same


def _begun(start: Ints, new: Bools, origin: int) -> Ints:
    """Start of the launch of each kernel; `origin` is that of the one that goes on."""
    first = np.flatnonzero(new)
    edges = np.concatenate(([0], first, [len(start)]))
    return np.repeat(np.concatenate(([origin], start[first])), np.diff(edges))


class _NodeMeans:
    """Mean time from the start of its launch to a graph node, over all of its launches.

    A launch whose first kernels the profiler lost begins with a node that is elsewhere in the
    others: it does not tell when its nodes run, unless nothing else does. Number 0 stands for
    no node. `mixed` says whether a launch has both.
    """

    def __init__(self) -> None:
        self.nodes = Numbering()
        self.number(np.array([_NONE]))
        self.sums = np.zeros((_SUMS, 0))
        self.mixed = False
        self.whole = True  # whether the last launch has its first kernel

    def number(self, node: Ints) -> NDArray[np.int32]:
        """The number of each node."""
        return self.nodes.number(np.ascontiguousarray(node, dtype=np.int64).view(np.uint64))

    def add(self, node: Ints, offset_ns: Ints, new: Bools) -> NDArray[np.int32]:
        """Count some kernels, `new` where a launch begins; the number of the node of each."""
        number = self.number(node)
        self.sums = np.pad(self.sums, ((0, 0), (0, len(self.nodes) - self.sums.shape[1])))
        self._count(_FIRST, number[new])
        self._count(_SEEN, number)
        self._count(_SEEN_NS, number, offset_ns)
        return number

    def _count(self, row: int, number: Ints, weights: Ints | None = None) -> None:
        # Whole numbers far below 2**53, of which floats are exact sums.
        self.sums[row] += np.bincount(number, weights=weights, minlength=self.sums.shape[1])

    def usually_first(self) -> Bools:
        """Nodes that most of the launches that have them begin with, per number."""
        return np.asarray(2 * self.sums[_FIRST] >= self.sums[_SEEN])

    def is_cut(self) -> bool:
        """Whether a launch lacks its first kernels; all have been counted."""
        return bool((self.sums[_FIRST][~self.usually_first()] > 0).any())

    def add_whole(self, number: Ints, offset_ns: Ints, new: Bools) -> None:
        """Count kernels again, those of launches that lack their first ones left out."""
        begun = self.usually_first()[number[new]]
        whole = np.append(self.whole, begun)[np.cumsum(new)]
        self._count(_WHOLE, number[whole])
        self._count(_WHOLE_NS, number[whole], offset_ns[whole])
        self.whole = bool(whole[-1])

    def means(self) -> Floats:
        """Per number."""
        sums = self.sums
        seen = sums[_SEEN_NS] / np.maximum(sums[_SEEN], 1)
        whole = sums[_WHOLE_NS] / np.maximum(sums[_WHOLE], 1)
        return np.asarray(np.where(sums[_WHOLE] > 0, whole, seen))


def _sorted(columns: _Columns) -> Launches | None:
    """Sort by id, usual place in the launch and start; None where the clock contradicts it."""
    count = len(columns)
    order = columns.scratch.empty(count, index_type(count))
    in_graph = columns.scratch.empty(count, bool)
    edges = _divide(columns, order)
    means = _NodeMeans()
    for part in edges:
        at = order[part]
        at = at[np.argsort(columns.ids[at], kind="stable")]
        order[part] = at
        means.add(columns.node[at], _offsets(columns, at), _new(columns.ids[at]))
    for part in edges if means.is_cut() else ():
        at = order[part]
        number = means.number(columns.node[at])
        means.add_whole(number, _offsets(columns, at), _new(columns.ids[at]))
    usual = means.means()
    back, latest = 0, _NONE
    for part in edges:
        at = order[part]
        ids, start = columns.ids[at], columns.start_ns[at]
        node = means.number(columns.node[at])
        place = np.where(node > 0, usual[node], _offsets(columns, at))
        by = np.lexsort((columns.kernel_id[at], start, place, ids))
        order[part], start = at[by], start[by]
        same = np.diff(ids) == 0  # in the order of ids before and after
        in_graph[part] = node[by] > 0
        in_graph[part][1:] |= same
        in_graph[part][:-1] |= same
        reached = np.maximum.accumulate(np.concatenate(([latest], start)))
        back += int((reached[:-1] > start + BACK_NS).sum())
        latest = int(reached[-1])
    if back > BACK_SHARE * count:
        return None
    return Launches(order, in_graph, columns.ids, by_id=True)


def _offsets(columns: _Columns, at: Ints) -> Ints:
    """Time from the start of its launch to each kernel; kernels sorted by id and start."""
    start = columns.start_ns[at]
    return np.asarray(start - _begun(start, _new(columns.ids[at]), 0))


def _new(ids: Ints) -> Bools:
    """Whether a launch begins with each kernel; kernels sorted by id."""
    return np.asarray(np.diff(ids, prepend=_NONE) != 0)


def _divide(columns: _Columns, order: Ints) -> list[slice]:
    """Distribute kernels to parts of about CHUNK whose ids rise from part to part.

    Writes their positions to `order`, by start within each part, and returns the parts.
    """
    count = len(columns)
    sample = np.sort(np.concatenate([columns.ids[part][::_SAMPLE] for part in parts(count)]))
    borders = np.unique(sample[CHUNK // _SAMPLE :: CHUNK // _SAMPLE])
    size = np.zeros(len(borders) + 1, dtype=np.int64)

    def bucket(part: slice) -> Ints:
        return np.searchsorted(borders, columns.ids[part], side="right")

    for part in parts(count):
        size += np.bincount(bucket(part), minlength=len(size))
    gather_groups(bucket, size, order)
    end = np.cumsum(size)
    return [slice(int(b - n), int(b)) for n, b in zip(size, end, strict=True) if n]
