"""The values of text and attributes: one distribution, from which messages and queries both draw.

As in the thesis, each text and attribute has `values` possible values, the numbers from 1 on. Words can
stand in for the numbers; an enumerated or fixed attribute keeps to what its DTD allows; ids are i1, i2, ...
Only `Random.random` is ever called: its sequence for a seed is promised for all versions of Python, unlike
that of `choice` or `randrange`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeVar
from xml.sax.saxutils import escape

from sapwood.workload import parameter_checks
from sapwood.workload.dtd.model import Attribute, Default

_ID_TYPES = ("ID", "IDREF", "IDREFS")
_NEEDS_AN_ENTITY = ("ENTITY", "ENTITIES")

_ESCAPES = {'"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
_SPECIAL = {"&", "<", ">", *_ESCAPES}

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]

T = TypeVar("T")


def pick(options: Sequence[T], draw: float) -> T:
    """The option for a uniform draw from [0, 1)."""
    return options[int(draw * len(options))]


class Distribution:
    """Ranks 0 to `count` - 1 with probability proportional to their weights, or uniform without any."""

    __slots__ = ("_bounds", "count")

    def __init__(self, count: int, weights: Sequence[float] | None = None) -> None:
        self.count = count
        self._bounds: list[float] | None = None
        if weights is not None:
            total = sum(weights)
            self._bounds = [bound / total for bound in accumulate(weights)]

    def rank(self, draw: float) -> int:
        """The rank for a uniform draw from [0, 1)."""
        if self._bounds is None:
            return int(draw * self.count)
        # The last bound can be a hair below 1 after rounding.
        return min(bisect(self._bounds, draw), self.count - 1)


def zipf(count: int, skew: float) -> list[float]:
    """Zipf's weights, 1 / (rank + 1)^skew: the higher the skew, the more the first ranks prevail."""
    return [(rank + 1) ** -skew for rank in range(count)]


class ValuePool:
    """The values of one text or attribute, the most frequent first."""

    def __init__(self, values: Sequence[str], skew: float) -> None:
        self.values = values
        self.distribution = Distribution(len(values), zipf(len(values), skew) if skew else None)

    @cached_property
    def numeric(self) -> bool:
        """Whether order comparisons make sense."""
        return all(value.isdecimal() for value in self.values)

    @cached_property
    def escaped(self) -> Sequence[str]:
        """The values as they stand in an attribute between double quotes."""
        if any(set(value) & _SPECIAL for value in self.values):
            return [escape(value, _ESCAPES) for value in self.values]
        return self.values  # nearly always: only a fixed value can be otherwise

    @cached_property
    def quotable(self) -> bool:
        """Whether XPath 1.0, which knows no escapes, can write all values as literals."""
        return not any("'" in value and '"' in value for value in self.values)

    def draw(self, draw: float) -> str:
        """The value for a uniform draw from [0, 1)."""
        return self.values[self.distribution.rank(draw)]

    def literal(self, draw: float) -> str:
        """The same value as an XPath literal."""
        value = self.draw(draw)
        if self.numeric:
            return value
        return f'"{value}"' if "'" in value else f"'{value}'"


class Values:
    """All pools for one choice of the parameters."""

    def __init__(self, values: int, value_skew: float, numeric: bool) -> None:
        parameter_checks.at_least(1, values=values)
        parameter_checks.at_least(0, value_skew=value_skew)
        self._skew = value_skew
        self.text = ValuePool([_number(i) if numeric else _word(i) for i in range(values)], value_skew)
        self.ids = ValuePool([identifier(i) for i in range(values)], value_skew)

    def attribute(self, attribute: Attribute) -> ValuePool | None:
        """The pool of an attribute, None for one whose values cannot be made up.

        Those are namespace declarations, and names of unparsed entities.
        """
        if attribute.namespace or attribute.type in _NEEDS_AN_ENTITY:
            return None
        if attribute.default is Default.FIXED:
            return ValuePool([attribute.value or ""], self._skew)
        if attribute.enumeration:
            return ValuePool(attribute.enumeration, self._skew)
        return self.ids if attribute.type in _ID_TYPES else self.text


def identifier(index: int) -> str:
    """An XML name, as an ID must be one; a bare number is none."""
    return f"i{index + 1}"


def _number(index: int) -> str:
    return str(index + 1)


def _word(index: int) -> str:
    """A word of two or more syllables, another for each index: baba, babe, babi, ..."""
    syllables: list[str] = []
    while index or len(syllables) < 2:
        index, position = divmod(index, len(_SYLLABLES))
        syllables.append(_SYLLABLES[position])
    return "".join(reversed(syllables))
