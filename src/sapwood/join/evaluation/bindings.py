"""The bindings of a join on given messages: all ways to bind its variables so that all comparisons hold.

They are enumerated only for messages that are known to join, for the nodes that the output needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.pattern_evaluator import DOCUMENT, PatternEvaluator
from sapwood.lang.literals.numbers import COMPARE, Comparator, number_key, to_number
from sapwood.lang.pattern import Path
from sapwood.lang.xscl.model import MESSAGE, BlockVariable, Comparison, Join
from sapwood.transform.result_groups import MOST_GROUPS, TooManyGroups

Binding = tuple[ContextNode, ...]
"""one node for each wanted variable"""
AllowedValues = Mapping[int, frozenset[str]]
"""by positions in a pattern, the values that a variable may have"""


# -- one block ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockPattern:
    """The variables of a block, some of which are wanted. Equal patterns have equal bindings."""

    origins: tuple[int, ...]
    """positions within the pattern; MESSAGE for the first"""
    paths: tuple[Path, ...]
    wanted: tuple[int, ...]
    numeric: frozenset[int] = frozenset()

    def bindings(self, evaluator: PatternEvaluator, allowed: AllowedValues | None = None) -> list[Binding]:
        """Return the distinct bindings of the wanted variables in a message, some perhaps restricted to
        certain values; TooManyGroups beyond a limit."""
        return _Embedding(self, evaluator, allowed or {}).bindings()


def block_pattern(variables: Sequence[BlockVariable], block: int, wanted: Iterable[int]) -> BlockPattern:
    """Return the pattern of a query's block; `wanted` are variables by number."""
    numbers = [number for number, variable in enumerate(variables) if variable.block == block]
    place = {number: i for i, number in enumerate(numbers)} | {MESSAGE: MESSAGE}
    return BlockPattern(
        tuple([place[variables[number].origin] for number in numbers]),
        tuple([variables[number].path for number in numbers]),
        tuple([place[number] for number in sorted(wanted) if number in place]),
        frozenset(place[number] for number in numbers if variables[number].numeric),
    )


def compared_value(document: Document, node: ContextNode, numeric: bool) -> str | None:
    """Return a node's value as a text that is equal for equal values; None where a number is expected and
    there is none."""
    value = document.string_value(node)
    return number_key(value) if numeric else value


class _Embedding:
    """The embeddings of a block's pattern in a message."""

    def __init__(self, pattern: BlockPattern, evaluator: PatternEvaluator, allowed: AllowedValues) -> None:
        self._pattern = pattern
        self._allowed = allowed
        self._evaluator = evaluator
        self._children: list[list[int]] = [[] for _ in pattern.paths]
        for place, origin in enumerate(pattern.origins):
            if origin != MESSAGE:
                self._children[origin].append(place)
        self._wanted = set(pattern.wanted)
        self._known: dict[tuple[int, ContextNode], list[dict[int, ContextNode]]] = {}

    def bindings(self) -> list[Binding]:
        top = self._pattern.origins.index(MESSAGE)
        found = [b for node in self._select(top, DOCUMENT) for b in self._bindings_below(top, node)]
        return list(dict.fromkeys(tuple(b[place] for place in self._pattern.wanted) for b in found))

    def _select(self, place: int, node: ContextNode) -> list[ContextNode]:
        nodes = self._evaluator.select(self._pattern.paths[place], node)
        values = self._allowed.get(place)
        if values is None:
            return nodes
        document, numeric = self._evaluator.document, place in self._pattern.numeric
        return [node for node in nodes if compared_value(document, node, numeric) in values]

    def _bindings_below(self, place: int, node: ContextNode) -> list[dict[int, ContextNode]]:
        """Return the bindings of a variable that is bound to a node, and of those that start from it."""
        key = place, node
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._enumerate(place, node)
        return known

    def _enumerate(self, place: int, node: ContextNode) -> list[dict[int, ContextNode]]:
        here: dict[int, ContextNode] = {place: node} if place in self._wanted else {}
        branches: list[list[dict[int, ContextNode]]] = []
        size = 1
        for child in self._children[place]:
            found = [b for below in self._select(child, node) for b in self._bindings_below(child, below)]
            if not found:
                return []
            branches.append(_distinct(found))
            size *= len(branches[-1])
            if size > MOST_GROUPS:
                raise TooManyGroups(" ".join(map(str, self._pattern.paths)))
        return [here | _merge(choice) for choice in product(*branches)]


def _distinct(bindings: list[dict[int, ContextNode]]) -> list[dict[int, ContextNode]]:
    return list({tuple(binding.items()): binding for binding in bindings}.values())


def _merge(bindings: Iterable[dict[int, ContextNode]]) -> dict[int, ContextNode]:
    merged: dict[int, ContextNode] = {}
    for binding in bindings:
        merged |= binding
    return merged


# -- several blocks ----------------------------------------------------------------------------------------


class BindableMessage(Protocol):
    """A message whose nodes can be read."""

    document: Document
    evaluator: PatternEvaluator

    def bindings(self, pattern: BlockPattern) -> list[Binding]:
        """Return the bindings of a pattern, which are cached."""
        ...


