"""The path tree, worked out for the paths that messages really take.

A `GuideNode` stands for a path of element names from the root, such as nitf, body, p: it holds the states
of the path tree that an element with this path enters, its *members*. Guide nodes form a trie: one is a
dict from element name to the guide node of a child with that name, and fills itself on a miss. So in a warm
guide an element costs one look-up, however many queries there are. A Place also knows what is found there:

    slots, anchors   marks of the query paths that end here (arrays, made when first read); groups likewise
    attributes       attribute name → Probe, or None where no query asks for attributes
    text, value      Probes for text nodes and the string-value, or None

Why not a deterministic automaton, whose states are the sets of members, so that places with equal sets are
one? With many queries hardly any sets are equal (2,738 paths make 2,660 sets for 150,000 queries on news
messages), and a query that comes or goes changes the very identity of the states: they have to be made anew.
A place stays where it is. A new path is *spread* from the places that hold its last old state to those below,
an old one is crossed out, and a warm machine stays warm while queries come and go.

The cache is bounded by a budget of cells, some twenty bytes each. What does not fit is made for the message
at hand only; when as much again has been made in that way, all is dropped, since messages may have changed.
So data with ever new paths, or names, or values, costs stepping, not memory. Names that no query mentions are
all one name, of which only the latest are known, and where nothing can match any more all paths end in one
place.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from sapwood.engine.automaton.path_trie import DESCENDANT, ROOT, PathTrie
from sapwood.engine.automaton.predicate_index import NO_INTS, Gathered, Hits, Ints, Postings, ValueIndex
from sapwood.engine.automaton.query_paths import VALUE
from sapwood.engine.message.string_values import StringValues
from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, is_wildcard

# What things cost in cells.
_PLACE, _MEMBER, _LINK, _VALUE, _PROBE = 32, 1, 8, 20, 20

_MOST_CHANGES = 64
"""Changes noted at a Place before its slots are made anew."""

_OTHER = ""
"""Stands for all names that no query mentions: no element is called that."""

_MOST_OTHERS = 20_000
"""Links from places by such names: more than a vocabulary has, and no more where names are ever new."""


class Stop:
    """What queries ask of the elements at one state of the path tree."""

    __slots__ = ("here", "targets")

    def __init__(self) -> None:
        self.here = Postings()
        self.targets: dict[str, ValueIndex] = {}

    def __bool__(self) -> bool:
        return bool(self.here or self.targets)


class Probe(dict[str, Hits | None]):
    """Value → what it hits, over all tests of one target at one Place; remembers values seen."""

    __slots__ = ("_indexes", "_machine")

    def __init__(self, machine: Dataguide, indexes: list[ValueIndex]) -> None:
        self._machine = machine
        self._indexes = indexes

    def __missing__(self, value: str) -> Hits | None:
        gathered = Gathered()
        for index in self._indexes:
            index.collect(value, gathered)
        hits = gathered.hits()
        if len(value) <= 64 and self._machine.affords(_VALUE):
            self[value] = hits
        return hits

    def between(self, values: StringValues, start: int, end: int) -> Hits | None:
        """What a long range of a message's text hits; remembered as long as the message is."""

        def collect() -> Hits | None:
            gathered = Gathered()
            for index in self._indexes:
                index.collect_between(values, start, end, gathered)
            return gathered.hits()

        return values.remembered((*map(id, self._indexes), start, end), collect)


class AttributeProbes(dict[str, "Probe | None"]):
    """Attribute name → Probe at one Place."""

    __slots__ = ("_place",)

    def __init__(self, place: GuideNode) -> None:
        self._place = place

    def __missing__(self, name: str) -> Probe | None:
        machine, place = self._place.machine, self._place
        indexes = machine.indexes(place, [f"@{test}" for test in name_tests_of(name)])
        if indexes and indexes != machine.indexes(place, ("@*",)):
            probe = Probe(machine, indexes)
            if machine.affords(_LINK + _PROBE):
                self[name] = probe
            return probe
        other = self.get(_OTHER)
        if indexes and other is None:
            other = self[_OTHER] = Probe(machine, indexes)
        machine.link_other(self, name, other)
        return other


class GuideNode(dict[str, "GuideNode"]):
    """A path of names, the tree states entered by it, and what is found there."""

    __slots__ = (
        "anchors",
        "attributes",
        "changes",
        "group_reach",
        "machine",
        "members",
        "reach",
        "slots",
        "text",
        "value",
    )
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __init__(self, machine: Dataguide, members: list[int]) -> None:
        self.machine = machine
        self.members = members
        self.slots: Ints | None = None
        self.changes: list[int] = []  # slots come, or, as ~slot, gone since `slots` was made
        self.anchors: Ints | None = None
        self.reach: tuple[Ints, Ints] | None = None  # kept for `join`
        self.group_reach: tuple[Ints, Ints] | None = None  # kept for `groups`
        self.attributes: AttributeProbes | None = None
        self.text: Probe | None = None
        self.value: Probe | None = None

    def __missing__(self, name: str) -> GuideNode:
        return self.machine.step(self, name)

    def read_slots(self) -> Ints:
        """The slots of the paths that end here."""
        if self.slots is None or self.changes:
            self.machine.read(self)
        assert self.slots is not None
        return self.slots

    def read_anchors(self) -> Ints:
        if self.anchors is None:
            self.machine.read(self)
        assert self.anchors is not None
        return self.anchors


