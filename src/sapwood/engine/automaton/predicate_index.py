"""A predicate index: one value against all the tests that queries make of it.

For one path and target (`/news/item/@price`), a `PredicateIndex` holds every distinct test once, and finds
those a value passes without trying the others: a hash for equality, sorted bounds for ranges, known prefixes
by length for starts-with(), and for contains() the rarest three characters of each wanted string.

The result is arrays of postings of two kinds: *slots*, queries decided by this one test, and *anchorings*,
parts of a twig that have to meet with others (see `twig_join`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sapwood.engine.message.string_values import LONG, StringValues
from sapwood.lang.literals.numbers import COMPARE, to_number
from sapwood.lang.pattern import Test

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int32]"
NO_INTS: Ints = np.empty(0, np.int32)

_FEW = 32
"""Strings of which searching for each takes less time than looking at all of a value's characters."""


class PostingKind(Enum):
    """What the number in a posting stands for."""

    SLOT = "slot"
    """a query that is decided"""
    ANCHORING = "anchoring"
    """a part of a twig: see `twig_anchors`"""
    RELATIVE_PATH = "relative path"
    """the end of a relative path: see `relative_paths`; posted under elements only"""


class Postings:
    """The numbers posted under one test, or under one state of the path trie."""

    __slots__ = ("anchorings", "relative_paths", "slots")

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.anchorings: list[int] = []
        self.relative_paths: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.slots or self.anchorings or self.relative_paths)

    def of(self, kind: PostingKind) -> list[int]:
        """Return the list of the postings of one kind."""
        if kind is PostingKind.SLOT:
            return self.slots
        return self.anchorings if kind is PostingKind.ANCHORING else self.relative_paths


class Hits:
    """The postings of all the tests that a value passed, as arrays."""

    __slots__ = ("anchor_reach", "anchorings", "slots")

    def __init__(self, slots: Ints, anchorings: Ints) -> None:
        self.slots = slots
        self.anchorings = anchorings
        self.anchor_reach: tuple[Ints, Ints] | None = None  # cached by `twig_join`

    def read_anchorings(self) -> Ints:
        return self.anchorings


