"""Subscriptions in C, behind the same protocol as those in dicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.kernel import _kernel
from sapwood.engine.kernel.kernel_automaton import ResultSlots
from sapwood.engine.subscriptions import Columns, ListedNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KernelSubscriptions(_kernel.Subscriptions):
    """Subscriptions as rows in C, which lists those of a result without naming its slots."""

    __slots__ = ()

    def numbers(self, slots: MatchedSlots | Ints) -> NDArray[np.int64]:
        return np.frombuffer(self.list_numbers(_source(slots)), np.int64)

    def numbers_of_many(self, matched: Sequence[MatchedSlots], ordered: bool) -> ListedNumbers:
        results = [slots.result for slots in matched if isinstance(slots, ResultSlots)]
        assert len(results) == len(matched), "only the automaton in C matches several messages at once"
        numbers, ends = self.list_numbers_of_many(results, ordered)
        return ListedNumbers(np.frombuffer(numbers, np.int64), np.frombuffer(ends, np.int64))

    def ids(self, slots: MatchedSlots | Ints) -> list[Hashable]:
        return self.list_ids(_source(slots))

    def columns(self) -> Columns:
        ids, numbers, slots, texts = self.list_columns()
        return Columns(ids, np.frombuffer(numbers, np.int64), np.frombuffer(slots, np.int32), texts)


def _source(slots: MatchedSlots | Ints) -> _kernel.Result | Ints:
    if isinstance(slots, np.ndarray):
        return slots
    return slots.result if isinstance(slots, ResultSlots) else slots.read()
