"""The residual check: whether the nodes of one candidate satisfy all comparisons, one candidate at a time.

Comparisons are joined one after the other, those with fewest nodes first, and nodes are tried until all
comparisons hold. Bindings that have failed once, of the columns that later comparisons share, are not tried
again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sapwood.join.graph.canonical_graph import JoinGraph, TemplateGraph
from sapwood.join.state.message_state import CurrentItem, MessageState
from sapwood.lang.literals.numbers import COMPARE, Comparator, to_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

Nodes = tuple[int, ...]
"""a column's node, and those of the columns above it"""
NodeValues = list[tuple[Nodes, str]]
EqualRuns = list[tuple[int, int]]
"""runs of the state and of the current item with one value"""
_Column = tuple[int, int]
"""a side and one of its columns"""
_ByShared = dict[Nodes, dict[Nodes, list[int]]]
_MOST_TRIED = 5_000_000
"""combinations of nodes that are tried; a candidate that needs more is dropped"""
_log = logging.getLogger(__name__)


# -- the two sides of a candidate --------------------------------------------------------------------------


class Side(ABC):
    """The nodes and values of one side of a candidate: an item of the state, or the current one."""

    __slots__ = ("_count", "_nodes", "_row", "_values")

    _row: NDArray[np.int32]
    """the first row of each run in `_nodes`"""
    _count: NDArray[np.int32]
    """the number of rows of each run"""
    _nodes: NDArray[np.int32]
    _values: dict[int, NodeValues]
    """by variable, those that were read before"""

    def rows(self, run: int) -> list[Nodes]:
        """Return the nodes of a run, each with those above it."""
        row, count = int(self._row[run]), int(self._count[run])
        return list(map(tuple, self._nodes[row : row + count].tolist()))

    def values(self, variable: int) -> NodeValues:
        """Return the nodes of a variable, each with those above it, and their values."""
        values = self._values.get(variable)
        if values is None:
            values = self._values[variable] = self._read_values(variable)
        return values

    @abstractmethod
    def _read_values(self, variable: int) -> NodeValues: ...


class StateSide(Side):
    """An item of the state as a side of a candidate; valid until the state changes."""

    __slots__ = ("_item", "_state")

    def __init__(self, state: MessageState, item: int) -> None:
        self._row, self._count, self._nodes = state.run_row, state.run_count, state.nodes
        self._values = {}
        self._state = state
        self._item = item

    def _read_values(self, variable: int) -> NodeValues:
        state, every = self._state, self._state.runs_of_item(self._item)
        of_variable = np.flatnonzero(state.run_variable[every.start : every.stop] == variable)
        runs = (of_variable + every.start).tolist()
        return [(nodes, state.run_value[run]) for run in runs for nodes in self.rows(run)]


class CurrentSide(Side):
    """The current item as a side of a candidate."""

    __slots__ = ("_current",)

    def __init__(self, current: CurrentItem) -> None:
        self._row, self._count, self._nodes = current.row, current.count, current.nodes
        self._values = {}
        self._current = current

    def _read_values(self, variable: int) -> NodeValues:
        runs = np.flatnonzero(self._current.variable == variable).tolist()
        return [(nodes, self._current.value_of_run[run]) for run in runs for nodes in self.rows(run)]