class HitCollector:
    """Collects the postings of many tests: lists where they are few, arrays where they are many."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.anchorings: list[int] = []
        self.slot_runs: list[Ints] = []
        self.anchoring_runs: list[Ints] = []

    def add(self, postings: Postings | None) -> None:
        if postings is not None:
            self.slots += postings.slots
            self.anchorings += postings.anchorings

    def hits(self) -> Hits | None:
        slots = _concatenate(self.slots, self.slot_runs)
        anchorings = _concatenate(self.anchorings, self.anchoring_runs)
        return Hits(slots, anchorings) if len(slots) or len(anchorings) else None


def _concatenate(listed: list[int], runs: list[Ints]) -> Ints:
    parts = [run for run in runs if len(run)]
    if listed:
        parts.append(np.array(listed, np.int32))
    if not parts:
        return NO_INTS
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class SortedRuns:
    """Numbers sorted by key, so that the numbers of all keys in an interval are one slice.

    Additions wait in a list and are merged at the next read: a bulk load sorts once.
    """

    def __init__(self) -> None:
        self._keys: NDArray[np.float64] = np.empty(0, np.float64)
        self._numbers: Ints = NO_INTS
        self._new: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._numbers) + len(self._new)

    def add(self, key: float, number: int) -> None:
        self._new.append((key, number))

    def remove(self, key: float, number: int) -> None:
        if (key, number) in self._new:
            self._new.remove((key, number))
            return
        start, end = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        at = start + int(np.flatnonzero(self._numbers[start:end] == number)[0])
        self._keys = np.delete(self._keys, at)
        self._numbers = np.delete(self._numbers, at)

    def _merge(self) -> None:
        if not self._new:
            return
        keys = np.array([key for key, _ in self._new], np.float64)
        numbers = np.array([number for _, number in self._new], np.int32)
        self._new = []
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(self._keys, keys[order], "right")
        self._keys = np.insert(self._keys, at, keys[order])
        self._numbers = np.insert(self._numbers, at, numbers[order])

    def passing(self, op: str, value: float) -> Iterator[Ints]:
        """Yield the numbers of the keys k with `value op k`."""
        self._merge()
        if value != value:
            if op == "!=":
                yield self._numbers
            return
        left = np.searchsorted(self._keys, value, "left")
        right = np.searchsorted(self._keys, value, "right")
        if op == ">" or op == "!=":
            yield self._numbers[:left]
        if op == ">=":
            yield self._numbers[:right]
        if op == "<" or op == "!=":
            yield self._numbers[right:]
        if op == "<=":
            yield self._numbers[left:]


class _SortedPostings:
    """All tests with one operator: slots and anchorings, sorted by the constant."""

    def __init__(self) -> None:
        self.slots = SortedRuns()
        self.anchorings = SortedRuns()

    def __bool__(self) -> bool:
        return bool(len(self.slots) or len(self.anchorings))

    def of(self, kind: PostingKind) -> SortedRuns:
        return self.slots if kind is PostingKind.SLOT else self.anchorings

    def collect(self, op: str, value: float, into: HitCollector) -> None:
        into.slot_runs.extend(self.slots.passing(op, value))
        into.anchoring_runs.extend(self.anchorings.passing(op, value))


class _Substrings:
    """The strings wanted by contains(), indexed by their rarest three characters; short ones apart."""

    def __init__(self) -> None:
        self._short: dict[str, Postings] = {}
        self._by_trigram: dict[str, dict[str, Postings]] = {}
        self._trigram_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._short or self._by_trigram)

    def postings(self, wanted: str) -> Postings:
        if len(wanted) < 3:
            return self._short.setdefault(wanted, Postings())
        key = self._trigram_of.get(wanted)
        if key is None:
            key = min(
                _trigrams(wanted), key=lambda trigram: (len(self._by_trigram.get(trigram, ())), trigram)
            )
            self._trigram_of[wanted] = key
        return self._by_trigram.setdefault(key, {}).setdefault(wanted, Postings())

    def drop(self, wanted: str) -> None:
        if len(wanted) < 3:
            del self._short[wanted]
            return
        key = self._trigram_of.pop(wanted)
        del self._by_trigram[key][wanted]
        if not self._by_trigram[key]:
            del self._by_trigram[key]

    def find_in_range(self, values: StringValues, start: int, end: int) -> Iterator[Postings]:
        """Yield the same for a range of a message's text, which is searched for candidates only once."""
        candidates = values.cached(("substrings", id(self)), lambda: self._candidates(values))
        yield from (
            postings for wanted, postings in candidates.items() if values.contains(wanted, start, end)
        )

    def _candidates(self, values: StringValues) -> dict[str, Postings]:
        found = dict(self._short)
        for trigram in (
            self._by_trigram if len(self._trigram_of) <= _FEW else values.trigrams & self._by_trigram.keys()
        ):
            found.update(self._by_trigram[trigram])
        return found

    def find_in(self, value: str) -> Iterator[Postings]:
        """Yield the postings of the wanted strings that a value contains."""
        yield from (postings for wanted, postings in self._short.items() if wanted in value)
        if self._by_trigram:
            few = len(self._trigram_of) <= _FEW
            for trigram in self._by_trigram if few else _trigrams(value) & self._by_trigram.keys():
                yield from (
                    postings for wanted, postings in self._by_trigram[trigram].items() if wanted in value
                )


def _trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}


class _Codes:
    """Numbers for the strings that `!=` compares with, so that they can be sorted."""

    def __init__(self) -> None:
        self._codes: dict[str, list[int]] = {}  # code, uses
        self._next = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def of(self, text: str) -> float:
        return float(self._codes[text][0]) if text in self._codes else -1.0

    def use(self, text: str) -> float:
        entry = self._codes.get(text)
        if entry is None:
            entry = self._codes[text] = [self._next, 0]
            self._next += 1
        entry[1] += 1
        return float(entry[0])

    def release(self, text: str) -> float:
        entry = self._codes[text]
        entry[1] -= 1
        if not entry[1]:
            del self._codes[text]
        return float(entry[0])


