"""The routes of a node: what is wanted on each side of it, and what it has told its neighbours.

Each route has a mask with a bit for every neighbour on whose side it is wanted, and bit 0 for local
subscriptions. A neighbour is told of a route if any other bit than its own is set: somebody wants it who is
not on its side. So one number for each route is the whole table, for all links:

    route            parent child1 child2 local     told to
    /nitf//title        .      1      .     .       parent, child2
    //order[@x=1]       1      1      .     .       parent, child1, child2

Routes are added to what a neighbour has at once, and removed from it later, some at a time: a route too many
costs a message that nobody wants, a route too few would lose one. A table that exceeds a budget has *entries*
in place of routes, which are told in the same way (see `link_entries`): when the entries become other ones,
those that replace others are told before these are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sapwood.mesh.core.frames import UNNUMBERED, Route, TableFrame
from sapwood.mesh.core.tables.generaliser import EXACT, Generaliser
from sapwood.mesh.core.tables.link_entries import LinkEntries

LOCAL = 1
PART = 5_000
"""routes in one frame of a whole table"""


@dataclass(slots=True)
class Told:
    """What a neighbour was told, and what it has confirmed."""

    bit: int
    version: int = 0
    confirmed: int = 0
    """the version that all brokers on its side have"""
    added: dict[int, Route] = field(default_factory=dict)
    """routes it is to be told of"""
    stale: dict[int, None] = field(default_factory=dict)
    """keys of routes that it was told of, and need not have any more"""
    is_open: bool = False
    """whether it was told that more may be wanted"""
    digest: int = 0
    count: int = 0
    entries: LinkEntries | None = None
    """what stands for the routes that it has to know; None: each for itself"""

    @property
    def generalised(self) -> int:
        """The number of entries that stand for other routes than themselves."""
        return self.entries.generalised if self.entries is not None else 0


@dataclass(slots=True)
class Wanted:
    """What a neighbour has told: its table, as far as it is known."""

    is_complete: bool = False
    """whether the whole table is there: as long as it is not, everything is wanted"""
    is_open: bool = False
    """whether the neighbour lacks tables itself: everything is wanted"""
    version: int = 0
    digest: int = 0
    count: int = 0
    arriving: set[int] | None = None
    """keys of a whole table of which not all parts are there"""


@dataclass(slots=True)
class Change:
    """The difference in what is wanted on a neighbour's side."""

    added: list[Route] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


