"""One value against all the tests that queries make of it.

For one path and target (`/news/item/@price`), a `ValueIndex` holds every distinct test once, and finds those
a value passes without trying the others: a hash for equality, sorted bounds for ranges, known prefixes by
length for starts-with(), and for contains() the rarest three characters of each wanted string.

What passes is told as arrays of two kinds of numbers: *slots*, queries decided by this one test, and
*anchors*, tests that have to come together with others (see `join`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.message.string_values import LONG, StringValues
from sapwood.lang.literals.numbers import COMPARE, to_number
from sapwood.lang.pattern import Test

Ints = NDArray[np.int32]
NO_INTS: Ints = np.empty(0, np.int32)

_FEW = 32
"""Strings of which searching for each takes less time than looking at all of a value's characters."""


class Postings:
    """What a passed test means: slots that are decided, anchors and groups that are reached."""

    __slots__ = ("anchors", "groups", "slots")

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.anchors: list[int] = []
        self.groups: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.slots or self.anchors or self.groups)


class Hits:
    """The marks of all the tests that a value passed, as arrays; `reach` is kept for `join`."""

    __slots__ = ("anchors", "reach", "slots")

    def __init__(self, slots: Ints, anchors: Ints) -> None:
        self.slots = slots
        self.anchors = anchors
        self.reach: tuple[Ints, Ints] | None = None

    def read_anchors(self) -> Ints:
        return self.anchors


class Gathered:
    """Collects marks of many tests, a few by the list and many by the array."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.anchors: list[int] = []
        self.slot_runs: list[Ints] = []
        self.anchor_runs: list[Ints] = []

    def add(self, marks: Postings | None) -> None:
        if marks is not None:
            self.slots += marks.slots
            self.anchors += marks.anchors

    def hits(self) -> Hits | None:
        slots, anchors = _joined(self.slots, self.slot_runs), _joined(self.anchors, self.anchor_runs)
        return Hits(slots, anchors) if len(slots) or len(anchors) else None


def _joined(few: list[int], runs: list[Ints]) -> Ints:
    parts = [run for run in runs if len(run)]
    if few:
        parts.append(np.array(few, np.int32))
    if not parts:
        return NO_INTS
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class SortedRuns:
    """Numbers sorted by key, so that the numbers of all keys in an interval are one slice.

    Changes wait in lists and are merged when somebody reads: a bulk load sorts once.
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
        """The numbers of the keys k with `value op k`."""
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


class _Ordered:
    """All tests with one operator on numbers: two kinds of marks, sorted by the constant."""

    def __init__(self) -> None:
        self.slots = SortedRuns()
        self.anchors = SortedRuns()

    def __bool__(self) -> bool:
        return bool(len(self.slots) or len(self.anchors))


class _Substrings:
    """The strings wanted by contains(): filed under their rarest three characters, short ones apart."""

    def __init__(self) -> None:
        self._short: dict[str, Postings] = {}
        self._filed: dict[str, dict[str, Postings]] = {}
        self._file_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._short or self._filed)

    def marks(self, wanted: str) -> Postings:
        if len(wanted) < 3:
            return self._short.setdefault(wanted, Postings())
        key = self._file_of.get(wanted)
        if key is None:
            key = min(_trigrams(wanted), key=lambda trigram: (len(self._filed.get(trigram, ())), trigram))
            self._file_of[wanted] = key
        return self._filed.setdefault(key, {}).setdefault(wanted, Postings())

    def drop(self, wanted: str) -> None:
        if len(wanted) < 3:
            del self._short[wanted]
            return
        key = self._file_of.pop(wanted)
        del self._filed[key][wanted]
        if not self._filed[key]:
            del self._filed[key]

    def found_between(self, values: StringValues, start: int, end: int) -> Iterator[Postings]:
        """The same for a range of a message's text, in all of which candidates are looked for but once."""
        candidates = values.remembered(("substrings", id(self)), lambda: self._candidates(values))
        yield from (marks for wanted, marks in candidates.items() if values.contains(wanted, start, end))

    def _candidates(self, values: StringValues) -> dict[str, Postings]:
        found = dict(self._short)
        for trigram in self._filed if len(self._file_of) <= _FEW else values.trigrams & self._filed.keys():
            found.update(self._filed[trigram])
        return found

    def found_in(self, value: str) -> Iterator[Postings]:
        yield from (marks for wanted, marks in self._short.items() if wanted in value)
        if self._filed:
            few = len(self._file_of) <= _FEW
            for trigram in self._filed if few else _trigrams(value) & self._filed.keys():
                yield from (m for wanted, m in self._filed[trigram].items() if wanted in value)


def _trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}


class _Codes:
    """Numbers for the strings that `!=` compares with, so that they can be kept sorted."""

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


