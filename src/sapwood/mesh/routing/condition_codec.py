"""The canonical encoding of conditions, in which brokers tell each other what they want.

    condition   0, first, operator or nil, constant or nil, step …     Has
                1, name                                                Named
                2, operator, number, from last, of size                Position
                3, condition …     4, condition …     5, condition     And, Or, Not
    step        axis, name, condition …

An encoding is a byte for the version, and nested arrays in MessagePack. The conditions of And and Or are in
the order of their encodings, and numbers are normalized: NaN has one form, and -0 is 0, which compares alike.
So equal conditions have equal encodings in every process, whatever order their texts were written in.

What is decoded comes from other sites. It is bounded in size and depth, every part is checked, and what
differs from its own canonical encoding is refused: a condition has one encoding, and nothing else has it.
"""

from __future__ import annotations

from functools import lru_cache
from math import isnan, nan
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

from sapwood.errors import RouteError
from sapwood.lang.literals.numbers import COMPARATORS
from sapwood.lang.names import is_name
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Not,
    Or,
    Path,
    Position,
    Step,
    Test,
    all_of,
    any_of,
    negation,
    plain_step,
)

VERSION = 1
MOST_BYTES = 262_144
"""of one encoding"""
MOST_LEVELS = 120
"""to which conditions are nested: recursion goes a few calls deeper with each"""
_MOST_ITEMS = 16_384
"""of one array, for which room is made before the items are read"""

_HAS, _NAMED, _POSITION, _AND, _OR, _NOT = range(6)
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "contains", "starts-with")
_AXES = (Axis.CHILD, Axis.DESCENDANT, Axis.ATTRIBUTE)
_OPERATOR_CODES = {operator: code for code, operator in enumerate(_OPERATORS)}
_AXIS_CODES = {axis: code for code, axis in enumerate(_AXES)}
_OPERATORS_OF_STRINGS = frozenset({"=", "!=", "contains", "starts-with"})

Form = list[Any]
"""a condition as nested lists of numbers, strings, booleans and None"""


def encode_condition(condition: Condition) -> bytes:
    """Return the canonical encoding of a condition; RouteError if it is too deep or too large for one."""
    return pack_form(to_form(condition))


def decode_condition(data: bytes) -> Condition:
    """Return the condition that was encoded; RouteError if the bytes are no canonical encoding of one."""
    form = unpack_form(data)
    condition = from_form(form)
    if encode_condition(condition) != data:
        raise RouteError("a condition that is not in canonical form")
    return condition


# -- bytes -----------------------------------------------------------------------------------------------


