"""Fewer and shorter routes that accept all that some routes accept, and as little more as possible.

This is ONYX's Generalise, for tables that exceed a budget. Routes are in *classes*: of one tenant and stream,
with conditions of one shape. A class is as large as its conditions, where those that differ in a constant are
merged (`merged_values`): that loses nothing. As long as all classes together are too large, the conditions of
some class become one part weaker (`weaker_conditions`), so that the class is one of another shape, with
fewer conditions:

    /news[@topic = ▢]/p     50 routes  ─► /news[@topic]/p   1 route        loses what topics nobody wants
    /news[@topic]/p          1 route   ─► /news[@topic]     1 route        loses what has no p

The order is that of the measured loss: the messages of a sample that would cross the link in addition. Of
equal losses, that one is chosen which accepts the fewest messages, then the mildest, then the one that saves
most. What every message of the tenant and stream meets comes last of all. Which shape became which is kept:
so it is known without any search which entry accepts a route that comes later. An entry that stands for
routes which read different parts of messages wants whole ones.

Rejected: to look for the best pair of routes to merge, which takes quadratic time and, since the parts that
differ are mostly constants, ends at the same classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sapwood.errors import RouteError
from sapwood.lang.pattern import TRUE, Condition
from sapwood.mesh.routing.merged_values import merge_values
from sapwood.mesh.routing.read_paths import covers
from sapwood.mesh.routing.route import Route
from sapwood.mesh.routing.weaker_conditions import Omission, list_weakenings, shape_of

_SHARE = 8
"""One in so many possible changes is made before their losses are measured anew."""
_EVERYTHING = shape_of(TRUE)

Hits = Callable[[Sequence[Route]], Sequence[int]]
"""for each of some routes, the messages of a sample that it accepts, as bits"""
Size = Callable[[Route], int]


class ClassKey(NamedTuple):
    """What the routes of a class have in common."""

    tenant: str
    stream: str | None
    shape: str


@dataclass(slots=True)
class Generalisation:
    """Entries in place of routes, and how to find that of a route."""

    entries: dict[Route, None] = field(default_factory=dict)
    loss: int = 0
    """messages of the sample that cross the link in addition"""
    _entry_of: dict[int, Route] = field(default_factory=dict)
    """by the key of a route, the entry that it is part of, if that is another one"""
    _entry_with: dict[ClassKey, dict[Condition, Route]] = field(default_factory=dict)
    """by class, the entry of each condition that has become weaker or is merged with others"""
    _became: dict[ClassKey, str] = field(default_factory=dict)
    """by class, the shape that its conditions got"""

    def cover(self, route: Route) -> Route | None:
        """Return the entry that accepts all that a route accepts, if there is one by the way in which routes
        of its shape were generalised."""
        if route in self.entries:
            return route
        known = self._entry_of.get(route.key)
        if known is not None:
            return known
        condition: Condition | None = route.condition
        key = ClassKey(route.tenant, route.stream, shape_of(route.condition))
        while condition is not None:
            found = self._entry_with.get(key, {}).get(condition)
            if found is not None:
                return found if covers(found.reads, route.reads) else None
            shape = self._became.get(key)
            if shape is None:
                return None
            condition = _weaken_to(condition, shape)
            key = key._replace(shape=shape)
        return None


def generalise(routes: Sequence[Route], budget: int, find_hits: Hits, size: Size) -> Generalisation:
    """Return entries that together accept what the routes do and are within the budget, if that is possible
    without merging tenants or streams."""
    if sum(map(size, routes)) <= budget:
        return Generalisation(dict.fromkeys(routes))
    return _Reduction(routes, find_hits, size).run(budget)


@dataclass(slots=True)
class _Class:
    """Conditions of one shape, with the routes that each stands for."""

    key: ClassKey
    members: dict[Condition, list[Route]] = field(default_factory=dict)
    entries: dict[Route, list[Condition]] = field(default_factory=dict)
    size: int = 0
    plain: int = 0
    """the size without merging"""
    hits: int = 0
    changes: list[_Change] | None = None
    """None: not looked for yet"""


@dataclass(slots=True)
class _Change:
    """A way to make the conditions of a class weaker."""

    source: ClassKey
    shape: str
    omission: Omission
    becomes: dict[Condition, Condition]
    saved: int = 0
    hits: int = 0

    @property
    def target(self) -> ClassKey:
        return self.source._replace(shape=self.shape)


class _Reduction:
    """The classes of a table that becomes smaller."""

    def __init__(self, routes: Sequence[Route], find_hits: Hits, size: Size) -> None:
        self._find_hits = find_hits
        self._size_of = size
        self._hits: dict[Route, int] = {}
        self._classes: dict[ClassKey, _Class] = {}
        self._became: dict[ClassKey, str] = {}
        self._routes = routes
        for route in routes:
            key = ClassKey(route.tenant, route.stream, shape_of(route.condition))
            self._class(key).members.setdefault(route.condition, []).append(route)
        self._union = self._exact = 0
        self._size = 0
        for each in self._classes.values():
            self._merge(each)
            self._size += each.size

    def _class(self, key: ClassKey) -> _Class:
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _Class(key)
        return found

    def _measure_hits(self, routes: Iterable[Route]) -> None:
        new = [route for route in dict.fromkeys(routes) if route not in self._hits]
        if new:
            self._hits.update(zip(new, self._find_hits(new), strict=True))

    def _measure_all(self) -> None:
        """Measure what the table accepts as it is."""
        self._measure_hits(self._routes)
        for each in self._classes.values():
            self._join_hits(each)
            self._union |= each.hits
        self._exact = self._union

    def _join_hits(self, each: _Class) -> None:
        each.hits = 0
        routes = [_route(each.key, condition, members) for condition, members in each.members.items()]
        self._measure_hits(routes)
        for route in routes:
            each.hits |= self._hits[route]

    def _merge(self, each: _Class) -> None:
        """Find the entries of a class, and its size."""
        key = each.key
        plain = {condition: _route(key, condition, members) for condition, members in each.members.items()}
        each.plain = sum(map(self._size_of, plain.values()))
        each.entries, each.size = {}, 0
        for merged, parts in merge_values(list(each.members)):
            apart = sum([self._size_of(plain[part]) for part in parts])
            members = [route for part in parts for route in each.members[part]]
            entry = _try_route(key, merged, members) if len(parts) > 1 else None
            if entry is not None and self._size_of(entry) < apart:
                each.entries[entry] = parts
                each.size += self._size_of(entry)
            else:
                each.entries.update((plain[part], [part]) for part in parts)
                each.size += apart
        each.changes = None

    # -- changes ---------------------------------------------------------------------------------------

    def run(self, budget: int) -> Generalisation:
        """Make classes weaker until all are within the budget, or nothing can become weaker."""
        if self._size > budget:
            self._measure_all()
        while self._size > budget:
            changes = self._rank_changes()
            if not changes:
                break
            touched: set[ClassKey] = set()
            for change in changes[: max(1, len(changes) // _SHARE)]:
                if self._size <= budget:
                    break
                if change.source not in touched and change.target not in touched:
                    touched |= {change.source, change.target}
                    self._apply(change)
        return self._finish()

    def _rank_changes(self) -> list[_Change]:
        """Return the changes that save something, those with the smallest loss first."""
        new = [each for each in self._classes.values() if each.changes is None]
        made = {id(change): routes for each in new for change, routes in self._find_changes(each)}
        self._measure_hits([route for routes in made.values() for route in routes])
        for each in new:
            for change in each.changes or ():
                for route in made[id(change)]:
                    change.hits |= self._hits[route]
        changes = [change for each in self._classes.values() for change in each.changes or ()]
        return sorted(changes, key=self._rank)

    def _rank(self, change: _Change) -> tuple[int, bool, int, int, int]:
        loss = (change.hits & ~self._union).bit_count()
        gain = (change.hits & ~self._classes[change.source].hits).bit_count()
        return loss, change.omission is Omission.EVERYTHING, gain, change.omission, -change.saved

    def _find_changes(self, each: _Class) -> Iterator[tuple[_Change, list[Route]]]:
        """Note the changes of a class that save something; yield each with the routes that it makes."""
        by_shape: dict[str, _Change] = {}
        for condition in each.members:
            for omission, weaker in list_weakenings(condition):
                shape = shape_of(weaker)
                change = by_shape.get(shape)
                if change is None:
                    change = by_shape[shape] = _Change(each.key, shape, omission, {})
                change.becomes.setdefault(condition, weaker)
        each.changes = []
        for change in by_shape.values():
            if len(change.becomes) == len(each.members):
                yield from self._note_change(each, change)
        if not each.changes and each.key.shape != _EVERYTHING:
            becomes: dict[Condition, Condition] = dict.fromkeys(each.members, TRUE)
            everything = _Change(each.key, _EVERYTHING, Omission.EVERYTHING, becomes)
            yield from self._note_change(each, everything)

    def _note_change(self, each: _Class, change: _Change) -> Iterator[tuple[_Change, list[Route]]]:
        assert each.changes is not None
        routes = [_route(each.key, weaker, ()) for weaker in dict.fromkeys(change.becomes.values())]
        known = self._classes.get(change.target)
        there = known.members if known is not None else {}
        added = sum([self._size_of(route) for route in routes if route.condition not in there])
        change.saved = each.size - added * each.size // max(each.plain, 1)  # if as much can be merged
        if change.saved > 0:
            each.changes.append(change)
            yield change, routes

    def _apply(self, change: _Change) -> None:
        source, target = self._classes.pop(change.source), self._class(change.target)
        self._size -= source.size + target.size
        for condition, members in source.members.items():
            target.members.setdefault(change.becomes[condition], []).extend(members)
        self._merge(target)
        self._join_hits(target)
        self._size += target.size
        self._union |= change.hits
        self._became[change.source] = change.shape
        self._became.pop(change.target, None)  # it has conditions again
        if change.shape == _EVERYTHING:
            self._absorb(target)

    def _absorb(self, everything: _Class) -> None:
        """Let what all messages of a tenant and stream meet stand for its other routes, too."""
        tenant, stream, _ = everything.key
        for key in [key for key in self._classes if key[:2] == (tenant, stream) and key != everything.key]:
            absorbed = self._classes.pop(key)
            self._size -= absorbed.size
            for members in absorbed.members.values():
                everything.members[TRUE] += members
            self._became[key] = _EVERYTHING

    def _finish(self) -> Generalisation:
        made = Generalisation(loss=(self._union & ~self._exact).bit_count(), _became=self._became)
        for each in self._classes.values():
            for entry, parts in each.entries.items():
                made.entries[entry] = None
                for part in parts:
                    made._entry_with.setdefault(each.key, {})[part] = entry
                    for route in each.members[part]:
                        if route != entry:
                            made._entry_of[route.key] = entry
        return made


def _weaken_to(condition: Condition, shape: str) -> Condition | None:
    """Return the condition of a shape that is one part weaker; None if there is none."""
    if shape == _EVERYTHING:
        return TRUE
    return next((weaker for _, weaker in list_weakenings(condition) if shape_of(weaker) == shape), None)


def _route(key: ClassKey, condition: Condition, members: Sequence[Route]) -> Route:
    """Return the route of a condition; that of a member with this condition which reads all is itself."""
    for route in members:
        if route.condition is condition and all(covers(route.reads, each.reads) for each in members):
            return route
    return Route(key.tenant, key.stream, condition, exact=False)


def _try_route(key: ClassKey, condition: Condition, members: Sequence[Route]) -> Route | None:
    """Return the route of merged conditions; None if it is too large to be sent."""
    try:
        return Route(key.tenant, key.stream, condition, all(route.exact for route in members))
    except RouteError:
        return None
