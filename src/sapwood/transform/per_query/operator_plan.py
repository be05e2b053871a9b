"""The operator plan of one query: the operators that turn path-tuple streams into its groups.

`sharing` is the set of paths matched for all queries at once; the rest are found by tree search:

    F      the binding path
    FW     and predicate paths
    FWR    and return paths

`optimise` is the evidence by which a DupElim is removed, or an order saves hashing: none, the query alone, or
also the element graph of a DTD. What follows from a graph is right only for messages that conform to it, so
such a plan has a twin for all others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import ArgumentError
from sapwood.lang.fwr.model import TemplateHole, Transformation
from sapwood.lang.pattern import Condition, Path, Step
from sapwood.transform.nested_loops import groups
from sapwood.transform.path_analysis import (
    BindingPath,
    FieldTest,
    Navigation,
    binding,
    is_own,
    predicate,
    to_navigation,
)
from sapwood.transform.per_query.operators import (
    BindingSearch,
    BindingStream,
    Column,
    DupElim,
    NestedLoops,
    Operator,
    OuterJoinSelect,
    PlanRun,
    ReturnSelect,
    ReturnStream,
    Selection,
    SemiJoin,
    Stream,
    WhereFilter,
)
from sapwood.transform.per_query.path_streams import PathStreams, TooManyTuples
from sapwood.transform.per_query.stream_conditions import (
    ElementGraph,
    Verdict,
    ordered_on,
    unique_on_last,
    unique_on_pair,
)
from sapwood.transform.result_groups import Group

Sharing = Literal["F", "FW", "FWR"]
Optimise = Literal["none", "query", "dtd"]
AnyOperator = TypeVar("AnyOperator", bound=Operator)


@dataclass(frozen=True, slots=True)
class RemovedDupElim:
    """A DupElim that is not needed, and why."""

    about: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"no DupElim {self.about}: {self.verdict.why}"


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """The operators of one exact query."""

    transformation: Transformation
    source: BindingStream | BindingSearch | None
    """None: nested loops evaluate the whole query"""
    filters: tuple[SemiJoin | WhereFilter, ...]
    returns: tuple[OuterJoinSelect | ReturnSelect, ...]
    operators: tuple[Operator, ...]
    """all of them, in the order of evaluation"""
    removed: tuple[RemovedDupElim, ...]
    twin: OperatorPlan | None = None
    """for messages that do not conform to the graph, if the plan depends on it"""

    def run(
        self,
        streams: PathStreams,
        evaluator: PatternEvaluator,
        conforming: bool = False,
        costs: Counter[str] | None = None,
    ) -> list[Group]:
        """Return the query's groups; the time spent is added to `costs`, by kind of operator."""
        chosen = self if conforming or self.twin is None else self.twin
        run = PlanRun(streams, evaluator, costs)
        try:
            return chosen._groups(run)
        except TooManyTuples:
            return chosen._evaluate_loops(run)

    def describe(self) -> list[str]:
        """Return a line for each operator, and for each that is removed."""
        return [*map(str, self.operators), *map(str, self.removed)]

    def _groups(self, run: PlanRun) -> list[Group]:
        if self.source is None:
            return self._evaluate_loops(run)
        nodes = self.source.nodes(run)
        for each in self.filters:
            if not nodes:
                return []
            nodes = each(nodes, run)
        if not nodes:
            return []
        if not self.returns:
            return [Group((node,), ()) for node in nodes]
        columns: dict[int, Column] = {}
        for operator in self.returns:
            columns.update(zip(operator.holes, operator.columns(nodes, run), strict=True))
        rows = zip(*(columns[number] for number in range(len(columns))), strict=True)
        return [Group((node,), row) for node, row in zip(nodes, rows, strict=True)]

    def _evaluate_loops(self, run: PlanRun) -> list[Group]:
        return run.measure("NestedLoops", groups, self.transformation, run.evaluator, run.streams.document)


def plan(
    transformation: Transformation,
    sharing: Sharing = "FWR",
    optimise: Optimise = "query",
    graph: ElementGraph | None = None,
) -> OperatorPlan:
    """Make the plan of an exact query; `optimise="dtd"` needs the element graph."""
    if optimise != "dtd":
        return _Planner(transformation, sharing, optimise == "query", None).plan()
    if graph is None:
        raise ArgumentError("optimise='dtd' needs the element graph of the DTD")
    planned = _Planner(transformation, sharing, True, graph).plan()
    twin = _Planner(transformation, sharing, True, None).plan()
    same = (planned.source, planned.filters, planned.returns) == (twin.source, twin.filters, twin.returns)
    return planned if same else replace(planned, twin=twin)


