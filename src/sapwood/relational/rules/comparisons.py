"""Comparisons as the tables hold them: a small number for the operator, and a constant.

They come in two kinds. A *fact* is looked up: what a message says is known beforehand, and every predicate
that asks for just that has the same row. A *bound* is compared: prices below 20, 20.01, 20.02 … are as many
predicates as there are subscriptions, and a message meets half of them, so they are tried only for the
subscriptions whose facts hold.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack
from typing import NamedTuple

from sapwood.lang.pattern import Test, format_constant

EXISTS, EQUAL_TEXT, EQUAL_NUMBER, CONTAINS, STARTS = range(5)
LESS, AT_MOST, MORE, AT_LEAST, OTHER_NUMBER, OTHER_TEXT = range(5, 11)
ALWAYS = 11
"""fills the columns that a subscription leaves empty"""

FIRST_BOUND = LESS
RANGES = {"<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}
WRITTEN = ("exists", "=", "=", "contains", "starts-with", "<", "<=", ">", ">=", "!=", "!=", "always")


class ColumnComparison(NamedTuple):
    """An operator with its constant; `key` is the same for equal constants of facts, and seldom else."""

    op: int
    key: int = 0
    number: float | None = None
    text: str | None = None

    @property
    def is_fact(self) -> bool:
        return self.op < FIRST_BOUND


JUST_THERE = ColumnComparison(EXISTS)


def comparison(test: Test | None) -> ColumnComparison:
    """A test as the tables hold it."""
    if test is None:
        return JUST_THERE
    value = test.value
    if test.op in RANGES:
        assert isinstance(value, float)
        return ColumnComparison(RANGES[test.op], number=value)
    if isinstance(value, str):
        return of_text(test.op, value)
    return of_number(test.op, value)


def of_text(op: str, value: str) -> ColumnComparison:
    if op == "!=":
        return ColumnComparison(OTHER_TEXT, text=value)
    kind = EQUAL_TEXT if op == "=" else CONTAINS if op == "contains" else STARTS
    return ColumnComparison(kind, text_key(value), text=value)


def of_number(op: str, value: float) -> ColumnComparison:
    if op == "=":
        return ColumnComparison(EQUAL_NUMBER, number_key(value), value)
    return ColumnComparison(OTHER_NUMBER if op == "!=" else RANGES[op], number=value)


def text_key(value: str) -> int:
    return int.from_bytes(
        blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True
    )


def number_key(value: float) -> int:
    return int.from_bytes(blake2b(pack("<d", value + 0.0), digest_size=8).digest(), signed=True)


def written(op: int, number: float | None, text: str | None) -> str:
    """A comparison as people read it."""
    value = number if number is not None else text
    return WRITTEN[op] if value is None else f"{WRITTEN[op]} {format_constant(value)}"