class Dataguide:
    """The places that messages have been to, kept in step with the path tree."""

    def __init__(self, tree: PathTrie, budget: int) -> None:
        self._tree = tree
        self._budget = budget
        self._spent = 0
        self._places = 0
        self.stops: dict[int, Stop] = {}
        self._slot_at: dict[int, int] = {}  # the frequent case: one slot, nothing else, at a tree state
        self._places_with: defaultdict[int, list[GuideNode]] = defaultdict(list)
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the places, which belong to the messages seen."""
        return {name: getattr(self, name) for name in ("_tree", "_budget", "stops", "_slot_at")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._places_with = defaultdict(list)
        self.forget()

    def forget(self) -> None:
        """Drops all places; messages to come make them anew."""
        self._places_with.clear()
        self._others: deque[tuple[dict[str, Any], str]] = deque()
        self._spent = self._places = 0
        self._nowhere = GuideNode(self, [])
        self._nowhere.slots = self._nowhere.anchors = NO_INTS
        self.root = GuideNode(self, [ROOT])
        if ROOT in self.stops:
            self._equip(self.root, self.stops[ROOT].targets)
        self._places_with[ROOT].append(self.root)

    def __len__(self) -> int:
        return self._places

    def settle(self) -> GuideNode:
        """Where the next message starts; drops all places if they have not been enough for long."""
        if self._spent > 2 * self._budget:
            self.forget()
        return self.root

    def affords(self, cells: int) -> bool:
        """Whether the cache has room for something of that size; counts it, fitting or not."""
        self._spent += cells
        return self._spent <= self._budget

    # -- stepping --------------------------------------------------------------------------------------

    def step(self, place: GuideNode, name: str) -> GuideNode:
        """The place of a child with this name, when the place itself does not know it yet."""
        tests = self._tests(name)
        if not tests or tests == ["*"]:
            child = place.get(_OTHER)
            if child is None:
                child = self._child(place, _OTHER, tests)
            self.link_other(place, name, child)
            return child
        return self._child(place, name, tests)

    def link_other(self, links: dict[str, Any], name: str, other: object) -> None:
        """Links a name that no query mentions; if there are too many, the first such link goes."""
        if len(self._others) >= _MOST_OTHERS:
            self._spent -= _LINK
            first, known = self._others.popleft()
            if first.get(known) is first.get(_OTHER):  # and not mentioned by now
                first.pop(known, None)
        if self.affords(_LINK):
            links[name] = other
            self._others.append((links, name))

    def _tests(self, name: str) -> list[str]:
        """The name tests in use that a name passes."""
        return [test for test in name_tests_of(name) if test in self._tree.symbols]

    def _child(self, place: GuideNode, name: str, tests: list[str]) -> GuideNode:
        entered = self._entered(place.members, tests)
        child = self._place(list(entered)) if entered else self._nowhere
        if self.affords(_LINK):
            place[name] = child
        return child

    def _entered(self, members: list[int], tests: list[str]) -> set[int]:
        """The states entered from these by an element whose name passes the tests."""
        edges = self._tree.edges
        entered = self._tree.deep.intersection(members)
        rows = [row for row in map(edges.__getitem__, members) if row is not None]
        deep = [row[DESCENDANT] for row in rows if DESCENDANT in row]
        entered.update(deep)
        rows += [row for row in map(edges.__getitem__, deep) if row is not None]
        for test in tests:
            entered.update([row[test] for row in rows if test in row])
        return entered

    def _place(self, members: list[int]) -> GuideNode:
        place = GuideNode(self, members)
        for stop in [self.stops[member] for member in members if member in self.stops]:
            self._equip(place, stop.targets)
        if self.affords(_PLACE + _MEMBER * len(members)):
            self._places += 1
            for member in members:
                self._places_with[member].append(place)
        return place

    def _equip(self, place: GuideNode, targets: Iterable[str]) -> None:
        """Makes the Place probe these targets."""
        for target in targets:
            if target == TEXT:
                place.text = Probe(self, self.indexes(place, (TEXT,)))
            elif target == VALUE:
                place.value = Probe(self, self.indexes(place, (VALUE,)))
            elif place.attributes is None:
                place.attributes = AttributeProbes(place)
            else:
                place.attributes.clear()

    def indexes(self, place: GuideNode, targets: Iterable[str]) -> list[ValueIndex]:
        """The indexes of all tests that the paths ending at the Place make of any of the targets."""
        stops = [self.stops[member] for member in place.members if member in self.stops]
        return [stop.targets[target] for stop in stops for target in targets if target in stop.targets]

    def read(self, place: GuideNode) -> None:
        """Brings the marks of the paths that end at the Place up to date."""
        if place.slots is not None and place.anchors is not None:
            place.slots = _updated(place.slots, place.changes)
        else:
            slots = [self._slot_at[member] for member in place.members if member in self._slot_at]
            anchors: list[int] = []
            for stop in [self.stops[member] for member in place.members if member in self.stops]:
                slots += stop.here.slots
                anchors += stop.here.anchors
            place.slots = np.array(slots, np.int32) if slots else NO_INTS
            place.anchors = np.array(anchors, np.int32) if anchors else NO_INTS
        place.changes.clear()

    def groups(self, place: GuideNode) -> Ints:
        """The groups of the paths that end at the Place."""
        stops = [self.stops[member] for member in place.members if member in self.stops]
        numbers = [number for stop in stops for number in stop.here.groups]
        return np.array(numbers, np.int32) if numbers else NO_INTS

    # -- changes ---------------------------------------------------------------------------------------

    def grown(self, state: int, symbol: str) -> None:
        """The tree state got a new edge, to states that no place holds yet."""
        target = (self._tree.edges[state] or {})[symbol]
        places = list(self._places_with.get(state, ()))
        if self._tree.symbol[state] == DESCENDANT:  # its parent's places lead on as it does
            places += self._places_with.get(self._tree.parent[state], ())
        self._spread([(place, symbol, target) for place in places])

    def _spread(self, edges: list[tuple[GuideNode, str, int]]) -> None:
        """Members of these Places have edges to new states: the places below get those they enter."""
        done: set[tuple[GuideNode, int]] = set()
        while edges:
            place, symbol, target = edges.pop()
            onward = list((self._tree.edges[target] or {}).items())
            if symbol == DESCENDANT:
                edges += [(place, further, state) for further, state in onward]
            for name, child in self._entering(place, symbol):
                if child is self._nowhere:
                    del place[name]  # to be stepped anew
                elif (child, target) not in done:
                    done.add((child, target))
                    child.members.append(target)
                    self._places_with[target].append(child)
                    self._spent += _MEMBER
                    if symbol == DESCENDANT:
                        edges.append((child, DESCENDANT, target))
                    else:
                        edges += [(child, further, state) for further, state in onward]

    def _entering(self, place: GuideNode, symbol: str) -> list[tuple[str, GuideNode]]:
        """The known children of a Place that an edge with this symbol leads to."""
        if symbol == DESCENDANT or symbol == "*":
            return list(place.items())
        names = [name for name in place if symbol in name_tests_of(name)] if is_wildcard(symbol) else [symbol]
        other = place.get(_OTHER)
        found = []
        for name in names:
            child = place.get(name)
            if child is not None and child is other:
                del place[name]  # a name like any other until now
            elif child is not None:
                found.append((name, child))
        return found

    def pruned(self, states: list[int]) -> None:
        """Tree states are gone: the places that hold them are not."""
        for state in states:
            for place in self._places_with.pop(state, ()):
                place.members.remove(state)

    def mark(self, state: int, kind: str, number: int) -> None:
        """Adds a mark, of kind `slots`, `anchors` or `groups`, for elements that arrive at the tree state."""
        if kind == "slots" and state not in self._slot_at:
            self._slot_at[state] = number
        else:
            getattr(self.stops.setdefault(state, Stop()).here, kind).append(number)
        self._changed(state, kind, number)

    def unmark(self, state: int, kind: str, number: int) -> None:
        if kind == "slots" and self._slot_at.get(state) == number:
            del self._slot_at[state]
        else:
            getattr(self.stops[state].here, kind).remove(number)
            self._discard_empty(state)
        self._changed(state, kind, ~number)

    def _changed(self, state: int, kind: str, change: int) -> None:
        for place in self._places_with.get(state, ()):
            few = len(place.changes) < _MOST_CHANGES
            if kind == "groups":
                place.group_reach = None
            elif kind == "slots" and few and place.slots is not None and place.anchors is not None:
                place.changes.append(change)
            else:
                place.slots = place.anchors = place.reach = None
                place.changes.clear()

    def target_changed(self, state: int, target: str) -> None:
        """The tests of a target at the tree state have changed."""
        self._discard_empty(state)
        for place in self._places_with.get(state, ()):
            if target == TEXT:
                place.text = None
            elif target == VALUE:
                place.value = None
            elif place.attributes is not None:
                place.attributes.clear()
            self._equip(place, (target,))

    def _discard_empty(self, state: int) -> None:
        stop = self.stops.get(state)
        if stop is not None and not stop:
            del self.stops[state]


def _updated(slots: Ints, changes: list[int]) -> Ints:
    come: dict[int, None] = {}
    gone: list[int] = []
    for change in changes:
        if change >= 0:
            come[change] = None
        elif ~change in come:
            del come[~change]
        else:
            gone.append(~change)
    for slot in gone:
        slots = slots[slots != slot]
    return np.concatenate((slots, np.array(list(come), np.int32))) if come else slots


@lru_cache(maxsize=8_192)
def name_tests_of(name: str) -> tuple[str, ...]:
    """All name tests that a name passes: itself, any, its namespace's, any namespace's."""
    uri, brace, local = name.rpartition("}")
    any_namespace = f"{ANY_NAMESPACE}}}{local}"
    return (name, "*", f"{uri}}}*", any_namespace) if brace else (name, "*", any_namespace)
