"""The canonical encodings of conditions by the shapes of their queries, without compiling each query.

    /news[@topic = 'a']/p       shape  /▢[@▢ = '▢']/▢      blanks  news  topic  a  p

Queries by the hundred thousand have a dozen shapes (see `lang.xpath.query_shape`). A shape is compiled once,
with marks in its blanks, and encoded once; what a query has in its blanks is then put between the bytes. The
order of conditions in And and Or is that of their bytes, so it is found anew for each query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from sapwood.lang.pattern import Axis
from sapwood.lang.query import Query
from sapwood.lang.xpath.query_shape import Blanks, PatternTemplate, mark_at, split_blanks, split_steps
from sapwood.lang.xpath.query_templates import QueryTemplates, may_have_template
from sapwood.mesh.routing.condition_codec import (
    AND,
    HAS,
    NOT,
    OR,
    POSITION,
    Form,
    encode_axis,
    normalize_number,
    pack,
    pack_head,
    to_form,
)

Values = list[Any]
"""what is in the blanks of a query: see `Blanks.values`"""
Encode = Callable[[Values], bytes]
EncodeSteps = Callable[[Values], list[bytes]]


class QueryEncoder:
    """Encodes the conditions of XPath queries that a template of their shape is exact for."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._templates = QueryTemplates(namespaces, _ConditionTemplate)

    def encode(self, text: str) -> bytes | None:
        """Return the encoding of a query's condition; None if the query has to be compiled for it."""
        if not may_have_template(text):
            return None
        found = self._templates.find(split_blanks(text))
        if found is None:
            return None
        template, blanks = found
        return template.fill(blanks)


@lru_cache(maxsize=16)
def share_encoder(namespaces: frozenset[tuple[str, str]]) -> QueryEncoder:
    """Return the encoder of a process for some prefixes, which any thread may use."""
    return QueryEncoder(dict(namespaces))


class _ConditionTemplate:
    """A pattern template with a function that encodes the condition of a query."""

    __slots__ = ("_encode", "pattern")

    def __init__(self, pattern: PatternTemplate, marked: Query) -> None:
        self.pattern = pattern
        self._encode = _prepare_condition(to_form(marked.condition))  # few tokens: never nested too deeply

    def fill(self, blanks: Blanks) -> bytes:
        """Return the encoding with the blanks filled in."""
        return self._encode(blanks.values)


def _prepare_condition(form: Form) -> Encode:
    """Return what encodes a condition, given as the form of a marked one."""
    kind = form[0]
    if kind == HAS:
        return _prepare_has(form)
    if kind in (AND, OR) and len(form) > 1:
        head, makers = _head(len(form), kind), [_prepare_condition(item) for item in form[1:]]
        return lambda values: head + b"".join(sorted([encode(values) for encode in makers]))
    if kind == NOT:
        head, encode = _head(len(form), kind), _prepare_condition(form[1])
        return lambda values: head + encode(values)
    if kind == POSITION and (number := mark_at(form[2])) is not None:
        before, after = _head(len(form), *form[:2]), b"".join(map(pack, form[3:]))
        return lambda values: before + pack(normalize_number(values[number])) + after
    whole = pack(form)
    return lambda values: whole


def _prepare_has(form: Form) -> Encode:
    kind, first, operator, constant, *steps = form
    makers = [_prepare_steps(step) for step in steps]
    before = pack(kind) + pack(first) + pack(operator)
    number = mark_at(constant) if constant is not None else None
    constant_bytes = pack(constant)

    def encode(values: Values) -> bytes:
        encoded: list[bytes] = []
        for make in makers:
            encoded += make(values)
        value = constant_bytes if number is None else _pack_constant(values[number])
        return pack_head(4 + len(encoded)) + before + value + b"".join(encoded)

    return encode


def _prepare_steps(form: Form) -> EncodeSteps:
    """Return what encodes the steps that one with a mark stands for, of which the last has its conditions."""
    axis, name, *conditions = form
    number = mark_at(name)
    if number is None and not conditions:
        whole = [pack(form)]
        return lambda values: whole
    makers = [_prepare_condition(condition) for condition in conditions]

    def encode(values: Values) -> list[bytes]:
        if number is None:
            steps = [(axis, name)]
        elif axis == encode_axis(Axis.ATTRIBUTE):  # whose value starts with the sign
            steps = [(axis, values[number][1:])]
        else:
            steps = [(encode_axis(at), step) for at, step in split_steps(values[number])]
        encoded = [_encode_plain(*step) for step in steps]
        if makers:
            inner = b"".join([make(values) for make in makers])
            encoded[-1] = _head(2 + len(makers), *steps[-1]) + inner
        return encoded

    return encode


@lru_cache(maxsize=4_096)
def _encode_plain(axis: int, name: str) -> bytes:
    return pack([axis, name])


def _pack_constant(value: str | float) -> bytes:
    return pack(value if isinstance(value, str) else normalize_number(value))


def _head(length: int, *parts: object) -> bytes:
    """Return the beginning of an array with the first of its items."""
    return pack_head(length) + b"".join(map(pack, parts))
