"""All queries as rows of a few relations.

Every shape of join graphs has a relation, the *template*: a row of variables for each distinct graph of that
shape. What remains of a query, its window and what it delivers, is a *member* of its row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import RaggedArray, grow_array
from sapwood.join.graph.join_graph import Shape
from sapwood.join.graph.variable_pairs import Pairs

Longs = NDArray[np.int64]
_REFILE_FROM = 256
"""messages after which rows are filed anew for the first time, by what was seen"""


@dataclass(frozen=True, slots=True)
class Graph:
    """A join graph in canonical order: its shape, and the variables of its columns."""

    shape: Shape
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(self.left[left], self.right[right]) for left, right in self.shape.equalities]


@dataclass(slots=True)
class JoinTemplate:
    """A shape and the rows that have it."""

    number: int
    shape: Shape
    rows: set[int] = field(default_factory=set)


class Relations:
    """Templates that are evaluated together."""

    def __init__(self) -> None:
        self.pairs = Pairs()
        self.templates: dict[Shape, JoinTemplate] = {}
        self._free: list[int] = []  # numbers of templates that are gone
        self._places: dict[Shape, range] = {}  # of what shapes, there or gone, have in `same`
        self._row_of: dict[Graph, int] = {}
        self._graphs: list[Graph | None] = []
        self._unused: list[int] = []
        self.pairs_of = RaggedArray()  # of each row, in the order of its shape's equalities
        self.filed = RaggedArray()  # rows, under one of their pairs
        self._filed_under: Ints = np.zeros(16, np.int32)
        self._members = RaggedArray()  # of each row
        self.template_of: Ints = np.zeros(16, np.int32)
        self.shared = RaggedArray()  # of each template, places in the columns below
        self.same: NDArray[np.int32] = np.zeros((0, 5), np.int32)
        self.plain: NDArray[np.bool_] = np.zeros(16, np.bool_)  # nothing to check but pairs
        self.compared: NDArray[np.bool_] = np.zeros(16, np.bool_)  # not only by =
        self.seen: Longs = np.zeros(16, np.int64)  # of each pair, in how many items
        self._evaluated = 0
        self._refile_at = _REFILE_FROM

    def __len__(self) -> int:
        return len(self._row_of)

    # -- the population --------------------------------------------------------------------------------

    def add(self, graph: Graph, member: int) -> int:
        """Adds a member to the row of a graph: the row."""
        row = self._row_of.get(graph)
        if row is None:
            row = self._new_row(graph)
        self._members.append(row, member)
        return row

    def remove(self, row: int, member: int) -> None:
        self._members.remove(row, member)
        if self._members.lengths[row]:
            return
        graph = self._graphs[row]
        assert graph is not None
        self.filed.remove(int(self._filed_under[row]), row)
        self.pairs_of.clear(row)
        for left, right in graph.pairs:
            self.pairs.release(left, right)
        template = self.templates[graph.shape]
        template.rows.discard(row)
        if not template.rows:
            del self.templates[graph.shape]
            self.shared.clear(template.number)
            self._free.append(template.number)
        del self._row_of[graph]
        self._graphs[row] = None
        self._unused.append(row)

    def _new_row(self, graph: Graph) -> int:
        if self._unused:
            row = self._unused.pop()
        else:
            row = len(self._graphs)
            self._graphs.append(None)
            if row == len(self.template_of):
                self.template_of = grow_array(self.template_of, 2 * row)
                self._filed_under = grow_array(self._filed_under, 2 * row)
        self._graphs[row] = graph
        self._row_of[graph] = row
        template = self.templates.get(graph.shape) or self._new_template(graph.shape)
        template.rows.add(row)
        self.template_of[row] = template.number
        numbers = [self.pairs.use(left, right) for left, right in graph.pairs]
        if len(self.pairs) > len(self.seen):
            self.seen = grow_array(self.seen, 2 * len(self.pairs))
        for number in numbers:
            self.pairs_of.append(row, number)
        self._file(row, numbers)
        self._members.reserve(row + 1)
        return row

    def _new_template(self, shape: Shape) -> JoinTemplate:
        number = self._free.pop() if self._free else len(self.templates)
        template = self.templates[shape] = JoinTemplate(number, shape)
        if number >= len(self.plain):
            self.plain, self.compared = (
                grow_array(self.plain, 2 * number),
                grow_array(self.compared, 2 * number),
            )
        self.plain[number] = not shape.shared and not shape.others
        self.compared[number] = bool(shape.others)
        self.shared.reserve(number + 1)
        places = self._places.get(shape)
        if places is None:
            places = self._places[shape] = range(len(self.same), len(self.same) + len(shape.shared))
            if shape.shared:
                self.same = np.concatenate((self.same, np.array(shape.shared, np.int32)))
        for place in places:
            self.shared.append(number, place)
        return template

    def _file(self, row: int, pairs: list[int]) -> None:
        """Files a row where it is looked at least often."""
        lengths = self.filed.lengths
        under = min(pairs, key=lambda p: (self.seen[p], lengths[p] if p < len(lengths) else 0, p))
        self.filed.append(under, row)
        self._filed_under[row] = under

    def _refile(self) -> None:
        """Files all rows anew, each under the pair that was seen least."""
        rows = np.array(sorted(self._row_of.values()), np.int32)
        if not len(rows):
            return
        pairs, _ = self.pairs_of.gather(rows)
        lengths = self.pairs_of.lengths.take(rows)
        ranked = (self.seen.take(pairs) << 20) | (
            np.arange(len(pairs)) - np.repeat(_before(lengths), lengths)
        )
        least = np.minimum.reduceat(ranked, _before(lengths)) & 0xFFFFF
        under = pairs.take(_before(lengths) + least)
        self._filed_under[rows] = under
        self.filed = RaggedArray.of(under, rows)

    # -- messages --------------------------------------------------------------------------------------

    def evaluated(self, present: Ints, items: Ints) -> None:
        """Notes which pairs a message had in common with how many items."""
        self.seen[present] += items
        self._evaluated += 1
        if self._evaluated >= self._refile_at:
            self._refile_at *= 2
            self._refile()

    def members(self, rows: Ints) -> tuple[Ints, Ints]:
        """The members of some rows, and of which of them."""
        members, source = self._members.gather(rows)
        return members, source

    def graph(self, row: int) -> Graph:
        graph = self._graphs[row]
        assert graph is not None
        return graph

    def graphs(self) -> Iterable[tuple[Graph, int]]:
        """All graphs and their rows."""
        return self._row_of.items()


def _before(lengths: Ints) -> Ints:
    """Where each of some runs of these lengths starts."""
    return np.cumsum(lengths, dtype=np.int32) - lengths
