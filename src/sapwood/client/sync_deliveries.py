"""The deliveries of a subscriber as an iterator that reconnects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Lock, Timer
from typing import TYPE_CHECKING, Self

import httpx

from sapwood.client.calls import subscriber_calls
from sapwood.client.client_errors import Unavailable
from sapwood.client.model.delivery import Delivery, Gap
from sapwood.client.transport.delivery_feed import ACK_COUNT, ACK_SECONDS, AckMode, DeliveryFeed, Reconnection
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.client.sync_client import Client

_log = logging.getLogger(__name__)


class Deliveries(Iterator[Delivery]):
    """Deliveries as they come; iteration waits for the next, reconnects, and ends after close() only.

    The first connection is subject to the retries of the client; a lost one is opened again until that
    succeeds.
    """

    def __init__(
        self,
        client: Client,
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
        self._chunks: Iterator[bytes] = iter(())
        self._was_connected = False
        self._closed = False
        self._timer: Timer | None = None
        self._flush_lock = Lock()
        self._timer_lock = Lock()

    @property
    def position(self) -> int | None:
        """The number of the last delivery that was handed out."""
        return self._feed.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        if self._closed:
            raise StopIteration
        self._feed.ask()
        while True:
            try:
                delivery = self._feed.take()
                if delivery is not None:
                    return delivery
                self._receive()
            except SapwoodError as error:
                self._disconnect()
                delay = self._reconnection.delay_after(error, self._feed.retry)
                if not self._was_connected:
                    raise  # the client has retried
                if self._reconnection.is_first:
                    _log.info("the event stream of %r was lost: %s", self._feed.subscriber, error)
                    if self._on_disconnect is not None:
                        self._on_disconnect(error)
                self._client._sleep(delay)

    def _receive(self) -> None:
        """Read some bytes, on a new connection if there is none."""
        call = subscriber_calls.open_events(self._feed.subscriber, self._feed.position)
        if self._response is None:
            self._response = self._client._open(call, retry=not self._was_connected)
            self._chunks = self._response.iter_bytes()
            self._was_connected = True
            self._feed.begin()
        try:
            chunk = next(self._chunks, None)
        except httpx.TransportError as error:
            raise self._client.settings.transport_error(call, error) from error
        if chunk is None:
            raise Unavailable("the broker has ended the event stream", request=call.path)
        self._reconnection.connected()
        self._feed.feed(chunk)

    def _disconnect(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    # -- acknowledgement -----------------------------------------------------------------------------------

    def _acknowledge(self, number: int) -> None:
        if self._feed.mark_processed(number) >= ACK_COUNT:
            self.flush()
            return
        with self._timer_lock:
            if self._timer is None and not self._closed:
                self._timer = Timer(ACK_SECONDS, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def _flush_late(self) -> None:
        with self._timer_lock:
            self._timer = None
        try:
            self.flush()
        except (SapwoodError, RuntimeError) as error:  # the latter where the client has been closed
            # What is not acknowledged stays so until the next attempt, and is delivered again at worst.
            _log.warning("deliveries of %r were not acknowledged: %s", self._feed.subscriber, error)

    def flush(self) -> None:
        """Tell the broker now what has been acknowledged."""
        with self._flush_lock:  # or the end would repeat what is on its way
            number = self._feed.pending()
            if number is not None:
                self._client._send(subscriber_calls.ack(self._feed.subscriber, number))
                self._feed.mark_acknowledged(number)

    def close(self) -> None:
        """End the connection, and tell the broker what has been acknowledged."""
        if self._closed:
            return
        with self._timer_lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._disconnect()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
