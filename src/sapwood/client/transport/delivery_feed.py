"""The state of a subscriber's event stream: its position, what has arrived, and what to acknowledge.

It does no I/O. The clients open a connection at `position`, feed it the bytes that arrive, take deliveries
from it, and send the acknowledgements that it holds. All numbers are those of the inbox, and an
acknowledgement covers every delivery up to its number, so the newest number is all that has to be sent.

    arrived      parsed, and not taken yet; lost with a connection, and sent again by the broker on the next
    position     the number of the last delivery that was taken; a new connection starts after it
    processed    the highest number that may be acknowledged
    acknowledged the highest number that the broker has been told
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Literal

from sapwood.client.calls.problem_details import error_from_problem
from sapwood.client.client_errors import ClientError, ProtocolError
from sapwood.client.model.delivery import Delivery, Gap, delivery_from_json, gap_from_json
from sapwood.client.transport.event_stream import EventStreamParser, ServerEvent
from sapwood.client.transport.retry_policy import RetryPolicy, is_retriable
from sapwood.errors import ArgumentError, SapwoodError

AckMode = Literal["auto", "manual", "none"]
"""acknowledge a delivery when the next one is asked for, by Delivery.ack(), or never"""
ACK_SECONDS = 0.5
"""the time within which a processed delivery is acknowledged"""
ACK_COUNT = 1000
"""processed deliveries after which an acknowledgement is sent at once"""

_log = logging.getLogger(__name__)


class DeliveryFeed:
    """The deliveries of one subscriber over any number of connections, and their acknowledgement."""

    def __init__(
        self,
        subscriber: str,
        ack: AckMode,
        after: int | None,
        on_gap: Callable[[Gap], None] | None,
        acknowledge: Callable[[int], None],
    ) -> None:
        if ack not in ("auto", "manual", "none"):
            raise ArgumentError(f"ack must be 'auto', 'manual' or 'none', not {ack!r}")
        self.subscriber = subscriber
        self.position = after
        self._mode = ack
        self._on_gap = on_gap
        self._acknowledge = acknowledge
        self._parser = EventStreamParser()
        self._arrived: deque[Delivery | Gap | SapwoodError] = deque()
        self._last_gap: Gap | None = None
        self._inbox: str | None = None
        """what the ids of its deliveries begin with"""
        self._lock = Lock()  # Delivery.ack() may be called on any thread
        self._processed = after or 0
        self._acknowledged = after or 0
        self.retry: float | None = None
        """the seconds before a reconnection that the broker asks for"""

    def begin(self) -> None:
        """Begin a connection: what arrived on the one before and was not taken will come again."""
        self._parser = EventStreamParser()
        self._arrived.clear()

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the connection."""
        for event in self._parser.feed(chunk):
            item = self._read(event)
            if item is not None:
                self._arrived.append(item)
        self.retry = self._parser.retry

    def _read(self, event: ServerEvent) -> Delivery | Gap | SapwoodError | None:
        try:
            data: Any = json.loads(event.data)
            if event.type == "delivery":
                return delivery_from_json(data, self._acknowledge)
            if event.type == "gap":
                return gap_from_json(data)
            if event.type == "error":
                return error_from_problem(data, f"events of subscriber {self.subscriber!r}")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ProtocolError(
                f"an event of type {event.type!r} cannot be read: {type(error).__name__}: {error}"
            ) from error
        _log.debug("an event of an unknown type is ignored: %r", event.type)
        return None

    def ask(self) -> None:
        """Note that the next delivery is asked for, so that the last one has been processed."""
        if self._mode == "auto" and self.position is not None and self.position > self._processed:
            self._acknowledge(self.position)

    def take(self) -> Delivery | None:
        """Return the next delivery that has arrived; report gaps, and raise errors of the broker."""
        while self._arrived:
            item = self._arrived.popleft()
            if isinstance(item, SapwoodError):
                raise item
            if isinstance(item, Gap):
                self._report(item)
            elif self._is_new(item):
                self.position = item.number
                return item
        return None

    def _is_new(self, delivery: Delivery) -> bool:
        """Return whether a delivery was not taken before; the inbox may be another one than before."""
        inbox = delivery.id.rpartition("-")[0]
        if inbox != self._inbox:
            if self._inbox is not None:
                _log.warning("the inbox of subscriber %r was created anew", self.subscriber)
                with self._lock:
                    self._processed = self._acknowledged = delivery.number - 1
            self._inbox = inbox
            return True
        return self.position is None or delivery.number > self.position

    def _report(self, gap: Gap) -> None:
        if gap == self._last_gap:
            return  # again, on a new connection
        self._last_gap = gap
        _log.warning(
            "subscriber %r has lost %d deliveries after number %d: %s",
            self.subscriber,
            gap.count,
            gap.after,
            gap.reason,
        )
        if self._on_gap is not None:
            self._on_gap(gap)

    # -- acknowledgement -----------------------------------------------------------------------------------

    def mark_processed(self, number: int) -> int:
        """Note that all deliveries up to a number are processed; return how many await acknowledgement."""
        if self._mode == "none":
            raise ArgumentError("these deliveries are read with ack='none': use 'manual' to acknowledge them")
        with self._lock:
            self._processed = max(self._processed, number)
            return self._processed - self._acknowledged

    def pending(self) -> int | None:
        """Return the number up to which an acknowledgement is to be sent; None if there is none."""
        with self._lock:
            return self._processed if self._processed > self._acknowledged else None

    def mark_acknowledged(self, number: int) -> None:
        """Note that the broker has been told."""
        with self._lock:
            self._acknowledged = max(self._acknowledged, number)


class Reconnection:
    """The delays before new connections, after one was lost."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0

    def connected(self) -> None:
        """Note that bytes arrive again."""
        self._failures = 0

    @property
    def is_first(self) -> bool:
        """Return whether the last failure was the first since bytes arrived."""
        return self._failures == 1

    def delay_after(self, error: SapwoodError, asked: float | None) -> float:
        """Return the seconds to wait before the next connection; raise an error that will not pass."""
        if not is_retriable(error):
            raise error
        after = error.retry_after if isinstance(error, ClientError) else None
        delay = self._policy.delay(self._failures, after if after is not None else asked)
        self._failures += 1
        return delay
