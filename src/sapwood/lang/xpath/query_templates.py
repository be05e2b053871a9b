"""The templates of queries by their shapes, and a compiler that fills them instead of parsing.

    text ── split at blanks ──► shape ──► templates ──► the one that fits
                                  │           └── none fits: compile the shape with marks for a further one
                                  └── unknown or refused: None, and the text itself has to be compiled

A shape gets a template when it comes for the second time: for a single query there is nothing to gain. See
`query_shape` for the reasons why a template that fits yields what the compiler does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import And, Axis, Condition, Has, Not, Or, Path, Position, Step, Test, plain_step
from sapwood.lang.query import Query, compile_query
from sapwood.lang.xpath.query_shape import (
    Blanks,
    Names,
    PatternTemplate,
    equal_blanks,
    generalize,
    is_one_path,
    kinds_of,
    mark_at,
    read_blanks,
    split_blanks,
    split_steps,
)

MOST_SHAPES = 1_000
"""Remembered, with or without templates; beyond it all are forgotten."""
MOST_TEMPLATES = 32
"""Attempted for one shape; beyond it, its other queries are compiled directly."""


class Template(Protocol):
    """What is made of a shape once, and filled for each of its queries."""

    @property
    def pattern(self) -> PatternTemplate:
        """Says which queries of the shape the template is for."""


T = TypeVar("T", bound=Template)
MakeTemplate = Callable[[PatternTemplate, Query], T]


def may_have_template(text: str) -> bool:
    """Return whether a text is XPath for certain, and may have a shape in common with others.

    No text that starts like this is a transformation; of XPath, only that with an arrow may be a join.
    """
    return text.startswith("/") and "->" not in text


class QueryTemplates(Generic[T]):
    """The templates of queries with the prefixes declared, each made of a query with marks by `make`."""

    def __init__(self, namespaces: Mapping[str, str], make: MakeTemplate[T]) -> None:
        self._namespaces = namespaces
        self._names = Names(namespaces)
        self._make = make
        self._shapes: dict[tuple[str, ...], _Shape[T] | None] = {}

    def __len__(self) -> int:
        """The number of shapes that are remembered."""
        return len(self._shapes)

    def clear(self) -> None:
        """Forget all shapes and names, of which so many are kept at most: see `MOST_SHAPES`."""
        self._shapes.clear()
        self._names.clear()

    @property
    def names(self) -> Names:
        """What names stand for now: prefixes may have been declared since."""
        if self._names.in_any != match_in_any(self._namespaces):
            self._names = Names(self._namespaces)
            self._shapes.clear()
        return self._names

    def find(self, pieces: Sequence[str]) -> tuple[T, Blanks] | None:
        """Return the template of a text, which `split_blanks` has split, with what is in its blanks."""
        names = self.names
        shape = tuple(pieces[::2])
        known = self._shapes.get(shape)
        if known is None:
            known = self._meet(shape)
        if known is None:
            return None
        try:
            blanks = read_blanks(known.kinds, pieces[1::2], names)
        except KeyError:  # a name that only the parser can judge
            return None
        template = known.template(blanks, self._namespaces, self._make)
        return (template, blanks) if template is not None else None

    def _meet(self, shape: tuple[str, ...]) -> _Shape[T] | None:
        """Note a shape; the second time, return it with a place for templates."""
        if shape not in self._shapes:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = None
            return None
        known = self._shapes[shape] = _Shape(shape)
        return known


class _Shape(Generic[T]):
    """A shape and its templates, by the blanks that are equal."""

    __slots__ = ("_attempts", "_shape", "_templates", "kinds")

    def __init__(self, shape: tuple[str, ...]) -> None:
        self._shape = shape
        self.kinds = kinds_of(shape)
        self._templates: dict[tuple[int, ...] | None, list[T]] = {}
        self._attempts = 0

    def template(self, blanks: Blanks, namespaces: Mapping[str, str], make: MakeTemplate[T]) -> T | None:
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
        made = make(*found)
        self._templates.setdefault(equal, []).append(made)
        return made


# -- compilation -----------------------------------------------------------------------------------------

Values = list[Any]
"""what is in the blanks of a query: see `Blanks.values`"""


class TemplateCompiler:
    """Compiles XPath filters as `compile_query` does, and many with one shape several times as fast."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._namespaces = namespaces
        self._templates = QueryTemplates(namespaces, _QueryTemplate)

    def compile(self, text: str) -> Query:
        """Return the compiled filter; raise QueryError if the text is none."""
        if may_have_template(text):
            pieces = split_blanks(text)
            found = self._templates.find(pieces) if not is_one_path(pieces) else None
            if found is not None:
                template, blanks = found
                return template.fill(text, blanks)
        return compile_query(text, self._namespaces)

    def recognizes(self, text: str) -> bool:
        """Return whether a text is a filter for certain, without compiling it: a template fits it."""
        return may_have_template(text) and self._templates.find(split_blanks(text)) is not None


