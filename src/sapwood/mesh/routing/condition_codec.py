"""The canonical encoding of conditions, in which brokers tell each other what they want.

    condition   0, first, operator or nil, constant or nil, step …     Has
                1, name                                                Named
                2, operator, number, from last, of size                Position
                3, condition …     4, condition …     5, condition     And, Or, Not
    step        axis, name, condition …

An encoding is a byte for the version, and nested arrays in MessagePack. The conditions of And and Or are in
the order of their encodings, and numbers are normalized: NaN has one form, and -0 is 0, which compares alike.
So equal conditions have equal encodings in every process, whatever order their texts were written in.

What is decoded comes from other sites. It is bounded in size and depth, every part is checked, and what is
not canonical is refused: a condition has one encoding, and nothing else has it. To encode what was decoded,
and to compare, would check the same, but half of all time to decode went into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import isnan, nan
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

from sapwood.errors import RouteError
from sapwood.lang.literals.numbers import COMPARATORS
from sapwood.lang.names import is_name
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    FALSE,
    TEXT,
    TRUE,
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
    plain_step,
)

VERSION = 1
MOST_BYTES = 262_144
"""of one encoding"""
MOST_LEVELS = 120
"""to which conditions are nested: recursion goes a few calls deeper with each"""
_MOST_ITEMS = 16_384
"""of one array, for which room is made before the items are read"""

HAS, NAMED, POSITION, AND, OR, NOT = range(6)
"""what an array starts with that is a condition"""
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
    return from_form(unpack_form(data))


# -- bytes -----------------------------------------------------------------------------------------------


def pack_form(form: Form) -> bytes:
    """Return nested lists as bytes, with the version before them."""
    return _check_size(bytes((VERSION,)) + pack(form))


def pack_parts(parts: Sequence[bytes]) -> bytes:
    """Return a list as `pack_form` does, given the bytes of its items."""
    return _check_size(bytes((VERSION,)) + pack_head(len(parts)) + b"".join(parts))


def _check_size(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise RouteError(f"a condition of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    return data


def unpack_form(data: bytes) -> Form:
    """Return the nested lists in some bytes; RouteError if others stand for the same lists."""
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
    if pack(form) != data[1:]:  # a length in more bytes than it takes, for example
        raise _not_canonical()
    return form


def pack(form: object) -> bytes:
    """Return a part of a form as bytes; those of a list are a head for its length, and those of its items."""
    packed: bytes = msgpack.packb(form, unicode_errors="surrogatepass")
    return packed


@lru_cache(maxsize=1_024)
def pack_head(length: int) -> bytes:
    """Return the bytes of a list before those of its items."""
    return pack([None] * length)[:-length]


# -- encoding --------------------------------------------------------------------------------------------


def to_form(condition: Condition, levels: int = MOST_LEVELS) -> Form:
    """Return a condition as nested lists; RouteError if it is nested to more levels."""
    if not levels:
        raise RouteError(f"a condition that is nested to more than {MOST_LEVELS} levels")
    match condition:
        case Has(path=path, test=test, first=first):
            steps = [_step_form(step, levels) for step in path.steps]
            if test is None:
                return [HAS, False, None, None, *steps]
            value = test.value if isinstance(test.value, str) else normalize_number(test.value)
            return [HAS, first, _OPERATOR_CODES[test.op], value, *steps]
        case And(items=items):
            return [AND, *_sorted_forms(items, levels)]
        case Or(items=items):
            return [OR, *_sorted_forms(items, levels)]
        case Not(item=item):
            return [NOT, to_form(item, levels - 1)]
        case Named(test=name):
            return [NAMED, name]
        case Position(op=op, n=n, from_last=from_last, of_size=of_size):
            return [POSITION, _OPERATOR_CODES[op], normalize_number(n), from_last, of_size]
    raise TypeError(f"no such condition: {condition!r}")


def encode_axis(axis: Axis) -> int:
    """Return the number of an axis."""
    return _AXIS_CODES[axis]


def _step_form(step: Step, levels: int) -> Form:
    if not step.conditions:
        return [_AXIS_CODES[step.axis], step.test]
    return [_AXIS_CODES[step.axis], step.test, *[to_form(item, levels - 1) for item in step.conditions]]


def _sorted_forms(items: tuple[Condition, ...], levels: int) -> list[Form]:
    return sorted([to_form(item, levels - 1) for item in items], key=pack)


def normalize_number(number: float) -> float:
    """Return the one form of numbers that compare alike."""
    return nan if isnan(number) else float(number) + 0.0  # which makes 0 of -0


# -- decoding --------------------------------------------------------------------------------------------


def from_form(form: object, levels: int = MOST_LEVELS) -> Condition:
    """Return the condition that nested lists stand for; RouteError if they are not what `to_form` returns."""
    if not levels:
        raise RouteError(f"a condition that is nested to more than {MOST_LEVELS} levels")
    if not isinstance(form, list) or not form:
        raise RouteError(f"{_describe(form)}, where a condition should be")
    kind = form[0]
    if type(kind) is not int:  # False and 0.0 are equal to 0
        raise RouteError(f"a condition of kind {_describe(kind)}, which there is not")
    if kind == HAS and len(form) >= 4 and isinstance(form[1], bool):
        _, first, operator, value, *steps = form
        test = None if operator is None and value is None else _read_test(operator, value)
        if first and test is None:
            raise _not_canonical()
        return Has(_read_path(steps, levels), test, first)
    if kind in (AND, OR):
        return _read_several(And if kind == AND else Or, form[1:], levels)
    if kind == NOT and len(form) == 2:
        item = from_form(form[1], levels - 1)
        if item is TRUE or item is FALSE or isinstance(item, Not):
            raise _not_canonical()
        return Not(item)
    if kind == NAMED and len(form) == 2 and isinstance(form[1], str):
        return Named(form[1])
    if kind == POSITION:
        return _read_position(form)
    raise RouteError(f"a condition of kind {_describe(kind)} with {len(form) - 1} parts, which there is not")


def _read_several(kind: type[And | Or], forms: list[object], levels: int) -> Condition:
    """Return a conjunction or disjunction: flat, with several different items that do not decide it."""
    items = [from_form(form, levels - 1) for form in forms]
    encoded = [pack(form) for form in forms]
    ascend = all(before < after for before, after in pairwise(encoded))
    if not ascend or len(items) == 1 or any(isinstance(item, kind) for item in items):
        raise _not_canonical()
    combined = all_of(items) if kind is And else any_of(items)
    if not isinstance(combined, kind):
        raise _not_canonical()
    return combined


def _read_position(form: list[object]) -> Position:
    match form:
        case [_, int(operator), float(number), bool(from_last), bool(of_size)] if type(
            operator
        ) is int and 0 <= operator < len(COMPARATORS):
            return Position(_OPERATORS[operator], _read_number(number), from_last, of_size)
    raise RouteError("a position that is not an operator, a number and what it counts from")


def _read_path(forms: list[object], levels: int) -> Path:
    steps = tuple([_read_step(form, levels) for form in forms])
    for step in steps[:-1]:
        if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
            raise RouteError("a path that goes on from an attribute or text")
    return Path(steps)


def _read_step(form: object, levels: int) -> Step:
    if not (isinstance(form, list) and len(form) >= 2 and type(form[0]) is int):
        raise RouteError(f"{_describe(form)}, where a step of a path should be")
    code, name = form[0], form[1]
    if not 0 <= code < len(_AXES):
        raise RouteError(f"a step along axis {code}, which there is not")
    axis = _AXES[code]
    if not isinstance(name, str) or not (is_name_test(name) or (name == TEXT and axis is not Axis.ATTRIBUTE)):
        raise RouteError(f"a step to {_describe(name)}, which is no name test")
    if len(form) == 2:
        return plain_step(axis, name)
    return Step(axis, name, tuple([from_form(item, levels - 1) for item in form[2:]]))


def _read_test(operator: object, value: object) -> Test:
    if type(operator) is int and 0 <= operator < len(_OPERATORS):
        name = _OPERATORS[operator]
        if isinstance(value, str) and name in _OPERATORS_OF_STRINGS:
            return Test(name, value)
        if isinstance(value, float) and name in COMPARATORS:
            return Test(name, _read_number(value))
    raise RouteError(f"a test with operator {_describe(operator)} and {_describe(value)}, which there is not")


def _read_number(number: float) -> float:
    if (number == 0 or isnan(number)) and pack(number) != pack(normalize_number(number)):
        raise _not_canonical()
    return normalize_number(number)  # NaN is one object, so that tests with it are one


def _not_canonical() -> RouteError:
    return RouteError("a condition that is not in canonical form")


@lru_cache(maxsize=2_048)
def is_name_test(name: str) -> bool:
    """Return whether a text tests the names of elements or attributes."""
    uri, brace, local = name.rpartition("}")
    if brace and (not uri or (ANY_NAMESPACE in uri and uri != ANY_NAMESPACE)):
        return False
    return is_name(local) or (local == "*" and uri != ANY_NAMESPACE)


def _describe(part: object) -> str:
    """Describe a part of hostile data in few characters."""
    shown = ascii(part) if isinstance(part, str | int | float | None) else f"a {type(part).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
