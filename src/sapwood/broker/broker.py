"""The public face of the broker: subscriptions, publishing, statistics and explanations."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.broker.callbacks import CallbackDispatcher, Function, check_function
from sapwood.broker.delivery import (
    Deliveries,
    Delivery,
    EvaluatedMessage,
    GroupedDelivery,
    Published,
    PublishResult,
)
from sapwood.broker.delivery_why import why_joined, why_transformed
from sapwood.broker.publisher import Publisher
from sapwood.broker.registry import SubscriptionRegistry, TransformationPlan, count_subscriptions
from sapwood.engine.bulk_load import OnError, add_all
from sapwood.engine.closeable import Closeable
from sapwood.engine.diagnostics.explain import Explanation
from sapwood.engine.diagnostics.why import Why
from sapwood.engine.failures import Failure, FailureKind
from sapwood.engine.index import IndexMatches
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matcher import Matcher, Source
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.serialization import pack, unpack
from sapwood.engine.subscriptions import ListedNumbers
from sapwood.engine.thread_lock import synchronized
from sapwood.errors import ArgumentError, LateMessage
from sapwood.join.explain import JoinExplanation
from sapwood.join.join_engine import JoinEngine
from sapwood.join.results import Meetings
from sapwood.join.state.event_time import Moment, TimePath, to_duration, to_seconds
from sapwood.join.state.state_stats import State
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.namespaces import Namespaces
from sapwood.lang.pattern import use_prefixes
from sapwood.lang.xscl.compiler import compile_join
from sapwood.transform.explain import PlanExplanation, explain
from sapwood.transform.per_query.plan_per_query import PlanPerQuery
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.shared_plan import SharedPlan

_log = logging.getLogger(__name__)


class Broker(Closeable):
    """Delivers messages to subscriptions: XPath filters, for-where-return queries that transform messages,
    and XSCL queries that join them with earlier ones.

    Subscriptions may be added and removed between messages at any time; a join sees only messages that are
    published after it was subscribed. A broker is safe under threads: calls take turns, callbacks included.
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
        """Create a broker without subscriptions.

        `dtd` lets `explain` and per-query plans know which elements never nest; messages need not conform to
        it. `lateness`, in seconds, is how far the watermark of joins is behind the newest message: an older
        message is late.
        """
        matcher = Matcher(namespaces, limits, tuning)
        shared = tuning is None or tuning.share_plans
        plan = SharedPlan(matcher.index, matcher.namespaces) if shared else PlanPerQuery(matcher.index, dtd)
        joins = JoinEngine(matcher.index, to_duration(lateness), tuning or Tuning())
        self._assemble(matcher, plan, joins, dtd)

    def _assemble(
        self, matcher: Matcher, plan: TransformationPlan, joins: JoinEngine, dtd: ElementGraph | None
    ) -> None:
        self._matcher = matcher
        self._plan = plan
        self._joins = joins
        self._dtd = dtd
        self._registry = SubscriptionRegistry(matcher, plan, joins)
        self._publisher = Publisher(self._registry)
        self._callbacks = CallbackDispatcher()

    @classmethod
    def around(cls, matcher: Matcher) -> Broker:
        """Return a broker that takes over a matcher: its subscriptions are the broker's filters."""
        broker = cls.__new__(cls)
        plan = SharedPlan(matcher.index, matcher.namespaces)
        broker._assemble(matcher, plan, JoinEngine(matcher.index, 0, Tuning()), None)
        return broker

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The reentrant lock under which calls take turns: that of the matcher."""
        return self._matcher.lock

    # -- subscriptions ---------------------------------------------------------------------------------

    @synchronized
    def declare(self, namespaces: Namespaces) -> None:
        """Declare further namespace prefixes for later queries; see `Matcher.declare`."""
        self._matcher.declare(namespaces)

    @synchronized
    def time_from(self, stream: str, path: str | None) -> None:
        """Read the event time of a stream's messages from a path, where `publish` is given none.

        The value is ISO 8601 or seconds since the epoch. Without a path, the time is that of publishing.
        """
        if path is None:
            self._publisher.time_paths.pop(stream, None)
        else:
            self._publisher.time_paths[stream] = TimePath(path, self._matcher.namespaces)

    @synchronized
    def time_of(self, message: Source, stream: str) -> float:
        """Return the event time in a message; MessageError if it has none, KeyError without `time_from`."""
        path = self._publisher.time_paths[stream]
        return path.read(PatternEvaluator(self._matcher.index.read(Message(message), all=True)))

    @synchronized
    def subscribe(
        self,
        id: Hashable,
        query: str,
        *,
        streams: Iterable[str] | None = None,
        callback: Function | None = None,
    ) -> None:
        """Subscribe `id` to a filter, a transformation or a join; QueryError if the query is invalid.

        A filter or transformation may be restricted to the messages of some streams. `callback` is called
        with each delivery, see `publish`; `replace` keeps it and `unsubscribe` removes it.
        """
        if callback is not None:
            check_function(callback)
        self._registry.add(id, query, streams)
        self._callbacks.table.set(id, callback)

    @synchronized
    def set_callback(self, id: Hashable, callback: Function | None) -> None:
        """Set the callback of a subscription, or remove it; see `subscribe`. KeyError if there is none."""
        if callback is not None:
            check_function(callback)
        self._registry.number(id)
        self._callbacks.table.set(id, callback)

    @synchronized
    def restrict(self, id: Hashable, streams: Iterable[str] | None) -> None:
        """Restrict a subscription to the messages of some streams; None allows those of all."""
        self._registry.restrict(id, streams)

    def subscribe_many(
        self,
        pairs: Iterable[tuple[Hashable, str]],
        on_error: OnError | None = None,
    ) -> None:
        """Subscribe many at once, in order.

        With `on_error`, it is called for each subscription that fails and the rest are added. Without it, the
        error is raised with a note that names the subscription, and those before it stay.
        """
        add_all(pairs, self.subscribe, on_error, self._clear_cache)

    @synchronized
    def _clear_cache(self) -> None:
        self._matcher.index.clear_cache()

    @synchronized
    def unsubscribe(self, id: Hashable) -> None:
        """End a subscription; KeyError if there is none. Its callback is not called any more."""
        self._registry.remove(id)
        self._callbacks.table.set(id, None)

    @synchronized
    def replace(self, id: Hashable, query: str) -> None:
        """Change the query of a subscription, which keeps its place in the order."""
        self._registry.replace(id, query)

    @synchronized
    def resume(self, id: Hashable) -> None:
        """Resume a query that was suspended for exceeding its budget, for all subscriptions to it."""
        output = self._registry.outputs.get(id)
        if output is None:
            self._matcher.resume(id)
        elif not output.is_join:
            self._plan.resume(output.entry)
        _log.info("the query of subscription %r is evaluated again, if it was suspended", id)

    @synchronized
    def query(self, id: Hashable) -> str:
        """Return the text of the query that `id` is subscribed to."""
        return self._registry.query(id)

    @synchronized
    def number(self, id: Hashable) -> int:
        """Return the number that stands for a subscription in a `PublishResult`; KeyError if there is none.

        Numbers ascend in the order subscribed, and none is given twice.
        """
        return self._registry.number(id)

    @synchronized
    def excluded(self, stream: str) -> NDArray[np.bool_] | None:
        """Return, by number, whether a subscription is restricted to other streams; None if none is."""
        return self._registry.excluded(stream)

    @synchronized
    def numbered(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """Return all ids, in no order, and the numbers that stand for them in a `PublishResult`."""
        return self._registry.list_numbers()

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        return id in self._registry

    @synchronized
    def __len__(self) -> int:
        return len(self._registry)

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the ids in the order subscribed."""
        return iter(self._registry)

    @property
    def filters(self) -> Matcher:
        """The matcher with the subscriptions that are filters; to be changed through the broker only."""
        return self._matcher

    @property
    def network_of_joins(self) -> JoinEngine:
        """The engine of the subscriptions that are joins; to be changed through the broker only."""
        return self._joins

    @property
    @synchronized
    def transformations(self) -> int:
        """The number of subscriptions that are transformations."""
        return count_subscriptions(self._registry.numbers_of_plan)

    @property
    @synchronized
    def joins(self) -> int:
        """The number of subscriptions that are joins."""
        return count_subscriptions(self._registry.numbers_of_joins)

    # -- messages --------------------------------------------------------------------------------------

    @synchronized
    def publish(
        self, message: Source, id: Hashable = None, *, stream: str = "", time: Moment | None = None
    ) -> Deliveries:
        """Return the deliveries of a message in the order subscribed, then those of what queries publish.

        `time` is the event time, a datetime or seconds since the epoch; see `time_from`. MessageError gives
        position and reason if the message is rejected; then nobody gets it. LateMessage if it is too late for
        joins. A query that fails by itself is in the `failures` of the returned deliveries.

        After the evaluation, callbacks are called in the order of deliveries. One that raises an exception is
        logged and in `failures`, too; the others are called all the same. A callback may call the broker: the
        callbacks of a message that it publishes are called after those of all earlier ones, when its own call
        of `publish` has returned. It must not wait for another thread that uses the broker.
        """
        seconds = to_seconds(time) if time is not None else None
        deliveries, _, _, late = self._publisher.publish(Message(message), id, stream, seconds)
        self._callbacks.dispatch(deliveries)
        if late is not None:
            raise LateMessage(late, deliveries)
        return deliveries

    @synchronized
    def evaluate(
        self,
        message: Source,
        id: Hashable = None,
        *,
        stream: str = "",
        time: Moment | None = None,
        feedback: bool = True,
    ) -> EvaluatedMessage:
        """Publish a message as `publish` does, but return that it is late, and call no callbacks.

        Without `feedback`, messages that queries publish because of it are not evaluated but returned. They
        have the same deliveries if they are published next, in order.
        """
        seconds = to_seconds(time) if time is not None else None
        return self._publisher.publish(Message(message), id, stream, seconds, feedback)

    @synchronized
    def answer(
        self, message: Source, id: Hashable = None, *, stream: str = "", time: Moment | None = None
    ) -> PublishResult:
        """Evaluate a message without building deliveries: the filters it matches, the output of
        transformations and the join results, in no order and as lazily as possible.

        Nothing that queries publish is evaluated, and subscriptions that are `excluded` are among the
        results. Join results are to be read before the next call, by one thread. LateMessage if the message
        is too late for joins.
        """
        seconds = to_seconds(time) if time is not None else None
        return self._publisher.answer(Message(message), id, stream, seconds)

    @synchronized
    def answer_alone(self, message: Source) -> PublishResult:
        """Evaluate filters and transformations on a message; joins ignore it."""
        source = Message(message)
        return self._publisher.evaluate_without_joins(source, self._matcher.index.find(source))

    @synchronized
    def list_filters(self, messages: Sequence[Source], ordered: bool = True) -> ListedNumbers | None:
        """Return the numbers of the filters that messages match, `excluded` ones included, see
        `Matcher.list_numbers`; None if there are other subscriptions than filters, too."""
        return None if self._registry.outputs else self._matcher.list_numbers(messages, ordered)

    @synchronized
    def answer_found(self, message: Message, found: IndexMatches) -> PublishResult:
        """Return the result of `answer_alone` for a message that was matched against the index before."""
        return self._publisher.evaluate_without_joins(message, found)

    @synchronized
    def failures(self, answer: PublishResult, name: Hashable = None) -> list[Failure]:
        """Return the filters and transformations that could not be evaluated on a message."""
        return self._publisher.failures(answer, name)

    def deliveries(
        self, meetings: Meetings, message: Hashable, failures: list[Failure]
    ) -> Iterator[Delivery]:
        """Yield the deliveries of join results; `message` is the id of the message that completed them.
        Subscriptions whose query fails are added to `failures`."""
        return self._publisher.join_deliveries(meetings, message, failures)

    def grouped_deliveries(self, meetings: Meetings, failures: list[Failure]) -> Iterator[GroupedDelivery]:
        """Yield join results, each once with all subscriptions that receive it; `failures` as above."""
        return self._publisher.grouped_deliveries(meetings, None, failures)

    def chain_failures(self, meetings: Meetings, name: Hashable) -> Iterator[Failure]:
        """Yield the subscriptions to chains that could not be continued from join results."""
        return self._publisher.chain_failures(meetings, name)

    def published(self, meetings: Meetings) -> Iterator[Published]:
        """Yield the messages that queries publish from join results, equal ones once."""
        return self._publisher.published(meetings)

    # -- statistics ------------------------------------------------------------------------------------

    @synchronized
    def state(self) -> State:
        """Return the size of the join state, in all and for each template."""
        return self._joins.state()

    @synchronized
    def take_costs(self) -> dict[Hashable, float]:
        """Return the seconds spent on each subscription that is evaluated by itself, since the last call."""
        return self._registry.take_costs()

    @synchronized
    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return on how many messages each subscription failed, by kind; subscriptions without failures
        are omitted."""
        counts = self._registry.failure_counts()
        self._callbacks.table.add_failures(counts)
        return counts

    # -- explanations ----------------------------------------------------------------------------------

    @synchronized
    def explain(self, id: Hashable) -> Explanation | PlanExplanation | JoinExplanation:
        """Explain how a subscription is evaluated: index entries, plan, what is shared and what removed."""
        output = self._registry.outputs.get(id)
        if output is None:
            return self._matcher.explain(id)
        if output.is_join:
            with use_prefixes(self._matcher.namespaces):
                return self._joins.explain(output.entry)
        if not isinstance(self._plan, SharedPlan):
            raise ArgumentError(
                "only shared plans are explained: this broker was made with share_plans=False"
            )
        transformation = compile_transformation(output.text, self._matcher.namespaces)
        with use_prefixes(self._matcher.namespaces):
            return explain(self._plan, output.entry, transformation, self._dtd)

    @synchronized
    def why(self, id: Hashable, message: Source) -> Why:
        """Explain why a message matches a filter, is transformed or takes part in a join, or at which step it
        fails. Nothing is delivered, and joins ignore the message."""
        output = self._registry.outputs.get(id)
        if output is None:
            return self._matcher.why(id, message)
        source, index, namespaces = Message(message), self._matcher.index, self._matcher.namespaces
        if output.is_join:
            return why_joined(compile_join(output.text, namespaces), source, index, namespaces)
        with Broker(namespaces, index.limits) as alone:
            alone.subscribe(id, output.text)
            made = len(alone.answer(message).made)
        transformation = compile_transformation(output.text, namespaces)
        return why_transformed(transformation, made, source, index, namespaces)

    # -- serialization ---------------------------------------------------------------------------------

    @synchronized
    def pack(self) -> bytes:
        """Return the compiled subscriptions as bytes, for another process or for later.

        Callbacks are not part of them: `set_callback` sets them again after `unpack`.
        """
        return pack(self)

    @staticmethod
    def unpack(data: bytes) -> Broker:
        """Return a broker from packed bytes, much faster than its queries can be compiled.

        Like any pickle, the bytes must come from a trusted source. PackError if another version made them.
        """
        return unpack(data, Broker)

    @synchronized
    def __getstate__(self) -> dict[str, object]:
        """Return the state without callbacks, and without the DTD, which is used by `explain` only."""
        if not isinstance(self._plan, SharedPlan):
            raise ArgumentError(
                "only shared plans can be packed: this broker was made with share_plans=False"
            )
        self._matcher.freeze_unread()
        state = self.__dict__ | {"_dtd": None}
        del state["_callbacks"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._callbacks = CallbackDispatcher()

    # --------------------------------------------------------------------------------------------------

    @synchronized
    def close(self) -> None:
        """Release the processes that evaluate queries with lxml; the last broker to do so ends them."""
        self._matcher.close()
        if isinstance(self._plan, PlanPerQuery):
            self._plan.close()
