"""A ragged array: many small growing lists of numbers in one flat array, to gather many of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)
Numbers: TypeAlias = "NDArray[np.signedinteger[Any]]"


class RaggedArray:
    """Row number → list of numbers. A row that outgrows its room moves to the end of the pool."""

    def __init__(self, dtype: DTypeLike = np.int32) -> None:
        self._pool: Numbers = np.empty(64, dtype)
        self._end = 0
        self._start: NDArray[np.int64] = np.zeros(16, np.int64)
        self._length: NDArray[np.int32] = np.zeros(16, np.int32)
        self._room: NDArray[np.int32] = np.zeros(16, np.int32)
        self._used = 0

    @classmethod
    def of(cls, rows: Numbers, numbers: Numbers) -> RaggedArray:
        """Make an array that holds each number in the row given with it."""
        filled = cls(numbers.dtype)
        order = np.argsort(rows, kind="stable")
        filled.reserve(int(rows.max()) + 1 if len(rows) else 0)
        lengths = np.bincount(rows, minlength=len(filled._length)).astype(np.int32)
        filled._length, filled._room = lengths, lengths.copy()
        filled._start = np.cumsum(lengths, dtype=np.int64) - lengths
        filled._pool = numbers[order]
        filled._end = filled._used = len(numbers)
        return filled

    @property
    def lengths(self) -> Numbers:
        return self._length

    def append(self, row: int, number: int) -> int:
        """Add a number to a row, and return how many there are then."""
        if row >= len(self._length):
            self._widen(row + 1)
        length = int(self._length[row])
        if length == self._room[row]:
            self._move(row, max(1, 2 * length))
        self._pool[self._start[row] + length] = number
        self._length[row] = length + 1
        self._used += 1
        return length + 1

    def remove(self, row: int, number: int) -> int:
        """Remove a number from a row, and return how many are left."""
        start, length = int(self._start[row]), int(self._length[row])
        at = start + int(np.flatnonzero(self._pool[start : start + length] == number)[0])
        self._pool[at] = self._pool[start + length - 1]
        self._length[row] = length - 1
        self._used -= 1
        return length - 1

    def clear(self, row: int) -> None:
        self._used -= int(self._length[row])
        self._length[row] = 0

    def gather(self, rows: Numbers) -> tuple[Numbers, NDArray[np.int32]]:
        """Return all numbers of the rows, and for each of them which of the given rows it is from."""
        lengths = self._length.take(rows)
        total = int(lengths.sum())
        if total == 0:
            return self._pool[:0], np.empty(0, np.int32)
        if total == len(rows) and int(lengths.max()) == 1:
            return self._pool.take(self._start.take(rows)), np.arange(total, dtype=np.int32)
        source = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
        before = np.cumsum(lengths) - lengths
        positions = np.arange(total) + np.repeat(self._start[rows] - before, lengths)
        return self._pool.take(positions), source

    def numbers(self, rows: Numbers) -> Numbers:
        """Return all numbers of the rows."""
        lengths = self._length.take(rows)
        if len(rows) and int(lengths.min()) == 1 == int(lengths.max()):  # the frequent case
            return self._pool.take(self._start.take(rows))
        return self.gather(rows)[0]

    def reserve(self, rows: int) -> None:
        """Ensure that the rows below this number can be gathered."""
        if rows > len(self._length):
            self._widen(rows)

    def _widen(self, rows: int) -> None:
        rows = max(rows, 2 * len(self._length))
        self._start = grow_array(self._start, rows)
        self._length = grow_array(self._length, rows)
        self._room = grow_array(self._room, rows)

    def _move(self, row: int, room: int) -> None:
        if self._end + room > len(self._pool):
            self._make_room(room)
        length = self._length[row]
        if length:
            start = self._start[row]
            self._pool[self._end : self._end + length] = self._pool[start : start + length]
        self._start[row], self._room[row] = self._end, room
        self._end += room

    def _make_room(self, room: int) -> None:
        """Compact the rows if half the pool is abandoned, else double it."""
        if self._used * 2 < self._end:
            occupied = np.flatnonzero(self._length).astype(np.int32)
            numbers, _ = self.gather(occupied)
            lengths = self._length[occupied]
            self._start[:] = 0
            self._room[:] = 0
            self._start[occupied] = np.cumsum(lengths) - lengths
            self._room[occupied] = lengths
            self._end = len(numbers)
            self._pool = np.empty(max(64, 2 * (self._end + room)), self._pool.dtype)
            self._pool[: self._end] = numbers
        else:
            self._pool = grow_array(self._pool, 2 * len(self._pool) + room)


def grow_array(array: NDArray[_Scalar], length: int) -> NDArray[_Scalar]:
    """Return a copy of an array extended with zeros to a length."""
    grown = np.zeros(length, array.dtype)
    grown[: len(array)] = array
    return grown
