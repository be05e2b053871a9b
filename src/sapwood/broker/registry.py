"""The subscriptions of a broker: their ids and order, and the engine that evaluates each query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.failures import FailureKind
from sapwood.engine.matcher import Matcher
from sapwood.engine.registration import Owner
from sapwood.errors import ArgumentError
from sapwood.join.join_engine import JoinEngine
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.languages import FOR_WHERE_RETURN, XPATH, XSCL, detect_language
from sapwood.lang.xscl.compiler import compile_join
from sapwood.transform.per_query.plan_per_query import PlanPerQuery
from sapwood.transform.shared_plan import SharedPlan

TransformationPlan = SharedPlan | PlanPerQuery
_MOST_STREAMS = 1_000
"""streams of which it is kept which subscriptions exclude them"""


@dataclass(frozen=True, slots=True)
class OutputSubscription:
    """A subscription to a transformation or a join, whose query produces output of its own."""

    number: int
    """its position in the order of all subscriptions"""
    entry: int
    """the number of its query in the plan of transformations, or in the join engine"""
    text: str
    is_join: bool


class SubscriptionRegistry:
    """All subscriptions of a broker, by id.

    Filters are in the matcher. Equal transformations, and equal joins, are one entry of their engine with
    several subscriptions. Callers hold the broker's lock.
    """

    def __init__(self, matcher: Matcher, plan: TransformationPlan, joins: JoinEngine) -> None:
        self.matcher = matcher
        self.plan = plan
        self.joins = joins
        self.outputs: dict[Hashable, OutputSubscription] = {}
        self.numbers_of_plan: dict[int, dict[int, None]] = {}
        """the subscriptions to each entry of the plan, by number"""
        self.numbers_of_joins: dict[int, dict[int, None]] = {}
        """the subscriptions to each entry of the join engine, by number"""
        self.ids: dict[int, Hashable] = {}
        """the ids of all in `outputs`, by number"""
        self._failed: dict[int, Counter[FailureKind]] = {}
        self._streams: dict[int, frozenset[str]] = {}
        """the streams of subscriptions that are restricted to some, by number"""
        self._excluded: dict[str, NDArray[np.bool_]] = {}
        """by stream, whether each number is restricted to others; until the next change"""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_failed": {}, "_excluded": {}}

    def add(self, id: Hashable, query: str, streams: Iterable[str] | None = None) -> None:
        """Subscribe `id` to a query; ValueError if it is subscribed, QueryError if the query is invalid."""
        if id in self:
            raise ArgumentError(f"{id!r} is subscribed already; replace() changes its query")
        names = _to_names(streams)  # before anything changes
        language, add = self._prepare(query, None)
        if names is not None and language == XSCL:
            raise _restricted_join_error()
        if add is None:
            self.matcher.add(id, query)
        else:
            entry = add()
            self._register(id, OutputSubscription(self.matcher.new_number(), entry, query, language == XSCL))
        if names is not None:
            self._restrict(self.number(id), names)
        elif self._excluded:
            self._excluded.clear()

    def restrict(self, id: Hashable, streams: Iterable[str] | None) -> None:
        """Restrict a subscription to the messages of some streams, or, with None, allow those of all."""
        output = self.outputs.get(id)
        if streams is not None and output is not None and output.is_join:
            raise _restricted_join_error()
        self._restrict(self.number(id), _to_names(streams))

    def _restrict(self, number: int, streams: frozenset[str] | None) -> None:
        if streams is None:
            self._streams.pop(number, None)
        else:
            self._streams[number] = streams
        self._excluded.clear()

    def excluded(self, stream: str) -> NDArray[np.bool_] | None:
        """Return, by number, whether a subscription is restricted to other streams; None if none is."""
        if not self._streams:
            return None
        found = self._excluded.get(stream)
        if found is None:
            if len(self._excluded) >= _MOST_STREAMS:
                self._excluded.clear()
            found = np.zeros(self.matcher.numbers_given, np.bool_)
            found[[number for number, streams in self._streams.items() if stream not in streams]] = True
            self._excluded[stream] = found
        return found

    def _prepare(
        self, query: str, replaced: OutputSubscription | None
    ) -> tuple[str, Callable[[], int] | None]:
        """Return the language of a query, and a function that adds a transformation or a join to its engine
        and returns the entry; None for a filter."""
        add: Callable[[], int]
        language = detect_language(query)
        if language == XPATH:
            return language, None
        if language == FOR_WHERE_RETURN:
            transformation = compile_transformation(query, self.matcher.namespaces)
            add = partial(self.plan.add, transformation)
        else:
            entry = replaced.entry if replaced is not None and replaced.is_join else None
            add = partial(self._add_join, query, entry)
        self.matcher.freeze_unread()
        return language, add

    def _add_join(self, query: str, instead_of: int | None) -> int:
        known = self.joins.add_again(query)
        if known is not None:
            return known
        return self.joins.add(compile_join(query, self.matcher.namespaces), instead_of)

    def remove(self, id: Hashable) -> None:
        """End a subscription; KeyError if there is none."""
        number = self.number(id)
        if id in self.outputs:
            self._remove_output(id)
        else:
            self.matcher.remove(id)
        self._restrict(number, None)

    def replace(self, id: Hashable, query: str) -> None:
        """Change the query of a subscription, which keeps its position; nothing changes if that fails."""
        number = self.number(id)
        language, add = self._prepare(query, self.outputs.get(id))
        if language == XSCL and number in self._streams:
            raise _restricted_join_error()
        if add is not None:
            entry = add()
            if id in self.outputs:
                self._remove_output(id)
            else:
                self.matcher.remove(id)
            self._register(id, OutputSubscription(number, entry, query, language == XSCL))
        elif id in self.matcher:
            self.matcher.replace(id, query)
        else:
            self.matcher.add_numbered(id, query, number)
            self._remove_output(id)

    def _register(self, id: Hashable, output: OutputSubscription) -> None:
        self.outputs[id] = output
        numbers_of = self.numbers_of_joins if output.is_join else self.numbers_of_plan
        numbers_of.setdefault(output.entry, {})[output.number] = None
        self.ids[output.number] = id

    def _remove_output(self, id: Hashable) -> None:
        self.matcher.freeze_unread()
        output = self.outputs.pop(id)
        del self.ids[output.number]
        self._failed.pop(output.number, None)
        numbers_of = self.numbers_of_joins if output.is_join else self.numbers_of_plan
        numbers = numbers_of[output.entry]
        del numbers[output.number]
        if not numbers:
            del numbers_of[output.entry]
        if output.is_join:
            self.joins.remove(output.entry)
        else:
            self.plan.remove(output.entry)

    # -- reading ---------------------------------------------------------------------------------------

    def query(self, id: Hashable) -> str:
        """Return the text of a subscription's query."""
        output = self.outputs.get(id)
        return output.text if output is not None else self.matcher.query(id)

    def number(self, id: Hashable) -> int:
        """Return the position of a subscription in the order of all."""
        output = self.outputs.get(id)
        return output.number if output is not None else self.matcher.number(id)

    def list_numbers(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """Return all ids, in no order, and the number of each."""
        ids, numbers = self.matcher.numbered()
        outputs = np.fromiter(self.ids, np.int64, len(self.ids))
        return [*ids, *self.ids.values()], np.concatenate((numbers, outputs))

    def take_costs(self) -> dict[Hashable, float]:
        """Return the seconds spent on each subscription that is evaluated by itself, and reset them."""
        costs = self.matcher.index.costs
        alone = {slot: spent for slot, spent in costs.items() if slot in self.plan.alone}
        slots = np.fromiter(costs, np.int32, len(costs))
        index = self.matcher.index
        shared = index.owned_by(Owner.JOIN, slots) | index.owned_by(Owner.LINK, slots)
        for slot in (*alone, *slots[shared].tolist()):  # the latter no subscription has to itself
            del costs[slot]
        spent = {self._first_subscriber(slot): ns / 1e9 for slot, ns in alone.items() if ns}
        return self.matcher.take_costs() | spent

    def _first_subscriber(self, slot: int) -> Hashable:
        return self.ids[min(self.numbers_of_plan[self.plan.alone[slot]])]

    def count_failure(self, number: int, kind: FailureKind) -> None:
        """Count a message on which a transformation or a join failed."""
        self._failed.setdefault(number, Counter())[kind] += 1

    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return the number of failures by kind, for the subscriptions that have any."""
        outputs = {self.ids[number]: dict(counts) for number, counts in self._failed.items()}
        return self.matcher.failure_counts() | outputs

    def __contains__(self, id: Hashable) -> bool:
        return id in self.outputs or id in self.matcher

    def __len__(self) -> int:
        return len(self.outputs) + len(self.matcher)

    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the ids in the order subscribed."""
        return iter(sorted([*self.matcher, *self.outputs], key=self.number))


def _to_names(streams: Iterable[str] | None) -> frozenset[str] | None:
    if isinstance(streams, str):
        raise ArgumentError(f"streams are several names, such as [{streams!r}], not one string")
    return None if streams is None else frozenset(streams)


def _restricted_join_error() -> ArgumentError:
    return ArgumentError("a join is not restricted to streams: it names those that it reads itself")


def count_subscriptions(numbers_of: dict[int, dict[int, None]]) -> int:
    """Return the number of subscriptions to some entries."""
    return sum(map(len, numbers_of.values()))
