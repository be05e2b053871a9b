"""What a message matched, and nodes that a query selected."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.diagnostics import notebook_html
from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.synchronization import synchronized

_SHOWN = 20
"""ids that a notebook shows"""


class Subscribers(Protocol):
    """Who stands behind the slots; the matcher's side of `Matches`."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    def slots_of(self, places: set[GuideNode]) -> Ints: ...
    def count(self, slots: Ints) -> int: ...
    def numbers(self, slots: Ints) -> NDArray[np.int64]: ...
    def unordered(self, slots: Ints) -> NDArray[np.int64]: ...
    def ids(self, numbers: NDArray[np.int64]) -> Sequence[Hashable]: ...
    def slot(self, id: Hashable) -> int | None: ...


class Matches:
    """The subscriptions that a message matched.

    Counting and testing membership build no list; ids come in the order in which they were added. What was
    matched is what was subscribed when the message was: later changes do not show.
    """

    __slots__ = ("__weakref__", "_numbers", "_places", "_problems", "_slots", "_subscribers", "_undecided")

    def __init__(
        self,
        subscribers: Subscribers,
        places: set[GuideNode] | None,
        slots: Ints,
        problems: Mapping[int, QueryProblem] | None = None,
    ) -> None:
        self._subscribers = subscribers
        self._problems = problems
        self._undecided: tuple[Failure, ...] | None = None if problems else ()
        self._places = places
        self._slots = slots
        self._numbers: tuple[NDArray[np.int64], Sequence[Hashable]] | None = None

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return self._subscribers.lock

    def _read(self) -> Ints:
        if self._places is not None:
            self._slots = self._subscribers.slots_of(self._places)
            self._places = None
        return self._slots

    @synchronized
    def freeze(self) -> None:
        """Lists everything now, because the subscriptions are about to change."""
        if self._numbers is None:
            numbers = self._subscribers.numbers(self._read())
            self._numbers = numbers, self._subscribers.ids(numbers)
        self._undecided = self.undecided

    @property
    @synchronized
    def undecided(self) -> tuple[Failure, ...]:
        """The subscriptions of which it is not known whether they match, in the order added, and why; there
        are hardly ever any."""
        if self._undecided is None:
            assert self._problems is not None
            self._undecided = failures(self._subscribers, self._problems)
        return self._undecided

    @property
    @synchronized
    def numbers(self) -> NDArray[np.int64]:
        """The subscriptions' numbers (see `Matcher.number`), ascending."""
        if self._numbers is not None:
            return self._numbers[0]
        return self._subscribers.numbers(self._read())

    @property
    @synchronized
    def unordered(self) -> NDArray[np.int64]:
        """The same numbers in any order, which takes less time."""
        if self._numbers is not None:
            return self._numbers[0]
        return self._subscribers.unordered(self._read())

    @synchronized
    def __len__(self) -> int:
        return len(self._numbers[0]) if self._numbers is not None else self._subscribers.count(self._read())

    def __bool__(self) -> bool:
        return len(self) > 0

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._numbers[1] if self._numbers is not None else self._subscribers.ids(self.numbers))

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        if self._numbers is not None:
            return id in self._numbers[1]
        slot = self._subscribers.slot(id)
        return slot is not None and bool(np.isin(slot, self._read()))

    def __repr__(self) -> str:
        undecided = f", {len(self.undecided)} undecided" if self.undecided else ""
        return f"<Matches: {len(self)} subscriptions{undecided}>"

    def _repr_html_(self) -> str:
        count = f"{len(self):,} subscription{'' if len(self) == 1 else 's'}"
        ids = [str(id) for id in islice(self, _SHOWN)]
        more = [f"and {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return notebook_html.sections([(count, ids + more or ["none"])])


def failures(subscribers: Subscribers, problems: Mapping[int, QueryProblem]) -> tuple[Failure, ...]:
    """The problems of slots as their subscriptions', in the order added."""
    found: list[tuple[int, QueryProblem]] = []
    for slot, problem in problems.items():
        found += [(number, problem) for number in subscribers.numbers(np.array([slot], np.int32)).tolist()]
    found.sort(key=lambda pair: pair[0])
    ids = subscribers.ids(np.array([number for number, _ in found], np.int64))
    return tuple(
        [Failure(id, problem.kind, problem.reason) for id, (_, problem) in zip(ids, found, strict=True)]
    )


class Selected(dict[Hashable, list["Node"]]):
    """The nodes that queries select in a message, by subscription."""

    undecided: tuple[Failure, ...] = ()
    """the subscriptions of which they are not known, and why; there are hardly ever any"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that a query selected.

    `index` numbers the elements of a message in document order, the root element being 1; for attributes,
    text, comments and processing instructions it is their element's, for the document node 0. A query whose
    result is no node-set selects one Node of kind `string`, `number` or `boolean`, with index 0.
    """

    index: int
    kind: str
    value: str
    """the string-value"""
    xml: str
    """the slice of the message"""
    name: str = ""
    """the name of an element or attribute, `{uri}local` if it has a namespace"""