class PredicateIndex:
    """All tests of one target of one path."""

    def __init__(self) -> None:
        self._exists = Postings()
        self._equal_text: dict[str, Postings] = {}
        self._equal_number: dict[float, Postings] = {}
        self._ordered: dict[str, _SortedPostings] = {}
        self._unequal_text = _SortedPostings()
        self._codes = _Codes()
        self._prefixes: dict[str, Postings] = {}
        self._prefix_lengths: dict[int, int] = {}
        self._substrings = _Substrings()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, test: Test | None, kind: PostingKind, number: int) -> None:
        """Post a number under a test; None is mere existence."""
        self._size += 1
        runs = self._runs(test, kind)
        if test is None or runs is None:
            self._postings(test).of(kind).append(number)
        else:
            runs.add(test.value if isinstance(test.value, float) else self._codes.use(test.value), number)

    def remove(self, test: Test | None, kind: PostingKind, number: int) -> None:
        self._size -= 1
        runs = self._runs(test, kind)
        if test is not None and runs is not None:
            runs.remove(
                test.value if isinstance(test.value, float) else self._codes.release(test.value), number
            )
            return
        postings = self._postings(test)
        postings.of(kind).remove(number)
        if not postings and test is not None:
            self._drop(test)

    def collect(self, value: str, into: HitCollector) -> None:
        """Collect the postings of every test that the value passes."""
        into.add(self._exists)
        into.add(self._equal_text.get(value))
        if self._equal_number or self._ordered:
            self._collect_numbers(to_number(value), into)
        if self._unequal_text:
            self._unequal_text.collect("!=", self._codes.of(value), into)
        for length in self._prefix_lengths:
            if length <= len(value):
                into.add(self._prefixes.get(value[:length]))
        if self._substrings:
            for postings in self._substrings.find_in(value):
                into.add(postings)

    def collect_range(self, values: StringValues, start: int, end: int, into: HitCollector) -> None:
        """Collect the same for a long range of a message's text, without copying it."""
        into.add(self._exists)
        if end - start in values.cached(("lengths", id(self)), self._long_lengths):
            value = values.copy(start, end)
            into.add(self._equal_text.get(value))
            code = self._codes.of(value)
        else:
            code = -1.0
        if self._equal_number or self._ordered:
            self._collect_numbers(values.number(start, end), into)
        if self._unequal_text:
            self._unequal_text.collect("!=", code, into)
        for length in self._prefix_lengths:
            if length <= end - start:
                into.add(self._prefixes.get(values.text[start : start + length]))
        if self._substrings:
            for postings in self._substrings.find_in_range(values, start, end):
                into.add(postings)

    def _long_lengths(self) -> set[int]:
        """Return the lengths of the long strings that values are compared with: only these are copied."""
        return {len(text) for texts in (self._equal_text, self._codes) for text in texts if len(text) > LONG}

    def _collect_numbers(self, number: float, into: HitCollector) -> None:
        into.add(self._equal_number.get(number))
        for op, ordered in self._ordered.items():
            ordered.collect(op, number, into)

    def _runs(self, test: Test | None, kind: PostingKind) -> SortedRuns | None:
        """Return the sorted postings of a test, if tests of its kind are sorted."""
        if test is None or test.op not in ("!=", "<", "<=", ">", ">="):
            return None
        is_number = isinstance(test.value, float)
        ordered = self._ordered.setdefault(test.op, _SortedPostings()) if is_number else self._unequal_text
        return ordered.of(kind)

    def _postings(self, test: Test | None) -> Postings:
        if test is None:
            return self._exists
        if isinstance(test.value, float):
            return self._equal_number.setdefault(test.value, Postings())
        if test.op == "=":
            return self._equal_text.setdefault(test.value, Postings())
        if test.op == "contains":
            return self._substrings.postings(test.value)
        if test.value not in self._prefixes:
            length = len(test.value)
            self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
        return self._prefixes.setdefault(test.value, Postings())

    def _drop(self, test: Test) -> None:
        if isinstance(test.value, float):
            del self._equal_number[test.value]
        elif test.op == "=":
            del self._equal_text[test.value]
        elif test.op == "contains":
            self._substrings.drop(test.value)
        else:
            del self._prefixes[test.value]
            length = len(test.value)
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]


class SequentialPredicates(PredicateIndex):
    """The index's null twin, which tries every test in turn; for comparison only."""

    def __init__(self) -> None:
        super().__init__()
        self._tests: dict[Test | None, Postings] = {}

    def add(self, test: Test | None, kind: PostingKind, number: int) -> None:
        self._size += 1
        self._tests.setdefault(test, Postings()).of(kind).append(number)

    def remove(self, test: Test | None, kind: PostingKind, number: int) -> None:
        self._size -= 1
        self._tests[test].of(kind).remove(number)
        if not self._tests[test]:
            del self._tests[test]

    def collect(self, value: str, into: HitCollector) -> None:
        for test, postings in self._tests.items():
            if test is None or passes(value, test):
                into.add(postings)

    def collect_range(self, values: StringValues, start: int, end: int, into: HitCollector) -> None:
        for test, postings in self._tests.items():
            if test is None or values.passes(test, start, end):
                into.add(postings)


def passes(value: str, test: Test) -> bool:
    """Return whether a string-value passes a test."""
    if isinstance(test.value, float):
        return COMPARE[test.op](to_number(value), test.value)
    match test.op:
        case "=":
            return value == test.value
        case "!=":
            return value != test.value
        case "contains":
            return test.value in value
    return value.startswith(test.value)
