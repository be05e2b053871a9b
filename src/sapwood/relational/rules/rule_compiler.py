"""Compiles queries into rule rows, in a few microseconds each where queries are alike.

Subscriptions by the million are generated: they differ in their constants only. So a query is split into its
constants and the rest, its *skeleton*; the skeleton is compiled once into a template, with placeholders for
constants, and further queries only fill it. A template needs every placeholder to come out as the constant of
a comparison; where a constant changes what is compiled (a position, a name, an empty text), queries are
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
from sapwood.relational.paths.path_catalog import PathCatalog, required_uses
from sapwood.relational.rules.comparisons import (
    ColumnComparison,
    number_comparison,
    text_comparison,
    to_comparison,
)
from sapwood.relational.rules.rule_form import Rule, RuleForm, relational_form

_QUOTED = re.compile(r"""(['"])(.*?)\1""", re.DOTALL)
_NUMBER = re.compile(r"([=<>]\s*)(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?=\s*(?:[\])]|and\b|or\b|\Z))")
_TEXT_PLACEHOLDER = "\ue000"
_NUMBER_PLACEHOLDER = "8675309"
_FIRST_PLACEHOLDER = float(f"{_NUMBER_PLACEHOLDER}000000")
"""placeholders for numbers count from here; no other number in a query may look like one"""
_EXPONENT = re.compile(r"(?<![\w.-])\.?[0-9][0-9.]*[eE]")
_MAX_CACHED_BRANCHES = 200_000
"""branches in cached templates, half a kilobyte each; a skeleton seen once counts as one"""
_UNSEEN, _SEEN = object(), object()


class Predicate(NamedTuple):
    """A row of `predicate`: a branch of a rule."""

    path: int
    comparison: ColumnComparison
    branching: int | None


class CompiledRule(NamedTuple):
    """A row of `rule`, with its predicates."""

    predicates: tuple[Predicate, ...]
    shape: int | None


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A query as rows; equivalent ones have the same digest. If it is not exact, it needs residual checks."""

    text: str
    rules: tuple[CompiledRule, ...]
    exact: bool
    digest: tuple[int, int]


class _Slot(NamedTuple):
    """The constant of a comparison in a template: its position, and the operator."""

    position: int
    op: str


class _Template(NamedTuple):
    """The compiled rules of a skeleton, with slots for constants."""

    rules: tuple[tuple[tuple[tuple[int, ColumnComparison | _Slot, int | None], ...], int | None], ...]
    order: tuple[int, ...]
    """the indexes of the constants in the order of the rules"""
    encoding: bytes
    """equal for equivalent skeletons"""


class QueryCompiler:
    """Compiles queries into rows that refer to the paths of a catalog."""

    def __init__(self, paths: PathCatalog, namespaces: Mapping[str, str]) -> None:
        self._paths = paths
        self._namespaces = namespaces
        self._fallback = XPathFallback(Counter())
        self._templates: dict[str, _Template | object | None] = {}
        self._cached_branches = 0

    def clear_cache(self) -> None:
        """Discard templates, which may refer to paths of a transaction that failed."""
        self._templates.clear()
        self._cached_branches = 0

    def compile(self, text: str) -> CompiledQuery:
        """Return the query as rows; QueryError says where and why it is not XPath 1.0."""
        _check_unicode(text)
        extracted = _extract_constants(text)
        if extracted is None:
            return self._compile_single(text)
        skeleton, constants = extracted
        template = self._templates.get(skeleton, _UNSEEN)
        if not isinstance(template, _Template | None):
            compiled = self._compile_template(skeleton, constants)
            if self._cached_branches >= _MAX_CACHED_BRANCHES:
                self.clear_cache()
            if template is _UNSEEN:  # it may never occur again
                self._templates[skeleton] = _SEEN
                self._cached_branches += 1
            else:
                self._templates[skeleton] = compiled
                self._cached_branches += len(compiled.order) if compiled is not None else 0
            template = compiled
        if template is None:
            return self._compile_single(text)
        return _fill_template(text, template, constants)

    def _compile_single(self, text: str) -> CompiledQuery:
        query = compile_query(text, self._namespaces)
        if not query.exact:
            self._fallback.check(query)  # refuse now what a residual check could not evaluate
        form = relational_form(query)
        rules = tuple(self._compile_rule(rule) for rule in form.rules)
        encoding = repr(rules) if form.exact else f"xpath {text}"
        return CompiledQuery(text, rules, form.exact, _digest(encoding.encode("utf-8", "surrogatepass")))

    def _compile_rule(self, rule: Rule) -> CompiledRule:
        predicates = []
        for branch in rule.branches:
            comparison = to_comparison(branch.test)
            path = self._paths.path(branch.path, required_uses(comparison.op, bool(branch.points)))
            predicates.append(Predicate(path, comparison, self._paths.branching(branch, path)))
        shape = self._paths.shape(rule, [predicate.branching for predicate in predicates])
        return CompiledRule(tuple(predicates), shape)

    def _compile_template(self, skeleton: str, constants: list[str | float]) -> _Template | None:
        """Return the template of a skeleton; None if its queries have to be compiled one by one."""
        form = self._compile_placeholders(skeleton, constants)
        if form is None or not form.exact:
            return None
        tests = [branch.test for rule in form.rules for branch in rule.branches if branch.test is not None]
        if not set(range(len(constants))) <= {_placeholder_position(test.value) for test in tests}:
            return None  # before its paths enter the catalog
        rules = []
        for rule in form.rules:
            predicates: list[tuple[int, ColumnComparison | _Slot, int | None]] = []
            compiled = self._compile_rule(rule)
            for branch, predicate in zip(rule.branches, compiled.predicates, strict=True):
                position = _placeholder_position(branch.test.value) if branch.test is not None else None
                if position is None or branch.test is None or position >= len(constants):
                    predicates.append(predicate)
                else:
                    slot = _Slot(position, branch.test.op)
                    predicates.append((predicate.path, slot, predicate.branching))
            rules.append((tuple(predicates), compiled.shape))
        order = tuple(slot.position for slots, _ in rules for _, slot, _ in slots if isinstance(slot, _Slot))
        return _Template(tuple(rules), order, _encode_rules(rules, constants))

    def _compile_placeholders(self, skeleton: str, constants: list[str | float]) -> RuleForm | None:
        placeholders = [
            f"'{_TEXT_PLACEHOLDER}{index}'"
            if isinstance(constant, str)
            else f"{_FIRST_PLACEHOLDER + index:.0f}"
            for index, constant in enumerate(constants)
        ]
        pieces = skeleton.split("\0")[0::2]
        text = "".join(map("".join, zip(pieces, [*placeholders, ""], strict=True)))
        try:
            return relational_form(compile_query(text, self._namespaces))
        except QueryError:  # to be raised for the query as it was written
            return None


def _extract_constants(text: str) -> tuple[str, list[str | float]] | None:
    """Return a query's skeleton, with `\\0` and a kind in place of each constant, and the constants."""
    if _TEXT_PLACEHOLDER in text or "\0" in text or _NUMBER_PLACEHOLDER in text or _EXPONENT.search(text):
        return None
    constants: list[str | float] = []
    pieces: list[str] = []
    parts = _QUOTED.split(text) if '"' in text else _split_quoted(text)
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


def _split_quoted(text: str) -> list[str]:
    """Split like `_QUOTED.split`, but faster, a text without double quotes."""
    parts = text.split("'")
    if len(parts) % 2 == 0:  # an unclosed quote
        return [text]
    split = [parts[0]]
    for i in range(1, len(parts), 2):
        split += ("'", parts[i], parts[i + 1])
    return split


def _encode_rules(
    rules: list[tuple[tuple[tuple[int, ColumnComparison | _Slot, int | None], ...], int | None]],
    constants: list[str | float],
) -> bytes:
    """Return bytes that are equal for rules that differ in their constants only; digests are stored."""
    encoded = [
        (
            [
                (
                    path,
                    (slot.op, type(constants[slot.position]).__name__) if type(slot) is _Slot else slot,
                    at,
                )
                for path, slot, at in slots
            ],
            shape,
        )
        for slots, shape in rules
    ]
    return repr(encoded).encode("utf-8", "surrogatepass")


def _placeholder_position(value: str | float) -> int | None:
    """Return the index of the constant that a placeholder stands for."""
    if isinstance(value, str):
        return int(value[1:]) if value.startswith(_TEXT_PLACEHOLDER) else None
    index = value - _FIRST_PLACEHOLDER
    return int(index) if 0 <= index < 1_000 else None


def _fill_template(text: str, template: _Template, constants: list[str | float]) -> CompiledQuery:
    """Return the compiled query of a template and constants. The hottest function of bulk loads."""
    rules = []
    for slots, shape in template.rules:
        predicates = []
        for path, comparison, branching in slots:
            if type(comparison) is _Slot:
                value = constants[comparison.position]
                comparison = (
                    text_comparison(comparison.op, value)
                    if isinstance(value, str)
                    else number_comparison(comparison.op, value)
                )
            predicates.append(Predicate(path, comparison, branching))  # type: ignore[arg-type]
        rules.append(CompiledRule(tuple(predicates), shape))
    values = "\0".join([str(constants[index]) for index in template.order])
    return CompiledQuery(text, tuple(rules), True, _digest(template.encoding + values.encode()))


def _digest(encoding: bytes) -> tuple[int, int]:
    """Return the digest of a query, which is stored: encodings, with class names by `repr`, are fixed."""
    digest = blake2b(encoding, digest_size=16).digest()
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError("half of a surrogate pair is no character", text, error.start) from None
