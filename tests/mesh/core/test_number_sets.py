"""Sets of numbers, compared with plain sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sapwood.mesh.core.messages import number_sets
from sapwood.mesh.core.messages.number_sets import NumberRanges, SortedNumbers, to_intervals

NUMBERS = st.integers(1, 60)


class SortedNumbersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = SortedNumbers()
        self.model: set[int] = set()

    @rule(number=NUMBERS)
    def add(self, number: int) -> None:
        self.numbers.add(number)
        self.model.add(number)

    @rule(count=st.integers(1, 40))
    def add_at_the_end(self, count: int) -> None:
        last = max(self.model, default=0)
        for number in range(last + 1, last + count + 1):
            self.numbers.add(number)
            self.model.add(number)

    @rule(number=NUMBERS)
    def discard(self, number: int) -> None:
        self.numbers.discard(number)
        self.model.discard(number)

    @rule(number=st.integers(0, 200))
    def remove_upto(self, number: int) -> None:
        assert self.numbers.remove_upto(number) == sorted(n for n in self.model if n <= number)
        self.model = {n for n in self.model if n > number}

    @rule(number=NUMBERS)
    def look_up(self, number: int) -> None:
        assert (number in self.numbers) == (number in self.model)

    @invariant()
    def is_the_same(self) -> None:
        assert list(self.numbers) == sorted(self.model)
        assert len(self.numbers) == len(self.model)
        assert bool(self.numbers) == bool(self.model)
        if self.model:
            assert self.numbers.first == min(self.model)


@pytest.fixture(autouse=True, scope="module")
def compact_early() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_sets, "_COMPACTED", 8)
        yield


TestSortedNumbers = SortedNumbersMachine.TestCase


@given(st.sets(NUMBERS), st.sets(NUMBERS))
def test_ranges(numbers: set[int], asked: set[int]) -> None:
    intervals = to_intervals(sorted(numbers))
    ranges = NumberRanges(intervals)
    assert {n for n in asked if n in ranges} == asked & numbers
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(intervals))


def test_memory_of_removed_numbers_is_given_back() -> None:
    numbers = SortedNumbers()
    for number in range(100_000):
        numbers.add(number)
        numbers.remove_upto(number - 10)
    assert len(numbers) == 10
    assert len(numbers._numbers) < 100
