"""Templates: all join queries as rows of a few relations.

Every template graph has a relation, the *template*: a row of variables for each distinct join graph. What
remains of a query, its window and its output, is a *member* of its row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.ragged_array import RaggedArray, grow_array
from sapwood.join.graph.canonical_graph import JoinGraph, TemplateGraph
from sapwood.join.graph.variable_pairs import VariablePairs

Longs = NDArray[np.int64]
_FIRST_REINDEX = 256
"""evaluated messages after which rows are indexed anew for the first time, by the frequency of their pairs"""


@dataclass(slots=True)
class JoinTemplate:
    """A template graph and the rows that have it."""

    number: int
    graph: TemplateGraph
    rows: set[int] = field(default_factory=set)


class IndexedRows(NamedTuple):
    """The rows that are indexed under a pair."""

    single: list[int]
    """those that match wherever the pair is equal: they have no other, and nothing else to check"""
    others: Ints


class TemplateRelations:
    """The rows of templates that are evaluated together.

    A row is indexed under one of its variable pairs, the one that is seen least often: a row can only match
    if that pair is equal.
    """

    def __init__(self) -> None:
        self.pairs = VariablePairs()
        self.templates: dict[TemplateGraph, JoinTemplate] = {}
        self._free: list[int] = []  # numbers of removed templates
        self._shared_columns: dict[TemplateGraph, range] = {}  # rows of `same`, also of removed templates
        self._row_of: dict[JoinGraph, int] = {}
        self._graphs: list[JoinGraph | None] = []
        self._unused: list[int] = []
        self.pairs_of = RaggedArray()  # of each row, in the order of the equalities
        self.rows_of_pair = RaggedArray()  # rows, each under one of their pairs
        self._indexed: dict[int, IndexedRows] = {}  # `rows_of_pair` as they are evaluated, filled on demand
        self._indexed_under: Ints = np.zeros(16, np.int32)
        self._members = RaggedArray()  # of each row
        self.template_of: Ints = np.zeros(16, np.int32)
        self.shared = RaggedArray()  # of each template, rows of `same`
        self.same: NDArray[np.int32] = np.zeros((0, 5), np.int32)  # see `TemplateGraph.shared`
        self.plain: NDArray[np.bool_] = np.zeros(16, np.bool_)  # of each template: only pairs to check
        self.compared: NDArray[np.bool_] = np.zeros(16, np.bool_)  # of each template: it has inequalities
        self.seen: Longs = np.zeros(16, np.int64)  # of each pair, in how many items
        self._evaluated = 0
        self._reindex_at = _FIRST_REINDEX

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._row_of)

    # -- registration ----------------------------------------------------------------------------------

    def add(self, graph: JoinGraph, member: int) -> int:
        """Add a member to the row of a join graph, and return the row."""
        row = self._row_of.get(graph)
        if row is None:
            row = self._new_row(graph)
        self._members.append(row, member)
        return row

    def remove(self, row: int, member: int) -> None:
        """Remove a member, and its row if it has no other."""
        self._members.remove(row, member)
        if self._members.lengths[row]:
            return
        graph = self._graphs[row]
        assert graph is not None
        under = int(self._indexed_under[row])
        self.rows_of_pair.remove(under, row)
        self._indexed.pop(under, None)
        self.pairs_of.clear(row)
        for left, right in graph.pairs:
            self.pairs.remove(left, right)
        template = self.templates[graph.template_graph]
        template.rows.discard(row)
        if not template.rows:
            del self.templates[graph.template_graph]
            self.shared.clear(template.number)
            self._free.append(template.number)
        del self._row_of[graph]
        self._graphs[row] = None
        self._unused.append(row)

    def _new_row(self, graph: JoinGraph) -> int:
        if self._unused:
            row = self._unused.pop()
        else:
            row = len(self._graphs)
            self._graphs.append(None)
            if row == len(self.template_of):
                self.template_of = grow_array(self.template_of, 2 * row)
                self._indexed_under = grow_array(self._indexed_under, 2 * row)
        self._graphs[row] = graph
        self._row_of[graph] = row
        template = self.templates.get(graph.template_graph) or self._new_template(graph.template_graph)
        template.rows.add(row)
        self.template_of[row] = template.number
        numbers = [self.pairs.add(left, right) for left, right in graph.pairs]
        if len(self.pairs) > len(self.seen):
            self.seen = grow_array(self.seen, 2 * len(self.pairs))
        for number in numbers:
            self.pairs_of.append(row, number)
        self._index_row(row, numbers)
        self._members.reserve(row + 1)
        return row

    def _new_template(self, graph: TemplateGraph) -> JoinTemplate:
        number = self._free.pop() if self._free else len(self.templates)
        template = self.templates[graph] = JoinTemplate(number, graph)
        if number >= len(self.plain):
            self.plain, self.compared = (
                grow_array(self.plain, 2 * number),
                grow_array(self.compared, 2 * number),
            )
        self.plain[number] = not graph.shared and not graph.inequalities
        self.compared[number] = bool(graph.inequalities)
        self.shared.reserve(number + 1)
        places = self._shared_columns.get(graph)
        if places is None:
            places = range(len(self.same), len(self.same) + len(graph.shared))
            self._shared_columns[graph] = places
            if graph.shared:
                self.same = np.concatenate((self.same, np.array(graph.shared, np.int32)))
        for place in places:
            self.shared.append(number, place)
        return template

    def _index_row(self, row: int, pairs: list[int]) -> None:
        """Index a row under its rarest pair."""
        lengths = self.rows_of_pair.lengths
        under = min(pairs, key=lambda p: (self.seen[p], lengths[p] if p < len(lengths) else 0, p))
        self.rows_of_pair.append(under, row)
        self._indexed.pop(under, None)
        self._indexed_under[row] = under

    def _reindex(self) -> None:
        """Index all rows anew, each under the pair that was seen least."""
        rows = np.array(sorted(self._row_of.values()), np.int32)
        if not len(rows):
            return
        pairs, _ = self.pairs_of.gather(rows)
        lengths = self.pairs_of.lengths.take(rows)
        ranked = (self.seen.take(pairs) << 20) | (
            np.arange(len(pairs)) - np.repeat(_starts(lengths), lengths)
        )
        least = np.minimum.reduceat(ranked, _starts(lengths)) & 0xFFFFF
        under = pairs.take(_starts(lengths) + least)
        self._indexed_under[rows] = under
        self.rows_of_pair = RaggedArray.of(under, rows)
        self._indexed.clear()

    # -- evaluation ------------------------------------------------------------------------------------

    def count_equal(self, items_of: dict[int, int]) -> None:
        """Count, for each pair that is equal in a message, the items it is equal in."""
        for pair, items in items_of.items():
            self.seen[pair] += items
        self._evaluated += 1
        if self._evaluated >= self._reindex_at:
            self._reindex_at *= 2
            self._reindex()

    def rows_under(self, pair: int) -> IndexedRows:
        """Return the rows that are indexed under a pair."""
        indexed = self._indexed.get(pair)
        if indexed is None:
            self.rows_of_pair.reserve(pair + 1)
            rows = self.rows_of_pair.numbers(np.array([pair], np.int32)).astype(np.int32, copy=False)
            single = self.pairs_of.lengths.take(rows) == 1
            single &= self.plain.take(self.template_of.take(rows))
            indexed = self._indexed[pair] = IndexedRows(rows[single].tolist(), rows[~single])
        return indexed

    def members(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the members of some rows, and for each the position of its row."""
        members, source = self._members.gather(rows)
        return members, source

    def graph(self, row: int) -> JoinGraph:
        """Return the join graph of a row."""
        graph = self._graphs[row]
        assert graph is not None
        return graph

    def graphs(self) -> Iterable[tuple[JoinGraph, int]]:
        """Return all join graphs and their rows."""
        return self._row_of.items()


def _starts(lengths: Ints) -> Ints:
    """Return where each of consecutive groups of these lengths starts."""
    return np.cumsum(lengths, dtype=np.int32) - lengths