class RouteTable:
    """The routes wanted on all sides of a node."""

    def __init__(self, generaliser: Generaliser = EXACT) -> None:
        self._generaliser = generaliser
        self._masks: dict[int, int] = {}
        self._routes: dict[int, Route] = {}
        self._uses: Counter[int] = Counter()
        self._is_local_known = False
        """whether it is known what local subscriptions want, since the start"""
        self.told: dict[str, Told] = {}
        self.wanted: dict[str, Wanted] = {}
        self._unknown: dict[str, None] = {}
        """neighbours that want everything"""

    def __len__(self) -> int:
        return len(self._masks)

    # -- neighbours ------------------------------------------------------------------------------------

    def add_link(self, link: str) -> None:
        """Add a neighbour, which wants everything until its table is there, and knows nothing yet."""
        used = {told.bit for told in self.told.values()}
        bit = LOCAL << 1
        while bit in used:
            bit <<= 1
        budget, routes = self._generaliser.budget, self._routes.values()  # all of other sides
        entries = LinkEntries(self._generaliser, budget, routes) if budget is not None else None
        self.told[link] = Told(bit, entries=entries)
        self.wanted[link] = Wanted()
        self._unknown[link] = None

    def remove_link(self, link: str) -> Change:
        """Remove a neighbour; return what was wanted on its side."""
        change = self.forget(link)
        del self.told[link], self.wanted[link], self._unknown[link]
        return change

    def forget(self, link: str) -> Change:
        """Forget the table of a neighbour, which wants everything from now on; return what it was."""
        bit = self.told[link].bit
        keys = [key for key, mask in self._masks.items() if mask & bit]
        for key in keys:
            self._set(key, self._masks[key] & ~bit)
        self.wanted[link] = Wanted()
        self._unknown[link] = None
        return Change([], keys)

    def renumber(self, link: str) -> Wanted:
        """Keep the table of a neighbour, which numbers its versions anew, and return it."""
        wanted = self.wanted[link]
        wanted.version, wanted.arriving = UNNUMBERED, None
        return wanted

    def is_unknown(self, link: str) -> bool:
        """Return whether a neighbour wants everything, because what its side wants is not known."""
        return link in self._unknown

    def unknown_links(self) -> list[str]:
        """Return the neighbours that want everything, because what their side wants is not known."""
        return list(self._unknown)

    def _check_known(self, link: str) -> None:
        wanted = self.wanted[link]
        if wanted.is_open or not wanted.is_complete:
            self._unknown[link] = None
        else:
            self._unknown.pop(link, None)

    def restore(self, link: str, routes: Iterable[Route], version: int, is_open: bool) -> None:
        """Set the whole table of a neighbour, as it was stored."""
        wanted, bit = self.wanted[link], self.told[link].bit
        for route in routes:
            self._routes.setdefault(route.key, route)
            self._set(route.key, self._masks.get(route.key, 0) | bit)
            self._count(wanted, route.key, 1)
        wanted.is_complete, wanted.is_open, wanted.version = True, is_open, version
        self._check_known(link)

    def _is_side_open(self, besides: str) -> bool:
        """Return whether more may be wanted on all sides but one than is known."""
        return not self._is_local_known or len(self._unknown) > (besides in self._unknown)

    def routes_of(self, link: str) -> list[Route]:
        """Return what is wanted on a neighbour's side."""
        bit = self.told[link].bit
        return [self._routes[key] for key, mask in self._masks.items() if mask & bit]

    def sides_of(self, key: int) -> list[str]:
        """Return the neighbours on whose side a route is wanted, and `local` if it is wanted here."""
        mask = self._masks.get(key, 0)
        here = ["local"] if mask & LOCAL else []
        return here + [link for link, told in self.told.items() if mask & told.bit]

    def local_routes(self) -> list[Route]:
        """Return what local subscriptions want."""
        return [self._routes[key] for key, mask in self._masks.items() if mask & LOCAL]

    def covers(self, digest: int, link: str) -> bool:
        """Return whether a table with a digest is what a neighbour was told, and that has each route that is
        wanted on any other side, as it is."""
        told = self.told.get(link)
        return (
            told is not None
            and told.digest == digest
            and not told.added
            and not told.is_open
            and told.entries is None
        )

    def find_sides(self, digest: int, keys: Iterable[int], is_complete: bool, link: str) -> int | None:
        """Return the sides that want a message which a neighbour sends, as bits, given the keys of routes
        that it meets in a table with a digest; None if that is another table than it was told, or if the keys
        are not all, and a neighbour may want it that wants none of these."""
        if not self.covers(digest, link):
            return None
        sides = 0
        for key in keys:
            sides |= self._masks.get(key, 0)
        if not is_complete:
            for name, told in self.told.items():
                if name != link and not sides & told.bit and self.wanted[name].count:
                    return None
        return sides

    def select(self, keys: Iterable[int], link: str) -> tuple[int, ...]:
        """Return those of some keys whose routes are wanted on a neighbour's side."""
        bit = self.told[link].bit
        return tuple([key for key in keys if self._masks.get(key, 0) & bit])

    # -- changes ---------------------------------------------------------------------------------------

    def change_local(self, added: Iterable[Route], removed: Iterable[Route]) -> None:
        """Use routes once more, or once less, for local subscriptions; the first time, for all that stand."""
        self._is_local_known = True
        for route in added:
            self._uses[route.key] += 1
            self._routes.setdefault(route.key, route)
            self._set(route.key, self._masks.get(route.key, 0) | LOCAL)
        for route in removed:
            key = route.key
            if self._uses[key] > 1:
                self._uses[key] -= 1
            elif key in self._uses:
                del self._uses[key]
                self._set(key, self._masks[key] & ~LOCAL)

    def receive(self, link: str, frame: TableFrame) -> Change:
        """Apply what a neighbour tells; return the difference in what is wanted on its side."""
        wanted, bit = self.wanted[link], self.told[link].bit
        change = Change()
        if frame.begins:
            wanted.arriving = set()
        for route in frame.added:
            key = route.key
            if wanted.arriving is not None:
                wanted.arriving.add(key)
            mask = self._masks.get(key, 0)
            if not mask & bit:
                self._routes.setdefault(key, route)
                self._set(key, mask | bit)
                self._count(wanted, key, 1)
                change.added.append(route)
        removed: Iterable[int] = frame.removed
        if frame.ends and wanted.arriving is not None:
            kept = wanted.arriving
            removed = [key for key, mask in self._masks.items() if mask & bit and key not in kept]
            wanted.arriving = None
            wanted.is_complete = True
        for key in removed:
            mask = self._masks.get(key, 0)
            if mask & bit:
                self._set(key, mask & ~bit)
                self._count(wanted, key, -1)
                change.removed.append(key)
        wanted.version = frame.version
        if frame.ends:
            wanted.is_open = frame.is_open
            self._check_known(link)
        return change

    @staticmethod
    def _count(table: Wanted | Told, key: int, step: int) -> None:
        table.digest ^= key
        table.count += step

    def _set(self, key: int, mask: int) -> None:
        """Set the mask of a route, and note which neighbours are to be told."""
        old = self._masks.get(key, 0)
        if old == mask:
            return
        if mask:
            self._masks[key] = mask
        else:
            del self._masks[key]
        route = self._routes[key]
        if not (old & (old - 1) and mask & (mask - 1)):  # with two bits before and after, nothing is new
            for told in self.told.values():
                before, after = old & ~told.bit, mask & ~told.bit
                if after and not before:
                    entry = route if told.entries is None else told.entries.add(route)
                    if entry is not None:
                        _add_entry(told, entry)
                elif before and not after:
                    gone = key if told.entries is None else told.entries.remove(route)
                    if gone is not None:
                        _remove_entry(told, gone)
        if not mask:
            del self._routes[key]

    # -- what neighbours are told ----------------------------------------------------------------------

    def take_additions(self, link: str, always: bool = False) -> TableFrame | None:
        """Return the next version for a neighbour, if it has to be told of anything, or `always`.

        One that was told that more may be wanted sends everything, so it is told of routes when that is over:
        a tree that starts then tells each table once, not again for each broker behind it.
        """
        told = self.told[link]
        is_open = self._is_side_open(link)
        if not is_open:
            self._review(told)
        if is_open == told.is_open and (is_open or not told.added) and not always:
            return None
        told.is_open = is_open
        added, told.added = tuple(told.added.values()), {}  # a dict that is emptied keeps its memory
        return self._next(told, added, ())

    def take_removals(self, link: str) -> TableFrame | None:
        """Return the next version for a neighbour, without the routes that it need not have any more."""
        told = self.told[link]
        if not told.stale:
            return None
        removed, told.stale = tuple(told.stale), {}
        return self._next(told, (), removed)

    def _next(self, told: Told, added: tuple[Route, ...], removed: tuple[int, ...]) -> TableFrame:
        told.version += 1
        for route in added:
            self._count(told, route.key, 1)
        for key in removed:
            self._count(told, key, -1)
        return TableFrame(told.version, added, removed, is_open=told.is_open)

    def take_all(self, link: str) -> list[TableFrame]:
        """Return the whole table for a neighbour, in parts of one new version."""
        told = self.told[link]
        told.version += 1
        self._review(told)
        told.added, told.stale = {}, {}
        told.digest = told.count = 0
        told.is_open = self._is_side_open(link)
        routes = self._routes_for(told) if told.entries is None else told.entries.list_entries()
        for route in routes:
            self._count(told, route.key, 1)
        starts = range(0, len(routes), PART) if routes else range(1)
        return [
            TableFrame(
                told.version,
                tuple(routes[start : start + PART]),
                begins=start == 0,
                ends=start + PART >= len(routes),
                is_open=told.is_open,
            )
            for start in starts
        ]

    # -- tables under a budget -------------------------------------------------------------------------

    def is_due(self, link: str) -> bool:
        """Return whether the entries for a neighbour are to be made anew, which `take_additions` does."""
        entries = self.told[link].entries
        return entries is not None and entries.is_due and not self._is_side_open(link)

    def find_entry(self, link: str, key: int) -> Route | None:
        """Return the generalised entry that stands for a route in what a neighbour is told; None if the route
        is told as it is, or not at all."""
        entries = self.told[link].entries
        found = entries.find_entry(key) if entries is not None else None
        return found if found is not None and found.key != key else None

    def _routes_for(self, told: Told) -> list[Route]:
        """Return what is wanted on all sides but that of a neighbour."""
        return [self._routes[key] for key, mask in self._masks.items() if mask & ~told.bit]

    def _review(self, told: Told) -> None:
        """Make the entries for a neighbour anew, if that is due; those that replace others are told first."""
        if told.entries is not None and told.entries.is_due:
            change = told.entries.renew(self._routes_for(told))
            for entry in change.added:
                _add_entry(told, entry)
            for key in change.removed:
                _remove_entry(told, key)


def _add_entry(told: Told, entry: Route) -> None:
    """Note that a neighbour needs an entry, unless it has it still."""
    if entry.key in told.stale:
        del told.stale[entry.key]
    else:
        told.added[entry.key] = entry


def _remove_entry(told: Told, key: int) -> None:
    """Note that a neighbour needs an entry no more, unless it was never told."""
    if key in told.added:
        del told.added[key]
    else:
        told.stale[key] = None
