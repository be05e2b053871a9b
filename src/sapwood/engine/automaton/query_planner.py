"""The planner of queries by their text: the key and the index plan, from a template of the query's shape.

    text ── split at blanks ──► shape ──► templates ──► the one that fits ──► key, leaves and twigs
                                  │           └── none fits: compile the shape with marks for a further one
                                  └── unknown, refused, not exact, wrong: compile the text itself

The compiled `Query` is not needed to index an exact query, and is not made: who needs its condition, to
evaluate or explain it, compiles the text then. What a template yields is the same as compiling the text and
planning its condition yields, key, parts and their order (see `lang.xpath.query_shape` for the reasons).

A shape gets a template when it comes for the second time: for a single query there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.query_paths import IndexPlan, Leaf, Twig, plan_index, sort_parts
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import TEXT, Axis, Condition, Has, Test
from sapwood.lang.query import Query, compile_query
from sapwood.lang.xpath.query_shape import (
    PATH,
    Blanks,
    Names,
    PatternTemplate,
    equal_blanks,
    generalize,
    kinds_of,
    mark_at,
    read_blanks,
    split_blanks,
)

MOST_SHAPES = 1_000
"""Remembered, with or without templates; beyond it all are forgotten."""
MOST_TEMPLATES = 32
"""Attempted for one shape; beyond it, its other queries are compiled directly."""


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
        self._names = Names(namespaces)
        self._shapes: dict[tuple[str, ...], _Shape | None] = {}

    def __reduce__(self) -> tuple[type[QueryPlanner], tuple[Mapping[str, str]]]:
        return type(self), (self._namespaces,)

    def clear(self) -> None:
        """Forget all shapes and names, of which so many are kept at most: see `MOST_SHAPES`."""
        self._shapes.clear()
        self._names.clear()

    def plan(self, text: str) -> PlannedQuery:
        """Return the key and the plan of a filter; raise QueryError if the text is none."""
        # No text that starts like this is a transformation; of XPath, only that with an arrow may be a join.
        if text.startswith("/") and "->" not in text:
            names = self._names
            if names.in_any != match_in_any(self._namespaces):
                names = self._names = Names(self._namespaces)
                self._shapes.clear()
            pieces = split_blanks(text)
            if len(pieces) == 3 and pieces[0] == "/" and not pieces[2]:
                return self._plan_path(text, pieces[1])
            shape = tuple(pieces[::2])
            known = self._shapes.get(shape)
            if known is None:
                known = self._meet(shape)
            if known is not None:
                try:
                    blanks = read_blanks(known.kinds, pieces[1::2], names)
                except KeyError:  # a name that only the parser can judge
                    return self._compile(text)
                template = known.template(blanks, self._namespaces)
                if template is not None:
                    return template.fill(text, blanks)
        return self._compile(text)

    def _plan_path(self, text: str, path: str) -> PlannedQuery:
        """Plan a query that is one path without conditions, the frequent case."""
        try:
            blanks = read_blanks((PATH,), (path,), self._names)
        except KeyError:
            return self._compile(text)
        symbols: tuple[str, ...] = blanks.values[0]
        return PlannedQuery(text, blanks.texts[0], IndexPlan((Leaf(symbols),), True), True, symbols, None)

    def _meet(self, shape: tuple[str, ...]) -> _Shape | None:
        """Note a shape; the second time, return it with a place for templates."""
        if shape not in self._shapes:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = None
            return None
        known = self._shapes[shape] = _Shape(shape)
        return known

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


class _Shape:
    """A shape and its templates, by the blanks that are equal."""

    __slots__ = ("_attempts", "_shape", "_templates", "kinds")

    def __init__(self, shape: tuple[str, ...]) -> None:
        self._shape = shape
        self.kinds = kinds_of(shape)
        self._templates: dict[tuple[int, ...] | None, list[_Template]] = {}
        self._attempts = 0

    def template(self, blanks: Blanks, namespaces: Mapping[str, str]) -> _Template | None:
        """Return the template for a query with these blanks; None if it has to be compiled."""
        equal = equal_blanks(blanks.texts)
        for template in self._templates.get(equal, ()):
            if template.pattern.fits(self.kinds, blanks):
                return template
        if self._attempts >= MOST_TEMPLATES:
            return None
        self._attempts += 1
        found = generalize(self._shape, blanks, namespaces)
        if found is None:
            return None
        made = _Template(*found)
        self._templates.setdefault(equal, []).append(made)
        return made


class _Template:
    """A pattern template with the plan made of it."""

    __slots__ = ("_exact", "_parts", "pattern")

    def __init__(self, pattern: PatternTemplate, condition: Condition) -> None:
        plan = plan_index(condition)
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
