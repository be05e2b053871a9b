"""Queries → rules as rows, a few microseconds each where queries are alike.

Subscriptions by the million are made by programs: they differ in their constants. So a query is cut into its
constants and what is left, its *skeleton*; the skeleton is compiled once, with marks for constants, and from
then on the constants are only put in. It is done only if each constant is found again in the rules, as a
constant of a comparison; where one changes what is compiled (a position, a name, an empty text), queries are
compiled one by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.errors import QueryError
from sapwood.lang.query import compile_query
from sapwood.relational.paths.path_catalog import Paths, uses_of
from sapwood.relational.rules.comparisons import ColumnComparison, comparison, of_number, of_text
from sapwood.relational.rules.rule_form import Rule, RuleForm, relational_form

_QUOTED = re.compile(r"""(['"])(.*?)\1""", re.DOTALL)
_NUMBER = re.compile(r"([=<>]\s*)(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?=\s*(?:[\])]|and\b|or\b|\Z))")
_MARK = "\ue000"
_NUMBERS = "8675309"
_FIRST_NUMBER = float(f"{_NUMBERS}000000")
"""marks for numbers; no other number in a query may look like one"""
_EXPONENT = re.compile(r"(?<![\w.-])\.?[0-9][0-9.]*[eE]")
_MOST_KEPT = 200_000
"""branches of skeletons that are kept compiled, half a kilobyte each; a skeleton seen once counts as one"""
_UNSEEN, _SEEN = object(), object()


class Predicate(NamedTuple):
    """A branch of a rule as a row."""

    path: int
    comparison: ColumnComparison
    branching: int | None


class CompiledRule(NamedTuple):
    predicates: tuple[Predicate, ...]
    shape: int | None


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A query as rows; equal ones have the same digest. If it is not exact, its text decides."""

    text: str
    rules: tuple[CompiledRule, ...]
    exact: bool
    digest: tuple[int, int]


class _Slot(NamedTuple):
    """Where a constant goes, and how it is compared."""

    place: int
    op: str


class _Template(NamedTuple):
    rules: tuple[tuple[tuple[tuple[int, ColumnComparison | _Slot, int | None], ...], int | None], ...]
    order: tuple[int, ...]
    """the constants as they come up in the rules"""
    meaning: bytes
    """equal for skeletons that mean the same"""


class QueryCompiler:
    """Compiles queries for the paths of a set of tables."""

    def __init__(self, paths: Paths, namespaces: Mapping[str, str]) -> None:
        self._paths = paths
        self._namespaces = namespaces
        self._refiner = XPathFallback(Counter())
        self._templates: dict[str, _Template | object | None] = {}
        self._kept = 0

    def forget(self) -> None:
        """What was compiled may name paths that are not there after all."""
        self._templates.clear()
        self._kept = 0

    def compile(self, text: str) -> CompiledQuery:
        """The query as rows; QueryError says where and why it is not XPath 1.0."""
        _check_unicode(text)
        cut = _cut(text)
        if cut is None:
            return self._compiled(text)
        skeleton, constants = cut
        template = self._templates.get(skeleton, _UNSEEN)
        if not isinstance(template, _Template | None):
            made = self._template(skeleton, constants)
            if self._kept >= _MOST_KEPT:
                self.forget()
            if template is _UNSEEN:  # it may never come again
                self._templates[skeleton] = _SEEN
                self._kept += 1
            else:
                self._templates[skeleton] = made
                self._kept += len(made.order) if made is not None else 0
            template = made
        if template is None:
            return self._compiled(text)
        return _filled(text, template, constants)

    def _compiled(self, text: str) -> CompiledQuery:
        query = compile_query(text, self._namespaces)
        if not query.exact:
            self._refiner.check(query)  # it has to be decided some day
        form = relational_form(query)
        rules = tuple(self._rule(rule) for rule in form.rules)
        meaning = repr(rules) if form.exact else f"xpath {text}"
        return CompiledQuery(text, rules, form.exact, _digest(meaning.encode("utf-8", "surrogatepass")))

    def _rule(self, rule: Rule) -> CompiledRule:
        predicates = []
        for branch in rule.branches:
            compared = comparison(branch.test)
            path = self._paths.path(branch.path, uses_of(compared.op, bool(branch.points)))
            predicates.append(Predicate(path, compared, self._paths.branching(branch, path)))
        shape = self._paths.shape(rule, [predicate.branching for predicate in predicates])
        return CompiledRule(tuple(predicates), shape)

    def _template(self, skeleton: str, constants: list[str | float]) -> _Template | None:
        """The skeleton's rules with slots for constants; None if it has to be compiled each time."""
        form = self._marked(skeleton, constants)
        if form is None or not form.exact:
            return None
        tests = [branch.test for rule in form.rules for branch in rule.branches if branch.test is not None]
        if not set(range(len(constants))) <= {_place(test.value) for test in tests}:
            return None  # before its paths are taken for paths that somebody asks for
        rules = []
        for rule in form.rules:
            predicates: list[tuple[int, ColumnComparison | _Slot, int | None]] = []
            compiled = self._rule(rule)
            for branch, predicate in zip(rule.branches, compiled.predicates, strict=True):
                place = _place(branch.test.value) if branch.test is not None else None
                if place is None or branch.test is None or place >= len(constants):
                    predicates.append(predicate)
                else:
                    slot = _Slot(place, branch.test.op)
                    predicates.append((predicate.path, slot, predicate.branching))
            rules.append((tuple(predicates), compiled.shape))
        order = tuple(slot.place for slots, _ in rules for _, slot, _ in slots if isinstance(slot, _Slot))
        return _Template(tuple(rules), order, _meaning(rules, constants))

    def _marked(self, skeleton: str, constants: list[str | float]) -> RuleForm | None:
        marks = [
            f"'{_MARK}{place}'" if isinstance(constant, str) else f"{_FIRST_NUMBER + place:.0f}"
            for place, constant in enumerate(constants)
        ]
        pieces = skeleton.split("\0")[0::2]
        text = "".join(piece + mark for piece, mark in zip(pieces, [*marks, ""], strict=True))
        try:
            return relational_form(compile_query(text, self._namespaces))
        except QueryError:  # which is better told of the query as it was written
            return None


def _cut(text: str) -> tuple[str, list[str | float]] | None:
    """A query's skeleton, `\\0` and the kind of constant in place of each, and the constants."""
    if _MARK in text or "\0" in text or _NUMBERS in text or _EXPONENT.search(text):
        return None
    constants: list[str | float] = []
    pieces: list[str] = []
    parts = _QUOTED.split(text) if '"' in text else _by_quotes(text)
    for i in range(0, len(parts), 3):
        numbers = _NUMBER.split(parts[i])
        pieces.append(numbers[0])
        for j in range(1, len(numbers), 3):
            constants.append(float(numbers[j + 1]))
            pieces += (numbers[j], "\0n\0", numbers[j + 2])
        if i + 2 < len(parts):
            if not parts[i + 2]:
                return None
            constants.append(parts[i + 2])
            pieces.append("\0s\0")
    return ("".join(pieces), constants) if constants else None


def _by_quotes(text: str) -> list[str]:
    """As `_QUOTED.split`, faster, where there are no double quotes."""
    parts = text.split("'")
    if len(parts) % 2 == 0:  # one is not closed
        return [text]
    listed = [parts[0]]
    for i in range(1, len(parts), 2):
        listed += ("'", parts[i], parts[i + 1])
    return listed


def _meaning(
    rules: list[tuple[tuple[tuple[int, ColumnComparison | _Slot, int | None], ...], int | None]],
    constants: list[str | float],
) -> bytes:
    """What a template says but for its constants."""
    said = [
        (
            [
                (path, (slot.op, type(constants[slot.place]).__name__) if type(slot) is _Slot else slot, at)
                for path, slot, at in slots
            ],
            shape,
        )
        for slots, shape in rules
    ]
    return repr(said).encode("utf-8", "surrogatepass")


def _place(value: str | float) -> int | None:
    """Which constant a mark stands for."""
    if isinstance(value, str):
        return int(value[1:]) if value.startswith(_MARK) else None
    place = value - _FIRST_NUMBER
    return int(place) if 0 <= place < 1_000 else None


def _filled(text: str, template: _Template, constants: list[str | float]) -> CompiledQuery:
    rules = []
    for slots, shape in template.rules:
        predicates = []
        for path, compared, branching in slots:
            if type(compared) is _Slot:
                value = constants[compared.place]
                compared = (
                    of_text(compared.op, value) if isinstance(value, str) else of_number(compared.op, value)
                )
            predicates.append(Predicate(path, compared, branching))  # type: ignore[arg-type]
        rules.append(CompiledRule(tuple(predicates), shape))
    said = "\0".join([str(constants[place]) for place in template.order])
    return CompiledQuery(text, tuple(rules), True, _digest(template.meaning + said.encode()))


def _digest(meaning: bytes) -> tuple[int, int]:
    digest = blake2b(meaning, digest_size=16).digest()
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError("half of a surrogate pair is no character", text, error.start) from None
