"""Witness extraction: the values of compared variables in a message, by way of the shared matcher.

The definition of a block's first variable is a slot of the matcher's index, like a filter; definitions that
start from another variable are relative paths of its automaton, where they have no conditions. So all blocks
of all queries are found in one pass, and each definition once, however many queries use it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.registration import Needs, Owner
from sapwood.join.evaluation.bindings import compared_value
from sapwood.join.graph.graph_reduction import VariableDefinition
from sapwood.lang.pattern import TEXT, Axis, Condition, Has, Path, Step, add_condition, all_of
from sapwood.lang.query import Query
from sapwood.transform.path_analysis import to_navigation, to_symbols

_MOST_WITNESSES = 200_000
"""witnesses of a message below one first variable; with more, it is not joined there"""
_log = logging.getLogger(__name__)


class Witness(NamedTuple):
    """The value of a variable in a message, with the nodes that it was found at."""

    variable: int
    value: str
    nodes: tuple[int, ...]
    """the numbers of the variable's node and of those of the variables above it, up to the first"""


@dataclass(slots=True)
class TrackedVariable:
    """A variable definition that queries use, and its registration with the index."""

    number: int
    definition: VariableDefinition
    origin: TrackedVariable | None
    leaf: Step | None
    """the last step of the path, if it leads to attributes or text"""
    elements: Path
    """the steps before that"""
    slot: int = -1
    bound: bool = False
    """whether the index returns the elements, not only that there are some"""
    check: Condition | None = None
    """the residual predicate on these elements"""
    group: int | None = None
    uses: int = 0
    compared: int = 0
    """how many uses compare its values"""
    watched: int = 0
    """how many uses, by queries over one block, only need to know that it exists"""
    below: dict[int, TrackedVariable] = field(default_factory=dict)


class VariableNumbers:
    """Allocates numbers for variables. A released number is reused only after its values were evicted."""

    def __init__(self) -> None:
        self._next = 0
        self.released: list[int] = []
        """numbers without users whose values may still be in the state"""
        self._free: list[int] = []

    def allocate(self) -> int:
        """Return an unused number."""
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def release(self, number: int) -> None:
        """Release a number whose values may still be in the state."""
        self.released.append(number)

    def reuse_released(self) -> None:
        """Allow released numbers to be allocated again: their values were evicted."""
        self._free += self.released
        self.released.clear()


class MessageWitnesses(NamedTuple):
    """The witnesses of a message."""

    witnesses: list[Witness]
    watched: list[int]
    """the watched definitions that exist in the message"""


class VariableIndex:
    """The variable definitions of all queries, registered with one index."""

    def __init__(self, index: Index, numbers: VariableNumbers) -> None:
        self._index = index
        self._numbers = numbers
        self._number_of: dict[VariableDefinition, int] = {}
        self._tracked: dict[int, TrackedVariable] = {}
        # stream → slot → definitions that start at the document
        self._first: dict[str, dict[int, TrackedVariable]] = {}
        self._key_of: dict[int, bytes] = {}
        self._by_key: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self._tracked)

    def definition(self, number: int) -> VariableDefinition:
        """Return a definition by its number."""
        return self._tracked[number].definition

    def uses(self, number: int) -> int:
        """Return the number of queries, and of definitions that start from it, that use a definition."""
        return self._tracked[number].uses

    def key(self, number: int) -> bytes:
        """Return eight bytes that identify a definition in every process."""
        key = self._key_of.get(number)
        if key is None:
            text = self._tracked[number].definition.key
            key = self._key_of[number] = blake2b(text.encode(), digest_size=8).digest()
        return key

    def by_key(self) -> dict[bytes, int]:
        """Return the numbers of all definitions whose values are compared, by key."""
        if self._by_key is None:
            self._by_key = {self.key(n): n for n, tracked in self._tracked.items() if tracked.compared}
        return self._by_key

    # -- registration ----------------------------------------------------------------------------------

    def add(self, definition: VariableDefinition, compared: bool) -> int:
        """Add one use of a definition and of those it starts from, and return its number."""
        tracked = self._use(definition)
        tracked.compared += compared
        self._by_key = None
        return tracked.number

    def watch(self, definition: VariableDefinition) -> int:
        """Add one use of a definition that only has to exist, and return its number."""
        tracked = self._use(definition)
        tracked.watched += 1
        return tracked.number

    def unwatch(self, number: int) -> None:
        """Remove one use of a definition that only has to exist."""
        tracked = self._tracked[number]
        tracked.watched -= 1
        self._release(tracked)

    def _use(self, definition: VariableDefinition) -> TrackedVariable:
        number = self._number_of.get(definition)
        if number is None:
            origin = self._use(definition.origin) if definition.origin is not None else None
            number = self._numbers.allocate()
            tracked = _track(number, definition, origin)
            self._register(tracked)
            self._number_of[definition] = number
            self._tracked[number] = tracked
        tracked = self._tracked[number]
        tracked.uses += 1
        return tracked

    def _register(self, tracked: TrackedVariable) -> None:
        if tracked.origin is not None:
            tracked.origin.below[tracked.number] = tracked
            plain = to_navigation(tracked.definition.path)
            if plain is not None and plain.steps:
                tracked.group = self._index.register_relative_path(to_symbols(plain.steps))
            return
        path = tracked.elements
        if tracked.leaf is not None:
            path = add_condition(path, Has(Path((tracked.leaf,))))
        query = Query("", "boolean", Has(tracked.definition.path))
        needs = Needs.TEXT | Needs.SOURCE
        found = self._index.register_binding(query, path, Owner.JOIN, needs)
        if found is None:
            tracked.slot = self._index.register(query, Owner.JOIN, needs)
        else:
            tracked.slot, exact = found
            tracked.bound = True
            tracked.check = None if exact else all_of(path.steps[-1].conditions)
        self._first.setdefault(tracked.definition.stream, {})[tracked.slot] = tracked

    def remove(self, number: int, compared: bool) -> None:
        """Remove one use of a definition, and release what no other use needs."""
        tracked = self._tracked[number]
        tracked.compared -= compared
        self._release(tracked)

    def _release(self, tracked: TrackedVariable) -> None:
        tracked.uses -= 1
        if tracked.uses:
            return
        del self._tracked[tracked.number], self._number_of[tracked.definition]
        self._numbers.release(tracked.number)
        self._key_of.pop(tracked.number, None)
        self._by_key = None
        if tracked.origin is not None:
            if tracked.group is not None:
                self._index.unregister_relative_path(tracked.group)
            del tracked.origin.below[tracked.number]
            self._release(tracked.origin)
            return
        self._index.unregister(tracked.slot)
        first = self._first[tracked.definition.stream]
        del first[tracked.slot]
        if not first:
            del self._first[tracked.definition.stream]

    # -- messages --------------------------------------------------------------------------------------

    def extract(self, found: IndexMatches, stream: str) -> MessageWitnesses:
        """Return the witnesses of a message of a stream."""
        first = self._first.get(stream)
        return _Extraction(found, first).extract() if first else MessageWitnesses([], [])


