"""The plain meaning of a join on given messages: all ways to bind its variables so that all comparisons hold.

It is asked only of messages that are known to meet, for the nodes that go into what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.pattern_evaluator import DOCUMENT, PatternEvaluator
from sapwood.join.evaluation.residual_check import compares
from sapwood.lang.literals.numbers import number_key
from sapwood.lang.pattern import Path
from sapwood.lang.xscl.model import MESSAGE, BlockVariable, Comparison, Join
from sapwood.transform.result_groups import MOST_GROUPS, TooManyGroups

Nodes = tuple[ContextNode, ...]
Allowed = Mapping[int, frozenset[str]]
"""by places in a pattern, the values that matter"""


@dataclass(frozen=True)
class BlockPattern:
    """The variables of a block, of which those wanted are told apart. Equal patterns have equal ways."""

    origins: tuple[int, ...]
    """places within the pattern; MESSAGE for the first"""
    paths: tuple[Path, ...]
    wanted: tuple[int, ...]
    numeric: frozenset[int] = frozenset()

    def ways(self, evaluator: PatternEvaluator, allowed: Allowed | None = None) -> list[Nodes]:
        """The distinct ways to bind the wanted variables in a message, some perhaps to certain values only;
        TooManyGroups beyond all measure."""
        return _Embedding(self, evaluator, allowed or {}).ways()


def block_pattern(variables: Sequence[BlockVariable], block: int, wanted: Iterable[int]) -> BlockPattern:
    """A block of a query, some of whose variables, by number, are wanted."""
    numbers = [number for number, variable in enumerate(variables) if variable.block == block]
    place = {number: i for i, number in enumerate(numbers)} | {MESSAGE: MESSAGE}
    return BlockPattern(
        tuple([place[variables[number].origin] for number in numbers]),
        tuple([variables[number].path for number in numbers]),
        tuple([place[number] for number in sorted(wanted) if number in place]),
        frozenset(place[number] for number in numbers if variables[number].numeric),
    )


def compared_value(document: Document, node: ContextNode, numeric: bool) -> str | None:
    """A text that is equal for values that are; None for what should be a number and is none."""
    value = document.string_value(node)
    return number_key(value) if numeric else value


class _Embedding:
    def __init__(self, pattern: BlockPattern, evaluator: PatternEvaluator, allowed: Allowed) -> None:
        self._pattern = pattern
        self._allowed = allowed
        self._evaluator = evaluator
        self._below: list[list[int]] = [[] for _ in pattern.paths]
        for place, origin in enumerate(pattern.origins):
            if origin != MESSAGE:
                self._below[origin].append(place)
        self._wanted = set(pattern.wanted)
        self._known: dict[tuple[int, ContextNode], list[dict[int, ContextNode]]] = {}

    def ways(self) -> list[Nodes]:
        top = self._pattern.origins.index(MESSAGE)
        found = [way for node in self._reached(top, DOCUMENT) for way in self._ways(top, node)]
        return list(dict.fromkeys(tuple(way[place] for place in self._pattern.wanted) for way in found))

    def _reached(self, place: int, node: ContextNode) -> list[ContextNode]:
        nodes = self._evaluator.select(self._pattern.paths[place], node)
        values = self._allowed.get(place)
        if values is None:
            return nodes
        document, numeric = self._evaluator.document, place in self._pattern.numeric
        return [node for node in nodes if compared_value(document, node, numeric) in values]

    def _ways(self, place: int, node: ContextNode) -> list[dict[int, ContextNode]]:
        """The ways to bind what is wanted of a variable, bound to a node, and of those that start from it."""
        key = place, node
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(place, node)
        return known

    def _find(self, place: int, node: ContextNode) -> list[dict[int, ContextNode]]:
        here: dict[int, ContextNode] = {place: node} if place in self._wanted else {}
        branches: list[list[dict[int, ContextNode]]] = []
        size = 1
        for child in self._below[place]:
            ways = [way for reached in self._reached(child, node) for way in self._ways(child, reached)]
            if not ways:
                return []
            branches.append(_distinct(ways))
            size *= len(branches[-1])
            if size > MOST_GROUPS:
                raise TooManyGroups(" ".join(map(str, self._pattern.paths)))
        return [here | _merged(choice) for choice in product(*branches)]


def _distinct(ways: list[dict[int, ContextNode]]) -> list[dict[int, ContextNode]]:
    return list({tuple(way.items()): way for way in ways}.values())


def _merged(ways: Iterable[dict[int, ContextNode]]) -> dict[int, ContextNode]:
    merged: dict[int, ContextNode] = {}
    for way in ways:
        merged |= way
    return merged


class Readable(Protocol):
    """A message whose nodes can be asked for."""

    document: Document
    evaluator: PatternEvaluator

    def ways(self, pattern: BlockPattern) -> list[Nodes]:
        """The ways of a pattern, which are remembered."""
        ...


class Meaning:
    """A query, or the first blocks of one, and some variables whose nodes are wanted."""

    def __init__(self, join: Join, blocks: int, wanted: Iterable[int]) -> None:
        self._text = join.text
        self._variables = join.variables
        self._links = join.links[: blocks - 1]
        self.wanted = tuple(sorted(set(wanted)))
        compared = {n for link in self._links for c in link.comparisons for n in (c.left, c.right)}
        self._block_of = {number: variable.block for number, variable in enumerate(join.variables)}
        self._alone = [block_pattern(join.variables, block, self.wanted) for block in range(blocks)]
        needed = sorted({*self.wanted, *compared})
        self._together = [block_pattern(join.variables, block, needed) for block in range(blocks)]
        self._columns = [[n for n in needed if self._block_of[n] == block] for block in range(blocks)]

    def ways(self, messages: Sequence[Readable]) -> list[Nodes]:
        """Of messages that meet, the distinct nodes of the wanted variables, in document order; TooManyGroups
        beyond all measure."""
        alone = self._ways_alone(messages)
        if alone is not None:
            return [alone]
        documents = [message.document for message in messages]
        allowed = self._allowed(messages)
        columns = self._columns[0]
        partial = self._together[0].ways(messages[0].evaluator, allowed[0])
        for number, link in enumerate(self._links, 1):
            ways = self._together[number].ways(messages[number].evaluator, allowed[number])
            values = _Values(documents, self._variables)
            new = self._columns[number]
            partial = _linked(partial, columns, ways, new, link.comparisons, values, self._text)
            columns = columns + new
        places = [columns.index(number) for number in self.wanted]
        found = dict.fromkeys(tuple(way[place] for place in places) for way in partial)
        orders = [documents[self._block_of[number]].order for number in self.wanted]
        return sorted(found, key=lambda way: tuple(o(node) for o, node in zip(orders, way, strict=True)))

    def _ways_alone(self, messages: Sequence[Readable]) -> Nodes | None:
        """The frequent case: in every message there is but one way to bind what is wanted."""
        found: list[ContextNode] = []
        for message, pattern in zip(messages, self._alone, strict=True):
            try:
                ways = message.ways(pattern)
            except TooManyGroups:  # of which perhaps few meet anything
                return None
            if len(ways) != 1:
                return None
            found += ways[0]
        return tuple(found)

    def _allowed(self, messages: Sequence[Readable]) -> list[dict[int, frozenset[str]]]:
        """Of each block, the values that its compared variables have in common with their partners."""
        allowed: list[dict[int, frozenset[str]]] = [{} for _ in messages]
        for comparison in (c for link in self._links for c in link.comparisons if c.op == "="):
            sides = (comparison.left, comparison.right)
            common = self._values(messages, sides[0]) & self._values(messages, sides[1])
            for number in sides:
                block = self._block_of[number]
                place = self._columns_of(block).index(number)
                allowed[block][place] = allowed[block].get(place, common) & common
        return allowed

    def _values(self, messages: Sequence[Readable], number: int) -> frozenset[str]:
        block = self._block_of[number]
        message = messages[block]
        nodes = message.ways(block_pattern(self._variables, block, (number,)))
        numeric = self._variables[number].numeric
        found = {compared_value(message.document, node, numeric) for (node,) in nodes}
        return frozenset(value for value in found if value is not None)

    def _columns_of(self, block: int) -> list[int]:
        return [number for number, of in self._block_of.items() if of == block]


class _Values:
    """The values of nodes, each of the message of its variable."""

    def __init__(self, documents: Sequence[Document], variables: Sequence[BlockVariable]) -> None:
        self._documents = documents
        self._variables = variables

    def of(self, number: int, node: ContextNode) -> str:
        variable = self._variables[number]
        value = compared_value(self._documents[variable.block], node, variable.numeric)
        assert value is not None  # what is no number has no value in common with anything
        return value


def _linked(
    partial: list[Nodes],
    columns: list[int],
    ways: list[Nodes],
    new: list[int],
    comparisons: tuple[Comparison, ...],
    values: _Values,
    text: str,
) -> list[Nodes]:
    """The ways so far, with those of one more block that compare well; TooManyGroups beyond all measure."""
    equal = [c for c in comparisons if c.op == "="]
    others = [c for c in comparisons if c.op != "="]
    by_values: dict[tuple[str, ...], list[Nodes]] = {}
    for way in ways:
        key = tuple(values.of(c.right, way[new.index(c.right)]) for c in equal)
        by_values.setdefault(key, []).append(way)
    found: list[Nodes] = []
    for known in partial:
        key = tuple(values.of(c.left, known[columns.index(c.left)]) for c in equal)
        for way in by_values.get(key, ()):
            if all(
                compares(
                    c.op,
                    values.of(c.left, known[columns.index(c.left)]),
                    values.of(c.right, way[new.index(c.right)]),
                )
                for c in others
            ):
                found.append(known + way)
                if len(found) > 10 * MOST_GROUPS:
                    raise TooManyGroups(text)
    return found
