"""Numbers for distinct values, in the order in which they first occur, part by part.

A hash table whose look-up is a handful of array operations: few distinct values among
millions, as names, shapes and graph nodes are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: An odd number without pattern; the upper bits of a product depend on all bits of a value.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Places per value: one in thirty values then is not where it is looked for first.
_ROOM = 16
_LEAST_BITS = 10


class Numbering:
    """Distinct 64-bit values and their numbers from 0.

    Attributes:
        values: The distinct values, at their number.
    """

    def __init__(self) -> None:
        """Begin with no value."""
        self.values = np.empty(0, dtype=np.uint64)
        self._rebuild(_LEAST_BITS)

    def __len__(self) -> int:
        """Number of distinct values."""
        return len(self.values)

    def number(self, values: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The number of each value; those that are new get the next ones."""
        slot = self._slots(values)
        number = self._number.take(slot)
        other = np.flatnonzero(self._value.take(slot) != values)
        unknown = []
        while len(other):
            new = number[other] < 0  # its place would be here
            unknown.append(other[new])
            other = other[~new]
            slot[other] = (slot[other] + 1) & self._last
            number[other] = self._number[slot[other]]
            other = other[(self._value[slot[other]] != values[other]) | (number[other] < 0)]
        if sum(map(len, unknown)):
            at = np.sort(np.concatenate(unknown))
            self._add(values[at])
            number[at] = self.number(values[at])
        return number

    def _slots(self, values: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where values are looked for first."""
        slot = values * _MULTIPLIER
        slot >>= self._shift
        return slot.view(np.int64)

    def _add(self, values: NDArray[np.uint64]) -> None:
        """Number new values, of which some may be equal."""
        distinct, first = np.unique(values, return_index=True)
        distinct = distinct[np.argsort(first)]
        known = len(self)
        self.values = np.concatenate([self.values, distinct])
        bits = int(_ROOM * len(self)).bit_length()
        if bits > self._bits:
            self._rebuild(bits)
        else:
            self._put(known)

    def _rebuild(self, bits: int) -> None:
        """A larger table with all values."""
        self._bits, self._shift, self._last = bits, np.uint64(64 - bits), (1 << bits) - 1
        # An empty place holds a value that would never be looked for there.
        self._value = np.zeros(1 << bits, dtype=np.uint64)
        self._value[0] = 1
        self._number = np.full(1 << bits, -1, dtype=np.int32)
        self._put(0)

    def _put(self, first: int) -> None:
        """Give the values from number `first` on their places."""
        number = np.arange(first, len(self), dtype=np.int32)
        slot = self._slots(self.values[first:])
        while len(number):
            free = np.flatnonzero(self._number[slot] < 0)
            taken, winner = np.unique(slot[free], return_index=True)
            winner = free[winner]
            self._number[taken] = number[winner]
            self._value[taken] = self.values[number[winner]]
            left = np.ones(len(number), dtype=bool)
            left[winner] = False
            number, slot = number[left], (slot[left] + 1) & self._last
