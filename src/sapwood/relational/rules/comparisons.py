"""Comparisons as tables store them: the code of an operator, and a constant.

There are two kinds. A *fact* is looked up by hash: equal predicates share one row, and the values of a
message are the keys. A *bound* is compared: prices below 20, 20.01, 20.02 … are as many predicates as there
are subscriptions, and a message meets half of them, so bounds are tested only for rules whose facts hold.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack
from typing import NamedTuple

from sapwood.lang.pattern import Test

EXISTS, EQUAL_TEXT, EQUAL_NUMBER, CONTAINS, STARTS = range(5)
LESS, AT_MOST, MORE, AT_LEAST, OTHER_NUMBER, OTHER_TEXT = range(5, 11)
ALWAYS = 11
"""the operator in unused columns of `unrolled`"""

FIRST_BOUND = LESS
RANGES = {"<": LESS, "<=": AT_MOST, ">": MORE, ">=": AT_LEAST}


class ColumnComparison(NamedTuple):
    """An operator with its constant; of facts, `key` is the hash of the constant."""

    op: int
    key: int = 0
    number: float | None = None
    text: str | None = None

    @property
    def is_fact(self) -> bool:
        return self.op < FIRST_BOUND

    def __repr__(self) -> str:
        # part of the digests of queries that table files store: must not change with the class's name
        return f"Comparison(op={self.op!r}, key={self.key!r}, number={self.number!r}, text={self.text!r})"


EXISTENCE = ColumnComparison(EXISTS)


def to_comparison(test: Test | None) -> ColumnComparison:
    """Return a test of a pattern as tables store it."""
    if test is None:
        return EXISTENCE
    value = test.value
    if test.op in RANGES:
        assert isinstance(value, float)
        return ColumnComparison(RANGES[test.op], number=value)
    if isinstance(value, str):
        return text_comparison(test.op, value)
    return number_comparison(test.op, value)


def text_comparison(op: str, value: str) -> ColumnComparison:
    """Return a comparison with a text."""
    if op == "!=":
        return ColumnComparison(OTHER_TEXT, text=value)
    kind = EQUAL_TEXT if op == "=" else CONTAINS if op == "contains" else STARTS
    return ColumnComparison(kind, text_key(value), text=value)


def number_comparison(op: str, value: float) -> ColumnComparison:
    """Return a comparison with a number."""
    if op == "=":
        return ColumnComparison(EQUAL_NUMBER, number_key(value), value)
    return ColumnComparison(OTHER_NUMBER if op == "!=" else RANGES[op], number=value)


def text_key(value: str) -> int:
    """Return the hash of a text, which is stored: it must not depend on the process."""
    return int.from_bytes(
        blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True
    )


def number_key(value: float) -> int:
    """Return the hash of a number, the same for both zeros."""
    return int.from_bytes(blake2b(pack("<d", value + 0.0), digest_size=8).digest(), signed=True)
