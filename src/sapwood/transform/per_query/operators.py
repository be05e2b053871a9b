"""The operators of post-processing plans (YFilter thesis, 6.4).

    stream ─ Selection ─ DupElim ─┬─ SemiJoin ─ WhereFilter ─┬─ OuterJoinSelect, ReturnSelect ─ lists
           predicate streams ─ Selection          return streams ─ DupElim

An operator has its implementation and the reason for it. Each one adds the time of its own work, without its
inputs', to the costs of its kind, if costs are counted.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from time import perf_counter_ns
from typing import Generic, Literal, ParamSpec, TypeVar

from sapwood.engine.message.document import ContextNode
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.fwr.model import DOCUMENT, TemplateHole
from sapwood.lang.pattern import Condition, Path, Step
from sapwood.transform.nested_loops import select_nodes, start
from sapwood.transform.path_analysis import FieldTest
from sapwood.transform.per_query.path_streams import PathStreams, Tuples

Implementation = Literal["scan", "hash", "merge", "tree search"]
Nodes = list[ContextNode]
Column = list[list[ContextNode]]
"""the nodes of one hole, a list for each bound node"""

P = ParamSpec("P")
T = TypeVar("T")

_last: Callable[[tuple[int, ...]], int] = itemgetter(-1)
_END = sys.maxsize
"""greater than any element's number"""


