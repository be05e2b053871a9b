"""Routes in the index of a tenant's subscriptions: one matching pass finds both.

Each distinct condition has one slot, however many links and streams want it. What a message is wanted by is
then a few operations on arrays, whatever the number of slots that it matches:

    routes of any stream    by slot, the links as bits; those of the matched slots are OR-ed
    routes of one stream    a row each, with its stream and its links; a slot lists its rows

Most routes are of any stream. An array by slot for each stream would do for the others, too, but takes the
memory of all streams times all slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import RaggedArray, grow_array
from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.engine.matcher import Matcher
from sapwood.engine.registration import Owner
from sapwood.errors import ArgumentError
from sapwood.lang.pattern import Condition
from sapwood.lang.query import Query

if TYPE_CHECKING:  # whose encoding takes a library that a broker without links does not need
    from sapwood.mesh.routing.route import Route

MOST_LINKS = 62
"""so that all bits fit a signed number of 64"""
_MANY = 1_000
"""From this many changes on, teaching the automaton anew is cheaper than updating what it learnt."""
_SPREAD = np.uint32(2_654_435_761)
"""a multiplier that scatters consecutive numbers"""
_QUERY_TEXT = "the condition of a route"


@dataclass(slots=True)
class _Slot:
    """A condition in the index."""

    slot: int
    routes: int = 0


@dataclass(slots=True)
class _Stream:
    """A stream that some routes are restricted to."""

    number: int
    routes: int = 0


class RouteIndex:
    """The routes that links want, all of one tenant, in the index of a matcher."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._tenant: str | None = None
        self._slot_of: dict[Condition, _Slot] = {}
        self._stream_of: dict[str, _Stream] = {}
        self._free_streams: list[int] = []
        self._place_of: dict[Route, int] = {}  # of any stream: its slot; of one: its row
        self._any_stream: NDArray[np.int64] = np.zeros(64, np.int64)  # by slot, links
        self._slot_routes: list[Route | None] = []  # by slot, of any stream
        self._row_routes: list[Route | None] = []
        self._row_links: NDArray[np.int64] = np.zeros(64, np.int64)
        self._row_streams: NDArray[np.int32] = np.zeros(64, np.int32)
        self._rows_of = RaggedArray(np.int32)  # by slot
        self._rows = 0
        self._free_rows: list[int] = []

    def __len__(self) -> int:
        """The number of distinct routes that any link wants."""
        return len(self._place_of)

    # -- changes ---------------------------------------------------------------------------------------

    def set(self, link: int, added: Iterable[Route], removed: Iterable[Route]) -> None:
        """Change what a link wants; routes that it has already, or has not, make no difference.

        A route that is both added and removed is there afterwards. Nothing changes if an argument is refused.
        """
        bit = _to_bit(link)
        new = dict.fromkeys(added)
        old = [route for route in removed if route not in new]
        self._check_tenant(new)
        with self._matcher.lock, pause_garbage_collection():
            self._matcher.freeze_unread()
            if len(new) + len(old) >= _MANY:
                self._matcher.index.clear_cache()
            for route in new:
                self._add(route, bit)
            for route in old:
                self._remove(route, bit)

    def clear(self, link: int) -> None:
        """Forget all that a link wants."""
        bit = _to_bit(link)
        self.set(link, (), [route for route in self._place_of if self._links_of(route) & bit])

    def _check_tenant(self, routes: Iterable[Route]) -> None:
        tenant = self._tenant if self._place_of else None
        for route in routes:
            if tenant is None:
                tenant = route.tenant
            if route.tenant != tenant:
                raise ArgumentError(f"a route of tenant {route.tenant!r} among those of {tenant!r}")
        self._tenant = tenant

    def _links_of(self, route: Route) -> int:
        place = self._place_of[route]
        return int(self._any_stream[place] if route.stream is None else self._row_links[place])

    def _add(self, route: Route, bit: int) -> None:
        place = self._place_of.get(route)
        if place is None:
            place = self._place_of[route] = self._register(route)
        links = self._any_stream if route.stream is None else self._row_links
        links[place] |= bit
        routes = self._slot_routes if route.stream is None else self._row_routes
        if place >= len(routes):
            routes += [None] * (len(links) - len(routes))
        routes[place] = route

    def _remove(self, route: Route, bit: int) -> None:
        place = self._place_of.get(route)
        if place is None:
            return
        links = self._any_stream if route.stream is None else self._row_links
        links[place] &= ~bit
        if not links[place]:
            del self._place_of[route]
            (self._slot_routes if route.stream is None else self._row_routes)[place] = None
            self._unregister(route, place)

    def _register(self, route: Route) -> int:
        """Index the condition of a route, unless it is, and return the place of the route's links."""
        known = self._slot_of.get(route.condition)
        if known is None:
            query = Query(_QUERY_TEXT, "boolean", route.condition)  # exact: lxml is never asked
            slot = self._matcher.index.register(query, Owner.LINK)
            known = self._slot_of[route.condition] = _Slot(slot)
            if slot >= len(self._any_stream):
                self._any_stream = grow_array(self._any_stream, 2 * slot)
        known.routes += 1
        return known.slot if route.stream is None else self._new_row(known.slot, route.stream)

    def _unregister(self, route: Route, place: int) -> None:
        known = self._slot_of[route.condition]
        if route.stream is not None:
            self._free_row(known.slot, place, route.stream)
        known.routes -= 1
        if not known.routes:
            del self._slot_of[route.condition]
            self._matcher.index.unregister(known.slot)

    def _new_row(self, slot: int, name: str) -> int:
        stream = self._stream_of.get(name)
        if stream is None:
            number = self._free_streams.pop() if self._free_streams else len(self._stream_of)
            stream = self._stream_of[name] = _Stream(number)
        stream.routes += 1
        row = self._free_rows.pop() if self._free_rows else self._rows
        if row == self._rows:
            self._rows += 1
            if row == len(self._row_links):
                self._row_links = grow_array(self._row_links, 2 * row)
                self._row_streams = grow_array(self._row_streams, 2 * row)
        self._row_streams[row] = stream.number
        self._rows_of.append(slot, row)
        return row

    def _free_row(self, slot: int, row: int, name: str) -> None:
        self._rows_of.remove(slot, row)
        self._free_rows.append(row)
        stream = self._stream_of[name]
        stream.routes -= 1
        if not stream.routes:
            del self._stream_of[name]
            self._free_streams.append(stream.number)

    # -- messages --------------------------------------------------------------------------------------

    def find_routes(self, slots: Ints, name: str) -> list[tuple[Route, int]]:
        """Return the routes that a message of a stream meets, with the links that want each, as bits, given
        the slots that it matches; looks at all routes."""
        matched = set(slots.tolist())
        return [
            (route, self._links_of(route))
            for route in self._place_of
            if route.stream in (None, name) and self._slot_of[route.condition].slot in matched
        ]

    def find_links(self, slots: Ints, name: str) -> int:
        """Return the links that want a message of a stream, as bits, given the slots that it matches,
        ascending."""
        if not self._place_of or not len(slots):
            return 0
        links = int(np.bitwise_or.reduce(self._links_at(slots)))
        rows = self._rows_at(slots, name)
        if rows is not None:
            links |= int(np.bitwise_or.reduce(self._row_links.take(rows)))
        return links

    def find_hits(self, slots: Ints, name: str, link: int, most: int, some: int) -> tuple[list[Route], bool]:
        """Return the routes of a link that a message of a stream meets, given the slots that it matches,
        ascending, and whether these are all.

        If there are more than `most`, `some` are chosen as if at random; messages that meet similar routes
        have the same ones.
        """
        bit = _to_bit(link)
        if not self._place_of or not len(slots):
            return [], True
        places = slots[(self._links_at(slots) & bit) != 0]
        rows = self._rows_at(slots, name)
        if rows is not None:
            places = np.concatenate((places, ~rows[(self._row_links.take(rows) & bit) != 0]))
        is_complete = len(places) <= most
        if not is_complete:
            ranks = places.astype(np.uint32) * _SPREAD
            places = places[ranks.argpartition(some)[:some]]
        of_slots, of_rows = self._slot_routes, self._row_routes
        found = [of_slots[place] if place >= 0 else of_rows[~place] for place in places.tolist()]
        return [route for route in found if route is not None], is_complete

    def _links_at(self, slots: Ints) -> NDArray[np.int64]:
        """Return the links that want messages of any stream, by slot; the last slot is the greatest."""
        last = int(slots[-1])
        if last >= len(self._any_stream):
            self._any_stream = grow_array(self._any_stream, 2 * last)
        return self._any_stream.take(slots)

    def _rows_at(self, slots: Ints, name: str) -> NDArray[np.int32] | None:
        """Return the rows of routes of a stream at some slots, ascending; None if no route has it."""
        stream = self._stream_of.get(name)
        if stream is None:
            return None
        self._rows_of.reserve(int(slots[-1]) + 1)
        rows = self._rows_of.numbers(slots)
        chosen: NDArray[np.int32] = rows[self._row_streams.take(rows) == stream.number]
        return chosen


def _to_bit(link: int) -> int:
    if not 0 <= link < MOST_LINKS:
        raise ArgumentError(f"a link is a number from 0 to {MOST_LINKS - 1}, not {link}")
    return 1 << link
