"""What a message has to say to joins: the values of the variables that are compared, from the shared matcher.

The first path of every definition is a slot of the matcher's index, like a filter; those that start from
another variable are groups of its automaton, where they have no conditions. So all blocks of all queries are
found in one pass, and each definition once, whoever uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.automaton.slot_ownership import OwnedSlots
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.join.evaluation.bindings import compared_value
from sapwood.join.graph.graph_reduction import Definition
from sapwood.lang.pattern import TEXT, Axis, Condition, Has, Path, Step, add_condition, all_of
from sapwood.lang.query import Query
from sapwood.transform.path_analysis import to_navigation, to_symbols

_MOST = 200_000
"""values of a message, below one variable"""
_log = logging.getLogger(__name__)


class Witness(NamedTuple):
    """A value that a variable has in a message."""

    variable: int
    value: str
    nodes: tuple[int, ...]
    """the variable's node, then those of the variables above it, up to the first; numbers of the message's"""


@dataclass(slots=True)
class Tracked:
    """A definition that queries use, and how its nodes are found."""

    number: int
    definition: Definition
    origin: Tracked | None
    leaf: Step | None
    """the step from an element to its attributes or text, if the path ends so"""
    elements: Path
    """the steps before that"""
    slot: int = -1
    bound: bool = False
    """whether the index tells the elements, and not merely that there are some"""
    check: Condition | None = None
    """what must hold of these elements besides"""
    group: int | None = None
    uses: int = 0
    compared: int = 0
    """how many need its values"""
    watched: int = 0
    """how many need to know that it is there"""
    below: dict[int, Tracked] = field(default_factory=dict)


class Numbers:
    """Numbers for variables, of which none is given out again before all its values are forgotten."""

    def __init__(self) -> None:
        self.highest = 0
        """one more than the largest that was ever given out"""
        self.retired: list[int] = []
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.highest += 1
        return self.highest - 1

    def give_back(self, number: int) -> None:
        self.retired.append(number)

    def forgotten(self) -> None:
        """All that were given back may be given out again."""
        self._free += self.retired
        self.retired.clear()


class Seen(NamedTuple):
    """What a message has to say."""

    witnesses: list[Witness]
    watched: list[int]
    """the definitions that are watched and that it has"""


class Witnesses:
    """The definitions of all queries over one index."""

    def __init__(self, index: Index, numbers: Numbers) -> None:
        self._index = index
        self._numbers = numbers
        self._number_of: dict[Definition, int] = {}
        self._tracked: dict[int, Tracked] = {}
        self._first: dict[str, dict[int, Tracked]] = {}  # stream → slot → those that start at the document
        self._claims = OwnedSlots()
        self._key_of: dict[int, bytes] = {}
        self._by_key: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self._tracked)

    def definition(self, number: int) -> Definition:
        return self._tracked[number].definition

    def uses(self, number: int) -> int:
        """How many queries, and definitions that start from it, use a definition."""
        return self._tracked[number].uses

    def key(self, number: int) -> bytes:
        """Eight bytes that stand for a definition in every process."""
        key = self._key_of.get(number)
        if key is None:
            text = self._tracked[number].definition.key
            key = self._key_of[number] = blake2b(text.encode(), digest_size=8).digest()
        return key

    def by_key(self) -> dict[bytes, int]:
        """The numbers of all definitions whose values are compared, by their keys."""
        if self._by_key is None:
            self._by_key = {self.key(n): n for n, tracked in self._tracked.items() if tracked.compared}
        return self._by_key

    # -- the population --------------------------------------------------------------------------------

    def add(self, definition: Definition, compared: bool) -> int:
        """Adds one use of a definition and of those it starts from: its number."""
        tracked = self._use(definition)
        tracked.compared += compared
        self._by_key = None
        return tracked.number

    def watch(self, definition: Definition) -> int:
        """Adds one use of a definition that is only watched: its number."""
        tracked = self._use(definition)
        tracked.watched += 1
        return tracked.number

    def unwatch(self, number: int) -> None:
        tracked = self._tracked[number]
        tracked.watched -= 1
        self._release(tracked)

    def _use(self, definition: Definition) -> Tracked:
        number = self._number_of.get(definition)
        if number is None:
            origin = self._use(definition.origin) if definition.origin is not None else None
            number = self._numbers.take()
            tracked = _tracked(number, definition, origin)
            self._enter(tracked)
            self._number_of[definition] = number
            self._tracked[number] = tracked
        tracked = self._tracked[number]
        tracked.uses += 1
        return tracked

    def _enter(self, tracked: Tracked) -> None:
        if tracked.origin is not None:
            tracked.origin.below[tracked.number] = tracked
            plain = to_navigation(tracked.definition.path)
            if plain is not None and plain.steps:
                tracked.group = self._index.group(to_symbols(plain.steps))
            return
        path = tracked.elements
        if tracked.leaf is not None:
            path = add_condition(path, Has(Path((tracked.leaf,))))
        query = Query("", "boolean", Has(tracked.definition.path))
        found = self._index.bind(query, path)
        if found is None:
            tracked.slot = self._index.add(query)
        else:
            tracked.slot, exact = found
            tracked.bound = True
            tracked.check = None if exact else all_of(path.steps[-1].conditions)
        self._claims.add(tracked.slot)
        self._first.setdefault(tracked.definition.stream, {})[tracked.slot] = tracked
        self._index.text_needed += 1
        self._index.source_needed += 1

    def remove(self, number: int, compared: bool) -> None:
        """Takes back one use of a definition, and frees all that only it used."""
        tracked = self._tracked[number]
        tracked.compared -= compared
        self._release(tracked)

    def _release(self, tracked: Tracked) -> None:
        tracked.uses -= 1
        if tracked.uses:
            return
        del self._tracked[tracked.number], self._number_of[tracked.definition]
        self._numbers.give_back(tracked.number)
        self._key_of.pop(tracked.number, None)
        self._by_key = None
        if tracked.origin is not None:
            if tracked.group is not None:
                self._index.ungroup(tracked.group)
            del tracked.origin.below[tracked.number]
            self._release(tracked.origin)
            return
        self._claims.remove(tracked.slot)
        self._index.remove(tracked.slot)
        first = self._first[tracked.definition.stream]
        del first[tracked.slot]
        if not first:
            del self._first[tracked.definition.stream]
        self._index.text_needed -= 1
        self._index.source_needed -= 1

    # -- messages --------------------------------------------------------------------------------------

    def claimed(self, slots: Ints) -> NDArray[np.bool_]:
        """Which of the slots are those of joins."""
        return self._claims.among(slots)

    def of(self, found: IndexMatches, stream: str) -> Seen:
        """The values of all compared variables in a message of a stream, and what is watched."""
        first = self._first.get(stream)
        return _Reading(self._index, found, first).seen() if first else Seen([], [])


def _tracked(number: int, definition: Definition, origin: Tracked | None) -> Tracked:
    steps = definition.path.steps
    leaf = steps[-1] if steps and (steps[-1].axis is Axis.ATTRIBUTE or steps[-1].test == TEXT) else None
    elements = Path(steps[:-1]) if leaf is not None else definition.path
    return Tracked(number, definition, origin, leaf, elements)


class _TooMany(Exception):
    pass


class _Reading:
    """The witnesses of one message."""

    def __init__(self, index: Index, found: IndexMatches, first: dict[int, Tracked]) -> None:
        assert found.evaluator is not None
        self._index = index
        self._found = found
        self._first = first
        self._evaluator: PatternEvaluator = found.evaluator
        self._document: Document = found.evaluator.document
        self._reached: ReachedElements | None = None
        self._numbers: dict[LeafNode, int] = {}
        self._made: list[Witness] = []
        self._room = 0

    def seen(self) -> Seen:
        starts = [(tracked, list(self._starts(tracked, nodes))) for tracked, nodes in self._hit()]
        if self._found.ancestry is not None:
            below = {n for tracked, nodes in starts if tracked.below for n in nodes if isinstance(n, int)}
            if below:
                inside = any(child.below for tracked, _ in starts for child in tracked.below.values())
                self._reached = self._index.reached(self._found, sorted(below), inside)
        for tracked, nodes in starts:
            before = len(self._made)
            self._room = before + _MOST
            try:
                for node in nodes:
                    self._follow(tracked, node, ())
            except _TooMany:
                path = f"{tracked.definition.stream}{tracked.definition.path}"
                _log.warning("a message is not joined below %s: more than %s values", path, f"{_MOST:,}")
                del self._made[before:]
        return Seen(self._made, [tracked.number for tracked, nodes in starts if tracked.watched and nodes])

    def _hit(self) -> Iterator[tuple[Tracked, list[int]]]:
        """The first definitions that the message has, and their elements where the index tells them."""
        found, first = self._found, self._first
        if found.joined and len(found.bound_slots):
            elements: dict[int, set[int]] = {}
            for slot, element in zip(found.bound_slots.tolist(), found.bound_to.tolist(), strict=True):
                if slot in first:
                    elements.setdefault(slot, set()).add(element)
            for slot, bound_to in elements.items():
                yield first[slot], sorted(bound_to)
        for slot in found.slots.tolist():
            if slot in first:
                yield first[slot], []

    def _starts(self, tracked: Tracked, elements: list[int]) -> list[ContextNode]:
        if not elements:
            return self._evaluator.select(tracked.definition.path)
        if tracked.check is not None:
            elements = [e for e in elements if self._evaluator.holds(tracked.check, e)]
        if tracked.leaf is None:
            return list(elements)
        return self._evaluator.follow(list(elements), tracked.leaf)

    def _follow(self, tracked: Tracked, node: ContextNode, above: tuple[int, ...]) -> None:
        nodes = (self._number(node), *above)
        if tracked.compared:
            if len(self._made) >= self._room:
                raise _TooMany
            value = compared_value(self._document, node, tracked.definition.numeric)
            if value is not None:
                self._made.append(Witness(tracked.number, value, nodes))
        for child in tracked.below.values():
            for reached in self._below(child, node):
                self._follow(child, reached, nodes)

    def _below(self, tracked: Tracked, node: ContextNode) -> list[ContextNode]:
        if self._reached is None or tracked.group is None or not isinstance(node, int):
            return self._evaluator.select(tracked.definition.path, node)
        elements = self._reached.of(tracked.group, node)
        if tracked.leaf is None or not elements:
            return list(elements)
        return self._evaluator.follow(list(elements), tracked.leaf)

    def _number(self, node: ContextNode) -> int:
        if isinstance(node, int):
            return node
        return self._numbers.setdefault(node, len(self._document) + len(self._numbers))
