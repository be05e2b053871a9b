"""What a node knows of the messages of one source.

    floor        numbers up to it are settled: stored wherever they are wanted, and never sent again
    entries      the messages above it that were handled here: whence they came, and for whom they are
    last         the greatest number that was handled
    arrived      the greatest number that came since the links began anew: those before it came, or were not
                 wanted on this side
    resent       the greatest number that was handled before the links began anew, or while it was not known
                 for whom it is: messages up to it may have been sent through another tree
    partial      the messages of which parts were cut on the way here, since nobody beyond the link read them:
                 what is here is enough for the tree of that time, and for no other

        1 2 3 4 5 │ 6   8 9     12 │ 14            the numbers between were not wanted here
            floor ┘     arrived ┘     └ last, handled before the links began anew

A message is a duplicate if it is in the entries, or not above the floor: for ever, whatever the time between.
An unsettled message takes some 100 bytes here: its number, and an entry that it shares with others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from sapwood.mesh.core.frames import Intervals
from sapwood.mesh.core.messages.number_sets import SortedNumbers, to_intervals


class Entry(NamedTuple):
    """The place of a message that is not known to be settled everywhere."""

    came_by: str | None
    links: frozenset[str] | None
    """the neighbours that it is for; None: not known since the links began anew"""


class SourceHistory:
    """The messages of a source that were handled, and those of them that are not settled."""

    __slots__ = (
        "_numbers",
        "_partial",
        "_pending",
        "_unresolved",
        "_unstored",
        "_unstored_numbers",
        "arrived",
        "entries",
        "floor",
        "last",
        "name",
        "resent",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.floor = self.last = self.arrived = self.resent = 0
        self.entries: dict[int, Entry] = {}
        self._numbers = SortedNumbers()
        """those of the entries"""
        self._partial = SortedNumbers()
        """those of them whose content is partial"""
        self._unresolved = SortedNumbers()
        """those whose links may not be known"""
        self._unstored: deque[tuple[int, int]] = deque()
        """`Store` actions, with the number that each makes durable"""
        self._unstored_numbers = SortedNumbers()
        self._pending: dict[str, SortedNumbers] = {}
        """by neighbour, the numbers it has not reported as settled"""

    def __contains__(self, number: int) -> bool:
        return number <= self.floor or number in self.entries

    def arrive(self, number: int) -> None:
        """Note that a message came, known or not."""
        self.arrived = max(self.arrived, number)

    def skip_unresolved(self) -> None:
        """Note that no more messages up to `arrived` will come: those of which it is not known whom they are
        for are not wanted on this side any more."""
        for number in self._unresolved.remove_upto(self.arrived):
            entry = self.entries.get(number)
            if entry is not None and entry.links is None:
                self.entries[number] = Entry(entry.came_by, frozenset())

    def is_partial(self, number: int) -> bool:
        """Return whether parts of a message were cut on the way here."""
        return number in self._partial

    def set_partial(self, number: int, is_partial: bool) -> None:
        """Note whether parts of a message were cut on the way here."""
        if is_partial:
            self._partial.add(number)
        else:
            self._partial.discard(number)

    def add(self, number: int, entry: Entry, store: int = 0, is_partial: bool = False) -> None:
        """Add a message that was handled; it is durable with a `Store`, or already."""
        self._numbers.add(number)
        self.last = max(self.last, number)
        self.set_partial(number, is_partial)
        if entry.links is None:
            self.resent = max(self.resent, number)
        if store:
            self._unstored.append((store, number))
            self._unstored_numbers.add(number)
        self.resolve(number, entry)

    def resolve(self, number: int, entry: Entry) -> None:
        """Set whom a message is for, of which that was not known."""
        self.entries[number] = entry
        if entry.links is None:
            self._unresolved.add(number)
        else:
            for link in entry.links:
                waiting = self._pending.get(link)
                if waiting is None:
                    waiting = self._pending[link] = SortedNumbers()
                waiting.add(number)

    def forget_links(self) -> None:
        """Forget whom the messages are for, because the links begin anew."""
        self._pending.clear()
        self.arrived = self.floor
        self.resent = self.last
        shared: dict[str | None, Entry] = {}
        for number, entry in self.entries.items():
            self.entries[number] = shared.setdefault(entry.came_by, Entry(entry.came_by, None))
        self._unresolved = SortedNumbers(self.entries)

    def drop_link(self, link: str) -> None:
        """Forget a neighbour that is none any more."""
        self._pending.pop(link, None)

    def drop_links_but(self, links: Iterable[str]) -> None:
        """Forget all neighbours that are none any more."""
        kept = set(links)
        self._pending = {link: waiting for link, waiting in self._pending.items() if link in kept}

    def unresolved(self) -> list[int]:
        """Return the messages of which it is not known whom they are for, ascending."""
        entries = self.entries
        found = [n for n in self._unresolved if n in entries and entries[n].links is None]
        self._unresolved = SortedNumbers(found)
        return found

    def pending(self, link: str) -> SortedNumbers:
        """Return the messages that a neighbour has not reported as settled, to be read only."""
        return self._pending.get(link, _NONE)

    # -- settlement ------------------------------------------------------------------------------------

    def stored(self, store: int) -> None:
        """Note that everything up to a `Store` is durable."""
        while self._unstored and self._unstored[0][0] <= store:
            self._unstored_numbers.discard(self._unstored.popleft()[1])

    def settle(self, link: str, upto: int) -> bool:
        """Note what a neighbour reports; return whether anything was pending that is no more."""
        waiting = self._pending.get(link)
        return waiting is not None and bool(waiting.remove_upto(upto))

    def settle_one(self, link: str, number: int) -> None:
        """Note that one message needs no report of a neighbour any more."""
        waiting = self._pending.get(link)
        if waiting is not None:
            waiting.discard(number)

    def settled(self) -> int:
        """Return the number up to which all messages that came are stored here and wherever they are wanted
        beyond."""
        bound = self.arrived
        entries, unresolved = self.entries, self._unresolved
        while unresolved and (unresolved.first not in entries or entries[unresolved.first].links is not None):
            unresolved.discard(unresolved.first)
        for waiting in (unresolved, self._unstored_numbers, *self._pending.values()):
            if waiting and waiting.first <= bound:
                bound = waiting.first - 1
        return max(bound, self.floor)

    def raise_floor(self, floor: int) -> bool:
        """Forget messages that are settled everywhere; return whether the floor is a new one."""
        if floor <= self.floor:
            return False
        self.floor = floor
        self.last = max(self.last, floor)
        self.arrived = max(self.arrived, floor)
        for number in self._numbers.remove_upto(floor):
            del self.entries[number]
        for waiting in (self._partial, self._unstored_numbers, *self._pending.values()):
            waiting.remove_upto(floor)
        return True

    def have(self) -> Intervals:
        """Return the numbers above the floor that were handled, as ranges: without those whose content is
        partial, so that it is sent again."""
        if not self._partial:
            return to_intervals(self._numbers)
        partial = set(self._partial)
        return to_intervals(number for number in self._numbers if number not in partial)


_NONE = SortedNumbers()