# -- the check ---------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A comparison between columns of the two sides: groups of nodes within which it may hold.

    For an equality, the nodes of a group have one value; for other comparisons, `holds` decides.
    """

    left: int
    right: int
    groups: list[tuple[list[Nodes], list[Nodes]]]
    holds: Callable[[int, int], bool] | None = None
    """compares nodes by their positions in the lists"""

    @property
    def size(self) -> int:
        """The number of combinations of nodes."""
        return sum(len(left) * len(right) for left, right in self.groups)


def is_satisfiable(
    graph: JoinGraph,
    stored: StateSide,
    current: CurrentSide,
    equal_runs: Sequence[EqualRuns],
    state_is_left: bool,
) -> bool:
    """Return whether some nodes satisfy all comparisons of a join graph, with one node for each shared
    column; `equal_runs` are given for each equality."""
    template = graph.template_graph
    sides: tuple[Side, Side] = (stored, current) if state_is_left else (current, stored)
    equalities = [
        _equality_step(columns, runs if state_is_left else [run[::-1] for run in runs], sides)
        for columns, runs in zip(template.equalities, equal_runs, strict=True)
    ]
    steps = sorted(equalities, key=lambda step: step.size)
    steps += [_inequality_step(graph, sides, *edge) for edge in template.inequalities]
    search = _Search(template, steps)
    try:
        return search.succeeds(0, ())
    except _TooManyTried:
        _log.warning(
            "two messages are not joined: more than %s combinations of their nodes", f"{_MOST_TRIED:,}"
        )
        return False


class _TooManyTried(Exception):
    pass


class _Search:
    """A depth-first search for nodes that satisfy all steps."""

    def __init__(self, graph: TemplateGraph, steps: list[_Step]) -> None:
        columns = [_columns(graph, step) for step in steps]
        bound: tuple[_Column, ...] = ()
        self._joins: list[_StepJoin] = []
        for number, step in enumerate(steps):
            later = {column for some in columns[number + 1 :] for column in some}
            self._joins.append(_StepJoin(bound, columns[number], later, step))
            bound = self._joins[-1].bound
        self._failed: set[tuple[int, Nodes]] = set()
        self._tried = 0

    def _count(self, tried: int) -> None:
        self._tried += tried
        if self._tried > _MOST_TRIED:
            raise _TooManyTried

    def succeeds(self, number: int, bound: Nodes) -> bool:
        """Return whether the steps from a number on can be satisfied, with some nodes bound before."""
        if number == len(self._joins):
            return True
        key = number, bound
        if key in self._failed:
            return False
        for more in self._joins[number].bindings(bound, self._count):
            self._count(1)
            if self.succeeds(number + 1, more):
                return True
        self._failed.add(key)
        return False


def _columns(graph: TemplateGraph, step: _Step) -> list[_Column]:
    """Return the columns that a step binds, with those above them."""
    left = [(0, column) for column in graph.ancestors(0, step.left)]
    return left + [(1, column) for column in graph.ancestors(1, step.right)]


def _equality_step(columns: tuple[int, int], runs: EqualRuns, sides: tuple[Side, Side]) -> _Step:
    """Return the step of an equality: a group for each pair of runs with one value."""
    return _Step(*columns, [(sides[0].rows(left), sides[1].rows(right)) for left, right in runs])


def _inequality_step(
    graph: JoinGraph, sides: tuple[Side, Side], left: int, op: Comparator, right: int
) -> _Step:
    """Return the step of another comparison than =: all nodes of both variables in one group."""
    on_left = sides[0].values(graph.left[left])
    on_right = sides[1].values(graph.right[right])
    groups = [([nodes for nodes, _ in on_left], [nodes for nodes, _ in on_right])]
    if op == "!=":
        return _Step(left, right, groups, lambda one, other: on_left[one][1] != on_right[other][1])
    numbers, other_numbers = [to_number(v) for _, v in on_left], [to_number(v) for _, v in on_right]
    holds = COMPARE[op]
    return _Step(left, right, groups, lambda one, other: holds(numbers[one], other_numbers[other]))


class _StepJoin:
    """The hash join of one more step with the columns that are bound."""

    def __init__(
        self,
        bound: tuple[_Column, ...],
        step_columns: list[_Column],
        later: set[_Column],
        step: _Step,
    ) -> None:
        self._step = step
        self._bound_at = [
            [bound.index(c) for c in step_columns if c in bound and c[0] == side] for side in (0, 1)
        ]
        columns = [[c for c in step_columns if c[0] == side] for side in (0, 1)]
        self._shared = [[i for i, c in enumerate(columns[side]) if c in bound] for side in (0, 1)]
        new = [[i for i, c in enumerate(columns[s]) if c not in bound and c in later] for s in (0, 1)]
        self._new = new
        self._needed = [i for i, column in enumerate(bound) if column in later]
        self._groups: list[tuple[_ByShared, _ByShared]] | None = None
        self.bound = (
            *(bound[i] for i in self._needed),
            *(columns[side][i] for side in (0, 1) for i in new[side]),
        )

    def bindings(self, bound: Nodes, count: Callable[[int], None]) -> Iterator[Nodes]:
        """Yield the nodes of the columns that later steps need."""
        if self._groups is None:
            self._groups = [(self._by_shared(0, a), self._by_shared(1, b)) for a, b in self._step.groups]
        left_key = tuple([bound[i] for i in self._bound_at[0]])
        right_key = tuple([bound[i] for i in self._bound_at[1]])
        needed = tuple([bound[i] for i in self._needed])
        for on_left, on_right in self._groups:
            left, right = on_left.get(left_key), on_right.get(right_key)
            if left and right:
                for more in _combine(left, right, self._step.holds, count):
                    yield needed + more

    def _by_shared(self, side: int, rows: list[Nodes]) -> _ByShared:
        """Group positions by the nodes of shared columns, then by those of new columns."""
        found: _ByShared = {}
        shared, new = self._shared[side], self._new[side]
        for place, nodes in enumerate(rows):
            of_new = found.setdefault(tuple([nodes[i] for i in shared]), {})
            of_new.setdefault(tuple([nodes[i] for i in new]), []).append(place)
        return found


def _combine(
    left: dict[Nodes, list[int]],
    right: dict[Nodes, list[int]],
    holds: Callable[[int, int], bool] | None,
    count: Callable[[int], None],
) -> Iterator[Nodes]:
    for one, places in left.items():
        for other, other_places in right.items():
            if holds is not None:
                count(len(places) * len(other_places))
                if not any(holds(a, b) for a in places for b in other_places):
                    continue
            yield one + other
