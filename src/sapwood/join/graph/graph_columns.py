"""The join graph of one link of a query, its columns numbered and in canonical order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sapwood.join.graph.join_graph import Shape, canonical
from sapwood.join.graph.templates import Graph
from sapwood.lang.xscl.model import Comparison


class Numbered(NamedTuple):
    """A column of a side: which of the query's variables, where it starts, and its number for all."""

    variable: int
    parent: int
    number: int


def graph(left: Sequence[Numbered], right: Sequence[Numbered], comparisons: Sequence[Comparison]) -> Graph:
    """The graph of two sides. Queries that differ only in the order of writing have equal ones."""
    left, right = _ordered(left), _ordered(right)
    left_of = {column.variable: place for place, column in enumerate(left)}
    right_of = {column.variable: place for place, column in enumerate(right)}
    edges = sorted({(left_of[c.left], c.op, right_of[c.right]) for c in comparisons})
    shape = Shape(tuple(c.parent for c in left), tuple(c.parent for c in right), tuple(edges))
    found, from_left, from_right = canonical(shape)
    return Graph(
        found,
        tuple([left[place].number for place in from_left]),
        tuple([right[place].number for place in from_right]),
    )


def _ordered(columns: Sequence[Numbered]) -> list[Numbered]:
    """Parents first, and those with one parent by their numbers."""
    if len(columns) == 1:
        return list(columns)
    below: dict[int, list[int]] = {}
    for place, column in enumerate(columns):
        below.setdefault(column.parent, []).append(place)
    ordered: list[Numbered] = []
    waiting = [(below[-1][0], -1)]
    while waiting:
        place, parent = waiting.pop()
        here = len(ordered)
        ordered.append(columns[place]._replace(parent=parent))
        inside = sorted(below.get(place, ()), key=lambda p: columns[p].number, reverse=True)
        waiting += [(child, here) for child in inside]
    return ordered
