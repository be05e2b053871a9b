"""String-values as ranges of a message's text, so that nested elements do not each copy and search their own.

The string-value of an element is the text between its tags: a range of the message's text nodes, joined once.
Tests are evaluated on the range:

    =, !=          by length first; equal lengths overlap only where they are the same range
    starts-with    at the range's start
    contains       by the next occurrence at or behind the start, if it ends in time
    <, <=, >, >=   by the number that the range spells, of which the first 800 digits, and whether any
                   follow, determine the double

`Occurrences` searches each part of the text once, whatever the ranges, so all tests together are linear in
the text. For short ranges, copying is cheaper than all this, and as linear.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from sapwood.lang.literals.numbers import COMPARE, to_number

if TYPE_CHECKING:
    from sapwood.lang.pattern import Test

LONG = 256
"""Characters from which on a string-value is not copied."""

_DIGITS = 800
"""No midpoint of two doubles has more than 767 significant digits, so further digits only break ties."""

_NO_SPACE = re.compile(r"[^ \t\r\n]")
_NO_DIGIT = re.compile(r"[^0-9]")
_SIGNIFICANT = re.compile(r"[^0.]")
_EXPONENT = re.compile(r"[eE]([+-]?)(?=[0-9])")
_EMPTY_EXPONENT = re.compile(r"(?:[eE][+-]?)?")

T = TypeVar("T")


class Occurrences:
    """The next occurrence of something at or behind any position.

    Keeps intervals: from each of `_starts` on, the next occurrence is at the `_found` beside it. A search
    stops where an interval begins that is known already.
    """

    __slots__ = ("_end", "_find", "_found", "_starts", "_width")

    def __init__(self, find: Callable[[int, int], int], width: int, end: int) -> None:
        self._find = find  # the first occurrence within a range, or -1
        self._width = width
        self._end = end
        self._starts: list[int] = []
        self._found: list[int] = []

    def next(self, position: int) -> int:
        """Return the first occurrence at the position or behind it; the text's end if there is none."""
        starts, found = self._starts, self._found
        behind = bisect_right(starts, position)
        if behind and position <= found[behind - 1]:
            return found[behind - 1]
        if behind == len(starts):
            at = self._find(position, self._end)
            if at < 0:
                at = self._end
        else:
            at = self._find(position, min(starts[behind] + self._width - 1, self._end))
            if at < 0:
                starts[behind] = position
                return found[behind]
        starts.insert(behind, position)
        found.insert(behind, at)
        return at


class StringValues:
    """The text of one message, and cached tests of ranges of it."""

    __slots__ = ("_cache", "_copies", "_occurrences", "_trigrams", "text")

    def __init__(self, texts: list[str]) -> None:
        self.text = texts[0] if len(texts) == 1 else "".join(texts)
        self._copies: dict[tuple[int, int], str] = {}
        self._occurrences: dict[str | re.Pattern[str], Occurrences] = {}
        self._cache: dict[Hashable, object] = {}
        self._trigrams: set[str] | None = None

    def copy(self, start: int, end: int) -> str:
        """Return the range as a string, the same object for the same range if it is long."""
        if end - start <= LONG:
            return self.text[start:end]
        copy = self._copies.get((start, end))
        if copy is None:
            copy = self._copies[start, end] = self.text[start:end]
        return copy

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returned at the first call with this key."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]  # type: ignore[return-value]

    @property
    def trigrams(self) -> set[str]:
        """All strings of three characters in the text."""
        if self._trigrams is None:
            text = self.text
            self._trigrams = {text[i : i + 3] for i in range(len(text) - 2)}
        return self._trigrams

    def passes(self, test: Test, start: int, end: int) -> bool:
        """Return whether the range passes a test."""
        wanted = test.value
        if isinstance(wanted, float):
            return COMPARE[test.op](self.number(start, end), wanted)
        match test.op:
            case "=":
                return self._equals(wanted, start, end)
            case "!=":
                return not self._equals(wanted, start, end)
            case "contains":
                return self.contains(wanted, start, end)
        return len(wanted) <= end - start and self.text.startswith(wanted, start)

    def _equals(self, wanted: str, start: int, end: int) -> bool:
        return len(wanted) == end - start and self.text.startswith(wanted, start)

    def contains(self, wanted: str, start: int, end: int) -> bool:
        if not wanted:
            return True
        known = self._occurrences.get(wanted)
        if known is None:
            text = self.text
            known = Occurrences(lambda i, j: text.find(wanted, i, j), len(wanted), len(text))
            self._occurrences[wanted] = known
        return known.next(start) + len(wanted) <= end

    def number(self, start: int, end: int) -> float:
        """Return `number()` of the range, as `to_number` does for a string."""
        if end - start <= LONG:
            return to_number(self.text[start:end])
        text = self.text
        at = self._next(_NO_SPACE, start)
        if at >= end:
            return math.nan
        sign = "-" if text[at] == "-" else ""
        at += len(sign)
        point = stop = min(self._next(_NO_DIGIT, at), end)
        if point < end and text[point] == ".":
            stop = min(self._next(_NO_DIGIT, point + 1), end)
        if stop - at - (stop > point) < 1:  # no digit on either side of the point
            return math.nan
        exponent, behind = self._exponent(stop, end)
        if self._next(_NO_SPACE, behind) < end:
            return math.nan
        first = self._next(_SIGNIFICANT, at)
        if first >= stop:
            return float(f"{sign}0")
        digits = text[first : min(first + _DIGITS + 1, stop)].replace(".", "")
        rest = first + _DIGITS + 1
        if rest < stop and self._next(_SIGNIFICANT, rest) < stop:
            digits += "1"
        scale = point - first if first < point else point + 1 - first
        return float(f"{sign}0.{digits}e{scale + exponent}")

    def _exponent(self, start: int, end: int) -> tuple[int, int]:
        """Return the exponent at a position, if any, and its end; one without digits is none."""
        exponent = 0
        found = _EXPONENT.match(self.text, start, end)
        if found is not None:
            stop = min(self._next(_NO_DIGIT, found.end()), end)
            first = min(self._next(_SIGNIFICANT, found.end()), stop)
            digits = self.text[first:stop] if stop - first <= 18 else "9" * 18
            exponent = int(found[1] + (digits or "0"))
            start = stop
        rest = _EMPTY_EXPONENT.match(self.text, start, end)
        return exponent, rest.end() if rest else start

    def _next(self, pattern: re.Pattern[str], position: int) -> int:
        """Return the next position of a character of a class."""
        known = self._occurrences.get(pattern)
        if known is None:

            def find(start: int, end: int) -> int:
                found = pattern.search(self.text, start, end)
                return found.start() if found else -1

            known = self._occurrences[pattern] = Occurrences(find, 1, len(self.text))
        return known.next(position)
