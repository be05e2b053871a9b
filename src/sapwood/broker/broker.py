"""Filters, transformations and joins together, in one process."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import itemgetter
from time import time as clock
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.broker.delivery import Deliveries, Delivery, Published, PublishResult, delivery_id
from sapwood.broker.delivery_why import why_joined, why_made
from sapwood.engine.bulk_load import OnError, add_all
from sapwood.engine.diagnostics.explain import Explanation
from sapwood.engine.diagnostics.why import Why
from sapwood.engine.failures import Failure, FailureKind, QueryProblem, report_defect
from sapwood.engine.index import IndexMatches
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matcher import Matcher, Source
from sapwood.engine.matches import Matches
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.serialization import pack, unpack
from sapwood.engine.synchronization import synchronized
from sapwood.errors import LateMessage, MessageError
from sapwood.join.explain import JoinExplanation
from sapwood.join.join_engine import JoinEngine
from sapwood.join.results import Meeting, Meetings
from sapwood.join.state.event_time import Moment, TimePath, to_duration, to_seconds
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.state_stats import State
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.language_detection import is_join, is_transformation
from sapwood.lang.namespaces import Namespaces
from sapwood.lang.pattern import use_prefixes
from sapwood.lang.xscl.compiler import compile_join
from sapwood.transform.explain import PlanExplanation, explain
from sapwood.transform.per_query.plan_per_query import PlanPerQuery
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.result_groups import TooManyGroups
from sapwood.transform.shared_plan import SharedPlan

_NUMBER = itemgetter(0)
_log = logging.getLogger(__name__)
_LOGGED = 10
"""failures of one message that are logged; all are returned and counted"""


@dataclass(frozen=True, slots=True)
class _Making:
    """A subscription to a transformation or a join: its place in the order, its entry, and its query."""

    number: int
    entry: int
    text: str
    joins: bool


class Broker:
    """Delivers messages to subscriptions: XPath filters, for-where-return queries that reshape messages, and
    XSCL queries that join them with earlier ones.

    Subscriptions may come and go between messages at any time; a join sees only messages that come after it.
    Several threads may use one broker: their calls take turns.
    """

    def __init__(
        self,
        namespaces: Namespaces | None = None,
        limits: Limits | None = None,
        tuning: Tuning | None = None,
        dtd: ElementGraph | None = None,
        *,
        lateness: timedelta | float = 0,
    ) -> None:
        """A DTD tells `explain`, and plans that are not shared, which elements never nest. Messages need not
        conform to it. `lateness`, in seconds, is how much older than the newest message one may be that joins
        still take."""
        self._matcher = Matcher(namespaces, limits, tuning)
        self._graph = dtd
        index = self._matcher.index
        shared = tuning is None or tuning.share_plans
        self._network: SharedPlan | PlanPerQuery = (
            SharedPlan(index, self._matcher.namespaces) if shared else PlanPerQuery(index, dtd)
        )
        self._joins = JoinEngine(index, to_duration(lateness), tuning or Tuning())
        self._time_paths: dict[str, TimePath] = {}
        self._making: dict[Hashable, _Making] = {}
        self._numbers_of: dict[int, dict[int, None]] = {}  # the subscriptions of an entry of the network
        self._numbers_joining: dict[int, dict[int, None]] = {}  # and of the joins
        self._by_number: dict[int, Hashable] = {}
        self._published = 0
        self._failed: dict[int, Counter[FailureKind]] = {}  # how often, by the subscription's number

    @classmethod
    def around(cls, matcher: Matcher) -> Broker:
        """A broker whose filters are those of a matcher, which is from then on the broker's to change."""
        broker = cls()
        broker._matcher = matcher
        broker._network = SharedPlan(matcher.index, matcher.namespaces)
        broker._joins = JoinEngine(matcher.index, 0, Tuning())
        return broker

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock under which calls take turns: that of the filters."""
        return self._matcher.lock

    # -- subscriptions ---------------------------------------------------------------------------------

    @synchronized
    def declare(self, namespaces: Namespaces) -> None:
        """Declares further prefixes for queries to come; see `Matcher.declare`."""
        self._matcher.declare(namespaces)

    @synchronized
    def time_from(self, stream: str, path: str) -> None:
        """Lets messages of a stream say when they happened, unless the publisher does: where the path leads,
        as ISO 8601 or in seconds since the epoch. Without it, they happen when they are published."""
        self._time_paths[stream] = TimePath(path, self._matcher.namespaces)

    @synchronized
    def time_of(self, message: Source, stream: str) -> float:
        """When a message says that it happened; MessageError if it does not, KeyError without `time_from`."""
        path = self._time_paths[stream]
        return path.read(PatternEvaluator(self._matcher.index.read(Message(message), all=True)))

    @synchronized
    def subscribe(self, id: Hashable, query: str) -> None:
        """Subscribes `id` to a filter, a transformation or a join; QueryError says why it is none."""
        if id in self:
            raise ValueError(f"{id!r} is subscribed already; replace() changes its query")
        add = self._maker(query, None)
        if add is None:
            self._matcher.add(id, query)
        else:
            entry = add()
            self._enrol(id, query, entry, self._matcher.new_number())

    def _maker(self, query: str, before: _Making | None) -> Callable[[], int] | None:
        """What adds a query that makes something, perhaps instead of another, and returns its entry; None if
        it is a filter."""
        namespaces = self._matcher.namespaces
        add: Callable[[], int]
        if is_transformation(query):
            transformation = compile_transformation(query, namespaces)
            add = partial(self._network.add, transformation)
        elif is_join(query):
            add = partial(
                self._add_join, query, before.entry if before is not None and before.joins else None
            )
        else:
            return None
        self._matcher.freeze_unread()
        return add

    def _add_join(self, query: str, instead_of: int | None) -> int:
        known = self._joins.add_again(query)
        if known is not None:
            return known
        return self._joins.add(compile_join(query, self._matcher.namespaces), instead_of)

    def subscribe_many(
        self,
        pairs: Iterable[tuple[Hashable, str]],
        on_error: OnError | None = None,
    ) -> None:
        """Subscribes many at once, in order.

        What cannot be subscribed is told to `on_error`, and the rest go in; without it, the error is raised
        with a note that names the subscription, and those before it stay.
        """
        add_all(pairs, self.subscribe, on_error, self._forget_places)

    @synchronized
    def _forget_places(self) -> None:
        self._matcher.index.machine.forget()

    @synchronized
    def unsubscribe(self, id: Hashable) -> None:
        """Ends a subscription; KeyError if there is none."""
        if id in self._making:
            self._withdraw(id)
        else:
            self._matcher.remove(id)

    @synchronized
    def replace(self, id: Hashable, query: str) -> None:
        """Changes the query of a subscription, which keeps its place in the order."""
        number = self._number(id)
        add = self._maker(query, self._making.get(id))
        if add is not None:
            entry = add()  # which may fail, and then nothing has changed
            self.unsubscribe(id)
            self._enrol(id, query, entry, number)
        elif id in self._matcher:
            self._matcher.replace(id, query)
        else:
            self._matcher.add_numbered(id, query, number)
            self._withdraw(id)

    @synchronized
    def query(self, id: Hashable) -> str:
        """The query that `id` is subscribed to."""
        making = self._making.get(id)
        return making.text if making is not None else self._matcher.query(id)

    def _enrol(self, id: Hashable, query: str, entry: int, number: int) -> None:
        joins = not is_transformation(query)
        self._making[id] = _Making(number, entry, query, joins)
        numbers_of = self._numbers_joining if joins else self._numbers_of
        numbers_of.setdefault(entry, {})[number] = None
        self._by_number[number] = id

    def _withdraw(self, id: Hashable) -> None:
        self._matcher.freeze_unread()
        making = self._making.pop(id)
        del self._by_number[making.number]
        self._failed.pop(making.number, None)
        numbers_of = self._numbers_joining if making.joins else self._numbers_of
        numbers = numbers_of[making.entry]
        del numbers[making.number]
        if not numbers:
            del numbers_of[making.entry]
        if making.joins:
            self._joins.remove(making.entry)
        else:
            self._network.remove(making.entry)

    def _number(self, id: Hashable) -> int:
        making = self._making.get(id)
        return making.number if making is not None else self._matcher.number(id)

    @synchronized
    def numbered(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """All ids, in any order, and the numbers by which an `PublishResult` calls them."""
        ids, numbers = self._matcher.numbered()
        making = np.fromiter(self._by_number, np.int64, len(self._by_number))
        return [*ids, *self._by_number.values()], np.concatenate((numbers, making))

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        return id in self._making or id in self._matcher

    @synchronized
    def __len__(self) -> int:
        return len(self._making) + len(self._matcher)

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        """The ids, in the order subscribed."""
        return iter(sorted([*self._matcher, *self._making], key=self._number))

    @property
    def filters(self) -> Matcher:
        """The subscriptions that are filters; to be changed by way of the broker only."""
        return self._matcher

    @property
    def network_of_joins(self) -> JoinEngine:
        """The subscriptions that are joins; to be changed by way of the broker only."""
        return self._joins

    @property
    @synchronized
    def transformations(self) -> int:
        """How many subscriptions are transformations."""
        return sum(map(len, self._numbers_of.values()))

    @property
    @synchronized
    def joins(self) -> int:
        """How many subscriptions are joins."""
        return sum(map(len, self._numbers_joining.values()))

    # -- messages --------------------------------------------------------------------------------------

    @synchronized
    def publish(
        self, message: Source, id: Hashable = None, *, stream: str = "", time: Moment | None = None
    ) -> Deliveries:
        """Delivers a message to all it concerns, in the order subscribed, then what queries publish of it.

        `time` is when it happened, as a datetime or in seconds since the epoch; see `time_from`. MessageError
        says where and why a message is refused; then nobody gets it. LateMessage if it is too late for joins.
        What fails for one query alone is among the `failures` of what is returned.
        """
        happened = to_seconds(time) if time is not None else None
        source = Message(message)
        answer, late = self._answer(source, id, stream, happened)
        self._published += 1
        deliveries = self._delivered(answer, source, self._published if id is None else id)
        if answer.joined is not None and len(answer.joined):
            self._deliver_on(answer.joined, deliveries)
        for failure in deliveries.failures[:_LOGGED]:
            _log.warning("%s", failure)
        if late is not None:
            raise LateMessage(late, deliveries)
        return deliveries

    def _delivered(self, answer: PublishResult, source: Message, name: Hashable) -> Deliveries:
        """The deliveries of one message, in the order subscribed."""
        failures = self.failures(answer, name)
        ids, new = self._by_number, tuple.__new__  # which takes half of what the class itself does
        made = [
            new(Delivery, (ids[number], name, body, None))
            for number, body in sorted(answer.made, key=_NUMBER)
        ]
        several = bool(made)
        if len(self._matcher):
            made += [new(Delivery, (subscriber, name, source.data, None)) for subscriber in answer.matches]
            several = several and bool(len(answer.matches))
        if answer.joined is not None and len(answer.joined):
            several = True
            made += self._joined(answer.joined, name, failures)
        if several:
            made.sort(key=lambda delivery: self._number(delivery.subscription))
        return Deliveries(made, failures)

    def _joined(self, meetings: Meetings, name: Hashable, failures: list[Failure]) -> Iterator[Delivery]:
        """The deliveries of joins, in the order in which the messages came that meet. A query that fails for
        several of them fails once for the message."""
        failed: set[int] = set()
        for meeting in sorted(meetings, key=lambda meeting: [r.sequence for r in meeting.records]):
            body = self._body(meeting)
            if isinstance(body, QueryProblem):
                if meeting.entry.number in failed:
                    continue
                failed.add(meeting.entry.number)
                failures += self._failures(meeting.entry.number, body, name)
                continue
            for number in self._numbers_joining[meeting.entry.number]:
                yield Delivery(self._by_number[number], name, body, meeting)
        failures += self.unfollowed(meetings, name)

    def unfollowed(self, meetings: Meetings, name: Hashable) -> Iterator[Failure]:
        """The joins whose chains do not go on from a message although they should."""
        while meetings.problems:  # each is told once
            entry, reason = meetings.problems.popitem()
            yield from self._failures(entry, QueryProblem(FailureKind.FAILED, reason), name)

    def _failures(self, entry: int, problem: QueryProblem, name: Hashable) -> Iterator[Failure]:
        """A problem of a join, counted, as its subscriptions'."""
        for number in self._numbers_joining[entry]:
            self._count(number, problem)
            yield Failure(self._by_number[number], problem.kind, problem.reason, name)

    def _count(self, number: int, problem: QueryProblem) -> None:
        self._failed.setdefault(number, Counter())[problem.kind] += 1

    def _body(self, meeting: Meeting) -> bytes | QueryProblem:
        """What a join makes, or why it makes nothing."""
        limit = self._matcher.index.limits.result
        try:
            body = meeting.body
        except TooManyGroups as error:
            return QueryProblem(FailureKind.FAILED, str(error))
        except Exception as error:
            return report_defect(error, meeting.entry.join.text)
        if len(body) > limit and meeting.entry.join.template is not None:
            return QueryProblem(FailureKind.FAILED, f"it makes more than {limit:,} bytes")
        return body

    def _deliver_on(self, meetings: Meetings, deliveries: Deliveries) -> None:
        """Adds the deliveries of what queries publish, and of what others publish of that, and so on."""
        waiting = deque(self._numbered(meetings))
        while waiting:
            stream, name, query, message, time = waiting.popleft()
            try:
                answer, late = self._answer(message, name, stream, time)
            except MessageError as error:
                problem = QueryProblem(FailureKind.FAILED, f"what it publishes is refused: {error}")
                deliveries.failures += self._failures(query, problem, name)
                continue
            if late is not None:
                problem = QueryProblem(FailureKind.FAILED, f"what it publishes is {late}")
                deliveries.failures += self._failures(query, problem, name)
            more = self._delivered(answer, message, name)
            deliveries += more
            deliveries.failures += more.failures
            if answer.joined is not None:
                waiting += self._numbered(answer.joined)

    def _numbered(self, meetings: Meetings) -> Iterator[Published]:
        """What queries publish, each with an id of its own."""
        copies: Counter[str] = Counter()
        for published in self.published(meetings):
            copies[published.id] += 1
            yield published._replace(id=delivery_id(published.id, copies[published.id]))

    def published(self, meetings: Meetings) -> Iterator[Published]:
        """What queries publish where messages meet, equal ones once."""
        publishing = [meeting for meeting in meetings if meeting.entry.join.publish]
        publishing.sort(key=lambda meeting: (meeting.entry.number, [r.sequence for r in meeting.records]))
        done: set[object] = set()
        for meeting in publishing:
            what = meeting.entry.meaning_key, meeting.records
            if what in done or isinstance(self._body(meeting), QueryProblem):  # which its deliveries tell
                continue
            done.add(what)
            stream = meeting.entry.join.publish
            id = f"{stream}({', '.join(map(_named, meeting.records))})"
            for message in meeting.made:
                yield Published(stream, id, meeting.entry.number, message, meeting.time)

    @synchronized
    def answer(
        self, message: Source, id: Hashable = None, *, stream: str = "", time: Moment | None = None
    ) -> PublishResult:
        """The filters that a message matches, what transformations make of it and what it meets in joins, in
        no order and as lazy as can be: for those who pass on many at once. Nothing is published on. What it
        meets is to be read before the next call, and by one thread.

        LateMessage if it is too late for joins.
        """
        answer, late = self._answer(
            Message(message), id, stream, to_seconds(time) if time is not None else None
        )
        self._published += 1
        if late is not None:
            raise LateMessage(late)
        return answer

    def _answer(
        self, message: Message, id: Hashable, stream: str, time: float | None
    ) -> tuple[PublishResult, str | None]:
        """What a message is to all; and why, if it comes too late for joins."""
        found = self._matcher.index.find(message)
        joined, late = None, None
        if len(self._joins):
            joined, late = self._received(message, found, id, stream, time)
        elif time is not None:
            self._joins.note(time)
        return self._reshaped(message, found, joined), late

    def failures(self, answer: PublishResult, name: Hashable = None) -> list[Failure]:
        """The filters and transformations that have no answer on a message, and why."""
        return [
            *(replace(failure, message=name) for failure in answer.matches.undecided),
            *(
                Failure(self._by_number[number], problem.kind, problem.reason, name)
                for number, problem in answer.problems
            ),
        ]

    def _reshaped(self, message: Message, found: IndexMatches, joined: Meetings | None) -> PublishResult:
        """What filters and transformations say of a message, beside what it meets."""
        if not self._making:
            return PublishResult(self._matcher.matches(found.places, found.slots, found.problems), [])
        made: list[tuple[int, bytes]] = []
        problems: list[tuple[int, QueryProblem]] = []
        if self._numbers_of:
            numbers_of = self._numbers_of
            bodies = self._network.bodies(message, found)
            made = [(number, body) for entry, body in bodies for number in numbers_of[entry]]
            for entry, problem in bodies.problems:
                for number in numbers_of[entry]:
                    problems.append((number, problem))
                    self._count(number, problem)
        slots = found.slots
        if len(slots):
            slots = slots[~(self._network.claimed(slots) | self._joins.claimed(slots))]
        if not len(slots) and not found.problems:
            return PublishResult(Matches(self._matcher, None, slots), made, joined, problems)
        return PublishResult(self._matcher.matches(None, slots, found.problems), made, joined, problems)

    def _received(
        self, message: Message, found: IndexMatches, id: Hashable, stream: str, time: float | None
    ) -> tuple[Meetings | None, str | None]:
        if not self._joins.reads(stream):
            if time is not None:
                self._joins.note(time)
            return None, None
        if time is None:
            path = self._time_paths.get(stream)
            assert found.evaluator is not None
            time = path.read(found.evaluator) if path is not None else max(clock(), self._joins.latest)
        name = self._published + 1 if id is None else id
        late = self._joins.why_late(time) if self._joins.is_late(stream, time) else None
        return self._joins.receive(message, found, name, stream, time), late

    # -- for those who keep messages themselves --------------------------------------------------------

    @synchronized
    def answer_alone(self, message: Source) -> PublishResult:
        """What a message is to filters and transformations; joins take no notice of it."""
        source = Message(message)
        return self._reshaped(source, self._matcher.index.find(source), None)

    @synchronized
    def answer_found(self, message: Message, found: IndexMatches) -> PublishResult:
        """The result of `answer_alone` for a message that the index has been searched for already."""
        return self._reshaped(message, found, None)

    def deliveries(
        self, meetings: Meetings, message: Hashable, failures: list[Failure]
    ) -> Iterator[Delivery]:
        """What meetings of messages are to all who subscribed to them; `message` is what completed them.
        Those who get nothing, because their query fails, are added to the failures."""
        return self._joined(meetings, message, failures)

    # --------------------------------------------------------------------------------------------------

    @synchronized
    def state(self) -> State:
        """What joins keep of messages, in all and for each template."""
        return self._joins.state()

    @synchronized
    def take_costs(self) -> dict[Hashable, float]:
        """Seconds spent on each subscription that is evaluated on its own, since this was last asked."""
        costs = self._matcher.index.costs
        alone = {slot: spent for slot, spent in costs.items() if slot in self._network.alone}
        slots = np.fromiter(costs, np.int32, len(costs))
        of_joins = slots[self._joins.claimed(slots)].tolist()  # which are nobody's own
        for slot in (*alone, *of_joins):
            del costs[slot]
        spent = {self._first_subscriber(slot): ns / 1e9 for slot, ns in alone.items() if ns}
        return self._matcher.take_costs() | spent

    @synchronized
    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """On how many messages each subscription had no answer, by kind; those that always had one are not
        there."""
        made = {self._by_number[number]: dict(counts) for number, counts in self._failed.items()}
        return self._matcher.failure_counts() | made

    @synchronized
    def resume(self, id: Hashable) -> None:
        """Lets the query of a subscription be evaluated again, if it was suspended for going over its budget;
        and so for all that are subscribed to the same query."""
        making = self._making.get(id)
        if making is None:
            self._matcher.resume(id)
        elif not making.joins:
            self._network.resume(making.entry)

    def _first_subscriber(self, slot: int) -> Hashable:
        return self._by_number[min(self._numbers_of[self._network.alone[slot]])]

    # -- explanations ----------------------------------------------------------------------------------

    @synchronized
    def explain(self, id: Hashable) -> Explanation | PlanExplanation | JoinExplanation:
        """How a subscription is evaluated: what it is found by, its plan, what is shared and what removed."""
        making = self._making.get(id)
        if making is None:
            return self._matcher.explain(id)
        if making.joins:
            with use_prefixes(self._matcher.namespaces):
                return self._joins.explain(making.entry)
        if not isinstance(self._network, SharedPlan):
            raise ValueError("only shared plans are explained")
        transformation = compile_transformation(making.text, self._matcher.namespaces)
        with use_prefixes(self._matcher.namespaces):
            return explain(self._network, making.entry, transformation, self._graph)

    @synchronized
    def why(self, id: Hashable, message: Source) -> Why:
        """Why a message matches a filter, is made something of, or takes part in a join; or how far it gets,
        and what is there instead. Nothing is delivered, and joins take no notice of the message."""
        making = self._making.get(id)
        if making is None:
            return self._matcher.why(id, message)
        source, index, namespaces = Message(message), self._matcher.index, self._matcher.namespaces
        if making.joins:
            return why_joined(compile_join(making.text, namespaces), source, index, namespaces)
        with Broker(namespaces, index.limits) as alone:
            alone.subscribe(id, making.text)
            made = len(alone.answer(message).made)
        return why_made(compile_transformation(making.text, namespaces), made, source, index, namespaces)

    # -- packed ----------------------------------------------------------------------------------------

    @synchronized
    def pack(self) -> bytes:
        """The compiled subscriptions as bytes, for another process or another day."""
        return pack(self)

    @staticmethod
    def unpack(data: bytes) -> Broker:
        """The broker that was packed, in a fraction of the time it takes to compile its queries.

        Like any pickle, the bytes must come from someone you trust. PackError if another version made them.
        """
        return unpack(data, Broker)

    @synchronized
    def __getstate__(self) -> dict[str, object]:
        """Without the DTD, which only explains."""
        if not isinstance(self._network, SharedPlan):
            raise ValueError("only shared plans can be packed")
        self._matcher.freeze_unread()
        return self.__dict__ | {"_graph": None, "_failed": {}}

    # -- the end ---------------------------------------------------------------------------------------

    @synchronized
    def close(self) -> None:
        """Lets the processes that evaluate queries with lxml go; the last broker to do so ends them."""
        self._matcher.close()
        if isinstance(self._network, PlanPerQuery):
            self._network.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _named(record: StoredMessage) -> str:
    """A message, named so that no other has that name: ids need not differ from stream to stream."""
    published = str(record.id).startswith(f"{record.stream}(")
    return f"{record.stream}:{record.id}" if record.stream and not published else str(record.id)