class JoinBindings:
    """Enumerates the bindings of a query, or of its first blocks, for some wanted variables."""

    def __init__(self, join: Join, blocks: int, wanted: Iterable[int]) -> None:
        self._text = join.text
        self._variables = join.variables
        self._links = join.links[: blocks - 1]
        self.wanted = tuple(sorted(set(wanted)))
        compared = {n for link in self._links for c in link.comparisons for n in (c.left, c.right)}
        self._block_of = {number: variable.block for number, variable in enumerate(join.variables)}
        self._wanted_patterns = [block_pattern(join.variables, b, self.wanted) for b in range(blocks)]
        needed = sorted({*self.wanted, *compared})
        self._needed_patterns = [block_pattern(join.variables, b, needed) for b in range(blocks)]
        self._columns = [[n for n in needed if self._block_of[n] == block] for block in range(blocks)]

    def enumerate(self, messages: Sequence[BindableMessage]) -> list[Binding]:
        """Return the distinct bindings of the wanted variables in messages that join, in document order;
        TooManyGroups beyond a limit."""
        only = self._only_binding(messages)
        if only is not None:
            return [only]
        documents = [message.document for message in messages]
        allowed = self._allowed_values(messages)
        columns = self._columns[0]
        partial = self._needed_patterns[0].bindings(messages[0].evaluator, allowed[0])
        for number, link in enumerate(self._links, 1):
            bindings = self._needed_patterns[number].bindings(messages[number].evaluator, allowed[number])
            values = _Values(documents, self._variables)
            new = self._columns[number]
            partial = _join_block(partial, columns, bindings, new, link.comparisons, values, self._text)
            columns = columns + new
        places = [columns.index(number) for number in self.wanted]
        found = dict.fromkeys(tuple(binding[place] for place in places) for binding in partial)
        orders = [documents[self._block_of[number]].order for number in self.wanted]
        return sorted(found, key=lambda b: tuple(order(node) for order, node in zip(orders, b, strict=True)))

    def _only_binding(self, messages: Sequence[BindableMessage]) -> Binding | None:
        """Return the binding if every message has but one, which is the frequent case; else None."""
        found: list[ContextNode] = []
        for message, pattern in zip(messages, self._wanted_patterns, strict=True):
            try:
                bindings = message.bindings(pattern)
            except TooManyGroups:  # perhaps few of them satisfy the comparisons
                return None
            if len(bindings) != 1:
                return None
            found += bindings[0]
        return tuple(found)

    def _allowed_values(self, messages: Sequence[BindableMessage]) -> list[dict[int, frozenset[str]]]:
        """Return for each block the values that its variables have in common with those they are equated
        with, by positions in the block."""
        allowed: list[dict[int, frozenset[str]]] = [{} for _ in messages]
        for comparison in (c for link in self._links for c in link.comparisons if c.op == "="):
            sides = (comparison.left, comparison.right)
            common = self._values(messages, sides[0]) & self._values(messages, sides[1])
            for number in sides:
                block = self._block_of[number]
                place = self._variables_of(block).index(number)
                allowed[block][place] = allowed[block].get(place, common) & common
        return allowed

    def _values(self, messages: Sequence[BindableMessage], number: int) -> frozenset[str]:
        block = self._block_of[number]
        message = messages[block]
        nodes = message.bindings(block_pattern(self._variables, block, (number,)))
        numeric = self._variables[number].numeric
        found = {compared_value(message.document, node, numeric) for (node,) in nodes}
        return frozenset(value for value in found if value is not None)

    def _variables_of(self, block: int) -> list[int]:
        return [number for number, of in self._block_of.items() if of == block]


class _Values:
    """Reads the values of nodes, each in the message of its variable's block."""

    def __init__(self, documents: Sequence[Document], variables: Sequence[BlockVariable]) -> None:
        self._documents = documents
        self._variables = variables

    def get(self, number: int, node: ContextNode) -> str:
        variable = self._variables[number]
        value = compared_value(self._documents[variable.block], node, variable.numeric)
        assert value is not None  # a node without a number has no value in common with any other
        return value


def _join_block(
    partial: list[Binding],
    columns: list[int],
    bindings: list[Binding],
    new: list[int],
    comparisons: tuple[Comparison, ...],
    values: _Values,
    text: str,
) -> list[Binding]:
    """Join partial bindings with those of one more block, by a hash join; TooManyGroups beyond a limit."""
    equal = [c for c in comparisons if c.op == "="]
    others = [c for c in comparisons if c.op != "="]
    by_values: dict[tuple[str, ...], list[Binding]] = {}
    for binding in bindings:
        key = tuple(values.get(c.right, binding[new.index(c.right)]) for c in equal)
        by_values.setdefault(key, []).append(binding)
    found: list[Binding] = []
    for known in partial:
        key = tuple(values.get(c.left, known[columns.index(c.left)]) for c in equal)
        for binding in by_values.get(key, ()):
            if all(
                _compare(
                    c.op,
                    values.get(c.left, known[columns.index(c.left)]),
                    values.get(c.right, binding[new.index(c.right)]),
                )
                for c in others
            ):
                found.append(known + binding)
                if len(found) > 10 * MOST_GROUPS:
                    raise TooManyGroups(text)
    return found


def _compare(op: Comparator, left: str, right: str) -> bool:
    """Return whether a comparison other than = holds between two string-values."""
    return left != right if op == "!=" else COMPARE[op](to_number(left), to_number(right))
