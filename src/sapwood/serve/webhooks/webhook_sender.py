"""Sends the deliveries of one subscriber to its webhook: in order, at least once, with retries.

    source.next ─▶ attempt ─▶ 2xx          ─▶ source.acknowledge
                      ▲   ├─▶ 410          ─▶ source.disable, and the sender ends
                      │   ├─▶ other, none  ─▶ wait (exponential backoff, full jitter, Retry-After) ─┐
                      │   └─▶ too many     ─▶ source.dead_letter                                    │
                      └─────────────────────────────────────────────────────────────────────────────┘

A delivery keeps its id and its bytes over all attempts, so that a receiver can recognise what it has already
got; time and signature are those of the attempt.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import sapwood
from sapwood.serve.tracing import trace
from sapwood.serve.webhooks.webhook_connection import Answer, WebhookConnection
from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from sapwood.serve.webhooks.webhook_signature import sign

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 2.0
"""how long a connection is kept without deliveries"""
_SOURCE_PAUSE = 5.0
"""seconds to wait after the source has failed"""
_GONE = 410


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """A delivery to send."""

    id: str
    """the same over all attempts"""
    number: int
    """its number in the inbox"""
    published: float
    """seconds since the epoch"""
    payload: Mapping[str, Any] | bytes
    """the delivery as JSON object, or its UTF-8"""


class WebhookSource(Protocol):
    """The inbox that a sender takes deliveries from."""

    async def next(self) -> Sequence[WebhookDelivery]:
        """Wait until there are deliveries that are not acknowledged, and return the first ones in order."""

    async def acknowledge(self, upto: int) -> None:
        """Acknowledge the deliveries up to a number."""

    async def dead_letter(self, delivery: WebhookDelivery, attempts: int, reason: str) -> None:
        """Store a delivery that cannot be sent, and acknowledge it, in one transaction."""

    async def disable(self, reason: str) -> None:
        """Record that the webhook gets nothing more until it is configured anew."""


@dataclass(slots=True)
class WebhookCounters:
    """How many attempts there were, and what became of them."""

    attempts: int = 0
    delivered: int = 0
    failed: int = 0
    """attempts"""
    dead_lettered: int = 0
    disabled: int = 0


@dataclass(slots=True)
class WebhookStatus:
    """How sending goes at present."""

    delivery: str | None = None
    """the id of the delivery that is being sent"""
    attempts: int = 0
    """its attempts so far"""
    failure: str | None = None
    """why the last attempt failed; None after one that did not"""
    retry_at: float | None = None
    """the time of the next attempt, in seconds since the epoch"""
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class SenderClock:
    """Time and chance, which tests replace."""

    now: Callable[[], float] = time.time
    """seconds since the epoch"""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform


class WebhookSender:
    """Sends the deliveries of a source, one at a time, until it is stopped."""

    def __init__(
        self,
        name: str,
        settings: WebhookSettings,
        source: WebhookSource,
        connection: WebhookConnection,
        *,
        counters: WebhookCounters | None = None,
        clock: SenderClock | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.source = source
        self.counters = counters if counters is not None else WebhookCounters()
        self.status = WebhookStatus()
        self._connection = connection
        self._clock = clock if clock is not None else SenderClock()
        self._keys = settings.keys()
        self._host = settings.host()
        self._task: asyncio.Task[Any] | None = None
        self._stopping = False
        self._busy = False
        """whether an attempt is in flight, or its result is being stored"""
        self._accepted = 0
        """the number of the last delivery that the target has accepted"""

    # -- start and end ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send deliveries until the sender is stopped, or the webhook is disabled."""
        self._task = asyncio.current_task()
        try:
            while not self._stopping and not self.status.disabled:
                try:
                    await self._send_batch()
                except Exception:
                    # The database, say, is away. Nothing is lost: what is not acknowledged comes again.
                    _log.exception("webhook of %s: deliveries cannot be read or acknowledged", self.name)
                    if not self._stopping:
                        await self._clock.sleep(_SOURCE_PAUSE)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            await self._connection.close()

    def stop(self, grace: float) -> None:
        """Make `run` return: at once if it waits, else after the attempt in flight or `grace` seconds."""
        again, self._stopping = self._stopping, True
        if self._task is None:
            return
        if self._busy:
            asyncio.get_running_loop().call_later(grace, self._task.cancel)
        elif not again:  # otherwise it is about to return
            self._task.cancel()

    # -- deliveries ------------------------------------------------------------------------------------

    async def _send_batch(self) -> None:
        deliveries = await self._next()
        if not deliveries:
            await self._clock.sleep(_SOURCE_PAUSE)  # a source that does not wait must not occupy the process
        for delivery in deliveries:
            if delivery.number > self._accepted:
                await self._deliver(delivery)
            else:
                await self.source.acknowledge(delivery.number)  # that failed when it was sent
            if self._stopping or self.status.disabled:
                return

    async def _next(self) -> Sequence[WebhookDelivery]:
        """Return the next deliveries, and close the connection if there are none for some time."""
        if not self._connection.is_open:
            return await self.source.next()
        waiting = asyncio.ensure_future(self.source.next())
        try:
            await asyncio.wait({waiting}, timeout=_IDLE_SECONDS)
            if not waiting.done():
                await self._connection.close()
            return await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait({waiting})

    async def _deliver(self, delivery: WebhookDelivery) -> None:
        """Send a delivery until it is accepted, a dead letter, or the sender ends."""
        body = encode_payload(delivery)
        deadline = self._clock.monotonic() + self.settings.retry_for
        self.status.delivery, self.status.attempts = delivery.id, 0
        while True:
            await self._connection.reserve()
            self._busy = True
            try:
                answer = await self._attempt(delivery, body)
                is_last = await self._settle(delivery, answer, deadline)
            finally:
                self._busy = False
            if is_last or self._stopping:
                return
            await self._wait(delivery, answer, deadline)

    async def _attempt(self, delivery: WebhookDelivery, body: bytes) -> Answer:
        self.status.retry_at = None
        self.status.attempts += 1
        self.counters.attempts += 1
        headers = make_headers(self._keys, delivery.id, int(self._clock.now()), body)
        settings = self.settings
        with trace(
            "deliver",
            "client",
            messaging__system="sapwood",
            server__address=self._host,
            sapwood__delivery__id=delivery.id,
            sapwood__attempt=self.status.attempts,
        ) as span:
            answer = await self._connection.post(headers, body, settings.timeout, settings.connect_timeout)
            if answer.status is not None:
                span.set(http__response__status_code=answer.status)
            if answer.failure is not None:
                span.fail(answer.failure)
            return answer

    async def _settle(self, delivery: WebhookDelivery, answer: Answer, deadline: float) -> bool:
        """Store what became of an attempt; return whether the delivery is done with."""
        status, counters = self.status, self.counters
        status.failure = answer.failure
        if answer.failure is None:
            _log.debug(
                "delivery %s sent to %s: status %s, attempt %d",
                delivery.id,
                self._host,
                answer.status,
                status.attempts,
                extra={"delivery_id": delivery.id},
            )
            counters.delivered += 1
            self._accepted = delivery.number
            await self.source.acknowledge(delivery.number)
            return True
        counters.failed += 1
        if answer.status == _GONE:
            reason = f"{self._host} wants no more deliveries: {answer.failure}"
            _log.warning(
                "webhook of %s is disabled: %s (delivery %s)",
                self.name,
                reason,
                delivery.id,
                extra={"delivery_id": delivery.id},
            )
            await self.source.disable(reason)
            counters.disabled += 1
            status.disabled = True
            return True
        if status.attempts >= self.settings.attempts or self._clock.monotonic() >= deadline:
            _log.warning(
                "delivery %s to %s is a dead letter after %d attempts: %s",
                delivery.id,
                self._host,
                status.attempts,
                answer.failure,
                extra={"delivery_id": delivery.id},
            )
            await self.source.dead_letter(delivery, status.attempts, answer.failure)
            counters.dead_lettered += 1
            return True
        return False

    async def _wait(self, delivery: WebhookDelivery, answer: Answer, deadline: float) -> None:
        """Wait for the next attempt, the last of which is at the deadline."""
        attempts = self.status.attempts
        longest = min(self.settings.max_delay, self.settings.first_delay * 2.0 ** min(attempts - 1, 64))
        delay = max(self._clock.uniform(0, longest), answer.retry_after or 0.0)
        delay = min(delay, max(deadline - self._clock.monotonic(), 0.0))
        self.status.retry_at = self._clock.now() + delay
        _log.warning(
            "delivery %s to %s failed: %s (attempt %d, next in %.1f s)",
            delivery.id,
            self._host,
            answer.failure,
            attempts,
            delay,
            extra={"delivery_id": delivery.id},
        )
        await self._clock.sleep(delay)


def make_headers(keys: Sequence[bytes], delivery_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a request, with its signature."""
    return {
        "content-type": "application/json",
        "user-agent": f"Sapwood/{sapwood.__version__}",
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(keys, delivery_id, timestamp, body),
    }


def encode_payload(delivery: WebhookDelivery) -> bytes:
    """Return the body of a delivery's request, which is the same for every attempt."""
    payload = delivery.payload
    if not isinstance(payload, bytes):
        payload = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    published = datetime.fromtimestamp(delivery.published, UTC)
    timestamp = published.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return b'{"type":"sapwood.delivery","timestamp":"%s","data":%s}' % (timestamp.encode(), payload)
