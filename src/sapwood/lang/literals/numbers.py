"""XPath numbers: conversion from strings as in libxml2, with exponents, and comparisons."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Literal, get_args

_NUMBER = re.compile(
    r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:[eE][+-]?)?[ \t\r\n]*\Z"
)


def to_number(value: str | float) -> float:
    """Convert a value as XPath's `number(value)` does: NaN for strings that are no numbers."""
    if isinstance(value, float):
        return value
    match = _NUMBER.match(value)
    return float(match[1]) if match else math.nan


def number_key(value: str) -> str | None:
    """Return a text that is equal for equal numbers; None for NaN, which equals nothing."""
    number = to_number(value)
    return None if math.isnan(number) else repr(number + 0.0)  # which makes -0 the same as 0


Comparator = Literal["=", "!=", "<", "<=", ">", ">="]
COMPARATORS: Mapping[str, Comparator] = {op: op for op in get_args(Comparator)}
FLIPPED: Mapping[str, Comparator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""the comparison that holds of b and a where the other holds of a and b"""

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": float.__eq__,
    "!=": float.__ne__,
    "<": float.__lt__,
    "<=": float.__le__,
    ">": float.__gt__,
    ">=": float.__ge__,
}


def format_number(value: float) -> str:
    """Format a number as XPath's string() does."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
