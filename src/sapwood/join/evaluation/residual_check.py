"""Whether the nodes of one candidate fit together: the general case, one candidate at a time.

Comparisons are taken one after the other, those with fewest nodes first, and nodes are tried until all hold.
What has failed once, of the columns that later comparisons share, is not tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sapwood.join.graph.join_graph import Shape
from sapwood.lang.literals.numbers import COMPARE, to_number
from sapwood.lang.xscl.model import Comparator

Nodes = tuple[int, ...]
"""a column's node, and those of the columns above it"""
_Column = tuple[int, int]
"""a side and one of its columns"""
_ByShared = dict[Nodes, dict[Nodes, list[int]]]
_MOST = 5_000_000
"""nodes that are tried; a query that needs more to be decided is not"""
_log = logging.getLogger(__name__)


class Side(Protocol):
    """What a message, or several, have to offer."""

    def rows(self, run: int) -> list[Nodes]:
        """The nodes of a run, each with those above it."""
        ...

    def valued(self, variable: int) -> list[tuple[Nodes, str]]:
        """The nodes of a variable, each with those above it, and their values."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row of a template, and the two that may meet it."""

    shape: Shape
    left: tuple[int, ...]
    right: tuple[int, ...]
    sides: tuple[Side, Side]


class CandidateStep(NamedTuple):
    """A comparison between columns of the two sides, and for each value the nodes that have it; `holds` says
    which of them are compared well if being in one group is not enough."""

    left: int
    right: int
    groups: list[tuple[list[Nodes], list[Nodes]]]
    holds: Callable[[int, int], bool] | None = None
    """of places in the lists"""

    @property
    def size(self) -> int:
        return sum(len(left) * len(right) for left, right in self.groups)


def compares(op: Comparator, left: str, right: str) -> bool:
    """Whether a comparison between two string-values holds."""
    if op == "=":
        return left == right
    if op == "!=":
        return left != right
    return COMPARE[op](to_number(left), to_number(right))


def satisfiable(candidate: Candidate, equalities: list[CandidateStep]) -> bool:
    """Whether some nodes meet all comparisons, columns that are shared having one node."""
    steps = sorted(equalities, key=lambda step: step.size)
    steps += [_compared(candidate, *edge) for edge in candidate.shape.others]
    search = _Search(candidate.shape, steps)
    try:
        return search.succeeds(0, ())
    except _TooMany:
        _log.warning("two messages are not joined: more than %s combinations of their nodes", f"{_MOST:,}")
        return False


class _TooMany(Exception):
    pass


class _Search:
    def __init__(self, shape: Shape, steps: list[CandidateStep]) -> None:
        chains = [_chain(shape, step) for step in steps]
        bound: tuple[_Column, ...] = ()
        self._joins: list[_Joining] = []
        for number, step in enumerate(steps):
            later = {column for chain in chains[number + 1 :] for column in chain}
            self._joins.append(_Joining(bound, chains[number], later, step))
            bound = self._joins[-1].bound
        self._failed: set[tuple[int, Nodes]] = set()
        self._tried = 0

    def _try(self, count: int) -> None:
        self._tried += count
        if self._tried > _MOST:
            raise _TooMany

    def succeeds(self, number: int, known: Nodes) -> bool:
        """Whether the comparisons from a number on hold, with some nodes bound before."""
        if number == len(self._joins):
            return True
        key = number, known
        if key in self._failed:
            return False
        for more in self._joins[number].tuples(known, self._try):
            self._try(1)
            if self.succeeds(number + 1, more):
                return True
        self._failed.add(key)
        return False


def _chain(shape: Shape, step: CandidateStep) -> list[_Column]:
    left = [(0, column) for column in shape.chain(0, step.left)]
    return left + [(1, column) for column in shape.chain(1, step.right)]


def _compared(candidate: Candidate, left: int, op: Comparator, right: int) -> CandidateStep:
    """A comparison that is no equality: all nodes of both variables in one group."""
    on_left = candidate.sides[0].valued(candidate.left[left])
    on_right = candidate.sides[1].valued(candidate.right[right])
    groups = [([nodes for nodes, _ in on_left], [nodes for nodes, _ in on_right])]
    if op == "!=":
        return CandidateStep(left, right, groups, lambda one, other: on_left[one][1] != on_right[other][1])
    numbers, other_numbers = [to_number(v) for _, v in on_left], [to_number(v) for _, v in on_right]
    holds = COMPARE[op]
    return CandidateStep(left, right, groups, lambda one, other: holds(numbers[one], other_numbers[other]))


class _Joining:
    """One more comparison joined to what is bound."""

    def __init__(
        self, bound: tuple[_Column, ...], chain: list[_Column], later: set[_Column], step: CandidateStep
    ) -> None:
        self._step = step
        self._known = [[bound.index(c) for c in chain if c in bound and c[0] == side] for side in (0, 1)]
        columns = [[c for c in chain if c[0] == side] for side in (0, 1)]
        self._shared = [[i for i, c in enumerate(columns[side]) if c in bound] for side in (0, 1)]
        new = [[i for i, c in enumerate(columns[s]) if c not in bound and c in later] for s in (0, 1)]
        self._new = new
        self._kept = [i for i, column in enumerate(bound) if column in later]
        self._groups: list[tuple[_ByShared, _ByShared]] | None = None
        self.bound = (
            *(bound[i] for i in self._kept),
            *(columns[side][i] for side in (0, 1) for i in new[side]),
        )

    def tuples(self, known: Nodes, tried: Callable[[int], None]) -> Iterator[Nodes]:
        """What may be bound next, as far as later comparisons want to know."""
        if self._groups is None:
            self._groups = [(self._by_shared(0, a), self._by_shared(1, b)) for a, b in self._step.groups]
        here = tuple([known[i] for i in self._known[0]])
        there = tuple([known[i] for i in self._known[1]])
        before = tuple([known[i] for i in self._kept])
        for on_left, on_right in self._groups:
            ones, others = on_left.get(here), on_right.get(there)
            if ones and others:
                for more in _both(ones, others, self._step.holds, tried):
                    yield before + more

    def _by_shared(self, side: int, rows: list[Nodes]) -> _ByShared:
        """By the nodes of what is bound already: the nodes of what is new, and the places that have them."""
        found: _ByShared = {}
        shared, new = self._shared[side], self._new[side]
        for place, nodes in enumerate(rows):
            of_new = found.setdefault(tuple([nodes[i] for i in shared]), {})
            of_new.setdefault(tuple([nodes[i] for i in new]), []).append(place)
        return found


def _both(
    ones: dict[Nodes, list[int]],
    others: dict[Nodes, list[int]],
    holds: Callable[[int, int], bool] | None,
    tried: Callable[[int], None],
) -> Iterator[Nodes]:
    for one, places in ones.items():
        for other, other_places in others.items():
            if holds is not None:
                tried(len(places) * len(other_places))
                if not any(holds(a, b) for a in places for b in other_places):
                    continue
            yield one + other
