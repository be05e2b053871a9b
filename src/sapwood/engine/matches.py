"""The results of matching: the subscriptions that a message matches, and the nodes that queries select."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.diagnostics import notebook_html
from sapwood.engine.failures import Failure, QueryProblem
from sapwood.engine.subscriptions import Subscriptions
from sapwood.engine.thread_lock import synchronized

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_SHOWN = 20
"""ids in the HTML representation"""


class Matches:
    """The subscriptions that a message matched.

    Counting and testing membership build no list; ids are in the order in which they were added. Later
    changes of subscriptions do not affect the matches.
    """

    __slots__ = (
        "__weakref__",
        "_frozen",
        "_matched",
        "_problems",
        "_subscriptions",
        "_undecided",
        "lock",
    )

    def __init__(
        self,
        subscriptions: Subscriptions,
        lock: AbstractContextManager[Any],
        matched: MatchedSlots,
        problems: Mapping[int, QueryProblem] | None = None,
    ) -> None:
        self.lock = lock
        self._subscriptions = subscriptions
        self._problems = problems
        self._undecided: tuple[Failure, ...] | None = None if problems else ()
        self._matched = matched
        self._frozen: tuple[NDArray[np.int64], list[Hashable]] | None = None

    @synchronized
    def freeze(self) -> None:
        """List everything now, because the subscriptions are about to change."""
        if self._frozen is None:
            subscriptions = self._subscriptions
            self._frozen = subscriptions.numbers(self._matched), subscriptions.ids(self._matched)
        self._undecided = self.undecided

    @property
    @synchronized
    def undecided(self) -> tuple[Failure, ...]:
        """The subscriptions that could not be decided, in the order added, and why; usually none."""
        if self._undecided is None:
            assert self._problems is not None
            self._undecided = failures(self._subscriptions, self._problems)
        return self._undecided

    @property
    @synchronized
    def numbers(self) -> NDArray[np.int64]:
        """The subscriptions' numbers (see `Matcher.number`), ascending."""
        return self._frozen[0] if self._frozen is not None else self._subscriptions.numbers(self._matched)

    @synchronized
    def __len__(self) -> int:
        return len(self._frozen[1]) if self._frozen is not None else self._matched.count()

    def __bool__(self) -> bool:
        return len(self) > 0

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._frozen[1] if self._frozen is not None else self._subscriptions.ids(self._matched))

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        if self._frozen is not None:
            return id in self._frozen[1]
        return id in self._subscriptions and self._subscriptions.get(id)[1] in self._matched.read()

    def __repr__(self) -> str:
        undecided = f", {len(self.undecided)} undecided" if self.undecided else ""
        return f"<Matches: {len(self)} subscriptions{undecided}>"

    def _repr_html_(self) -> str:
        count = f"{len(self):,} subscription{'' if len(self) == 1 else 's'}"
        ids = [str(id) for id in islice(self, _MAX_SHOWN)]
        more = [f"and {len(self) - _MAX_SHOWN:,} more"] if len(self) > _MAX_SHOWN else []
        return notebook_html.sections([(count, ids + more or ["none"])])


class UnreadMatches:
    """The matches that somebody holds and may still read, without holding them.

    Weak references to matches that are gone are dropped when there are many, which is cheaper than to be told
    of each.
    """

    _FEW = 16

    def __init__(self) -> None:
        self._references: list[ref[Matches]] = []
        self._most = self._FEW

    def __bool__(self) -> bool:
        return bool(self._references)

    def add(self, matches: Matches) -> None:
        self._references.append(ref(matches))
        if len(self._references) > self._most:
            self._references = [reference for reference in self._references if reference() is not None]
            self._most = max(self._FEW, 2 * len(self._references))

    def freeze(self) -> None:
        """List all of them now, and forget them."""
        for reference in self._references:
            matches = reference()
            if matches is not None:
                matches.freeze()
        self._references.clear()


def failures(subscriptions: Subscriptions, problems: Mapping[int, QueryProblem]) -> tuple[Failure, ...]:
    """Return the problems of slots as failures of their subscriptions, in the order added."""
    found: list[tuple[int, Failure]] = []
    for slot, problem in problems.items():
        slots = np.array([slot], np.int32)
        numbered = zip(subscriptions.numbers(slots).tolist(), subscriptions.ids(slots), strict=True)
        found += [(number, Failure(id, problem.kind, problem.reason)) for number, id in numbered]
    found.sort(key=lambda pair: pair[0])
    return tuple([failure for _, failure in found])


class Selected(dict[Hashable, list["Node"]]):
    """The nodes that queries select in a message, by subscription."""

    undecided: tuple[Failure, ...] = ()
    """the subscriptions whose nodes could not be found, and why; usually there are none"""


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
