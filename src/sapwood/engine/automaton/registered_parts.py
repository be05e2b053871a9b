"""Registered queries as flat arrays, from which any automaton can be made: what packs hold.

The code lists the queries one after the other, in numbers:

    query    slot, flags, weight, how many parts, the parts
    leaf     how many symbols, the symbols, target, operator, constant unless there is no operator
    twig     ~ steps down to the anchor, how many parts, the parts

Symbols, names and constants are numbers of strings. A target is one of `_TARGETS`, or from there on the name
of an attribute. An operator is one of `_OPERATORS`; with `_IS_NUMBER`, the constant is one of the numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sapwood.engine.automaton.query_paths import ELEMENT, VALUE, Leaf, Twig, first_steps
from sapwood.engine.automaton.relative_paths import RelativePaths
from sapwood.lang.pattern import TEXT, Test

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINDS, SHARED = 1, 2
"""Flags: the query binds elements; it is a path that equal queries share."""

_TARGETS = ELEMENT, VALUE, TEXT
_OPERATORS = "", "=", "!=", "<", "<=", ">", ">=", "contains", "starts-with"
_IS_NUMBER = 16


class FlatQueries(NamedTuple):
    """Queries as flat arrays."""

    code: NDArray[np.int32]
    strings: list[str]
    numbers: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RegisteredParts:
    """Everything that is registered in an automaton."""

    queries: FlatQueries
    relative_paths: RelativePaths


class RegisteredQuery(NamedTuple):
    slot: int
    flags: int
    weight: int
    parts: tuple[Leaf | Twig, ...]


class QueryWriter:
    """Writes queries as flat arrays."""

    def __init__(self) -> None:
        self._code = array("i")
        self._strings: dict[str, int] = {}
        self._numbers: list[float] = []

    def add(self, query: RegisteredQuery) -> None:
        self._code.extend((query.slot, query.flags, query.weight, len(query.parts)))
        for part in query.parts:
            self._add_part(part)

    def add_path(self, slot: int, flags: int, weight: int, path: tuple[str, ...]) -> None:
        """Add a query that is one path."""
        symbols = [self._string(symbol) for symbol in path]
        self._code.extend((slot, flags, weight, 1, len(symbols), *symbols, 0, 0))

    def queries(self) -> FlatQueries:
        """Return the queries that were added."""
        return FlatQueries(
            np.array(self._code, np.int32), list(self._strings), np.array(self._numbers, np.float64)
        )

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _add_part(self, part: Leaf | Twig) -> None:
        if isinstance(part, Twig):
            self._code.extend((~part.step, len(part.parts)))
            for inner in part.parts:
                self._add_part(inner)
            return
        self._code.append(len(part.path))
        self._code.extend(map(self._string, part.path))
        is_attribute = part.target.startswith("@")
        self._code.append(
            len(_TARGETS) + self._string(part.target[1:]) if is_attribute else _TARGETS.index(part.target)
        )
        if part.test is None:
            self._code.append(0)
            return
        operator = _OPERATORS.index(part.test.op)
        if isinstance(part.test.value, str):
            self._code.extend((operator, self._string(part.test.value)))
        else:
            self._code.extend((operator | _IS_NUMBER, len(self._numbers)))
            self._numbers.append(part.test.value)


def read_queries(flat: FlatQueries) -> Iterator[RegisteredQuery]:
    """Yield the queries that were written as flat arrays."""
    code = flat.code.tolist()
    reader = _QueryReader(code, flat.strings, flat.numbers.tolist())
    while reader.at < len(code):
        slot, flags, weight, count = code[reader.at : reader.at + 4]
        reader.at += 4
        yield RegisteredQuery(slot, flags, weight, tuple([reader.read_part() for _ in range(count)]))


def drop_queries(flat: FlatQueries, slots: Collection[int]) -> FlatQueries:
    """Return the queries but those of some slots; their strings and numbers stay."""
    code = flat.code.tolist()
    kept = np.ones(len(code), np.bool_)
    at = 0
    while at < len(code):
        start, parts = at, code[at + 3]
        at += 4
        while parts:
            if code[at] < 0:  # a twig, whose parts follow
                parts += code[at + 1] - 1
                at += 2
                continue
            at += code[at] + 3 if not code[at + code[at] + 2] else code[at] + 4
            parts -= 1
        if code[start] in slots:
            kept[start:at] = False
    return flat._replace(code=flat.code[kept])


class _QueryReader:
    def __init__(self, code: list[int], strings: list[str], numbers: list[float]) -> None:
        self._code = code
        self._strings = strings
        self._numbers = numbers
        self.at = 0

    def _next(self) -> int:
        self.at += 1
        return self._code[self.at - 1]

    def read_part(self) -> Leaf | Twig:
        length = self._next()
        if length < 0:
            parts = tuple([self.read_part() for _ in range(self._next())])
            return Twig(first_steps(parts[0].path, ~length), parts)
        path = tuple([self._strings[symbol] for symbol in self._code[self.at : self.at + length]])
        self.at += length
        target = self._next()
        operator = self._next()
        named = _TARGETS[target] if target < len(_TARGETS) else f"@{self._strings[target - len(_TARGETS)]}"
        if not operator:
            return Leaf(path, named)
        value = self._next()
        constant = self._numbers[value] if operator & _IS_NUMBER else self._strings[value]
        return Leaf(path, named, Test(_OPERATORS[operator & ~_IS_NUMBER], constant))
