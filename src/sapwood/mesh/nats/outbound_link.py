"""The sending end of a link: payloads published in order, several in flight, acknowledged by the stream."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from itertools import count

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from sapwood.mesh.nats.connection import Connection, describe
from sapwood.mesh.nats.parts import MOST_PARTS, PART, part_size, split
from sapwood.mesh.nats.settings import TransportSettings

_log = logging.getLogger(__name__)


class Sending:
    """A payload that is queued or in flight."""

    __slots__ = ("dropped", "link", "payload", "sent_at", "tag", "waiting")

    def __init__(self, link: OutboundLink, payload: bytes, tag: int) -> None:
        self.link = link
        self.payload = payload
        self.tag = tag
        self.sent_at = 0.0
        self.waiting = 0
        """Messages without an acknowledgement; one that is not yet published wholly has one more."""
        self.dropped = False


class PubAcks:
    """The inbox to which streams send the acknowledgements of what all links of a broker publish."""

    def __init__(self) -> None:
        self._prefix = ""
        self._numbers = count(1)
        self._sendings: dict[int, Sending] = {}

    async def subscribe(self, client: Client) -> None:
        """Receive acknowledgements by a new connection; those of the one before will not come."""
        self._sendings.clear()
        inbox = client.new_inbox()
        self._prefix = f"{inbox}."
        await client.subscribe(f"{inbox}.*", cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0)

    def expect(self, sending: Sending) -> str:
        """Return the reply subject of a message of the payload."""
        number = next(self._numbers)
        self._sendings[number] = sending
        return f"{self._prefix}{number}"

    def forget(self, dropped: set[Sending]) -> None:
        self._sendings = {n: sending for n, sending in self._sendings.items() if sending not in dropped}

    async def _receive(self, message: Msg) -> None:
        number = int(message.subject[len(self._prefix) :])
        sending = self._sendings.get(number)
        if sending is None:  # of a payload that was dropped
            return
        if b'"error":' in message.data or (message.headers and "Status" in message.headers):
            del self._sendings[number]
            sending.link.fail(_refusal(message))
        elif (
            sending.link.stream in message.data
        ):  # else of a stream that an operator made for the same subject
            del self._sendings[number]
            sending.link.acknowledge(sending)


def _refusal(message: Msg) -> str:
    if message.headers is not None and message.headers.get("Status") == "503":
        return "no stream takes it: the neighbour has not made it yet, or its site is not connected"
    try:
        return str(json.loads(message.data)["error"]["description"])
    except (ValueError, KeyError, TypeError):
        return f"an answer that is no acknowledgement: {message.data[:100]!r}"


class OutboundLink:
    """The payloads for one neighbour; after a failure all that were given are forgotten."""

    def __init__(
        self,
        neighbour: str,
        settings: TransportSettings,
        connection: Connection,
        acks: PubAcks,
        on_accepted: Callable[[str, int], None],
        on_failed: Callable[[str, int, str], None],
    ) -> None:
        self.neighbour = neighbour
        self.stream = f'"{settings.stream(settings.broker, neighbour)}"'.encode()
        self.accepted = 0
        self.accepted_bytes = 0
        self.failures = 0
        self._subject = settings.outbound_subject(neighbour)
        self._settings = settings
        self._connection = connection
        self._acks = acks
        self._on_accepted = on_accepted
        self._on_failed = on_failed
        self._queue: deque[Sending] = deque()
        self._in_flight: deque[Sending] = deque()
        self._bytes_in_flight = 0
        self._progress_at = 0.0
        self._wake = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def queued(self) -> int:
        return len(self._queue)

    def send(self, payload: bytes, tag: int) -> None:
        self._queue.append(Sending(self, payload, tag))
        self._wake.set()

    async def run(self) -> None:
        """Publish what is queued, as far as the window allows, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._queue and self._fits(self._queue[0]):
                    await self._publish_next()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                self.fail(describe(error))
            except Exception as error:
                _log.exception("the link to %s fails to publish", self.neighbour)
                self.fail(describe(error))

    def _fits(self, sending: Sending) -> bool:
        if not self._in_flight:
            return True
        size = self._bytes_in_flight + len(sending.payload)
        return len(self._in_flight) < self._settings.window and size <= self._settings.window_bytes

    async def _publish_next(self) -> None:
        client = self._connection.client
        if client is None:
            self.fail("there is no connection to the NATS server")
            return
        sending = self._queue.popleft()
        sending.sent_at = asyncio.get_running_loop().time()
        sending.waiting = 1
        self._in_flight.append(sending)
        self._bytes_in_flight += len(sending.payload)
        size = part_size(client.max_payload)
        if len(sending.payload) > MOST_PARTS * size:
            self.fail(f"{len(sending.payload):,} bytes need more than {MOST_PARTS} messages of {size:,}")
            return
        for data, part in split(sending.payload, size):
            if sending.dropped:
                return
            sending.waiting += 1
            headers = None if part is None else {PART: part}
            await client.publish(self._subject, data, reply=self._acks.expect(sending), headers=headers)
        self._settle(sending)

    def acknowledge(self, sending: Sending) -> None:
        """Count one message of the payload, and report payloads in their order."""
        self._progress_at = asyncio.get_running_loop().time()
        self._settle(sending)

    def _settle(self, sending: Sending) -> None:
        sending.waiting -= 1
        if sending.waiting or sending.dropped:
            return
        while self._in_flight and not self._in_flight[0].waiting:
            first = self._in_flight.popleft()
            size = len(first.payload)
            self._bytes_in_flight -= size
            self.accepted += 1
            self.accepted_bytes += size
            self._on_accepted(self.neighbour, first.tag)
        if self._queue:
            self._wake.set()

    def check_timeout(self, now: float) -> None:
        """Fail what is in flight if the stream has acknowledged nothing for long."""
        if self._in_flight:
            since = max(self._in_flight[0].sent_at, self._progress_at)
            if now - since > self._settings.ack_timeout:
                self.fail(f"no acknowledgement within {self._settings.ack_timeout:g} s")

    def fail(self, reason: str) -> None:
        """Drop all that is in flight or queued, and report the first of it."""
        dropped = [*self._in_flight, *self._queue]
        if not dropped:
            return
        self._in_flight.clear()
        self._queue.clear()
        self._bytes_in_flight = 0
        for sending in dropped:
            sending.dropped = True
        self._acks.forget(set(dropped))
        self.failures += 1
        _log.debug("the link to %s drops %d payloads: %s", self.neighbour, len(dropped), reason)
        self._on_failed(self.neighbour, dropped[0].tag, reason)