@dataclass(slots=True)
class _Planner:
    """Makes one plan, and lists its operators."""

    _transformation: Transformation
    _sharing: Sharing
    _judge: bool
    _graph: ElementGraph | None
    _operators: list[Operator] = field(default_factory=list)
    _removed: list[RemovedDupElim] = field(default_factory=list)

    def plan(self) -> OperatorPlan:
        several = _beyond_streams(self._transformation)
        if several:
            loops = NestedLoops("all of it", "tree search", several)
            return OperatorPlan(self._transformation, None, (), (), (loops,), ())
        bound = binding(self._transformation.variables[0])
        source, filters, returns = self._source(bound), self._filters(bound), self._returns(bound)
        operators, removed = tuple(self._operators), tuple(self._removed)
        return OperatorPlan(self._transformation, source, filters, returns, operators, removed)

    # -- for -------------------------------------------------------------------------------------------

    def _source(self, bound: BindingPath) -> BindingStream | BindingSearch:
        if bound.search or bound.bare is None:
            about = " | ".join(map(str, bound.search))
            return self._add(BindingSearch(about, "tree search", bound.why, bound.search))
        path = bound.bare
        selection = self._selection(path, bound.tests)
        unique = self._verdict(unique_on_last(path.steps, self._graph))
        return BindingStream(Stream(path, selection), self._dup_elim(f"on {path}", unique, None))

    def _selection(self, path: Path, tests: tuple[FieldTest, ...]) -> Selection | None:
        if not tests:
            return None
        own = all(is_own(condition) for _, condition in tests)
        about = " and ".join(f"{path.steps[field].test}[{condition}]" for field, condition in tests)
        why = "values of the tuples' own elements" if own else "also looks below the tuples' elements"
        return self._add(Selection(f"{about} of {path}", "scan" if own else "tree search", why, tests))

    def _dup_elim(self, about: str, unique: Verdict, ordered: Verdict | None) -> DupElim | None:
        """Make a DupElim unless `unique`; `ordered` is that of pairs, None of single elements."""
        if unique.holds:
            self._removed.append(RemovedDupElim(about, unique))
            return None
        scan = ordered is None or ordered.holds
        whys = dict.fromkeys((unique.why, ordered.why if ordered is not None else unique.why))
        return self._add(DupElim(about, "scan" if scan else "hash", "; ".join(whys)))

    # -- where -----------------------------------------------------------------------------------------

    def _filters(self, bound: BindingPath) -> tuple[SemiJoin | WhereFilter, ...]:
        filters: list[SemiJoin | WhereFilter] = []
        searched: list[Condition] = []
        for conjunct in bound.conjuncts:
            found = predicate(conjunct) if self._sharing != "F" and bound.bare is not None else None
            if found is None:
                searched.append(conjunct)
            else:
                filters.append(self._semi_join(_steps(bound), *found))
        if searched:
            why = (
                "predicates are not shared" if self._sharing == "F" else "more than a plain path and a value"
            )
            about = " and ".join(map(str, searched))
            filters.append(self._add(WhereFilter(about, "tree search", why, tuple(searched))))
        return tuple(filters)

    def _semi_join(
        self, above: tuple[Step, ...], below: tuple[Step, ...], test: Condition | None
    ) -> SemiJoin:
        path = Path(above + below)
        selection = self._selection(path, () if test is None else ((len(path.steps) - 1, test),))
        ordered = self._verdict(ordered_on(path.steps, len(above), self._graph))
        stream = Stream(path, selection)
        return self._add(SemiJoin(f"with {path}", _join(ordered), ordered.why, stream, len(above) - 1))

    # -- return ----------------------------------------------------------------------------------------

    def _returns(self, bound: BindingPath) -> tuple[OuterJoinSelect | ReturnSelect, ...]:
        holes = dict(enumerate(self._transformation.holes))
        joined = {number: found for number, hole in holes.items() if (found := self._joinable(hole, bound))}
        searched = {number: hole for number, hole in holes.items() if number not in joined}
        returns: list[OuterJoinSelect | ReturnSelect] = []
        if joined:
            returns.append(self._outer_join(_steps(bound), joined))
        if searched:
            why = (
                "return paths are not shared"
                if self._sharing != "FWR"
                else "the bound node's own, or no plain path"
            )
            about = ", ".join(str(path) or "the node itself" for h in searched.values() for path in h.paths)
            parts = tuple(searched.values())
            returns.append(self._add(ReturnSelect(about, "tree search", why, tuple(searched), parts)))
        return tuple(returns)

    def _joinable(self, hole: TemplateHole, bound: BindingPath) -> Navigation | None:
        if self._sharing != "FWR" or bound.bare is None or hole.origin != 0 or len(hole.paths) != 1:
            return None
        found = to_navigation(hole.paths[0])
        return found if found is not None and found.steps else None

    def _outer_join(self, above: tuple[Step, ...], joined: dict[int, Navigation]) -> OuterJoinSelect:
        inputs: list[ReturnStream] = []
        orders: list[Verdict] = []
        for found in joined.values():
            path, split = Path(above + found.steps), len(above)
            unique = self._verdict(unique_on_pair(path.steps, split, self._graph))
            ordered = self._verdict(ordered_on(path.steps, split, self._graph))
            dup_elim = self._dup_elim(f"on the bound node and {path}", unique, ordered)
            inputs.append(ReturnStream(Stream(path), split - 1, found.leaf, dup_elim))
            orders.append(ordered)
        weakest = min(orders, key=lambda verdict: verdict.holds)
        about = "with " + ", ".join(str(each.stream.path) for each in inputs)
        holes, streams = tuple(joined), tuple(inputs)
        return self._add(OuterJoinSelect(about, _join(weakest), weakest.why, holes, streams))

    def _verdict(self, verdict: Verdict) -> Verdict:
        return verdict if self._judge else Verdict(False, None, "not optimised")

    def _add(self, operator: AnyOperator) -> AnyOperator:
        self._operators.append(operator)
        return operator


def _join(ordered: Verdict) -> Literal["merge", "hash"]:
    return "merge" if ordered.holds else "hash"


def _steps(bound: BindingPath) -> tuple[Step, ...]:
    assert bound.bare is not None
    return bound.bare.steps


def _beyond_streams(transformation: Transformation) -> str:
    """Return why a query is evaluated by nested loops; empty if it is not."""
    if len(transformation.variables) != 1:
        return f"{len(transformation.variables)} variables"
    return "conditions on several variables or the document" if transformation.joints else ""
