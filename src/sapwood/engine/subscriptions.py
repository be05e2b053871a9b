"""Subscriptions: who is subscribed to which slot, and in which order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.automaton.ragged_array import RaggedArray
from sapwood.engine.kernel import KERNEL
from sapwood.engine.limits import Tuning

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Columns(NamedTuple):
    """All subscriptions, in the order of their numbers; what packs hold."""

    ids: Sequence[Hashable]
    numbers: NDArray[np.int64]
    slots: Ints
    texts: Mapping[int, str]
    """by place, of those whose query is written otherwise than the slot's"""


class ListedNumbers(NamedTuple):
    """The subscriptions of several messages, message by message."""

    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]
    """where those of each message end"""
    matched: Sequence[MatchedSlots] = ()
    """the slots of each message, those of other owners than filters included"""


class Subscriptions(Protocol):
    """The subscriptions of a matcher.

    Numbers say in which order subscriptions are listed, whatever the order in which they were added.
    """

    def __contains__(self, id: Hashable, /) -> bool: ...
    def __len__(self) -> int: ...

    def add(self, id: Hashable, number: int, slot: int, text: str | None, /) -> int:
        """Subscribe an id to a slot, and return how many subscriptions the slot has then; `text` is the query
        if it is written otherwise than the slot's."""
        ...

    def remove(self, id: Hashable, /) -> tuple[int, int]:
        """End a subscription: return its slot, and how many subscriptions that has left."""
        ...

    def move(self, id: Hashable, slot: int, text: str | None, /) -> tuple[int, int]:
        """Subscribe an id to another slot: return the one before, and how many subscriptions it has left."""
        ...

    def get(self, id: Hashable, /) -> tuple[int, int, str | None]:
        """Return the number, the slot and the text of a subscription; raise KeyError if there is none."""
        ...

    def count(self, slot: int, /) -> int:
        """Return how many subscriptions a slot has."""
        ...

    def numbers(self, slots: MatchedSlots | Ints) -> NDArray[np.int64]:
        """Return the numbers of the subscriptions to some slots, ascending."""
        ...

    def numbers_of_many(self, matched: Sequence[MatchedSlots], ordered: bool) -> ListedNumbers:
        """Return the numbers of the subscriptions of several messages; ascending within each if `ordered`,
        which takes longer than any order."""
        ...

    def ids(self, slots: MatchedSlots | Ints) -> list[Hashable]:
        """Return the ids of the subscriptions to some slots, in the order of their numbers."""
        ...

    def columns(self) -> Columns: ...


class _Row:
    __slots__ = ("number", "slot", "text")

    def __init__(self, number: int, slot: int, text: str | None) -> None:
        self.number = number
        self.slot = slot
        self.text = text


class DictSubscriptions:
    """Subscriptions in dicts, where there is no compiled kernel."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, _Row] = {}
        self._by_number: dict[int, Hashable] = {}
        self._numbers_of = RaggedArray(np.int64)  # by slot

    def __contains__(self, id: Hashable, /) -> bool:
        return id in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, id: Hashable, number: int, slot: int, text: str | None, /) -> int:
        if id in self._rows:
            raise KeyError(id)
        self._rows[id] = _Row(number, slot, text)
        self._by_number[number] = id
        return self._numbers_of.append(slot, number)

    def remove(self, id: Hashable, /) -> tuple[int, int]:
        row = self._rows.pop(id)
        del self._by_number[row.number]
        return row.slot, self._numbers_of.remove(row.slot, row.number)

    def move(self, id: Hashable, slot: int, text: str | None, /) -> tuple[int, int]:
        row = self._rows[id]
        before = row.slot
        self._numbers_of.remove(before, row.number)
        self._numbers_of.append(slot, row.number)
        row.slot, row.text = slot, text
        return before, self.count(before)

    def get(self, id: Hashable, /) -> tuple[int, int, str | None]:
        row = self._rows[id]
        return row.number, row.slot, row.text

    def count(self, slot: int, /) -> int:
        return int(self._numbers_of.lengths[slot]) if slot < len(self._numbers_of.lengths) else 0

    def numbers(self, slots: MatchedSlots | Ints) -> NDArray[np.int64]:
        listed = slots if isinstance(slots, np.ndarray) else slots.read()
        if len(listed):
            self._numbers_of.reserve(int(listed.max()) + 1)  # slots of other owners are among them
        numbers = self._numbers_of.numbers(listed).astype(np.int64)
        numbers.sort()
        return numbers

    def numbers_of_many(self, matched: Sequence[MatchedSlots], ordered: bool) -> ListedNumbers:
        listed = [self.numbers(slots) for slots in matched]
        ends = np.cumsum([len(numbers) for numbers in listed], dtype=np.int64)
        return ListedNumbers(np.concatenate([*listed, np.empty(0, np.int64)]), ends)

    def ids(self, slots: MatchedSlots | Ints) -> list[Hashable]:
        return list(map(self._by_number.__getitem__, self.numbers(slots).tolist()))

    def columns(self) -> Columns:
        ids = sorted(self._rows, key=lambda id: self._rows[id].number)
        rows = [self._rows[id] for id in ids]
        texts = {place: row.text for place, row in enumerate(rows) if row.text is not None}
        numbers = np.fromiter((row.number for row in rows), np.int64, len(rows))
        return Columns(ids, numbers, np.fromiter((row.slot for row in rows), np.int32, len(rows)), texts)


def make_subscriptions(tuning: Tuning) -> Subscriptions:
    """Return an empty table: the compiled one where it is built, and tuning does not ask for another."""
    if KERNEL is None or not tuning.kernel:
        return DictSubscriptions()
    from sapwood.engine.kernel.kernel_subscriptions import KernelSubscriptions  # which needs the module

    return KernelSubscriptions()


def load_subscriptions(columns: Columns, tuning: Tuning) -> Subscriptions:
    """Return a table of the subscriptions that another one, of either kind, had."""
    loaded = make_subscriptions(tuning)
    rows = zip(columns.ids, columns.numbers.tolist(), columns.slots.tolist(), strict=True)
    text = columns.texts.get
    for place, (id, number, slot) in enumerate(rows):
        loaded.add(id, number, slot, text(place))
    return loaded
