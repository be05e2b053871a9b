"""The dataguide: the trie of the tag paths seen in messages, each with the states of the path trie there.

A `GuideNode` stands for a path of element names from the root, such as nitf, body, p: it holds the states of
the path trie that an element with this path enters, its *members*. A guide node is a dict from element name
to the guide node of a child with that name, and fills itself on a miss. So in a warm guide an element costs
one look-up, however many queries there are. A guide node also has what is posted there:

    slots, anchorings    postings of the query paths that end here (arrays, made when first read)
    classes              the classes of these slots, in nodes that are often read (see `query_classes`)
    attributes           attribute name → Probe, or None where no query asks for attributes
    text, value          Probes for text nodes and the string-value, or None

Why not a deterministic automaton, whose states are the sets of members, so that guide nodes with equal sets
are one? With many queries hardly any sets are equal (2,738 paths make 2,660 sets for 150,000 queries on news
messages), and a query that is added or removed changes the very identity of the states: they have to be made
anew. A guide node stays where it is. A new path is *propagated* from the nodes that hold its last old state
to those below, a removed one is crossed out, and a warm guide stays warm while queries come and go.

The cache is bounded by a budget of cells, some twenty bytes each. What does not fit is made for the current
message only; when as much again has been made in that way, all is dropped, since messages may have changed.
So data with ever new paths, or names, or values, costs stepping, not memory. Names that no query mentions are
all one name, of which only the latest are known, and where nothing can match any more all paths end in one
node.
"""

from __future__ import annotations

import logging
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from sapwood.engine.automaton.path_trie import DESCENDANT, ROOT, PathTrie
from sapwood.engine.automaton.predicate_index import (
    NO_INTS,
    HitCollector,
    Hits,
    Ints,
    PostingKind,
    Postings,
    PredicateIndex,
)
from sapwood.engine.automaton.query_classes import QueryClasses
from sapwood.engine.automaton.query_paths import VALUE
from sapwood.engine.message.string_values import StringValues
from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, is_wildcard

_log = logging.getLogger(__name__)

# Sizes in cells.
_NODE, _MEMBER, _LINK, _VALUE, _PROBE = 32, 1, 8, 20, 20

_MAX_CHANGES = 64
"""Changes listed at a guide node before its slots are read anew."""

_OTHER = ""
"""Stands for all names that no query mentions: no element is called that."""

_MAX_OTHERS = 20_000
"""Links by such names: more than a vocabulary has, and a bound where names are ever new."""


class StatePostings:
    """The postings at one state of the path trie: of elements that enter it, and of tests of their values."""

    __slots__ = ("elements", "predicates")

    def __init__(self) -> None:
        self.elements = Postings()
        self.predicates: dict[str, PredicateIndex] = {}  # by target

    def __bool__(self) -> bool:
        return bool(self.elements or self.predicates)


class Probe(dict[str, Hits | None]):
    """Value → its hits, over all tests of one target at one guide node; caches short values."""

    __slots__ = ("_dataguide", "_predicates")

    def __init__(self, dataguide: Dataguide, predicates: list[PredicateIndex]) -> None:
        self._dataguide = dataguide
        self._predicates = predicates

    def __missing__(self, value: str) -> Hits | None:
        collector = HitCollector()
        for predicates in self._predicates:
            predicates.collect(value, collector)
        hits = collector.hits()
        if len(value) <= 64 and self._dataguide.reserve(_VALUE):
            self[value] = hits
        return hits

    def probe_range(self, values: StringValues, start: int, end: int) -> Hits | None:
        """Return the hits of a long range of a message's text; cached as long as the message is."""

        def collect() -> Hits | None:
            collector = HitCollector()
            for predicates in self._predicates:
                predicates.collect_range(values, start, end, collector)
            return collector.hits()

        return values.cached((*map(id, self._predicates), start, end), collect)


class AttributeProbes(dict[str, "Probe | None"]):
    """Attribute name → Probe at one guide node."""

    __slots__ = ("_node",)

    def __init__(self, node: GuideNode) -> None:
        self._node = node

    def __missing__(self, name: str) -> Probe | None:
        dataguide, node = self._node.dataguide, self._node
        predicates = dataguide.predicates(node, [f"@{test}" for test in name_tests_of(name)])
        if predicates and predicates != dataguide.predicates(node, ("@*",)):
            probe = Probe(dataguide, predicates)
            if dataguide.reserve(_LINK + _PROBE):
                self[name] = probe
            return probe
        other = self.get(_OTHER)
        if predicates and other is None:
            other = self[_OTHER] = Probe(dataguide, predicates)
        dataguide.link_other(self, name, other)
        return other


