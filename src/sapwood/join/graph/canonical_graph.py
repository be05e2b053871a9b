"""Join graphs: two trees of variables, one for each side of a link, and the comparisons between them.

A `TemplateGraph` is a join graph without variables: the columns of both sides are only numbered. Queries
with one template graph differ in variables only, so one evaluation answers all of them. Template graphs are
equal up to isomorphism that keeps the sides: `canonicalize` renumbers the columns so that isomorphic graphs
become equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import factorial, prod
from typing import NamedTuple

from sapwood.lang.literals.numbers import Comparator
from sapwood.lang.xscl.model import Comparison

Parents = tuple[int, ...]
"""for each column of a side its parent, which comes before it, or -1"""
Edge = tuple[int, Comparator, int]
"""a comparison between a column of the left side and one of the right"""

_EXHAUSTIVE = 5_040
"""numberings that are all tried; of more, as large symmetric graphs have, only one is followed"""


@dataclass(frozen=True)
class TemplateGraph:
    """The join graph of a template: the parents of the columns of both sides, and the comparisons."""

    left: Parents
    right: Parents
    edges: tuple[Edge, ...]

    @cached_property
    def equalities(self) -> tuple[tuple[int, int], ...]:
        """The columns of both sides that must be equal, by edge."""
        return tuple((left, right) for left, op, right in self.edges if op == "=")

    @cached_property
    def inequalities(self) -> tuple[Edge, ...]:
        """The comparisons other than =."""
        return tuple(edge for edge in self.edges if edge[1] != "=")

    def ancestors(self, side: int, column: int) -> list[int]:
        """Return a column, its parent, and so on up to the root; side 0 is left."""
        parents = self.right if side else self.left
        ancestors: list[int] = []
        while column >= 0:
            ancestors.append(column)
            column = parents[column]
        return ancestors

    @cached_property
    def shared(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """(side, equality, height, equality, height): one column that is above the columns of two equalities,
        by the given heights."""
        found: list[tuple[int, int, int, int, int]] = []
        for side in (0, 1):
            above: dict[int, list[tuple[int, int]]] = {}
            for number, equality in enumerate(self.equalities):
                for height, column in enumerate(self.ancestors(side, equality[side])):
                    above.setdefault(column, []).append((number, height))
            found += [(side, *a, *b) for users in above.values() for a, b in pairwise(users)]
        return tuple(found)

    def __str__(self) -> str:
        edges = ", ".join(f"l{left} {op} r{right}" for left, op, right in self.edges)
        return f"{_format_tree(self.left, 'l')}  {_format_tree(self.right, 'r')}  {edges}"


def _format_tree(parents: Parents, letter: str, column: int = 0) -> str:
    inner = [_format_tree(parents, letter, child) for child, parent in enumerate(parents) if parent == column]
    return f"{letter}{column}" + (f"({' '.join(inner)})" if inner else "")


# -- join graphs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """A join graph in canonical order: its template graph, and the variables of its columns."""

    template_graph: TemplateGraph
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The variable pairs that must be equal."""
        return [(self.left[left], self.right[right]) for left, right in self.template_graph.equalities]


class NumberedColumn(NamedTuple):
    """A column of a side: the query's variable, the column it starts from, and its number in all queries."""

    variable: int
    parent: int
    number: int


def build_graph(
    left: Sequence[NumberedColumn], right: Sequence[NumberedColumn], comparisons: Sequence[Comparison]
) -> JoinGraph:
    """Build the join graph of two sides. Queries that differ only in the order of writing have equal ones."""
    left, right = _sort_columns(left), _sort_columns(right)
    left_of = {column.variable: place for place, column in enumerate(left)}
    right_of = {column.variable: place for place, column in enumerate(right)}
    edges = sorted({(left_of[c.left], c.op, right_of[c.right]) for c in comparisons})
    graph = TemplateGraph(tuple(c.parent for c in left), tuple(c.parent for c in right), tuple(edges))
    canonical, from_left, from_right = canonicalize(graph)
    return JoinGraph(
        canonical,
        tuple([left[place].number for place in from_left]),
        tuple([right[place].number for place in from_right]),
    )


