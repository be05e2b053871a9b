"""Numbers for the variable pairs that queries equate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints

_LARGEST_TABLE = 4_000_000
"""cells of a table of all pairs of variables; for more variables, pairs are looked up in a sorted list"""
_RECENT = 64
"""changed pairs that are looked up one by one, before the list is sorted again"""


class VariablePairs:
    """The numbers of variable pairs (variable of the left side, variable of the right side)."""

    def __init__(self) -> None:
        self._number_of: dict[tuple[int, int], int] = {}
        self._uses: list[int] = []
        self._unused: list[int] = []
        self._table: NDArray[np.int32] | None = None
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None
        self._recent: dict[tuple[int, int], int] = {}  # not in the sorted list yet; -1: removed

    def __len__(self) -> int:
        """One more than the largest number."""
        return len(self._uses)

    def add(self, left: int, right: int) -> int:
        """Add one use of a pair, and return its number."""
        number = self._number_of.get((left, right))
        if number is None:
            number = self._unused.pop() if self._unused else len(self._uses)
            if number == len(self._uses):
                self._uses.append(0)
            self._number_of[left, right] = number
            self._update_lookup(left, right, number)
        self._uses[number] += 1
        return number

    def remove(self, left: int, right: int) -> None:
        """Remove one use of a pair."""
        number = self._number_of[left, right]
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._number_of[left, right]
            self._unused.append(number)
            self._update_lookup(left, right, -1)

    def _update_lookup(self, left: int, right: int, number: int) -> None:
        if self._table is not None:
            if max(left, right) < len(self._table):
                self._table[left, right] = number
                return
            self._table = None
        if self._sorted is not None:
            self._recent[left, right] = number
            if len(self._recent) > _RECENT:
                self._sorted = None

    def find(self, left: Ints, right: Ints) -> Ints:
        """Return the numbers of many pairs; -1 for those that no query equates."""
        if not len(left):
            return left
        if self._table is None and self._sorted is None:
            self._build_lookup()
        if self._table is not None:
            return self._find_in_table(self._table, left, right)
        assert self._sorted is not None
        keys, numbers = self._sorted
        wanted = (left.astype(np.int64) << 32) | right
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = np.where(keys[at] == wanted, numbers[at], np.int32(-1))
        for (one, other), number in self._recent.items():
            found[(left == one) & (right == other)] = number
        return found

    def _find_in_table(self, table: NDArray[np.int32], left: Ints, right: Ints) -> Ints:
        size = len(table)
        if int(left.max()) < size and int(right.max()) < size:
            return table[left, right]
        inside = (left < size) & (right < size)
        found = np.full(len(left), -1, np.int32)
        found[inside] = table[left[inside], right[inside]]
        return found

    def _build_lookup(self) -> None:
        """Build a table of all pairs if that is not too large, else a sorted list."""
        self._recent.clear()
        size = max((max(pair) for pair in self._number_of), default=0) + 1
        size += size // 4
        if size * size <= _LARGEST_TABLE:
            self._table = np.full((size, size), -1, np.int32)
            for (left, right), number in self._number_of.items():
                self._table[left, right] = number
            return
        keys = np.array([(left << 32) | right for left, right in self._number_of], np.int64)
        numbers = np.array(list(self._number_of.values()), np.int32)
        order = np.argsort(keys)
        self._sorted = keys[order], numbers[order]
