"""The evaluation of patterns on one message: the reference semantics of the algebra, and the residual check
where leaves are only necessary conditions.

A path is followed a step at a time with the whole set of nodes reached so far, and each condition is
evaluated at most once for each node, so the cost is polynomial whatever the nesting of `//`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.lang.literals.numbers import COMPARE
from sapwood.lang.pattern import (
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Not,
    Or,
    Path,
    Position,
    Step,
    is_wildcard,
)

DOCUMENT = 0


class PatternEvaluator:
    """Evaluates patterns on one message, and caches the truth of each condition at each node."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._cache: dict[tuple[Condition, ContextNode], bool] = {}

    @property
    def answers(self) -> int:
        """The number of cached results."""
        return len(self._cache)

    def holds(self, condition: Condition, node: ContextNode = DOCUMENT) -> bool:
        """Return whether a condition that ignores positions holds of a node."""
        return self._holds(condition, node, 1, 1)

    def select(self, path: Path, node: ContextNode = DOCUMENT) -> list[ContextNode]:
        """Return the nodes that a path reaches from a node, in document order."""
        nodes: list[ContextNode] = [node]
        for step in path.steps:
            nodes = self.follow(nodes, step)
            if not nodes:
                break
        return nodes

    def select_any(self, paths: Iterable[Path]) -> list[ContextNode]:
        """Return the union of the nodes that the paths reach from the document, in document order."""
        found = [node for path in paths for node in self.select(path)]
        return sorted(set(found), key=self.document.order)

    # -- conditions ------------------------------------------------------------------------------------

    def _holds(self, condition: Condition, node: ContextNode, position: int, size: int) -> bool:
        if isinstance(condition, Position):
            return _holds_at(condition, position, size)
        if condition.positional:
            return self._evaluate(condition, node, position, size)
        key = condition, node
        cached = self._cache.get(key)
        if cached is None:
            cached = self._cache[key] = self._evaluate(condition, node, position, size)
        return cached

    def _evaluate(self, condition: Condition, node: ContextNode, position: int, size: int) -> bool:
        match condition:
            case And(items=items):
                return all(self._holds(item, node, position, size) for item in items)
            case Or(items=items):
                return any(self._holds(item, node, position, size) for item in items)
            case Not(item=item):
                return not self._holds(item, node, position, size)
            case Named(test=test):
                name = self.document.names[node] if isinstance(node, int) and node else ""
                return bool(name) and test in name_tests_of(name)
            case Has():
                return self._has(condition, node)
        raise TypeError(f"no such condition: {condition!r}")

    def _has(self, condition: Has, node: ContextNode) -> bool:
        nodes = self.select(condition.path, node)
        test = condition.test
        if test is None:
            return bool(nodes)
        if condition.first:
            nodes = nodes[:1]
        return any(self.document.passes(found, test) for found in nodes)

    # -- steps -----------------------------------------------------------------------------------------

    def follow(self, nodes: list[ContextNode], step: Step) -> list[ContextNode]:
        """Return the nodes that one step reaches from a set of nodes, in document order."""
        elements = [node for node in nodes if isinstance(node, int)]
        match step.axis:
            case Axis.ATTRIBUTE:
                found: list[ContextNode] = []
                for element in elements:
                    found += self._filter(self.document.attributes_named(element, step.test), step)
                return found
            case Axis.CHILD:
                found = [n for e in elements for n in self._filter(self._children(e, step.test), step)]
                return sorted(found, key=self.document.order)
            case Axis.DESCENDANT:
                return self._descendants(elements, step)
        assert_never(step.axis)

    def _descendants(self, elements: list[int], step: Step) -> list[ContextNode]:
        document = self.document
        outermost: list[int] = []
        for element in elements:  # in document order: an element inside the last one adds nothing
            if not outermost or element >= document.ends[outermost[-1]]:
                outermost.append(element)
        found: list[ContextNode] = []
        if any(condition.positional for condition in step.conditions):
            parents = [p for e in outermost for p in range(e, document.ends[e])]
            found = [n for p in parents for n in self._filter(self._children(p, step.test), step)]
            return sorted(found, key=document.order)
        for element in outermost:
            if step.test == TEXT:
                numbers = range(document.text_starts[element], document.text_ends[element])
                inside: Iterable[ContextNode] = [self._text(number) for number in numbers]
            else:
                inside = document.named(step.test, element + 1, document.ends[element])
            found += self._filter(inside, step)
        return found

    def _children(self, element: int, test: str) -> Iterable[ContextNode]:
        document = self.document
        if test == TEXT:
            return [self._text(number) for number in document.texts_of(element)]
        children = document.children(element)
        if test == "*":
            return children
        if is_wildcard(test):
            return [child for child in children if test in name_tests_of(document.names[child])]
        return [child for child in children if document.names[child] == test]

    def _text(self, number: int) -> LeafNode:
        return LeafNode(self.document.text_parents[number], "text", number)

    def _filter(self, nodes: Iterable[ContextNode], step: Step) -> list[ContextNode]:
        """Return the nodes that pass the step's conditions, applied one after the other."""
        kept = list(nodes)
        for condition in step.conditions:
            size = len(kept)
            kept = [node for i, node in enumerate(kept, 1) if self._holds(condition, node, i, size)]
        return kept


def _holds_at(condition: Position, position: int, size: int) -> bool:
    left = float(size if condition.of_size else position)
    right = condition.n + size if condition.from_last else condition.n
    return COMPARE[condition.op](left, right)
