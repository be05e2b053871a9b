"""Compiled XPath filters: the tree pattern that engines index, and the parts that lxml has to evaluate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from sapwood.errors import QueryError
from sapwood.lang.languages import is_join, is_transformation
from sapwood.lang.names import ASCII_NAME
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    Axis,
    Condition,
    Has,
    Path,
    all_of,
    canonical_text,
    plain_step,
    sort_patterns,
)
from sapwood.lang.xpath import error_hints
from sapwood.lang.xpath.absolute_paths import make_absolute
from sapwood.lang.xpath.ast import ExprType, static_type
from sapwood.lang.xpath.parser import parse
from sapwood.lang.xpath.translator import Reason, Translator

# Plain paths, by far the most frequent queries, skip the parser: /a//b/*
_PLAIN = re.compile(rf"(?:/{{1,2}}(?:\*|{ASCII_NAME}))+")
_AXES = {axis.value: axis for axis in Axis}
_PLAIN_STEP = re.compile(rf"(//?)(\*|{ASCII_NAME})")


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled filter.

    A message matches only if `condition` holds of its document node; if the query is `exact`, that is
    sufficient, too. `paths` are the patterns whose nodes an exact node-set query selects.
    """

    text: str
    type: ExprType
    condition: Condition
    paths: tuple[Path, ...] = ()
    reasons: tuple[Reason, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    rooted: str = ""
    """the text for lxml with all paths absolute, if the query is not exact"""
    plain: bool = False
    """whether the text is the canonical form of its path"""

    @property
    def exact(self) -> bool:
        return not self.reasons

    @property
    def key(self) -> str:
        """A key that is equal for queries with the same meaning, as far as their patterns show."""
        if self.plain:
            return self.text
        if not self.exact:
            return f"xpath {sorted(self.namespaces.items())} {self.rooted or self.text}"
        return pattern_key(*self.canonical)

    @property
    def canonical(self) -> tuple[str, bool]:
        """The canonical text of the pattern, and whether the pattern is one path."""
        if len(self.paths) == 1 and self.condition is Has(self.paths[0]):
            return canonical_text(self.paths[0]), True
        return canonical_text((self.condition, self.paths)), False


def pattern_key(canonical: str, is_path: bool) -> str:
    """Return the key of an exact query, given the canonical text of its pattern."""
    if is_path:
        return canonical
    return "pattern " + blake2b(canonical.encode(), digest_size=16).hexdigest()


def compile_query(text: str, namespaces: Mapping[str, str] | None = None) -> Query:
    """Compile an XPath 1.0 filter; raises QueryError, which says where and why a text is none."""
    namespaces = namespaces or {}
    if _PLAIN.fullmatch(text):
        return _plain_query(text, match_in_any(namespaces))
    if is_transformation(text):
        hint = error_hints.hint_transformation()
        raise QueryError("this is a for-where-return query, not a filter", text, 0, hint)
    if is_join(text):
        raise QueryError("this is a join query, not a filter", text, 0, error_hints.hint_join())
    expr = parse(text, namespaces)
    translator = Translator()
    kind = static_type(expr)
    paths: tuple[Path, ...] = ()
    if kind == "node-set":
        nodes = translator.nodes(expr)
        condition = translator.existence(nodes)
        distinct = {Path(route.steps) for route in nodes.routes if not route.context}
        paths = sort_patterns(distinct)
    else:
        condition = translator.boolean(expr)
        if kind != "boolean" and not translator.reasons:
            translator.weaken(expr, f"a {kind} is computed by the XPath processor")
    condition = all_of((condition, *translator.hoisted))
    reasons = tuple(translator.reasons)
    if not reasons:
        return Query(text, kind, condition, paths)
    return Query(text, kind, condition, (), reasons, dict(namespaces), make_absolute(text, expr, namespaces))


def _plain_query(text: str, in_any_namespace: bool) -> Query:
    steps = [(_AXES[slash], name) for slash, name in _PLAIN_STEP.findall(text)]
    if in_any_namespace:
        steps = [(axis, name if name == "*" else f"{ANY_NAMESPACE}}}{name}") for axis, name in steps]
    path = Path(tuple([plain_step(axis, name) for axis, name in steps]))
    return Query(text, "node-set", Has(path), (path,), plain=not in_any_namespace)
