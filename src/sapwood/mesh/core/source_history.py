"""What a node knows of the messages of one source.

    floor        numbers up to it are settled: stored wherever they are wanted, and never sent again
    entries      the messages above it that were handled here, ascending: whence they came, and for whom
    last         the greatest number that was handled
    arrived      the greatest number that came since the links began anew: those before it came, or were not wanted

A message is a duplicate if it is in the entries, or not above the floor: for ever, whatever the time between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sapwood.mesh.core.frames import Intervals


class Entry(NamedTuple):
    """A message that is not known to be settled everywhere."""

    came_by: str | None
    links: frozenset[str] | None
    """the neighbours that it is for; None: not known since the links began anew"""


class SourceHistory:
    """The messages of a source that were handled, and those of them that are not settled."""

    __slots__ = ("_pending", "_unresolved", "_unstored", "arrived", "entries", "floor", "last", "name")

    def __init__(self, name: str, floor: int = 0) -> None:
        self.name = name
        self.floor = floor
        self.last = floor
        self.arrived = floor
        self.entries: dict[int, Entry] = {}
        self._unresolved: deque[int] = deque()
        """numbers whose links may not be known, ascending"""
        self._unstored: deque[tuple[int, int]] = deque()
        """numbers with those of the `Store` that makes them durable"""
        self._pending: dict[str, deque[int]] = {}
        """by neighbour, the numbers it has not reported as settled, ascending"""

    def __contains__(self, number: int) -> bool:
        return number <= self.floor or number in self.entries

    def arrive(self, number: int) -> None:
        """Note that a message came, known or not."""
        self.arrived = max(self.arrived, number)

    def add(self, number: int, entry: Entry, store: int = 0) -> None:
        """Add a message that was handled; it counts as stored with a `Store`."""
        self.entries[number] = entry
        self.last = max(self.last, number)
        if store:
            self._unstored.append((number, store))
        self._enter(number, entry)

    def resolve(self, number: int, entry: Entry) -> None:
        """Set whom a message is for, of which that was not known."""
        self.entries[number] = entry
        self._enter(number, entry)

    def _enter(self, number: int, entry: Entry) -> None:
        if entry.links is None:
            self._unresolved.append(number)
        else:
            for link in entry.links:
                waiting = self._pending.setdefault(link, deque())
                if not waiting or waiting[-1] < number:
                    waiting.append(number)
                elif number not in waiting:
                    self._pending[link] = deque(sorted((*waiting, number)))

    def forget_links(self) -> None:
        """Forget whom the messages are for, because the links begin anew."""
        self._pending.clear()
        self.arrived = self.floor
        self.entries = {number: entry._replace(links=None) for number, entry in sorted(self.entries.items())}
        self._unresolved = deque(self.entries)

    def drop_link(self, link: str) -> None:
        """Forget a neighbour that is none any more."""
        self._pending.pop(link, None)

    def unresolved(self) -> list[int]:
        """Return the messages of which it is not known whom they are for, ascending."""
        entries = self.entries
        self._unresolved = deque(n for n in self._unresolved if n in entries and entries[n].links is None)
        return list(self._unresolved)

    def pending(self, link: str) -> Iterable[int]:
        """Return the messages that a neighbour has not reported as settled, ascending."""
        return self._pending.get(link, ())

    # -- settlement ------------------------------------------------------------------------------------

    def stored(self, store: int) -> None:
        """Note that everything up to a `Store` is durable."""
        while self._unstored and self._unstored[0][1] <= store:
            self._unstored.popleft()

    def settle(self, link: str, upto: int) -> bool:
        """Note what a neighbour reports; return whether anything was pending that is no more."""
        waiting = self._pending.get(link)
        changed = False
        while waiting and waiting[0] <= upto:
            waiting.popleft()
            changed = True
        return changed

    def settled(self) -> int:
        """Return the number up to which all messages that came are stored here and wherever they are wanted
        beyond."""
        bound = self.arrived
        entries, unresolved = self.entries, self._unresolved
        while unresolved and (unresolved[0] not in entries or entries[unresolved[0]].links is not None):
            unresolved.popleft()
        if unresolved:
            bound = min(bound, unresolved[0] - 1)
        if self._unstored:
            bound = min(bound, min(number for number, _ in self._unstored) - 1)
        for waiting in self._pending.values():
            if waiting:
                bound = min(bound, waiting[0] - 1)
        return max(bound, self.floor)

    def raise_floor(self, floor: int) -> bool:
        """Forget messages that are settled everywhere; return whether the floor is a new one."""
        if floor <= self.floor:
            return False
        self.floor = floor
        self.last = max(self.last, floor)
        self.arrived = max(self.arrived, floor)
        if len(self.entries) and next(iter(self.entries)) <= floor:
            self.entries = {number: entry for number, entry in self.entries.items() if number > floor}
        for link in self._pending:
            self.settle(link, floor)
        return True

    def have(self) -> Intervals:
        """Return the numbers above the floor that were handled, as ranges."""
        return to_intervals(sorted(self.entries))


def to_intervals(numbers: Iterable[int]) -> Intervals:
    """Return ascending numbers as ranges."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return tuple(ranges)


class NumberRanges:
    """Numbers as ranges, to look up whether one is among them."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Intervals = ()) -> None:
        self._firsts = [first for first, _ in ranges]
        self._lasts = [last for _, last in ranges]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(first, last + 1)