def _sort_columns(columns: Sequence[NumberedColumn]) -> list[NumberedColumn]:
    """Sort columns so that parents come first, and children of one parent by their numbers."""
    if len(columns) == 1:
        return list(columns)
    children: dict[int, list[int]] = {}
    for place, column in enumerate(columns):
        children.setdefault(column.parent, []).append(place)
    ordered: list[NumberedColumn] = []
    stack = [(children[-1][0], -1)]
    while stack:
        place, parent = stack.pop()
        here = len(ordered)
        ordered.append(columns[place]._replace(parent=parent))
        inner = sorted(children.get(place, ()), key=lambda p: columns[p].number, reverse=True)
        stack += [(child, here) for child in inner]
    return ordered


# -- canonical form ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def canonicalize(graph: TemplateGraph) -> tuple[TemplateGraph, tuple[int, ...], tuple[int, ...]]:
    """Return the representative of all graphs isomorphic to the given one; and for each of its columns, left
    and right, the column of the given graph."""
    vertices = _Vertices(graph)
    best: tuple[TemplateGraph, list[int]] | None = None
    for order in vertices.numberings():
        renumbered = vertices.renumber(order)
        if best is None or _sort_key(renumbered) < _sort_key(best[0]):
            best = renumbered, order
    assert best is not None
    left = len(graph.left)
    return best[0], tuple(best[1][:left]), tuple(vertex - left for vertex in best[1][left:])


def _sort_key(graph: TemplateGraph) -> tuple[object, ...]:
    return graph.left, graph.right, graph.edges


class _Vertices:
    """The columns of both sides as vertices: those of the left, then those of the right."""

    def __init__(self, graph: TemplateGraph) -> None:
        self._left = len(graph.left)
        self._parents = [*graph.left, *(p + self._left if p >= 0 else -1 for p in graph.right)]
        self._edges = [(left, op, right + self._left) for left, op, right in graph.edges]
        self._neighbours: list[list[tuple[str, int]]] = [[] for _ in self._parents]
        for child, parent in enumerate(self._parents):
            if parent >= 0:
                self._neighbours[child].append(("up", parent))
                self._neighbours[parent].append(("down", child))
        for left, op, right in self._edges:
            self._neighbours[left].append((op, right))
            self._neighbours[right].append((op, left))

    def numberings(self) -> list[list[int]]:
        """Return the orders of all vertices that are candidates for the canonical one."""
        colours = self._refine([(vertex >= self._left, self._depth(vertex)) for vertex in self._all])
        cells = [colours.count(colour) for colour in set(colours)]
        found: list[list[int]] = []
        self._individualize(colours, prod(map(factorial, cells)) <= _EXHAUSTIVE, found)
        return found

    @property
    def _all(self) -> range:
        return range(len(self._parents))

    def _depth(self, vertex: int) -> int:
        depth = 0
        while self._parents[vertex] >= 0:
            vertex = self._parents[vertex]
            depth += 1
        return depth

    def _refine(self, colours: list[tuple[object, ...]]) -> list[int]:
        """Refine colours by those of the neighbours until nothing changes (colour refinement)."""
        numbers = _rank(colours)
        while True:
            finer = _rank(
                [
                    (numbers[vertex], tuple(sorted((kind, numbers[other]) for kind, other in neighbours)))
                    for vertex, neighbours in enumerate(self._neighbours)
                ]
            )
            if len(set(finer)) == len(set(numbers)):
                return finer
            numbers = finer

    def _individualize(self, colours: list[int], exhaustive: bool, found: list[list[int]]) -> None:
        """Break ties between vertices of one colour, in all ways or in one, until all colours differ."""
        cells: dict[int, list[int]] = {}
        for vertex, colour in enumerate(colours):
            cells.setdefault(colour, []).append(vertex)
        tied = next((cells[colour] for colour in sorted(cells) if len(cells[colour]) > 1), None)
        if tied is None:
            found.append(sorted(self._all, key=colours.__getitem__))
            return
        for chosen in tied if exhaustive else tied[:1]:
            split = [(colour, vertex != chosen) for vertex, colour in enumerate(colours)]
            self._individualize(self._refine([*split]), exhaustive, found)

    def renumber(self, order: list[int]) -> TemplateGraph:
        """Return the graph with the vertices numbered in this order."""
        place = {vertex: number for number, vertex in enumerate(order)}
        left = self._left

        def parents(vertices: list[int], offset: int) -> Parents:
            return tuple(place[self._parents[v]] - offset if self._parents[v] >= 0 else -1 for v in vertices)

        edges = sorted((place[a], op, place[b] - left) for a, op, b in self._edges)
        return TemplateGraph(parents(order[:left], 0), parents(order[left:], left), tuple(edges))


def _rank(keys: list[tuple[object, ...]]) -> list[int]:
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]
