"""Edit alignment of two symbol sequences: which positions of one are the other's.

Steps of one kind differ by a few small kernels, so the greedy algorithm whose
cost grows with the number of differences fits (E. W. Myers, "An O(ND) Difference
Algorithm and Its Variations", Algorithmica 1, 1986).
"""

from __future__ import annotations

import numpy as np

from tracebook.columns import Ints


def match_positions(a: Ints, b: Ints, max_edits: int) -> Ints | None:
    """Match two sequences by a longest common subsequence.

    Args:
        a: Symbols of the reference, shape (n,).
        b: Symbols of the other sequence, shape (m,).
        max_edits: Insertions plus deletions allowed.

    Returns:
        For each position of `b` the matched position of `a`, or -1, shape (m,);
        None where the two differ by more than `max_edits`.
    """
    result = np.full(len(b), -1, dtype=np.int64)
    shorter = min(len(a), len(b))
    differ = np.flatnonzero(a[:shorter] != b[:shorter])
    head = int(differ[0]) if differ.size else shorter
    rest = shorter - head
    differ = np.flatnonzero(a[len(a) - rest :][::-1] != b[len(b) - rest :][::-1])
    tail = int(differ[0]) if differ.size else rest
    result[:head] = np.arange(head)
    if tail:
        result[len(b) - tail :] = np.arange(len(a) - tail, len(a))
    middle_a, middle_b = a[head : len(a) - tail].tolist(), b[head : len(b) - tail].tolist()
    if middle_a and middle_b:
        pairs = _greedy_pairs(middle_a, middle_b, max_edits)
        if pairs is None:
            return None
        for i, j in pairs:
            result[head + j] = head + i
    elif len(middle_a) + len(middle_b) > max_edits:
        return None
    return result


def dense_head(places: Ints) -> int:
    """How many elements from the first one on are matched densely; the rest is not, -1."""
    return int(np.cumsum(np.where(places >= 0, 1, -1)).argmax()) + 1


def dense_tail(places: Ints) -> int:
    """The element from which on those up to the last are matched densely."""
    return int(np.cumsum(np.where(places >= 0, 1, -1)[::-1])[::-1].argmax())


def _greedy_pairs(a: list[int], b: list[int], max_edits: int) -> list[tuple[int, int]] | None:
    """Matched index pairs of the shortest edit script, None beyond `max_edits`."""
    n, m = len(a), len(b)
    furthest: dict[int, int] = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(max_edits, n + m) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
            x = furthest.get(k + 1, 0) if down else furthest.get(k - 1, 0) + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(history, edits, n, m)
    return None


def _walk_back(history: list[dict[int, int]], edits: int, n: int, m: int) -> list[tuple[int, int]]:
    """Follow the furthest-reaching paths back and collect the diagonal moves."""
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    for step in range(edits, -1, -1):
        before = history[step]
        k = x - y
        down = k == -step or (k != step and before.get(k - 1, -1) < before.get(k + 1, -1))
        previous_k = k + 1 if down else k - 1
        previous_x = before.get(previous_k, 0)
        previous_y = previous_x - previous_k
        while x > max(previous_x, 0) and y > max(previous_y, 0):
            x -= 1
            y -= 1
            pairs.append((x, y))
        if step == 0:
            break
        x, y = previous_x, previous_y
    pairs.reverse()
    return pairs