def _track(number: int, definition: VariableDefinition, origin: TrackedVariable | None) -> TrackedVariable:
    steps = definition.path.steps
    leaf = steps[-1] if steps and (steps[-1].axis is Axis.ATTRIBUTE or steps[-1].test == TEXT) else None
    elements = Path(steps[:-1]) if leaf is not None else definition.path
    return TrackedVariable(number, definition, origin, leaf, elements)


class _TooManyWitnesses(Exception):
    pass


class _Extraction:
    """The extraction of the witnesses of one message."""

    def __init__(self, found: IndexMatches, first: dict[int, TrackedVariable]) -> None:
        self._found = found
        self._first = first
        self._evaluator: PatternEvaluator = found.evaluator
        self._document: Document = found.evaluator.document
        self._reached: ReachedElements | None = None
        self._numbers: dict[LeafNode, int] = {}
        self._witnesses: list[Witness] = []
        self._limit = 0

    def extract(self) -> MessageWitnesses:
        starts = [(tracked, self._select_first(tracked, nodes)) for tracked, nodes in self._matched()]
        below = {n for tracked, nodes in starts if tracked.below for n in nodes if isinstance(n, int)}
        if below:
            inside = any(child.below for tracked, _ in starts for child in tracked.below.values())
            self._reached = self._found.reached(sorted(below), inside)
        for tracked, nodes in starts:
            before = len(self._witnesses)
            self._limit = before + _MOST_WITNESSES
            try:
                for node in nodes:
                    self._add_witnesses(tracked, node, ())
            except _TooManyWitnesses:
                path = f"{tracked.definition.stream}{tracked.definition.path}"
                most = f"{_MOST_WITNESSES:,}"
                _log.warning("a message is not joined below %s: more than %s values", path, most)
                del self._witnesses[before:]
        return MessageWitnesses(
            self._witnesses, [tracked.number for tracked, nodes in starts if tracked.watched and nodes]
        )

    def _matched(self) -> Iterator[tuple[TrackedVariable, Sequence[int]]]:
        """Yield the first definitions in the message, with their elements where the index has them."""
        found, first = self._found, self._first
        if found.joined:
            for slot, elements in found.bound_elements:
                if slot in first:
                    yield first[slot], elements
        for slot in found.slots.tolist():
            if slot in first:
                yield first[slot], ()

    def _select_first(self, tracked: TrackedVariable, elements: Sequence[int]) -> list[ContextNode]:
        if not elements:
            return self._evaluator.select(tracked.definition.path)
        if tracked.check is not None:
            elements = [e for e in elements if self._evaluator.holds(tracked.check, e)]
        if tracked.leaf is None:
            return list(elements)
        return self._evaluator.follow(list(elements), tracked.leaf)

    def _add_witnesses(self, tracked: TrackedVariable, node: ContextNode, above: tuple[int, ...]) -> None:
        nodes = (self._number(node), *above)
        if tracked.compared:
            if len(self._witnesses) >= self._limit:
                raise _TooManyWitnesses
            value = compared_value(self._document, node, tracked.definition.numeric)
            if value is not None:
                self._witnesses.append(Witness(tracked.number, value, nodes))
        for child in tracked.below.values():
            for reached in self._select_below(child, node):
                self._add_witnesses(child, reached, nodes)

    def _select_below(self, tracked: TrackedVariable, node: ContextNode) -> list[ContextNode]:
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
