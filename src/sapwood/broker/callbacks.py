"""The functions that deliveries are passed to in the process of the broker.

A message is evaluated completely before the first function is called. A function may call the broker: what it
publishes is evaluated at once, but delivered after all that was published before, so that each subscription
gets its messages in the order in which they were published.

    publish m1 ──► deliveries ──► queue ──► call, call, … ──► publish returns
                                    ▲         └── publish m2 ──► deliveries ─┐
                                    └────────────────────────────────────────┘
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from sapwood.broker.delivery import Deliveries, Delivery
from sapwood.engine.failures import Failure, FailureKind
from sapwood.errors import ArgumentError

_log = logging.getLogger(__name__)

Function = Callable[[Delivery], object]


@dataclass(eq=False, slots=True)
class Callback:
    """The function of one subscription; a later subscription of the same id has another one."""

    function: Function
    failures: int = 0

    def fail(self, error: BaseException, delivery: Delivery) -> Failure:
        """Count and log an exception that the function raised, and return it as a failure."""
        self.failures += 1
        _log.error(
            "the callback of subscription %r raised an exception on message %r",
            delivery.subscription,
            delivery.message,
            exc_info=error,
        )
        reason = f"its callback raised {type(error).__name__}: {error}"
        return Failure(delivery.subscription, FailureKind.CALLBACK, reason, delivery.message)


class PendingCall(NamedTuple):
    """A delivery that the function of its subscription has not got yet."""

    callback: Callback
    delivery: Delivery
    deliveries: Deliveries
    """those that it is one of, which get the failure if there is one"""


class CallbackTable:
    """The callbacks of subscriptions, by id."""

    def __init__(self) -> None:
        self._callbacks: dict[Hashable, Callback] = {}

    def set(self, id: Hashable, function: Function | None) -> None:
        """Set the function of a subscription, which also gets the deliveries that are pending; None removes
        it."""
        callback = self._callbacks.get(id)
        if function is None:
            self._callbacks.pop(id, None)
        elif callback is None:
            self._callbacks[id] = Callback(function)
        else:
            callback.function = function

    def get(self, id: Hashable) -> Callback | None:
        """Return the callback of a subscription, or None if it has none."""
        return self._callbacks.get(id)

    def __len__(self) -> int:
        return len(self._callbacks)

    def add_failures(self, counts: dict[Hashable, dict[FailureKind, int]]) -> None:
        """Add the number of failed calls to the failures of each subscription."""
        for id, callback in list(self._callbacks.items()):
            if callback.failures:
                counts[id] = counts.get(id, {}) | {FailureKind.CALLBACK: callback.failures}


class CallbackDispatcher:
    """Calls the functions of subscriptions, in the order of publishing. Callers hold the broker's lock."""

    def __init__(self) -> None:
        self.table = CallbackTable()
        self._pending: deque[PendingCall] = deque()
        self._is_calling = False

    def dispatch(self, deliveries: Deliveries) -> None:
        """Call the functions of deliveries, or queue them if a function is being called already."""
        if not self.table:
            return
        for delivery in deliveries:
            callback = self.table.get(delivery.subscription)
            if callback is not None:
                self._pending.append(PendingCall(callback, delivery, deliveries))
        if self._is_calling:  # by this thread, which has the lock: a function has published
            return
        self._is_calling = True
        try:
            while self._pending:
                self._call(self._pending.popleft())
        finally:
            self._pending.clear()  # not empty after KeyboardInterrupt and the like only
            self._is_calling = False

    def _call(self, pending: PendingCall) -> None:
        callback, delivery, deliveries = pending
        if self.table.get(delivery.subscription) is not callback:
            return  # another function has ended the subscription
        try:
            callback.function(delivery)
        except Exception as error:
            deliveries.failures.append(callback.fail(error, delivery))


def check_function(function: object, may_be_async: bool = False) -> None:
    """Raise ArgumentError for a callback that cannot be called, or would have to be awaited and cannot be."""
    if not callable(function):
        raise ArgumentError(f"a callback is a function of one delivery, not {function!r}")
    if may_be_async:
        return
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ArgumentError("a Broker does not await callbacks: subscribe async functions to an AsyncBroker")