def pack_form(form: Form) -> bytes:
    """Return nested lists as bytes, with the version before them."""
    data = bytes((VERSION,)) + _pack(form)
    if len(data) > MOST_BYTES:
        raise RouteError(f"a condition of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    return data


def unpack_form(data: bytes) -> Form:
    """Return the nested lists in some bytes."""
    if not data:
        raise RouteError("no bytes, where a condition should be")
    if len(data) > MOST_BYTES:
        raise RouteError(f"{len(data):,} bytes, where a condition has at most {MOST_BYTES:,}")
    if data[0] != VERSION:
        raise RouteError(
            f"a condition in encoding {data[0]}, but this version of Sapwood reads encoding {VERSION}; "
            "brokers of one mesh need versions that agree"
        )
    try:
        form = msgpack.unpackb(
            memoryview(data)[1:], unicode_errors="surrogatepass", max_array_len=_MOST_ITEMS, max_map_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise RouteError(f"damaged bytes, where a condition should be: {error}") from None
    if not isinstance(form, list):
        raise RouteError(f"{_describe(form)}, where a list should be")
    return form


def _pack(form: object) -> bytes:
    packed: bytes = msgpack.packb(form, unicode_errors="surrogatepass")
    return packed


# -- encoding --------------------------------------------------------------------------------------------


def to_form(condition: Condition, levels: int = MOST_LEVELS) -> Form:
    """Return a condition as nested lists; RouteError if it is nested to more levels."""
    if not levels:
        raise RouteError(f"a condition that is nested to more than {MOST_LEVELS} levels")
    match condition:
        case Has(path=path, test=test, first=first):
            steps = [_step_form(step, levels) for step in path.steps]
            if test is None:
                return [_HAS, False, None, None, *steps]
            value = test.value if isinstance(test.value, str) else _normalize(test.value)
            return [_HAS, first, _OPERATOR_CODES[test.op], value, *steps]
        case And(items=items):
            return [_AND, *_sorted_forms(items, levels)]
        case Or(items=items):
            return [_OR, *_sorted_forms(items, levels)]
        case Not(item=item):
            return [_NOT, to_form(item, levels - 1)]
        case Named(test=name):
            return [_NAMED, name]
        case Position(op=op, n=n, from_last=from_last, of_size=of_size):
            return [_POSITION, _OPERATOR_CODES[op], _normalize(n), from_last, of_size]
    raise TypeError(f"no such condition: {condition!r}")


def _step_form(step: Step, levels: int) -> Form:
    if not step.conditions:
        return [_AXIS_CODES[step.axis], step.test]
    return [_AXIS_CODES[step.axis], step.test, *[to_form(item, levels - 1) for item in step.conditions]]


def _sorted_forms(items: tuple[Condition, ...], levels: int) -> list[Form]:
    return sorted([to_form(item, levels - 1) for item in items], key=_pack)


def _normalize(number: float) -> float:
    return nan if isnan(number) else float(number) + 0.0  # which makes 0 of -0


# -- decoding --------------------------------------------------------------------------------------------


def from_form(form: object, levels: int = MOST_LEVELS) -> Condition:
    """Return the condition that nested lists stand for; RouteError if they stand for none."""
    if not levels:
        raise RouteError(f"a condition that is nested to more than {MOST_LEVELS} levels")
    if not isinstance(form, list) or not form:
        raise RouteError(f"{_describe(form)}, where a condition should be")
    kind = form[0]
    if kind == _HAS and len(form) >= 4 and isinstance(form[1], bool):
        _, first, operator, value, *steps = form
        test = None if operator is None and value is None else _read_test(operator, value)
        return Has(_read_path(steps, levels), test, first)
    if kind == _AND:
        return all_of([from_form(item, levels - 1) for item in form[1:]])
    if kind == _OR:
        return any_of([from_form(item, levels - 1) for item in form[1:]])
    if kind == _NOT and len(form) == 2:
        return negation(from_form(form[1], levels - 1))
    if kind == _NAMED and len(form) == 2 and isinstance(form[1], str):
        return Named(form[1])
    if kind == _POSITION:
        return _read_position(form)
    raise RouteError(f"a condition of kind {_describe(kind)} with {len(form) - 1} parts, which there is not")


def _read_position(form: list[object]) -> Position:
    match form:
        case [_, int(operator), float(number), bool(from_last), bool(of_size)] if (
            0 <= operator < len(COMPARATORS)
        ):
            return Position(_OPERATORS[operator], _read_number(number), from_last, of_size)
    raise RouteError("a position that is not an operator, a number and what it counts from")


def _read_path(forms: list[object], levels: int) -> Path:
    steps = tuple([_read_step(form, levels) for form in forms])
    for step in steps[:-1]:
        if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
            raise RouteError("a path that goes on from an attribute or text")
    return Path(steps)


def _read_step(form: object, levels: int) -> Step:
    if not (isinstance(form, list) and len(form) >= 2 and isinstance(form[0], int)):
        raise RouteError(f"{_describe(form)}, where a step of a path should be")
    code, name = form[0], form[1]
    if not 0 <= code < len(_AXES):
        raise RouteError(f"a step along axis {code}, which there is not")
    axis = _AXES[code]
    if not isinstance(name, str) or not (
        _is_name_test(name) or (name == TEXT and axis is not Axis.ATTRIBUTE)
    ):
        raise RouteError(f"a step to {_describe(name)}, which is no name test")
    if len(form) == 2:
        return plain_step(axis, name)
    return Step(axis, name, tuple([from_form(item, levels - 1) for item in form[2:]]))


def _read_test(operator: object, value: object) -> Test:
    if isinstance(operator, int) and 0 <= operator < len(_OPERATORS):
        name = _OPERATORS[operator]
        if isinstance(value, str) and name in _OPERATORS_OF_STRINGS:
            return Test(name, value)
        if isinstance(value, float) and name in COMPARATORS:
            return Test(name, _read_number(value))
    raise RouteError(f"a test with operator {_describe(operator)} and {_describe(value)}, which there is not")


def _read_number(number: float) -> float:
    return nan if isnan(number) else number  # one object, so that tests with it are one


@lru_cache(maxsize=2_048)
def _is_name_test(name: str) -> bool:
    uri, brace, local = name.rpartition("}")
    if brace and (not uri or (ANY_NAMESPACE in uri and uri != ANY_NAMESPACE)):
        return False
    return is_name(local) or (local == "*" and uri != ANY_NAMESPACE)


def _describe(part: object) -> str:
    """Describe a part of hostile data in few characters."""
    shown = ascii(part) if isinstance(part, str | int | float | None) else f"a {type(part).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
