"""The deliveries of a subscriber as an asynchronous iterator that reconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Self

import httpx

from sapwood.client.calls import subscriber_calls
from sapwood.client.client_errors import Unavailable
from sapwood.client.model.delivery import Delivery, Gap
from sapwood.client.transport.delivery_feed import ACK_COUNT, ACK_SECONDS, AckMode, DeliveryFeed, Reconnection
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.client.async_client import AsyncClient

_log = logging.getLogger(__name__)


class AsyncDeliveries(AsyncIterator[Delivery]):
    """Deliveries as they come; iteration waits for the next, reconnects, and ends after aclose() only.

    The first connection is subject to the retries of the client; a lost one is opened again until that
    succeeds.
    """

    def __init__(
        self,
        client: AsyncClient,
        subscriber: str,
        ack: AckMode = "auto",
        after: int | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        on_disconnect: Callable[[SapwoodError], None] | None = None,
    ) -> None:
        self._client = client
        self._feed = DeliveryFeed(subscriber, ack, after, on_gap, self._acknowledge)
        self._reconnection = Reconnection(client.settings.policy)
        self._on_disconnect = on_disconnect
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._was_connected = False
        self._closed = False
        self._is_flush_planned = False
        self._flush_lock = asyncio.Lock()
        self._flushes: set[asyncio.Task[None]] = set()
        """planned and running flushes, because the event loop holds its tasks weakly"""

    @property
    def position(self) -> int | None:
        """The number of the last delivery that was handed out."""
        return self._feed.position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if self._closed:
            raise StopAsyncIteration
        self._feed.ask()
        while True:
            try:
                delivery = self._feed.take()
                if delivery is not None:
                    return delivery
                await self._receive()
            except SapwoodError as error:
                await self._disconnect()
                delay = self._reconnection.delay_after(error, self._feed.retry)
                if not self._was_connected:
                    raise  # the client has retried
                if self._reconnection.is_first:
                    _log.info("the event stream of %r was lost: %s", self._feed.subscriber, error)
                    if self._on_disconnect is not None:
                        self._on_disconnect(error)
                await self._client._sleep(delay)

    async def _receive(self) -> None:
        """Read some bytes, on a new connection if there is none."""
        call = subscriber_calls.open_events(self._feed.subscriber, self._feed.position)
        if self._response is None or self._chunks is None:
            self._response = await self._client._open(call, retry=not self._was_connected)
            self._chunks = self._response.aiter_bytes()
            self._was_connected = True
            self._feed.begin()
        try:
            chunk = await anext(self._chunks, None)
        except httpx.TransportError as error:
            raise self._client.settings.transport_error(call, error) from error
        if chunk is None:
            raise Unavailable("the broker has ended the event stream", request=call.path)
        self._reconnection.connected()
        self._feed.feed(chunk)

    async def _disconnect(self) -> None:
        if self._response is not None:
            response, self._response = self._response, None
            await response.aclose()

    # -- acknowledgement -----------------------------------------------------------------------------------

    def _acknowledge(self, number: int) -> None:
        """Note what is processed; a task tells the broker, since Delivery.ack() cannot wait."""
        delay = 0.0 if self._feed.mark_processed(number) >= ACK_COUNT else ACK_SECONDS
        if not self._is_flush_planned and not self._closed:
            self._is_flush_planned = True
            task = asyncio.get_running_loop().create_task(self._flush_late(delay))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    async def _flush_late(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._is_flush_planned = False
        try:
            await self.flush()
        except (SapwoodError, RuntimeError) as error:  # the latter where the client has been closed
            # What is not acknowledged stays so until the next attempt, and is delivered again at worst.
            _log.warning("deliveries of %r were not acknowledged: %s", self._feed.subscriber, error)

    async def flush(self) -> None:
        """Tell the broker now what has been acknowledged."""
        async with self._flush_lock:
            number = self._feed.pending()
            if number is not None:
                await self._client._send(subscriber_calls.ack(self._feed.subscriber, number))
                self._feed.mark_acknowledged(number)

    async def aclose(self) -> None:
        """End the connection, and tell the broker what has been acknowledged."""
        if self._closed:
            return
        self._closed = True
        if not self._flush_lock.locked():  # what is on its way is not repeated, but waited for
            for task in self._flushes:
                task.cancel()
        await asyncio.gather(*self._flushes, return_exceptions=True)
        await self._disconnect()
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
