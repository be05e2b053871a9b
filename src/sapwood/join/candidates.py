"""Whether the nodes of one candidate fit together: the general case, one candidate at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

from sapwood.join.shape import Shape
from sapwood.lang.joining import Comparator
from sapwood.lang.numbers import COMPARE, to_number

Nodes = tuple[int, ...]
"""a column's node, and those of the columns above it"""
_Place = tuple[int, int]
"""a side and one of its columns"""


class Step(NamedTuple):
    """A comparison between columns of the two sides, and the nodes for which it holds."""

    left: int
    right: int
    options: Iterable[tuple[Nodes, Nodes]]


class Side(Protocol):
    """What a message, or several, have to offer."""

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


def compares(op: Comparator, left: str, right: str) -> bool:
    """Whether a comparison between two string-values holds."""
    if op == "=":
        return left == right
    if op == "!=":
        return left != right
    return COMPARE[op](to_number(left), to_number(right))


def satisfiable(candidate: Candidate, equalities: list[Step]) -> bool:
    """Whether some nodes meet all comparisons, columns that are shared having one node."""
    steps = [*equalities, *_others(candidate)]
    chains = [_places(candidate.shape, step) for step in steps]
    bound: tuple[_Place, ...] = ()
    partial: set[tuple[int, ...]] = {()}
    for number, step in enumerate(steps):
        later = {place for chain in chains[number + 1 :] for place in chain}
        bound, partial = _joined(bound, partial, chains[number], step, later)
        if not partial:
            return False
    return True


def _places(shape: Shape, step: Step) -> list[_Place]:
    left = [(0, column) for column in shape.chain(0, step.left)]
    return left + [(1, column) for column in shape.chain(1, step.right)]


def _joined(
    bound: tuple[_Place, ...],
    partial: set[tuple[int, ...]],
    chain: list[_Place],
    step: Step,
    later: set[_Place],
) -> tuple[tuple[_Place, ...], set[tuple[int, ...]]]:
    """What is bound so far together with one more comparison, as far as later ones need to know."""
    heights = len([place for place in chain if place[0] == 0])
    shared = [place for place in chain if place in bound]
    new = [place for place in chain if place not in bound and place in later]
    by_shared: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for left, right in step.options:
        nodes = dict(zip(chain, (*left[:heights], *right[: len(chain) - heights]), strict=True))
        by_shared.setdefault(tuple(nodes[p] for p in shared), set()).add(tuple(nodes[p] for p in new))
    at = [bound.index(place) for place in shared]
    kept = [i for i, place in enumerate(bound) if place in later]
    joined = {
        tuple(known[i] for i in kept) + more
        for known in partial
        for more in by_shared.get(tuple(known[i] for i in at), ())
    }
    return tuple(bound[i] for i in kept) + tuple(new), joined


def _others(candidate: Candidate) -> list[Step]:
    """The comparisons that are no equalities, with the nodes for which they hold."""
    steps: list[Step] = []
    for left, op, right in candidate.shape.others:
        on_left = candidate.sides[0].valued(candidate.left[left])
        on_right = candidate.sides[1].valued(candidate.right[right])
        options = [
            (nodes, other_nodes)
            for (nodes, value), (other_nodes, other) in product(on_left, on_right)
            if compares(op, value, other)
        ]
        steps.append(Step(left, right, options))
    return steps