class GuideNode(dict[str, "GuideNode"]):
    """A tag path, the trie states that it enters, and what is posted there."""

    __slots__ = (
        "anchor_reach",
        "anchorings",
        "attributes",
        "changes",
        "class_numbers",
        "classes",
        "dataguide",
        "members",
        "relative_reach",
        "slots",
        "text",
        "value",
    )

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __init__(self, dataguide: Dataguide, members: list[int]) -> None:
        self.dataguide = dataguide
        self.members = members
        self.slots: Ints | None = None
        self.changes: list[int] = []  # slots added or, as ~slot, removed since `slots` was read
        self.class_numbers: array[int] | None = None  # of the slots, if they are classed
        self.classes: Ints | None = None  # the same as an array, if it is up to date
        self.anchorings: Ints | None = None
        self.anchor_reach: tuple[Ints, Ints] | None = None  # cached by `twig_join`
        self.relative_reach: tuple[Ints, Ints] | None = None  # cached by `relative_paths`
        self.attributes: AttributeProbes | None = None
        self.text: Probe | None = None
        self.value: Probe | None = None

    def __missing__(self, name: str) -> GuideNode:
        return self.dataguide.step(self, name)

    def read_slots(self) -> Ints:
        """Return the slots of the paths that end here."""
        if self.slots is None or self.changes:
            self.dataguide.read_postings(self)
        assert self.slots is not None
        return self.slots

    def read_anchorings(self) -> Ints:
        """Return the anchorings of the paths that end here: see `twig_anchors`."""
        if self.anchorings is None:
            self.dataguide.read_postings(self)
        assert self.anchorings is not None
        return self.anchorings


