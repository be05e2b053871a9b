"""The entries of a table for one neighbour, each of which stands for one route or for several.

    routes wanted elsewhere         entries the neighbour is told
    /news[@topic = 'a']/p  ─┐
    /news[@topic = 'b']/p  ─┼────►  /news[@topic]/p        3 members
    /news[@topic]/p        ─┘
    //order[@id]           ──────►  //order[@id]           1 member: itself

An entry is in the table as long as it has members. A route that comes later joins the entry that accepts it,
if there is one, and is an entry by itself if not. So a change costs a few lookups. The whole table is
generalised anew only if its entries exceed the budget again, or, to be more exact again, if half of the
routes are gone or all of them would be within the budget. It is then made smaller than it has to be, so that
this is not soon again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sapwood.mesh.core.frames import Route
from sapwood.mesh.core.tables.generaliser import Covering, Generaliser


class EntryChange(NamedTuple):
    """The difference between two tables for a neighbour."""

    added: list[Route]
    removed: list[int]
    """keys"""


class LinkEntries:
    """The entries for a neighbour, with the number of routes that each stands for."""

    def __init__(self, generaliser: Generaliser, budget: int, routes: Iterable[Route]) -> None:
        self._generaliser = generaliser
        self._budget = budget
        self._goal = budget - budget // 4
        """the size of a table that is generalised, and that below which one is exact again"""
        self._limit = budget
        """the size of entries from which on the table is generalised anew"""
        self._covering: Covering | None = None
        """None: the table is exact"""
        self._was_sampled = False
        self._routes = 0
        self._at_first = 0
        """the number of routes when the table was generalised"""
        self._exact_size = 0
        """of all routes, if each were an entry"""
        self._size = 0
        """of the entries"""
        self._entries: dict[int, Route] = {}
        self._members: dict[int, int] = {}
        """by entry, the number of routes that it stands for"""
        self._entry_of: dict[int, int] = {}
        """by route, the entry that stands for it, if that is another one"""
        self._others: dict[int, int] = {}
        """by entry, the number of routes beside itself that it stands for, if any"""
        for route in routes:
            self.add(route)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def generalised(self) -> int:
        """The number of entries that stand for other routes than themselves."""
        return len(self._others)

    def list_entries(self) -> list[Route]:
        """Return all entries."""
        return list(self._entries.values())

    def find_entry(self, key: int) -> Route | None:
        """Return the entry that stands for a route, which may be the route itself; None if it is not
        wanted."""
        return self._entries.get(self._entry_of.get(key, key))

    def count_members(self, key: int) -> int:
        """Return the number of routes that an entry stands for."""
        return self._members.get(key, 0)

    # -- changes ---------------------------------------------------------------------------------------

    def add(self, route: Route) -> Route | None:
        """Add a route; return the entry that the neighbour has to be told of, if any."""
        self._routes += 1
        self._exact_size += self._generaliser.size(route)
        entry = route
        if self._covering is not None and route.key not in self._entries:
            found = self._covering.cover(route)
            if found is not None and found.key in self._entries:  # one without members is gone
                entry = found
        return self._join(route, entry)

    def _join(self, route: Route, entry: Route) -> Route | None:
        if entry.key != route.key:
            self._entry_of[route.key] = entry.key
            self._others[entry.key] = self._others.get(entry.key, 0) + 1
        if entry.key in self._entries:
            self._members[entry.key] += 1
            return None
        self._entries[entry.key] = entry
        self._members[entry.key] = 1
        self._size += self._generaliser.size(entry)
        return entry

    def remove(self, route: Route) -> int | None:
        """Remove a route; return the key of the entry that the neighbour need not have any more, if any."""
        self._routes -= 1
        self._exact_size -= self._generaliser.size(route)
        key = self._entry_of.pop(route.key, route.key)
        if key != route.key:
            self._others[key] -= 1
            if not self._others[key]:
                del self._others[key]
        self._members[key] -= 1
        if self._members[key]:
            return None
        del self._members[key]
        self._size -= self._generaliser.size(self._entries.pop(key))
        return key

    # -- the whole table -------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether the whole table is to be generalised anew."""
        if self._size > self._limit:
            return True
        if self._covering is None:
            return False
        is_smaller = 2 * self._routes <= self._at_first or self._exact_size <= self._goal
        return is_smaller or (self._generaliser.is_sampled and not self._was_sampled)

    def renew(self, routes: Sequence[Route]) -> EntryChange:
        """Generalise all routes anew, or let each be an entry, if that is within the budget."""
        before = self._entries
        is_exact = self._exact_size <= self._budget
        covering = None if is_exact else self._generaliser.generalise(routes, self._goal)
        self._covering = covering
        self._was_sampled = self._generaliser.is_sampled
        self._at_first = self._routes
        self._entries, self._members, self._entry_of, self._others, self._size = {}, {}, {}, {}, 0
        for route in routes:
            self._join(route, (covering.cover(route) if covering is not None else None) or route)
        self._limit = max(self._budget, self._size + self._budget // 4)
        return EntryChange(
            [entry for key, entry in self._entries.items() if key not in before],
            [key for key in before if key not in self._entries],
        )