@dataclass(slots=True)
class PlanRun:
    """One run of plans on one message."""

    streams: PathStreams
    evaluator: PatternEvaluator
    costs: Counter[str] | None = None
    """kind of operator → nanoseconds; matching counts as `Matching`"""

    def measure(self, kind: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.costs is None:
            return work(*args, **kwargs)
        started = perf_counter_ns()
        done = work(*args, **kwargs)
        self.costs[kind] += perf_counter_ns() - started
        return done

    def reached(self, paths: tuple[Path, ...], node: ContextNode) -> Nodes:
        return select_nodes(paths, node, self.evaluator, self.streams.document)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, as `explain` shows it."""

    about: str
    implementation: Implementation
    why: str

    @property
    def kind(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.kind} ({self.implementation}) {self.about}: {self.why}"


# -- streams and what is done to them ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Filter(Operator, ABC, Generic[T]):
    """Keeps the items that satisfy conditions on the message."""

    def __call__(self, items: list[T], run: PlanRun) -> list[T]:
        return run.measure(self.kind, self._kept, items, run.evaluator)

    @abstractmethod
    def _kept(self, items: list[T], evaluator: PatternEvaluator) -> list[T]: ...


@dataclass(frozen=True, slots=True)
class Selection(_Filter[tuple[int, ...]]):
    """Keeps the tuples that pass all tests."""

    tests: tuple[FieldTest, ...]

    def _kept(self, tuples: Tuples, evaluator: PatternEvaluator) -> Tuples:
        for field, condition in self.tests:
            tuples = [matched for matched in tuples if evaluator.holds(condition, matched[field])]
        return tuples


@dataclass(frozen=True, slots=True)
class DupElim(Operator):
    """Removes duplicates and keeps the order; `scan` if equal items are known to be adjacent."""

    def __call__(self, items: Iterable[T], run: PlanRun) -> list[T]:
        return run.measure(self.kind, self._distinct, items)

    def _distinct(self, items: Iterable[T]) -> list[T]:
        if self.implementation == "scan":
            return [item for item, _ in groupby(items)]
        return list(dict.fromkeys(items))


@dataclass(frozen=True, slots=True)
class Stream:
    """A path's stream, or the part of it that passes a selection."""

    path: Path
    selection: Selection | None = None

    def tuples(self, run: PlanRun) -> Tuples:
        found = run.measure("Matching", run.streams.of, self.path)
        return found if self.selection is None or not found else self.selection(found, run)


# -- the bound nodes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindingStream:
    """The bound nodes are the last field of a stream. Selection first: of several tuples with one bound node,
    any may be the one that passes."""

    stream: Stream
    dup_elim: DupElim | None

    def nodes(self, run: PlanRun) -> Nodes:
        elements = map(_last, self.stream.tuples(run))
        return list(elements) if self.dup_elim is None else [*self.dup_elim(elements, run)]


@dataclass(frozen=True, slots=True)
class BindingSearch(Operator):
    """Finds the bound nodes by tree search."""

    paths: tuple[Path, ...]

    def nodes(self, run: PlanRun) -> Nodes:
        return run.measure(self.kind, run.reached, self.paths, start(DOCUMENT, ()))


@dataclass(frozen=True, slots=True)
class SemiJoin(Operator):
    """Keeps the bound nodes that occur in a field of some tuple of a predicate stream."""

    stream: Stream
    field: int

    def __call__(self, nodes: Nodes, run: PlanRun) -> Nodes:
        return run.measure(self.kind, self._kept, nodes, self.stream.tuples(run))

    def _kept(self, nodes: Nodes, tuples: Tuples) -> Nodes:
        keys = map(itemgetter(self.field), tuples)
        if self.implementation == "hash":
            known = set(keys)
            return [node for node in nodes if node in known]
        kept: Nodes = []
        key = next(keys, _END)
        for node in nodes:
            assert isinstance(node, int)
            while key < node:
                key = next(keys, _END)
            if key == node:
                kept.append(node)
        return kept


@dataclass(frozen=True, slots=True)
class WhereFilter(_Filter[ContextNode]):
    """Keeps the bound nodes that satisfy all conditions, by tree search below each."""

    conditions: tuple[Condition, ...]

    def _kept(self, nodes: Nodes, evaluator: PatternEvaluator) -> Nodes:
        return [node for node in nodes if all(evaluator.holds(c, node) for c in self.conditions)]


# -- what the holes are filled with --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReturnStream:
    """Pairs of a bound node and an element to return (or, with `leaf`, the element of the node to return)."""

    stream: Stream
    field: int
    leaf: Step | None
    dup_elim: DupElim | None

    def pairs(self, run: PlanRun) -> list[tuple[int, int]]:
        of_tuple: Callable[[tuple[int, ...]], tuple[int, int]] = itemgetter(self.field, -1)
        pairs = map(of_tuple, self.stream.tuples(run))
        return list(pairs) if self.dup_elim is None else self.dup_elim(pairs, run)


@dataclass(frozen=True, slots=True)
class OuterJoinSelect(Operator):
    """Joins the bound nodes with one return stream for each of its holes."""

    holes: tuple[int, ...]
    inputs: tuple[ReturnStream, ...]

    def columns(self, nodes: Nodes, run: PlanRun) -> list[Column]:
        return [
            run.measure(self.kind, self._column, nodes, each.pairs(run), each.leaf, run)
            for each in self.inputs
        ]

    def _column(self, nodes: Nodes, pairs: list[tuple[int, int]], leaf: Step | None, run: PlanRun) -> Column:
        column = _merge_join(nodes, pairs) if self.implementation == "merge" else _hash_join(nodes, pairs)
        return column if leaf is None else [run.evaluator.follow(found, leaf) for found in column]


def _hash_join(nodes: Nodes, pairs: list[tuple[int, int]]) -> Column:
    lists: dict[ContextNode, Nodes] = {}
    for bound, found in pairs:
        lists.setdefault(bound, []).append(found)
    return [lists.get(node, []) for node in nodes]


def _merge_join(nodes: Nodes, pairs: list[tuple[int, int]]) -> Column:
    column: Column = []
    rest = iter(pairs)
    bound, found = next(rest, (_END, 0))
    for node in nodes:
        assert isinstance(node, int)
        filled: Nodes = []
        while bound < node:
            bound, found = next(rest, (_END, 0))
        while bound == node:
            filled.append(found)
            bound, found = next(rest, (_END, 0))
        column.append(filled)
    return column


@dataclass(frozen=True, slots=True)
class ReturnSelect(Operator):
    """Finds the nodes of its holes by tree search."""

    holes: tuple[int, ...]
    parts: tuple[TemplateHole, ...]

    def columns(self, nodes: Nodes, run: PlanRun) -> list[Column]:
        return [run.measure(self.kind, self._column, nodes, hole, run) for hole in self.parts]

    def _column(self, nodes: Nodes, hole: TemplateHole, run: PlanRun) -> Column:
        if hole.origin == DOCUMENT:
            return [run.reached(hole.paths, start(DOCUMENT, ()))] * len(nodes)
        return [run.reached(hole.paths, node) for node in nodes]


@dataclass(frozen=True, slots=True)
class NestedLoops(Operator):
    """Evaluates the whole query by `nested_loops.groups`."""
