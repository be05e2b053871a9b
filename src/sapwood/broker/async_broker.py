"""A broker for asyncio: messages are evaluated in a worker thread, and delivered in the event loop.

    publish ──► turn ──► worker thread: Broker.publish ──► event loop: callbacks, queues ──► next turn

One message has the turn at a time, from its evaluation until its last delivery has been taken, so that each
subscription gets messages in the order of publishing, and what is in memory is bounded by the queues and one
message. Changes of subscriptions need no turn: they are made between two evaluations, also while a message
waits for a slow reader.

What a callback publishes is evaluated within the turn that calls it, since that turn waits for the callback,
and is delivered after what was published before. The turn is a context variable, by which a task that a
callback has started is known as well.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from sapwood.broker.broker import Broker
from sapwood.broker.callbacks import Callback, CallbackTable, Function, check_function
from sapwood.broker.delivery import Deliveries, Delivery
from sapwood.broker.delivery_queue import DeliveryIterator, DeliveryQueue
from sapwood.engine.bulk_load import OnError
from sapwood.engine.failures import FailureKind
from sapwood.engine.matcher import Source
from sapwood.errors import ArgumentError, LateMessage
from sapwood.join.state.event_time import Moment

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)
_BURST = 100
"""deliveries after which other tasks of the event loop run"""


class _Evaluation(NamedTuple):
    """A message that has been evaluated."""

    deliveries: Deliveries
    awaited: list[tuple[Callback | None, Delivery]]
    """the deliveries that callbacks or iterators wait for, in order"""
    late: LateMessage | None

    def result(self) -> Deliveries:
        """Return the deliveries, or raise LateMessage, as `Broker.publish` does."""
        if self.late is not None:
            raise self.late
        return self.deliveries


class _Turn:
    """The evaluations of a message, and of those that callbacks publish meanwhile, in order."""

    def __init__(self, owner: AsyncBroker) -> None:
        self.owner = owner
        self.is_open = True
        self.evaluations: deque[asyncio.Future[_Evaluation]] = deque()


_current_turn: ContextVar[_Turn | None] = ContextVar("_current_turn", default=None)


class AsyncBroker:
    """A broker for one event loop of asyncio, which stays responsive while messages are evaluated.

    Messages are published in the order in which `publish` is called. An `async with` block closes the broker.
    """

    def __init__(self, broker: Broker | None = None) -> None:
        """Take over a broker, or a new one without subscriptions.

        Callbacks that it has already are called in the worker thread.
        """
        self._broker = Broker() if broker is None else broker
        self._worker = ThreadPoolExecutor(1, "sapwood-broker")
        self._callbacks = CallbackTable()
        self._queues: dict[Hashable, list[DeliveryQueue]] = {}
        self._turns = asyncio.Lock()  # which is fair: tasks get it in the order in which they ask
        self._publishing: asyncio.Task[Deliveries] | None = None  # asyncio itself keeps no task alive
        self._closing: asyncio.Task[None] | None = None

    @property
    def broker(self) -> Broker:
        """The broker that evaluates messages, for explanations and statistics.

        Its methods wait while a message is evaluated: `await asyncio.to_thread(broker.broker.state)`. Publish
        and change subscriptions through the `AsyncBroker` only.
        """
        return self._broker

    # -- subscriptions ---------------------------------------------------------------------------------

    async def subscribe(
        self,
        id: Hashable,
        query: str,
        *,
        streams: Iterable[str] | None = None,
        callback: Function | None = None,
    ) -> None:
        """Subscribe `id` to a query; see `Broker.subscribe`.

        The callback, a function or an async function, is called in the event loop; `publish` waits for it. A
        change of subscriptions that is cancelled is made completely or not at all.
        """
        if callback is not None:
            check_function(callback, may_be_async=True)

        def subscribe() -> None:
            self._broker.subscribe(id, query, streams=streams)
            self._callbacks.set(id, callback)

        await self._run(subscribe)

    async def subscribe_many(
        self, pairs: Iterable[tuple[Hashable, str]], on_error: OnError | None = None
    ) -> None:
        """Subscribe many at once; see `Broker.subscribe_many`. `on_error` is called in the worker thread."""
        await self._run(self._broker.subscribe_many, pairs, on_error)

    async def set_callback(self, id: Hashable, callback: Function | None) -> None:
        """Set the callback of a subscription, or remove it; KeyError if there is no subscription."""
        if callback is not None:
            check_function(callback, may_be_async=True)

        def set_callback() -> None:
            self._broker.number(id)
            self._callbacks.set(id, callback)

        await self._run(set_callback)

    async def restrict(self, id: Hashable, streams: Iterable[str] | None) -> None:
        """Restrict a subscription to the messages of some streams; None allows those of all."""
        await self._run(self._broker.restrict, id, streams)

    async def replace(self, id: Hashable, query: str) -> None:
        """Change the query of a subscription, which keeps its callback and its place in the order."""
        await self._run(self._broker.replace, id, query)

    async def unsubscribe(self, id: Hashable) -> None:
        """End a subscription; KeyError if there is none.

        Its callback is not called any more, and iterators over its deliveries end with what they have.
        """
        loop = asyncio.get_running_loop()

        def unsubscribe() -> None:
            self._broker.unsubscribe(id)
            self._callbacks.set(id, None)
            loop.call_soon_threadsafe(self._end_subscription, id)  # also if the caller is cancelled

        await self._run(unsubscribe)

    async def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return on how many messages each subscription failed, by kind; see `Broker.failure_counts`."""
        counts = await self._run(self._broker.failure_counts)
        self._callbacks.add_failures(counts)
        return counts

    # -- messages --------------------------------------------------------------------------------------

    async def publish(
        self, message: Source, id: Hashable = None, *, stream: str = "", time: Moment | None = None
    ) -> Deliveries:
        """Publish a message and return its deliveries; see `Broker.publish`.

        It returns when callbacks have been called and iterators have space for their deliveries, one message
        after another. If it is cancelled while it waits for its turn, nothing is published; later, the
        message is delivered all the same. In a callback it returns when the message has been evaluated;
        callbacks and iterators get it after all earlier ones.
        """
        publish = partial(self._broker.publish, message, id, stream=stream, time=time)
        turn = _current_turn.get()
        if turn is not None and turn.owner is self and turn.is_open:
            evaluation = await _wait_for(self._begin_evaluation(turn, publish))
            return evaluation.result()
        self._require_open()
        await self._turns.acquire()
        # From here to the end of the turn nothing is cancelled: a message is delivered to all or nobody.
        self._publishing = asyncio.create_task(self._take_turn(publish))
        return await _wait_for(self._publishing)

    def deliveries(self, *ids: Hashable, limit: int = 100) -> DeliveryIterator:
        """Iterate over the deliveries of subscriptions, `async for`, from now on.

        At most `limit` deliveries are waiting to be read: `publish` waits while there are as many. So a task
        that publishes to a subscription and also reads it may wait for itself. The iteration ends when the
        subscriptions or the broker do. KeyError, with the first delivery, if there is no such subscription.
        """
        self._require_open()
        if not ids:
            raise ArgumentError("deliveries() needs the id of at least one subscription")
        queue = DeliveryQueue(ids, limit, self._remove_queue)
        iterator = DeliveryIterator(queue, asyncio.get_running_loop(), self._require_subscribed)
        for id in queue.ids:
            self._queues.setdefault(id, []).append(queue)
        return iterator

    # -- the end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Deliver the message that is being published, refuse all others, and release thread and processes.

        Iterators end with what they have. A callback may close the broker; it does not wait for the end.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        turn = _current_turn.get()
        if turn is None or turn.owner is not self or not turn.is_open:
            await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _close(self) -> None:
        for queue in self._list_queues():
            queue.lift_limit()
        async with self._turns:
            for queue in self._list_queues():
                queue.end()
        await asyncio.get_running_loop().run_in_executor(self._worker, self._broker.close)
        self._worker.shutdown(wait=False)

    def _require_open(self) -> None:
        if self._closing is not None:
            raise ArgumentError("this AsyncBroker is closed; create another one")

    # -- turns -----------------------------------------------------------------------------------------

    async def _run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in the worker thread."""
        self._require_open()
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    async def _take_turn(self, publish: Callable[[], Deliveries]) -> Deliveries:
        """Evaluate a message, deliver it and all that callbacks publish meanwhile, and release the lock."""
        turn = _Turn(self)
        _current_turn.set(turn)  # in the context of this task, and of those that callbacks start
        try:
            first = self._begin_evaluation(turn, publish)
            while turn.evaluations:
                await self._deliver(turn.evaluations.popleft())
        finally:
            turn.is_open = False
            self._publishing = None
            self._turns.release()
        return first.result().result()

    def _begin_evaluation(
        self, turn: _Turn, publish: Callable[[], Deliveries]
    ) -> asyncio.Future[_Evaluation]:
        self._require_open()
        loop = asyncio.get_running_loop()
        evaluation = loop.run_in_executor(self._worker, self._evaluate, publish)
        turn.evaluations.append(evaluation)
        return evaluation

    def _evaluate(self, publish: Callable[[], Deliveries]) -> _Evaluation:
        """Evaluate a message in the worker thread, where no subscription changes meanwhile."""
        late: LateMessage | None = None
        try:
            deliveries = publish()
        except LateMessage as error:
            assert isinstance(error.deliveries, Deliveries)
            late, deliveries = error, error.deliveries
        if not self._callbacks and not self._queues:
            return _Evaluation(deliveries, [], late)
        with_callbacks = ((self._callbacks.get(delivery.subscription), delivery) for delivery in deliveries)
        awaited = [
            (callback, delivery)
            for callback, delivery in with_callbacks
            if callback is not None or delivery.subscription in self._queues
        ]
        return _Evaluation(deliveries, awaited, late)

    async def _deliver(self, evaluating: asyncio.Future[_Evaluation]) -> None:
        """Call the callbacks of a message, and put its deliveries into the queues of iterators."""
        await asyncio.wait([evaluating])
        if evaluating.exception() is not None:
            return  # raised where the message was published
        deliveries, awaited, _ = evaluating.result()
        for number, (callback, delivery) in enumerate(awaited, 1):
            if callback is not None and callback is self._callbacks.get(delivery.subscription):
                await _call(callback, delivery, deliveries)
            for queue in tuple(self._queues.get(delivery.subscription, ())):
                await queue.put(delivery)
            if number % _BURST == 0:
                await asyncio.sleep(0)

    # -- queues ----------------------------------------------------------------------------------------

    def _list_queues(self) -> set[DeliveryQueue]:
        return {queue for queues in self._queues.values() for queue in queues}

    def _remove_queue(self, queue: DeliveryQueue) -> None:
        """Forget a queue that has ended."""
        for id in queue.ids:
            self._queues[id].remove(queue)
            if not self._queues[id]:
                del self._queues[id]

    def _end_subscription(self, id: Hashable) -> None:
        for queue in self._queues.pop(id, ()):
            queue.remove(id)

    async def _require_subscribed(self, ids: Iterable[Hashable]) -> None:
        """Raise KeyError for an id that has no subscription."""
        if self._closing is not None:
            return  # the queues have ended, or are about to
        unknown = await self._run(lambda: [id for id in ids if id not in self._broker])
        if unknown:
            raise KeyError(unknown[0])


async def _wait_for(publishing: asyncio.Future[R]) -> R:
    """Wait for the result of a message, which is published also if the waiting task is cancelled."""
    try:
        return await asyncio.shield(publishing)
    except asyncio.CancelledError:
        publishing.add_done_callback(_log_refusal)
        raise


def _log_refusal(publishing: asyncio.Future[Any]) -> None:
    """Log the error of a message whose publisher does not wait for it any more."""
    error = None if publishing.cancelled() else publishing.exception()
    if error is not None:
        _log.warning("a message was refused after its publisher was cancelled: %s", error)


async def _call(callback: Callback, delivery: Delivery, deliveries: Deliveries) -> None:
    """Call a function or an async function with a delivery; an exception is added to the failures."""
    try:
        result = callback.function(delivery)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        deliveries.failures.append(callback.fail(error, delivery))  # of what the function awaits
    except Exception as error:
        deliveries.failures.append(callback.fail(error, delivery))
