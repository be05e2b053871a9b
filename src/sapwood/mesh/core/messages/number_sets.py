"""Sets of whole numbers that grow at the end and shrink at the start, and sets that are ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sapwood.mesh.core.frames import Intervals

_COMPACTED = 512
"""removed numbers from which on their memory is given back"""


class SortedNumbers:
    """Ascending numbers, each once. To add the greatest and to remove the least takes constant time.

    A list with the place of its first number, instead of a deque: now and then a number has to be added or
    removed in the middle, and found there by bisection.
    """

    __slots__ = ("_numbers", "_start")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._numbers = sorted(set(numbers))
        self._start = 0

    def __len__(self) -> int:
        return len(self._numbers) - self._start

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers[self._start :])

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._numbers, number, self._start)
        return at < len(self._numbers) and self._numbers[at] == number

    @property
    def first(self) -> int:
        """The least number."""
        return self._numbers[self._start]

    def add(self, number: int) -> None:
        """Add a number, unless it is there."""
        numbers = self._numbers
        if not self or numbers[-1] < number:
            numbers.append(number)
            return
        at = bisect_left(numbers, number, self._start)
        if numbers[at] != number:
            numbers.insert(at, number)

    def discard(self, number: int) -> None:
        """Remove a number, if it is there."""
        if not self:
            return
        if self.first == number:
            self._remove_first(1)
            return
        at = bisect_left(self._numbers, number, self._start)
        if at < len(self._numbers) and self._numbers[at] == number:
            del self._numbers[at]

    def remove_upto(self, number: int) -> list[int]:
        """Remove all numbers up to one, and return them."""
        end = bisect_right(self._numbers, number, self._start)
        removed = self._numbers[self._start : end]
        self._remove_first(len(removed))
        return removed

    def _remove_first(self, count: int) -> None:
        self._start += count
        if self._start >= _COMPACTED and 2 * self._start >= len(self._numbers):
            del self._numbers[: self._start]
            self._start = 0


class NumberRanges:
    """Numbers as ranges, to look up whether one is among them."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Intervals = ()) -> None:
        self._firsts = [first for first, _ in ranges]
        self._lasts = [last for _, last in ranges]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]


def to_intervals(numbers: Iterable[int]) -> Intervals:
    """Return ascending numbers as ranges."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return tuple(ranges)
