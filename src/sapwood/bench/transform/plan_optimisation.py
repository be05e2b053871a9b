"""Optimisation of per-query plans, and their operators: experiments 10, 11 and 13 of the YFilter thesis.

    F, FW, FWR      paths matched for all queries at once: for, where, return
    not optimised, by the query, by query and DTD      the knowledge that shows an operator to be unnecessary

The charts of the thesis are lost; its tables and the statements of its text stand beside ours.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from statistics import median

from sapwood.bench.harness import Bench, at_most, experiment, scale
from sapwood.bench.transform.evaluators import (
    MILLISECONDS,
    OPTIMISED,
    SHARINGS,
    per_query_evaluator,
    shared_evaluator,
    time_groups,
)
from sapwood.bench.transform.thesis_workload import ThesisWorkload, bibliography, book, compile_all
from sapwood.engine.index import Index
from sapwood.engine.message.message_reader import Message
from sapwood.transform.per_query.operator_plan import OperatorPlan, Optimise
from sapwood.transform.per_query.plan_per_query import PlanPerQuery

_OPERATORS = {
    "Matching": "matching",
    "Selection": "selection",
    "DupElim": "DupElim",
    "SemiJoin": "semijoin",
    "OuterJoinSelect": "outer join",
}
Counts = tuple[int, int, int, int, int]
_COUNTS = ("semijoin, hash", "merge", "outer join, hash", "merge", "DupElim")

Thesis = dict[Optimise, tuple[Counts, Counts]]
"""figures about PathSharing-FWR: milliseconds by operator, and numbers of operators"""
_BIBLIOGRAPHY: Thesis = {  # tables 8 and 9, of 5,000 queries
    "none": ((28, 61, 451, 140, 235), (5000, 0, 5000, 0, 15000)),
    "query": ((27, 51, 15, 67, 112), (1966, 3034, 1966, 3034, 429)),
    "dtd": ((9, 42, 0, 18, 22), (0, 5000, 0, 5000, 0)),
}
_BOOK: Thesis = {  # tables 10 and 11, of 10,000 queries
    "none": ((36, 101, 560, 225, 287), (10000, 0, 10000, 0, 30000)),
    "query": ((31, 101, 82, 184, 252), (5963, 4037, 5963, 4037, 2833)),
    "dtd": ((21, 93, 30, 137, 163), (3968, 6032, 3968, 6032, 1500)),
}

_QUERIES, _MESSAGES, _ROUNDS = scale(5_000, 1_000, 30), scale(10, 5, 2), scale(3, 2, 2)


@experiment("approaches", "F, FW and FWR, and their optimisation (experiment 10)")
def measure_approaches(
    bench: Bench, query_count: int = _QUERIES, message_count: int = _MESSAGES, rounds: int = _ROUNDS
) -> Iterator[str]:
    statement = "thesis: not optimised, FW is fastest and FWR slowest; by query or DTD, FWR leads"
    inputs = _Inputs(bibliography(), query_count, message_count, rounds)
    return _list_approaches(bench, inputs, "approaches", statement)


@experiment("operators", "costs and numbers of operators (experiment 11)")
def measure_operators(
    bench: Bench, query_count: int = _QUERIES, message_count: int = _MESSAGES, rounds: int = _ROUNDS
) -> Iterator[str]:
    """Measure experiment 11: without recursion, the DTD shows that no plan needs hashing or DupElim."""
    inputs = _Inputs(bibliography(), query_count, message_count, rounds)
    counts = yield from _list_operators(bench, inputs, "operators", _BIBLIOGRAPHY, 5_000)
    bench.figure("hash joins left by the DTD", inputs.name, counts[0] + counts[2], "", at_most(0))
    bench.figure("DupElims left by the DTD", inputs.name, counts[4], "", at_most(0))


@experiment("recursive", "experiments 10 and 11 with recursive messages (experiment 13)")
def measure_recursive(
    bench: Bench,
    query_count: int = scale(10_000, 1_000, 40),
    message_count: int = _MESSAGES,
    rounds: int = _ROUNDS,
) -> Iterator[str]:
    inputs = _Inputs(book(), query_count, message_count, rounds)
    statement = "thesis: by the query, FW beats FWR; by the DTD, FWR leads by less"
    yield from _list_approaches(bench, inputs, "recursive-approaches", statement)
    yield from _list_operators(bench, inputs, "recursive-operators", _BOOK, 10_000)


class _Inputs:
    """Compiled queries and messages of a workload, and the number of rounds."""

    def __init__(self, workload: ThesisWorkload, query_count: int, message_count: int, rounds: int) -> None:
        self.dtd = workload.dtd
        self.queries = compile_all(workload.queries(query_count))
        self.messages = workload.messages(message_count)
        self.rounds = rounds
        self.name = f"{len(self.queries):,} queries, DTD {workload.dtd.name}"


def _list_approaches(bench: Bench, inputs: _Inputs, name: str, statement: str) -> Iterator[str]:
    yield f"loading {inputs.name}, ten times"
    evaluators = [
        *(per_query_evaluator(inputs.dtd, sharing, how) for sharing in SHARINGS for how in OPTIMISED),
        shared_evaluator(),
    ]
    for evaluator in evaluators:
        evaluator.load(inputs.queries)
    yield inputs.name
    timings = time_groups(evaluators, inputs.messages, inputs.rounds)
    milliseconds = [timing.milliseconds for timing in timings]
    matched = evaluators[-1].mean_results(inputs.messages)
    listing = bench.listing(
        name,
        f"Approaches: {inputs.name}",
        tuple(OPTIMISED.values()),
        f"{MILLISECONDS.label}; {matched:,.0f} queries have a result; {statement}",
    )
    for row, sharing in enumerate(SHARINGS):
        listing.add(sharing, *milliseconds[3 * row : 3 * row + 3])
    listing.add(evaluators[-1].label, milliseconds[-1])


def _list_operators(
    bench: Bench, inputs: _Inputs, name: str, published: Thesis, published_queries: int
) -> Generator[str, None, Counts]:
    """Return the numbers of operators in fully optimised plans."""
    costs = bench.listing(
        f"{name}-costs",
        f"Costs by operator: FWR, {inputs.name}",
        tuple(_OPERATORS.values()),
        f"{MILLISECONDS.label}, instrumentation included",
    )
    counts = bench.listing(
        f"{name}-counts",
        f"Operators in plans: FWR, {inputs.name}",
        _COUNTS,
        "a predicate on the bound element's own attributes is a selection here, not a semijoin",
    )
    thesis = f"  thesis, of {published_queries:,}"
    for optimise, label in OPTIMISED.items():
        yield f"operators, {label}"
        evaluator = per_query_evaluator(inputs.dtd, "FWR", optimise)
        evaluator.load(inputs.queries)
        assert isinstance(evaluator.plans, PlanPerQuery)
        published_costs, published_counts = published[optimise]
        counted = _count_operators(evaluator.plans.plans.values())
        costs.add(label, *_time_operators(evaluator.index, evaluator.plans, inputs))
        costs.add(thesis, *published_costs, published=True)
        counts.add(label, *counted)
        counts.add(thesis, *published_counts, published=True)
    return counted


def _time_operators(index: Index, plans: PlanPerQuery, inputs: _Inputs) -> list[float]:
    """Return the milliseconds a message by kind of operator: the median of the rounds."""
    gc.collect()
    spent: list[Counter[str]] = []
    for _ in range(inputs.rounds):
        spent.append(Counter())
        for body in inputs.messages:
            deque(plans.groups(index.find(Message(body)), spent[-1]), maxlen=0)
    return [median(costs[kind] for costs in spent) / len(inputs.messages) / 1e6 for kind in _OPERATORS]


def _count_operators(plans: Iterable[OperatorPlan]) -> Counts:
    found = Counter((operator.kind, operator.implementation) for plan in plans for operator in plan.operators)
    return (
        found["SemiJoin", "hash"],
        found["SemiJoin", "merge"],
        found["OuterJoinSelect", "hash"],
        found["OuterJoinSelect", "merge"],
        found["DupElim", "hash"] + found["DupElim", "scan"],
    )
