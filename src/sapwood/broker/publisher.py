"""Publishing a message: evaluation by all engines of a broker, and the deliveries that follow from it.

message ── index ──► filters, transformations ──► PublishResult ──► deliveries, in the order subscribed
             └─────► join engine ──► join results ─────┘                │
                                      └─ messages that queries publish ─┴──► evaluated in turn
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from time import time as clock

from sapwood.broker.delivery import (
    Deliveries,
    Delivery,
    EvaluatedMessage,
    GroupedDelivery,
    Published,
    PublishResult,
    delivery_id,
)
from sapwood.broker.registry import SubscriptionRegistry
from sapwood.engine.failures import Failure, FailureKind, QueryProblem, report_defect
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Owner
from sapwood.errors import LateMessage, MessageError
from sapwood.join.results import Meeting, Meetings
from sapwood.join.state.event_time import TimePath
from sapwood.join.state.message_state import StoredMessage
from sapwood.transform.result_groups import TooManyGroups

_NUMBER = itemgetter(0)
_log = logging.getLogger(__name__)
_LOGGED = 10
"""failures of one message that are logged; all are returned and counted"""


class Publisher:
    """Evaluates messages against the subscriptions of a registry. Callers hold the broker's lock."""

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry
        self.time_paths: dict[str, TimePath] = {}
        """by stream, where its messages hold their event time"""
        self._published = 0

    def publish(
        self, message: Message, id: Hashable, stream: str, time: float | None, feedback: bool = True
    ) -> EvaluatedMessage:
        """Return the deliveries of a message and, with `feedback`, of all that queries publish because of it;
        without, these messages are returned as they are."""
        result, late = self._evaluate(message, id, stream, time)
        self._published += 1
        name = self._published if id is None else id
        deliveries = self._build_deliveries(result, message, name, stream)
        published: list[Published] = []
        if result.joined is not None and len(result.joined):
            published += self._name_published(result.joined)
        if feedback and published:
            self._publish_results(published, deliveries)
            published = []
        for failure in deliveries.failures[:_LOGGED]:
            _log.warning("%s", failure)
        assert result.slots is not None
        return EvaluatedMessage(deliveries, published, result.slots, late)

    def answer(self, message: Message, id: Hashable, stream: str, time: float | None) -> PublishResult:
        """Evaluate a message without building deliveries; LateMessage if it is late for joins."""
        result, late = self._evaluate(message, id, stream, time)
        self._published += 1
        if late is not None:
            raise LateMessage(late)
        return result

    # -- evaluation ------------------------------------------------------------------------------------

    def _evaluate(
        self, message: Message, id: Hashable, stream: str, time: float | None
    ) -> tuple[PublishResult, str | None]:
        """Return the results of all engines, and the reason if the message is late for joins."""
        joins = self._registry.joins
        found = self._registry.matcher.index.find(message)
        joined, late = None, None
        if len(joins):
            joined, late = self._join(message, found, id, stream, time)
        elif time is not None:
            joins.observe_time(time)
        return self._transform(message, found, joined), late

    def evaluate_without_joins(self, message: Message, found: IndexMatches) -> PublishResult:
        """Return the results of filters and transformations only."""
        return self._transform(message, found, None)

    def _join(
        self, message: Message, found: IndexMatches, id: Hashable, stream: str, time: float | None
    ) -> tuple[Meetings | None, str | None]:
        joins = self._registry.joins
        if not joins.reads(stream):
            if time is not None:
                joins.observe_time(time)
            return None, None
        if time is None:
            path = self.time_paths.get(stream)
            time = path.read(found.evaluator) if path is not None else max(clock(), joins.latest)
        name = self._published + 1 if id is None else id
        late = joins.why_late(time) if joins.is_late(stream, time) else None
        return joins.receive(message, found, name, stream, time), late

    def _transform(self, message: Message, found: IndexMatches, joined: Meetings | None) -> PublishResult:
        """Run the transformations, and combine their output with the filters that match."""
        registry = self._registry
        matcher, numbers_of = registry.matcher, registry.numbers_of_plan
        if not registry.outputs:
            matches = matcher.matches(found.matched, found.problems)
            return PublishResult(matches, [], slots=found.matched)
        made: list[tuple[int, bytes]] = []
        problems: list[tuple[int, QueryProblem]] = []
        if numbers_of:
            bodies = registry.plan.bodies(message, found)
            made = [(number, body) for entry, body in bodies for number in numbers_of[entry]]
            for entry, problem in bodies.problems:
                for number in numbers_of[entry]:
                    problems.append((number, problem))
                    self._registry.count_failure(number, problem.kind)
        slots = found.slots
        if len(slots):
            slots = slots[matcher.index.owned_by(Owner.FILTER, slots)]
        matched = matcher.index.listed(slots)
        matches = matcher.matches(matched, found.problems)
        return PublishResult(matches, made, joined, problems, found.matched)

    # -- deliveries ------------------------------------------------------------------------------------

    def _build_deliveries(
        self, result: PublishResult, source: Message, name: Hashable, stream: str
    ) -> Deliveries:
        """Return the deliveries of one message, in the order subscribed."""
        failures = self.failures(result, name)
        ids, new = self._registry.ids, tuple.__new__  # half the time of calling the class
        made = [
            new(Delivery, (ids[number], name, body, None))
            for number, body in sorted(result.made, key=_NUMBER)
        ]
        several = False  # of these lists, each of which is in order
        if len(self._registry.matcher):
            several = bool(made) and bool(len(result.matches))
            made += [new(Delivery, (subscriber, name, source.data, None)) for subscriber in result.matches]
        if result.joined is not None and len(result.joined):
            several = True
            made += self.join_deliveries(result.joined, name, failures)
        number_of = self._registry.number
        if several:
            made.sort(key=lambda delivery: number_of(delivery.subscription))
        excluded = self._registry.excluded(stream)
        if excluded is not None:
            made = [delivery for delivery in made if not excluded[number_of(delivery.subscription)]]
            failures = [failure for failure in failures if not excluded[number_of(failure.subscription)]]
        return Deliveries(made, failures)

    def join_deliveries(
        self, results: Meetings, name: Hashable, failures: list[Failure]
    ) -> Iterator[Delivery]:
        """Yield the deliveries of join results, in the order in which the joined messages came."""
        for meeting, body, subscriptions in self.grouped_deliveries(results, name, failures):
            for subscription in subscriptions:
                yield Delivery(subscription, name, body, meeting)

    def grouped_deliveries(
        self, results: Meetings, name: Hashable, failures: list[Failure]
    ) -> Iterator[GroupedDelivery]:
        """Yield join results with all subscriptions to them, in the order in which the joined messages came.
        A query that fails for several of them has one failure for the message."""
        ids, numbers_of = self._registry.ids, self._registry.numbers_of_joins
        failed: set[int] = set()
        for result in sorted(results, key=lambda result: [r.arrival for r in result.records]):
            body = self._body(result)
            if isinstance(body, QueryProblem):
                if result.entry.number in failed:
                    continue
                failed.add(result.entry.number)
                failures += self._failures(result.entry.number, body, name)
                continue
            yield GroupedDelivery(result, body, [ids[number] for number in numbers_of[result.entry.number]])
        failures += self.chain_failures(results, name)

    def _body(self, result: Meeting) -> bytes | QueryProblem:
        """Return the output of a join result, or the reason why there is none."""
        limit = self._registry.matcher.index.limits.result
        try:
            body = result.body
        except TooManyGroups as error:
            return QueryProblem(FailureKind.FAILED, str(error))
        except Exception as error:
            return report_defect(error, result.entry.join.text)
        if len(body) > limit and result.entry.join.template is not None:
            return QueryProblem(FailureKind.FAILED, f"it makes more than {limit:,} bytes")
        return body

    # -- feedback --------------------------------------------------------------------------------------

    def _publish_results(self, published: Iterable[Published], deliveries: Deliveries) -> None:
        """Add the deliveries of the messages that queries publish, and of what follows from these."""
        queue = deque(published)
        while queue:
            stream, name, query, message, time = queue.popleft()
            try:
                result, late = self._evaluate(message, name, stream, time)
            except MessageError as error:
                problem = QueryProblem(FailureKind.FAILED, f"its published message is refused: {error}")
                deliveries.failures += self._failures(query, problem, name)
                continue
            if late is not None:
                problem = QueryProblem(FailureKind.FAILED, f"its published message is {late}")
                deliveries.failures += self._failures(query, problem, name)
            more = self._build_deliveries(result, message, name, stream)
            deliveries += more
            deliveries.failures += more.failures
            if result.joined is not None:
                queue += self._name_published(result.joined)

    def _name_published(self, results: Meetings) -> Iterator[Published]:
        """Yield the messages that queries publish, each with an id of its own."""
        copies: Counter[str] = Counter()
        for published in self.published(results):
            copies[published.id] += 1
            yield published._replace(id=delivery_id(published.id, copies[published.id]))

    def published(self, results: Meetings) -> Iterator[Published]:
        """Yield the messages that queries publish from join results, equal ones once."""
        publishing = [result for result in results if result.entry.join.publish]
        # messages without an order of arrival are ordered by version and time, so that ids do not vary
        publishing.sort(
            key=lambda result: (
                result.entry.number,
                [(r.arrival, r.visible_from, r.time) for r in result.records],
            )
        )
        done: set[object] = set()
        for result in publishing:
            key = result.entry.query_key, result.records
            if key in done or isinstance(self._body(result), QueryProblem):  # a failure of its deliveries
                continue
            done.add(key)
            stream = result.entry.join.publish
            id = f"{stream}({', '.join(map(_unique_name, result.records))})"
            for message in result.made:
                yield Published(stream, id, result.entry.number, message, result.time)

    # -- failures --------------------------------------------------------------------------------------

    def failures(self, result: PublishResult, name: Hashable) -> list[Failure]:
        """Return the filters and transformations that could not be evaluated on a message."""
        ids = self._registry.ids
        return [
            *(replace(failure, message=name) for failure in result.matches.undecided),
            *(
                Failure(ids[number], problem.kind, problem.reason, name)
                for number, problem in result.problems
            ),
        ]

    def chain_failures(self, results: Meetings, name: Hashable) -> Iterator[Failure]:
        """Yield the subscriptions to chains that could not be continued, each once."""
        while results.problems:
            entry, reason = results.problems.popitem()
            yield from self._failures(entry, QueryProblem(FailureKind.FAILED, reason), name)

    def _failures(self, entry: int, problem: QueryProblem, name: Hashable) -> Iterator[Failure]:
        """Count a problem of a join for its subscriptions, and yield their failures."""
        for number in self._registry.numbers_of_joins[entry]:
            self._registry.count_failure(number, problem.kind)
            yield Failure(self._registry.ids[number], problem.kind, problem.reason, name)


def _unique_name(message: StoredMessage) -> str:
    """Return a name that no other message has: ids need not differ between streams."""
    published = str(message.id).startswith(f"{message.stream}(")
    return f"{message.stream}:{message.id}" if message.stream and not published else str(message.id)
