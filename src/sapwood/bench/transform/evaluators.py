"""The contenders: one shared plan for all for-where-return queries, and plans for each query.

The thesis times from the scan of a parsed document to the last group of nodes; here parsing is included, for
all contenders alike. Results of a message are dropped before the next one: a growing list would add the cost
of Python's garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sapwood import Matcher
from sapwood.bench.harness import Chart, ChartAxis, Role
from sapwood.bench.harness.timer import Timing, clock, plot_interleaved, time_interleaved
from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.lang.fwr.model import Transformation
from sapwood.transform.per_query.operator_plan import Optimise, Sharing
from sapwood.transform.per_query.plan_per_query import PlanPerQuery
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.result_groups import Group
from sapwood.transform.shared_plan import SharedPlan

MILLISECONDS = ChartAxis("milliseconds a message", " ms")
SHARED = "shared network"
OPTIMISED: dict[Optimise, str] = {
    "none": "not optimised",
    "query": "by the query",
    "dtd": "by query and DTD",
}
SHARINGS: dict[Sharing, Role] = {"F": Role.TWIN, "FW": Role.OTHER, "FWR": Role.BASELINE}


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A way to evaluate for-where-return queries, with its queries."""

    label: str
    role: Role
    index: Index
    plans: SharedPlan | PlanPerQuery
    groups: Callable[[Message, IndexMatches], Iterator[tuple[int, list[Group]]]]

    def load(self, transformations: Iterable[Transformation]) -> None:
        """Add queries, as a broker adds many at once."""
        self.index.clear_cache()
        with pause_garbage_collection():
            for transformation in transformations:
                self.plans.add(transformation)

    def groups_pass(self, messages: Sequence[bytes]) -> float:
        """Return the seconds until the last group of nodes of the last message."""
        return self._evaluate_all(self.groups, messages)

    def results_pass(self, messages: Sequence[bytes]) -> float:
        """Return the seconds until all results are written."""
        return self._evaluate_all(self.plans.bodies, messages)

    def _evaluate_all(
        self, evaluate: Callable[[Message, IndexMatches], Iterable[object]], messages: Sequence[bytes]
    ) -> float:
        start = clock()
        for body in messages:
            message = Message(body)
            deque(evaluate(message, self.index.find(message)), maxlen=0)
        return clock() - start

    def mean_results(self, messages: Sequence[bytes]) -> float:
        """Return how many distinct queries have a result for a message on average."""
        found = 0
        for body in messages:
            message = Message(body)
            found += sum(1 for _ in self.groups(message, self.index.find(message)))
        return found / len(messages)


def shared_evaluator() -> Evaluator:
    """Return an evaluator with one shared plan for all queries."""
    matcher = Matcher()
    network = SharedPlan(matcher.index, matcher.namespaces)
    return Evaluator(SHARED, Role.SAPWOOD, matcher.index, network, network.groups)


def per_query_evaluator(
    graph: ElementGraph, sharing: Sharing = "FWR", optimise: Optimise = "dtd"
) -> Evaluator:
    """Return an evaluator with a plan for each query, on top of shared path matching."""
    index = Matcher().index
    plans = PlanPerQuery(index, graph, sharing, optimise)
    label = f"{sharing}, {OPTIMISED[optimise]}"
    return Evaluator(label, SHARINGS[sharing], index, plans, lambda message, found: plans.groups(found))


def time_groups(evaluators: Sequence[Evaluator], messages: Sequence[bytes], rounds: int) -> list[Timing]:
    """Time all evaluators in the same rounds until the last group."""
    passes = [partial(evaluator.groups_pass, messages) for evaluator in evaluators]
    return time_interleaved(passes, messages, least=rounds, warm_up=1)


def add_evaluator_points(
    chart: Chart,
    x: float,
    evaluators: Sequence[Evaluator],
    added: Sequence[Transformation],
    messages: Sequence[bytes],
    rounds: int,
) -> None:
    """Add queries to all evaluators, and a point to the curve of each; the last one counts the results."""
    for evaluator in evaluators:
        evaluator.load(added)
    passes = {(each.label, each.role): partial(each.groups_pass, messages) for each in evaluators}
    counts = {"plans": len(evaluators[-1].plans), "matched": evaluators[-1].mean_results(messages)}
    plot_interleaved(chart, x, passes, messages, least=rounds, warm_up=1, **counts)