class Dataguide:
    """The guide nodes of the tag paths seen in messages, kept in step with the path trie."""

    def __init__(self, path_trie: PathTrie, budget: int, classes: QueryClasses | None = None) -> None:
        self._path_trie = path_trie
        self._budget = budget
        self._classes = classes if classes is not None else QueryClasses(0)
        self._spent = 0
        self._size = 0
        self.postings: dict[int, StatePostings] = {}  # by trie state
        self.has_unions = False  # whether a slot may be posted at several trie states
        self._slot_at = array("i")  # by trie state, the frequent case: one slot there and nothing else; or -1
        self._nodes_with: defaultdict[int, list[GuideNode]] = defaultdict(list)  # by member
        self.clear()

    def clear(self) -> None:
        """Drop all guide nodes; coming messages make them anew."""
        self._nodes_with.clear()
        self._classes.clear()
        self._others: deque[tuple[dict[str, Any], str]] = deque()
        self._spent = self._size = 0
        self._dead_end = GuideNode(self, [])
        self._dead_end.slots = self._dead_end.anchorings = self._dead_end.classes = NO_INTS
        self.root = GuideNode(self, [ROOT])
        if ROOT in self.postings:
            self._attach_probes(self.root, self.postings[ROOT].predicates)
        self._nodes_with[ROOT].append(self.root)
        self._classes.add_node(self.root)

    def __len__(self) -> int:
        return self._size

    def start(self) -> GuideNode:
        """Return the node where the next message starts; drop all nodes if the budget was long exceeded."""
        if self._spent + self._classes.cells > 2 * self._budget:
            if self._budget:  # without one, this is the rule
                _log.debug("the dataguide is rebuilt: %d guide nodes exceed its budget", self._size)
            self.clear()
        return self.root

    def reserve(self, cells: int) -> bool:
        """Count something of that size, and return whether the budget has room for it."""
        self._spent += cells
        return self._spent + self._classes.cells <= self._budget

    # -- stepping --------------------------------------------------------------------------------------

    def step(self, node: GuideNode, name: str) -> GuideNode:
        """Return the guide node of a child with this name, which the node does not have yet."""
        tests = self._tests(name)
        if not tests or tests == ["*"]:
            child = node.get(_OTHER)
            if child is None:
                child = self._make_child(node, _OTHER, tests)
            self.link_other(node, name, child)
            return child
        return self._make_child(node, name, tests)

    def link_other(self, links: dict[str, Any], name: str, other: object) -> None:
        """Link a name that no query mentions; if there are too many, the oldest such link goes."""
        if len(self._others) >= _MAX_OTHERS:
            self._spent -= _LINK
            oldest, known = self._others.popleft()
            if oldest.get(known) is oldest.get(_OTHER):  # and not mentioned by now
                oldest.pop(known, None)
        if self.reserve(_LINK):
            links[name] = other
            self._others.append((links, name))

    def _tests(self, name: str) -> list[str]:
        """Return the name tests in use that a name passes."""
        return [test for test in name_tests_of(name) if test in self._path_trie.symbols]

    def _make_child(self, node: GuideNode, name: str, tests: list[str]) -> GuideNode:
        entered = self._enter(node.members, tests)
        child = self._make_node(list(entered)) if entered else self._dead_end
        if self.reserve(_LINK):
            node[name] = child
        return child

    def _enter(self, members: list[int], tests: list[str]) -> set[int]:
        """Return the states entered from these by an element whose name passes the tests."""
        edges = self._path_trie.edges
        entered = self._path_trie.deep.intersection(members)
        rows = [row for row in map(edges.__getitem__, members) if row is not None]
        deep = [row[DESCENDANT] for row in rows if DESCENDANT in row]
        entered.update(deep)
        rows += [row for row in map(edges.__getitem__, deep) if row is not None]
        for test in tests:
            entered.update([row[test] for row in rows if test in row])
        return entered

    def _make_node(self, members: list[int]) -> GuideNode:
        node = GuideNode(self, members)
        if self.postings:
            for postings in self._postings_of(node):
                self._attach_probes(node, postings.predicates)
        if self.reserve(_NODE + _MEMBER * len(members)):
            self._size += 1
            nodes_with = self._nodes_with
            for member in members:
                nodes_with[member].append(node)
            self._classes.add_node(node)
        return node

    def _postings_of(self, node: GuideNode) -> list[StatePostings]:
        return [self.postings[member] for member in node.members if member in self.postings]

    def _attach_probes(self, node: GuideNode, targets: Iterable[str]) -> None:
        """Have the values of these targets probed at the node."""
        for target in targets:
            if target == TEXT:
                node.text = Probe(self, self.predicates(node, (TEXT,)))
            elif target == VALUE:
                node.value = Probe(self, self.predicates(node, (VALUE,)))
            elif node.attributes is None:
                node.attributes = AttributeProbes(node)
            else:
                node.attributes.clear()

    def predicates(self, node: GuideNode, targets: Iterable[str]) -> list[PredicateIndex]:
        """Return the predicate indexes of any of the targets for the paths that end at the node."""
        postings = self._postings_of(node)
        return [
            each.predicates[target] for each in postings for target in targets if target in each.predicates
        ]

    def read_postings(self, node: GuideNode) -> None:
        """Bring the slots and anchorings of the node up to date."""
        if node.slots is not None and node.anchorings is not None:
            node.slots = _apply_changes(node.slots, node.changes)
        else:
            slots = [slot for slot in map(self._slots_at().__getitem__, node.members) if slot >= 0]
            anchorings: list[int] = []
            if self.postings:
                for postings in self._postings_of(node):
                    slots += postings.elements.slots
                    anchorings += postings.elements.anchorings
            if self.has_unions:
                slots = list(set(slots))
            node.slots = np.array(slots, np.int32) if slots else NO_INTS
            node.anchorings = np.array(anchorings, np.int32) if anchorings else NO_INTS
        node.changes.clear()

    def _slots_at(self) -> array[int]:
        """Return the only slot at each trie state, or -1."""
        states = len(self._path_trie.edges)
        if len(self._slot_at) < states:
            self._slot_at.extend(array("i", [-1]) * states)
        return self._slot_at

    def relative_paths(self, node: GuideNode) -> Ints:
        """Return the numbers of the relative paths that end at the node."""
        numbers = [n for postings in self._postings_of(node) for n in postings.elements.relative_paths]
        return np.array(numbers, np.int32) if numbers else NO_INTS

    # -- changes ---------------------------------------------------------------------------------------

    def add_edge(self, state: int, symbol: str) -> None:
        """Follow a new edge of a trie state, to states that no guide node holds yet."""
        target = (self._path_trie.edges[state] or {})[symbol]
        nodes = list(self._nodes_with.get(state, ()))
        if self._path_trie.symbol[state] == DESCENDANT:  # the nodes of its parent have its edges, too
            nodes += self._nodes_with.get(self._path_trie.parent[state], ())
        self._propagate([(node, symbol, target) for node in nodes])

    def _propagate(self, edges: list[tuple[GuideNode, str, int]]) -> None:
        """Add new states, to which members of these nodes have edges, to the nodes below that enter them."""
        done: set[tuple[GuideNode, int]] = set()
        while edges:
            node, symbol, target = edges.pop()
            following = list((self._path_trie.edges[target] or {}).items())
            if symbol == DESCENDANT:
                edges += [(node, further, state) for further, state in following]
            for name, child in self._children_by(node, symbol):
                if child is self._dead_end:
                    del node[name]  # to be stepped anew
                elif (child, target) not in done:
                    done.add((child, target))
                    child.members.append(target)
                    self._nodes_with[target].append(child)
                    self._spent += _MEMBER
                    if symbol == DESCENDANT:
                        edges.append((child, DESCENDANT, target))
                    else:
                        edges += [(child, further, state) for further, state in following]

    def _children_by(self, node: GuideNode, symbol: str) -> list[tuple[str, GuideNode]]:
        """Return the known children of a node that an edge with this symbol leads to."""
        if symbol == DESCENDANT or symbol == "*":
            return list(node.items())
        names = [name for name in node if symbol in name_tests_of(name)] if is_wildcard(symbol) else [symbol]
        other = node.get(_OTHER)
        found = []
        for name in names:
            child = node.get(name)
            if child is not None and child is other:
                del node[name]  # not mentioned by any query until now
            elif child is not None:
                found.append((name, child))
        return found

    def remove_states(self, states: list[int]) -> None:
        """Remove pruned trie states from the nodes that hold them."""
        for state in states:
            for node in self._nodes_with.pop(state, ()):
                node.members.remove(state)

    def post(self, state: int, kind: PostingKind, number: int) -> None:
        """Add a posting for elements that enter the trie state."""
        slot_at = self._slots_at()
        if kind is PostingKind.SLOT and slot_at[state] < 0:
            slot_at[state] = number
        else:
            self.postings.setdefault(state, StatePostings()).elements.of(kind).append(number)
        self._update_postings(state, kind, number)
        if kind is PostingKind.SLOT:
            self._classes.add_slot(number, self._nodes_with.get(state, []))

    def unpost(self, state: int, kind: PostingKind, number: int) -> None:
        """Remove a posting."""
        if kind is PostingKind.SLOT and self._slot_at[state] == number:
            self._slot_at[state] = -1
        else:
            self.postings[state].elements.of(kind).remove(number)
            self._discard_empty(state)
        self._update_postings(state, kind, ~number)
        if kind is PostingKind.SLOT:
            self._classes.remove_slot(number)

    def _update_postings(self, state: int, kind: PostingKind, change: int) -> None:
        for node in self._nodes_with.get(state, ()):
            listed = len(node.changes) < _MAX_CHANGES
            if kind is PostingKind.RELATIVE_PATH:
                node.relative_reach = None
            elif (
                kind is PostingKind.SLOT and listed and node.slots is not None and node.anchorings is not None
            ):
                node.changes.append(change)
            else:
                node.slots = node.anchorings = node.anchor_reach = None
                node.changes.clear()

    def update_predicates(self, state: int, target: str) -> None:
        """Replace the probes of a target at the trie state, whose tests have changed."""
        self._discard_empty(state)
        for node in self._nodes_with.get(state, ()):
            if target == TEXT:
                node.text = None
            elif target == VALUE:
                node.value = None
            elif node.attributes is not None:
                node.attributes.clear()
            self._attach_probes(node, (target,))

    def _discard_empty(self, state: int) -> None:
        postings = self.postings.get(state)
        if postings is not None and not postings:
            del self.postings[state]


def _apply_changes(slots: Ints, changes: list[int]) -> Ints:
    added: dict[int, None] = {}
    removed: list[int] = []
    for change in changes:
        if change >= 0:
            added[change] = None
        elif ~change in added:
            del added[~change]
        else:
            removed.append(~change)
    for slot in removed:
        slots = slots[slots != slot]
    return np.concatenate((slots, np.array(list(added), np.int32))) if added else slots


@lru_cache(maxsize=8_192)
def name_tests_of(name: str) -> tuple[str, ...]:
    """Return all name tests that a name passes: itself, any, its namespace's, any namespace's."""
    uri, brace, local = name.rpartition("}")
    any_namespace = f"{ANY_NAMESPACE}}}{local}"
    return (name, "*", f"{uri}}}*", any_namespace) if brace else (name, "*", any_namespace)