@lru_cache(maxsize=16)
def share_compiler(namespaces: frozenset[tuple[str, str]]) -> TemplateCompiler:
    """Return the compiler of a process for some prefixes, which any thread may use."""
    return TemplateCompiler(dict(namespaces))


class _QueryTemplate:
    """A pattern template with functions that make the patterns of a query from what is in its blanks."""

    __slots__ = ("_condition", "_paths", "_type", "pattern")

    def __init__(self, pattern: PatternTemplate, marked: Query) -> None:
        self.pattern = pattern
        self._type = marked.type
        self._paths = [_prepare_path(path) for path in marked.paths]
        # Of most queries, the condition is that there is a node of the only path.
        is_path = len(marked.paths) == 1 and marked.condition is Has(marked.paths[0])
        self._condition = None if is_path else _prepare_condition(marked.condition)

    def fill(self, text: str, blanks: Blanks) -> Query:
        """Return the query with its blanks filled in."""
        values = blanks.values
        paths = tuple([make(values) for make in self._paths])
        condition = Has(paths[0]) if self._condition is None else self._condition(values)
        return Query(text, self._type, condition, paths)


def _prepare_condition(condition: Condition) -> Callable[[Values], Condition]:
    match condition:
        case Has(path=path, test=test, first=first):
            make_path = _prepare_path(path)
            if test is None:
                return lambda values: Has(make_path(values))
            op, number = test.op, mark_at(test.value)
            assert number is not None  # `generalize` refuses a constant that is none of the query's
            return lambda values: Has(make_path(values), Test(op, values[number]), first)
        case And(items=items) | Or(items=items) if items:
            kind, makers = type(condition), [_prepare_condition(item) for item in items]
            return lambda values: kind(tuple([make(values) for make in makers]))
        case Not(item=item):
            make_item = _prepare_condition(item)
            return lambda values: Not(make_item(values))
        case Position(op=op, n=n, from_last=from_last, of_size=of_size) if (at := mark_at(n)) is not None:
            return lambda values: Position(op, values[at], from_last, of_size)
    return lambda values: condition


def _prepare_path(path: Path) -> Callable[[Values], Path]:
    makers = [_prepare_steps(step) for step in path.steps]

    def make(values: Values) -> Path:
        steps: tuple[Step, ...] = ()
        for make_steps in makers:
            steps += make_steps(values)
        return Path(steps)

    return make


def _prepare_steps(step: Step) -> Callable[[Values], tuple[Step, ...]]:
    """Return what makes the steps that one with a mark stands for, of which the last has its conditions."""
    number, axis, test = mark_at(step.test), step.axis, step.test
    makers = [_prepare_condition(condition) for condition in step.conditions]
    if number is None:
        if not makers:
            return lambda values: (step,)
        return lambda values: (Step(axis, test, tuple([make(values) for make in makers])),)
    if axis is Axis.ATTRIBUTE:  # whose value starts with the sign
        return lambda values: (Step(axis, values[number][1:], tuple([make(values) for make in makers])),)

    def make_all(values: Values) -> tuple[Step, ...]:
        steps = [plain_step(at, name) for at, name in split_steps(values[number])]
        if makers:
            last = steps[-1]
            steps[-1] = Step(last.axis, last.test, tuple([make(values) for make in makers]))
        return tuple(steps)

    return make_all