class ValueIndex:
    """All tests of one target of one path."""

    def __init__(self) -> None:
        self._exists = Postings()
        self._equal_text: dict[str, Postings] = {}
        self._equal_number: dict[float, Postings] = {}
        self._ordered: dict[str, _Ordered] = {}
        self._unequal_text = _Ordered()
        self._codes = _Codes()
        self._prefixes: dict[str, Postings] = {}
        self._prefix_lengths: dict[int, int] = {}
        self._substrings = _Substrings()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, test: Test | None, kind: str, number: int) -> None:
        """Files a number of a kind, `slots` or `anchors`, under a test; None is mere existence."""
        self._size += 1
        runs = self._runs(test, kind)
        if test is None or runs is None:
            getattr(self._marks(test), kind).append(number)
        else:
            runs.add(test.value if isinstance(test.value, float) else self._codes.use(test.value), number)

    def remove(self, test: Test | None, kind: str, number: int) -> None:
        self._size -= 1
        runs = self._runs(test, kind)
        if test is not None and runs is not None:
            runs.remove(
                test.value if isinstance(test.value, float) else self._codes.release(test.value), number
            )
            return
        marks = self._marks(test)
        getattr(marks, kind).remove(number)
        if not marks and test is not None:
            self._drop(test)

    def collect(self, value: str, into: Gathered) -> None:
        """Gathers the marks of every test that the value passes."""
        into.add(self._exists)
        into.add(self._equal_text.get(value))
        if self._equal_number or self._ordered:
            self._collect_numbers(to_number(value), into)
        if self._unequal_text:
            code = self._codes.of(value)
            into.slot_runs.extend(self._unequal_text.slots.passing("!=", code))
            into.anchor_runs.extend(self._unequal_text.anchors.passing("!=", code))
        for length in self._prefix_lengths:
            if length <= len(value):
                into.add(self._prefixes.get(value[:length]))
        if self._substrings:
            for marks in self._substrings.found_in(value):
                into.add(marks)

    def collect_between(self, values: StringValues, start: int, end: int, into: Gathered) -> None:
        """Gathers the same for a long range of a message's text, without copying it."""
        into.add(self._exists)
        if end - start in values.remembered(("lengths", id(self)), self._long_lengths):
            value = values.copy(start, end)
            into.add(self._equal_text.get(value))
            code = self._codes.of(value)
        else:
            code = -1.0
        if self._equal_number or self._ordered:
            self._collect_numbers(values.number(start, end), into)
        if self._unequal_text:
            into.slot_runs.extend(self._unequal_text.slots.passing("!=", code))
            into.anchor_runs.extend(self._unequal_text.anchors.passing("!=", code))
        for length in self._prefix_lengths:
            if length <= end - start:
                into.add(self._prefixes.get(values.text[start : start + length]))
        if self._substrings:
            for marks in self._substrings.found_between(values, start, end):
                into.add(marks)

    def _long_lengths(self) -> set[int]:
        """The lengths of the long strings that values are compared with; none other needs to be copied."""
        return {len(text) for texts in (self._equal_text, self._codes) for text in texts if len(text) > LONG}

    def _collect_numbers(self, number: float, into: Gathered) -> None:
        into.add(self._equal_number.get(number))
        for op, ordered in self._ordered.items():
            into.slot_runs.extend(ordered.slots.passing(op, number))
            into.anchor_runs.extend(ordered.anchors.passing(op, number))

    def _runs(self, test: Test | None, kind: str) -> SortedRuns | None:
        """Where a test that is kept sorted is filed."""
        if test is None or test.op not in ("!=", "<", "<=", ">", ">="):
            return None
        is_number = isinstance(test.value, float)
        ordered = self._ordered.setdefault(test.op, _Ordered()) if is_number else self._unequal_text
        runs: SortedRuns = getattr(ordered, kind)
        return runs

    def _marks(self, test: Test | None) -> Postings:
        if test is None:
            return self._exists
        if isinstance(test.value, float):
            return self._equal_number.setdefault(test.value, Postings())
        if test.op == "=":
            return self._equal_text.setdefault(test.value, Postings())
        if test.op == "contains":
            return self._substrings.marks(test.value)
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


class TestByTest(ValueIndex):
    """The index's null twin: tries every test in turn. For comparison only."""

    def __init__(self) -> None:
        super().__init__()
        self._tests: dict[Test | None, Postings] = {}

    def add(self, test: Test | None, kind: str, number: int) -> None:
        self._size += 1
        getattr(self._tests.setdefault(test, Postings()), kind).append(number)

    def remove(self, test: Test | None, kind: str, number: int) -> None:
        self._size -= 1
        getattr(self._tests[test], kind).remove(number)
        if not self._tests[test]:
            del self._tests[test]

    def collect(self, value: str, into: Gathered) -> None:
        for test, marks in self._tests.items():
            if test is None or passes(value, test):
                into.add(marks)

    def collect_between(self, values: StringValues, start: int, end: int, into: Gathered) -> None:
        for test, marks in self._tests.items():
            if test is None or values.passes(test, start, end):
                into.add(marks)


def passes(value: str, test: Test) -> bool:
    """Whether one string-value passes one test."""
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
