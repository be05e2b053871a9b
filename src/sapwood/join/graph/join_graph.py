"""The shape of a join graph: two trees of columns, and comparisons between them, but no names.

Queries whose graphs have one shape differ in names only, so one evaluation answers all of them. Shapes are
told apart up to isomorphism that keeps the sides: `canonical` renumbers the columns so that isomorphic
graphs come out equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import factorial, prod

from sapwood.lang.xscl.model import Comparator

Parents = tuple[int, ...]
"""of each column of a side its parent, which comes before it, or -1"""
Edge = tuple[int, Comparator, int]
"""a column of the left side, and one of the right"""

_EXHAUSTIVE = 5_040
"""numberings that are all tried; of more, as large symmetric graphs have, one is followed"""


@dataclass(frozen=True)
class Shape:
    left: Parents
    right: Parents
    edges: tuple[Edge, ...]

    @cached_property
    def equalities(self) -> tuple[tuple[int, int], ...]:
        return tuple((left, right) for left, op, right in self.edges if op == "=")

    @cached_property
    def others(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge[1] != "=")

    def chain(self, side: int, column: int) -> list[int]:
        """A column, its parent, and so on up to the root; side 0 is left."""
        parents = self.right if side else self.left
        chain: list[int] = []
        while column >= 0:
            chain.append(column)
            column = parents[column]
        return chain

    @cached_property
    def shared(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """(side, equality, height, equality, height): the same column, so many steps above what is equal."""
        found: list[tuple[int, int, int, int, int]] = []
        for side in (0, 1):
            over: dict[int, list[tuple[int, int]]] = {}
            for number, equality in enumerate(self.equalities):
                for height, column in enumerate(self.chain(side, equality[side])):
                    over.setdefault(column, []).append((number, height))
            found += [(side, *a, *b) for users in over.values() for a, b in pairwise(users)]
        return tuple(found)

    def __str__(self) -> str:
        edges = ", ".join(f"l{left} {op} r{right}" for left, op, right in self.edges)
        return f"{_tree(self.left, 'l')}  {_tree(self.right, 'r')}  {edges}"


def _tree(parents: Parents, letter: str, column: int = 0) -> str:
    inner = [_tree(parents, letter, child) for child, parent in enumerate(parents) if parent == column]
    return f"{letter}{column}" + (f"({' '.join(inner)})" if inner else "")


@lru_cache(maxsize=4_096)
def canonical(shape: Shape) -> tuple[Shape, tuple[int, ...], tuple[int, ...]]:
    """The shape that stands for all isomorphic ones; and of each of its columns, left and right, which column
    of the given one it is."""
    graph = _Graph(shape)
    best: tuple[Shape, list[int]] | None = None
    for order in graph.numberings():
        numbered = graph.numbered(order)
        if best is None or _key(numbered) < _key(best[0]):
            best = numbered, order
    assert best is not None
    left = len(shape.left)
    return best[0], tuple(best[1][:left]), tuple(vertex - left for vertex in best[1][left:])


def _key(shape: Shape) -> tuple[object, ...]:
    return shape.left, shape.right, shape.edges


class _Graph:
    """Columns of both sides as vertices: those of the left, then those of the right."""

    def __init__(self, shape: Shape) -> None:
        self._left = len(shape.left)
        self._parents = [*shape.left, *(p + self._left if p >= 0 else -1 for p in shape.right)]
        self._edges = [(left, op, right + self._left) for left, op, right in shape.edges]
        self._near: list[list[tuple[str, int]]] = [[] for _ in self._parents]
        for child, parent in enumerate(self._parents):
            if parent >= 0:
                self._near[child].append(("up", parent))
                self._near[parent].append(("down", child))
        for left, op, right in self._edges:
            self._near[left].append((op, right))
            self._near[right].append((op, left))

    def numberings(self) -> list[list[int]]:
        """The orders of all vertices among which the canonical one is looked for."""
        colours = self._refined([(vertex >= self._left, self._depth(vertex)) for vertex in self._vertices])
        cells = [colours.count(colour) for colour in set(colours)]
        found: list[list[int]] = []
        self._number(colours, prod(map(factorial, cells)) <= _EXHAUSTIVE, found)
        return found

    @property
    def _vertices(self) -> range:
        return range(len(self._parents))

    def _depth(self, vertex: int) -> int:
        depth = 0
        while self._parents[vertex] >= 0:
            vertex = self._parents[vertex]
            depth += 1
        return depth

    def _refined(self, colours: list[tuple[object, ...]]) -> list[int]:
        """Colours by which vertices are told apart as far as their neighbours' colours do."""
        numbers = _ranked(colours)
        while True:
            finer = _ranked(
                [
                    (numbers[vertex], tuple(sorted((kind, numbers[other]) for kind, other in near)))
                    for vertex, near in enumerate(self._near)
                ]
            )
            if len(set(finer)) == len(set(numbers)):
                return finer
            numbers = finer

    def _number(self, colours: list[int], all_ways: bool, found: list[list[int]]) -> None:
        """Tells equals apart, in all ways or in one, until every vertex has a colour of its own."""
        cells: dict[int, list[int]] = {}
        for vertex, colour in enumerate(colours):
            cells.setdefault(colour, []).append(vertex)
        tied = next((cells[colour] for colour in sorted(cells) if len(cells[colour]) > 1), None)
        if tied is None:
            found.append(sorted(self._vertices, key=colours.__getitem__))
            return
        for chosen in tied if all_ways else tied[:1]:
            apart = [(colour, vertex != chosen) for vertex, colour in enumerate(colours)]
            self._number(self._refined([*apart]), all_ways, found)

    def numbered(self, order: list[int]) -> Shape:
        """The shape with the vertices numbered in this order."""
        place = {vertex: number for number, vertex in enumerate(order)}
        left = self._left

        def parents(vertices: list[int], offset: int) -> Parents:
            return tuple(place[self._parents[v]] - offset if self._parents[v] >= 0 else -1 for v in vertices)

        edges = sorted((place[a], op, place[b] - left) for a, op, b in self._edges)
        return Shape(parents(order[:left], 0), parents(order[left:], left), tuple(edges))


def _ranked(keys: list[tuple[object, ...]]) -> list[int]:
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]
