"""The planner of queries by their text: the key and the index plan, from a template of the query's shape.

    text ──► the template that fits ──► key, leaves and twigs
      └── none: compile the text itself

The compiled `Query` is not needed to index an exact query, and is not made: who needs its condition, to
evaluate or explain it, compiles the text then. What a template yields is the same as compiling the text and
planning its condition yields, key, parts and their order (see `lang.xpath.query_shape` for the reasons).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.query_paths import IndexPlan, Leaf, Twig, plan_index, sort_parts
from sapwood.lang.pattern import TEXT, Axis, Has, Test
from sapwood.lang.query import Query, compile_query
from sapwood.lang.xpath.query_shape import (
    PATH,
    Blanks,
    PatternTemplate,
    is_one_path,
    mark_at,
    read_blanks,
    split_blanks,
)
from sapwood.lang.xpath.query_templates import QueryTemplates, may_have_template


class PlannedQuery(NamedTuple):
    """All that the index needs of a query."""

    text: str
    key: str
    """equal for queries with the same meaning, as far as their patterns show"""
    plan: IndexPlan
    exact: bool
    """whether the pattern decides; if not, lxml does"""
    path: tuple[str, ...] | None
    """the symbols of a query that is seen to be one path without conditions; equal for equal queries"""
    query: Query | None
    """compiled already, if the text had to be; always so if the query is not exact"""


class QueryPlanner:
    """Plans the queries of one index, with the prefixes declared for it."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._namespaces = namespaces
        self.templates = QueryTemplates(namespaces, _PlanTemplate)

    def __reduce__(self) -> tuple[type[QueryPlanner], tuple[Mapping[str, str]]]:
        return type(self), (self._namespaces,)

    def plan(self, text: str) -> PlannedQuery:
        """Return the key and the plan of a filter; raise QueryError if the text is none."""
        if may_have_template(text):
            pieces = split_blanks(text)
            if is_one_path(pieces):
                return self._plan_path(text, pieces[1])
            found = self.templates.find(pieces)
            if found is not None:
                template, blanks = found
                return template.fill(text, blanks)
        return self._compile(text)

    def _plan_path(self, text: str, path: str) -> PlannedQuery:
        """Plan a query that is one path without conditions, the frequent case."""
        try:
            blanks = read_blanks((PATH,), (path,), self.templates.names)
        except KeyError:
            return self._compile(text)
        symbols: tuple[str, ...] = blanks.values[0]
        return PlannedQuery(text, blanks.texts[0], IndexPlan((Leaf(symbols),), True), True, symbols, None)

    def _compile(self, text: str) -> PlannedQuery:
        query = compile_query(text, self._namespaces)
        plan = plan_index(query.condition)
        return PlannedQuery(text, query.key, plan, query.exact, _plain_path(query), query)


def _plain_path(query: Query) -> tuple[str, ...] | None:
    """Return the symbols of a query that is one path without conditions."""
    if len(query.paths) != 1 or query.condition != Has(query.paths[0]):
        return None
    symbols: list[str] = []
    for step in query.paths[0].steps:
        if step.conditions or step.axis is Axis.ATTRIBUTE or step.test == TEXT:
            return None
        if step.axis is Axis.DESCENDANT:
            symbols.append(DESCENDANT)
        symbols.append(step.test)
    return tuple(symbols)


class _PlanTemplate:
    """A pattern template with the plan made of it."""

    __slots__ = ("_exact", "_parts", "pattern")

    def __init__(self, pattern: PatternTemplate, marked: Query) -> None:
        plan = plan_index(marked.condition)
        self.pattern = pattern
        self._parts = tuple([_part_template(part) for part in plan.parts])
        self._exact = plan.exact

    def fill(self, text: str, blanks: Blanks) -> PlannedQuery:
        """Return the query with its blanks filled in."""
        values = blanks.values
        parts = tuple([part.fill(values) for part in self._parts])
        if len(parts) > 1:
            parts = tuple(dict.fromkeys(parts))
        return PlannedQuery(text, self.pattern.key(blanks), IndexPlan(parts, self._exact), True, None, None)


class _LeafTemplate:
    __slots__ = ("_op", "_path", "_target", "_value")

    def __init__(self, leaf: Leaf) -> None:
        self._path = _path_template(leaf.path)
        mark = mark_at(leaf.target[1:]) if leaf.target.startswith("@") else None
        self._target = leaf.target if mark is None else mark
        self._op = leaf.test.op if leaf.test is not None else ""
        self._value = mark_at(leaf.test.value) if leaf.test is not None else None

    def fill(self, values: list[Any]) -> Leaf:
        target = values[self._target] if isinstance(self._target, int) else self._target
        test = Test(self._op, values[self._value]) if self._value is not None else None
        return Leaf(_fill_path(self._path, values), target, test)


class _TwigTemplate:
    __slots__ = ("_parts", "_path")

    def __init__(self, twig: Twig) -> None:
        self._path = _path_template(twig.path)
        self._parts = tuple([_part_template(part) for part in twig.parts])

    def fill(self, values: list[Any]) -> Leaf | Twig:
        """Return the twig, or its only part if the others are equal: `/a[b/c]/b[c]`."""
        parts = sort_parts({part.fill(values) for part in self._parts})
        return parts[0] if len(parts) == 1 else Twig(_fill_path(self._path, values), parts)


def _part_template(part: Leaf | Twig) -> _LeafTemplate | _TwigTemplate:
    return _LeafTemplate(part) if isinstance(part, Leaf) else _TwigTemplate(part)


def _path_template(path: Sequence[str]) -> tuple[int | tuple[str, ...], ...]:
    """The numbers of the blanks of a path, and symbols that are in none."""
    marks = [(mark_at(symbol), symbol) for symbol in path]
    return tuple([(symbol,) if mark is None else mark for mark, symbol in marks])


def _fill_path(template: tuple[int | tuple[str, ...], ...], values: list[Any]) -> tuple[str, ...]:
    path: tuple[str, ...] = ()
    for piece in template:
        path += values[piece] if isinstance(piece, int) else piece
    return path
