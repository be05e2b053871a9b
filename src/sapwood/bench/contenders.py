"""The ways to evaluate transformations that are compared: the shared network, and plans for each query.

The thesis times from the scan of a parsed document to the last group of nodes; here, parsing is part of it,
for all ways alike. Nothing that was found in a message is kept when the next one comes: a list that grew
would have Python's garbage collector measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sapwood import Matcher
from sapwood.bench.report import Role
from sapwood.bench.timing import clock
from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.lang.fwr.model import Transformation
from sapwood.transform.per_query.operator_plan import Optimise, Sharing
from sapwood.transform.per_query.plan_per_query import PlanPerQuery
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.result_groups import Group
from sapwood.transform.shared_plan import SharedPlan

SHARED = "shared network"
OPTIMISED: dict[Optimise, str] = {
    "none": "not optimised",
    "query": "by the query",
    "dtd": "by query and DTD",
}
SHARINGS: dict[Sharing, Role] = {"F": Role.TWIN, "FW": Role.OTHER, "FWR": Role.BASELINE}


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to evaluate transformations, with some."""

    label: str
    role: Role
    index: Index
    plans: SharedPlan | PlanPerQuery
    groups: Callable[[Message, IndexMatches], Iterator[tuple[int, list[Group]]]]

    def load(self, transformations: Iterable[Transformation]) -> None:
        self.index.dataguide.clear()  # made anew for many queries at once, as brokers do it
        with pause_garbage_collection(lambda: False):
            for transformation in transformations:
                self.plans.add(transformation)

    def groups_pass(self, messages: Sequence[bytes]) -> float:
        """The seconds from the first message to the last group of the last one."""
        start = clock()
        for body in messages:
            message = Message(body)
            deque(self.groups(message, self.index.find(message)), maxlen=0)
        return clock() - start

    def bodies_pass(self, messages: Sequence[bytes]) -> float:
        """The seconds until all results are written."""
        start = clock()
        for body in messages:
            message = Message(body)
            deque(self.plans.bodies(message, self.index.find(message)), maxlen=0)
        return clock() - start

    def matched(self, messages: Sequence[bytes]) -> float:
        """How many distinct queries make something of a message, on average."""
        found = 0
        for body in messages:
            message = Message(body)
            found += sum(1 for _ in self.groups(message, self.index.find(message)))
        return found / len(messages)


def shared() -> Contender:
    """All queries in one network."""
    matcher = Matcher()
    network = SharedPlan(matcher.index, matcher.namespaces)
    return Contender(SHARED, Role.SAPWOOD, matcher.index, network, network.groups)


def plan_each(graph: ElementGraph, sharing: Sharing = "FWR", optimise: Optimise = "dtd") -> Contender:
    """A plan for each query."""
    index = Matcher().index
    plans = PlanPerQuery(index, graph, sharing, optimise)
    label = f"{sharing}, {OPTIMISED[optimise]}"
    return Contender(label, SHARINGS[sharing], index, plans, lambda message, found: plans.groups(found))
