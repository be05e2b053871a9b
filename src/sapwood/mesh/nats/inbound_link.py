"""The receiving end of a link: a work-queue stream of the broker's own domain, read by one pull consumer.

Two pull requests overlap, so that the server always has one that it can answer. Each has an inbox of its own,
which tells how much of it is left; consumer sequence numbers restore the order over both.

The consumer is made anew whenever the broker connects, and when anything about the stream is not as expected.
It then begins with the oldest payload that was not acknowledged, so that the order is that of the stream; the
consumer of before would give those again only after `ack_wait`, behind later ones. The price is that payloads
that were handed over, and not yet released, come twice; brokers recognise them by their numbers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from sapwood.mesh.nats.connection import Connection, NatsClient, describe
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.mesh.nats.jetstream import (
    NOT_FOUND,
    STREAM_DIFFERS,
    Delivery,
    JetStream,
    JetStreamError,
    parse_delivery,
)
from sapwood.mesh.nats.parts import MOST_PARTS, PART, Assembler
from sapwood.mesh.nats.settings import TransportSettings

_log = logging.getLogger(__name__)

_SLOTS = 2
_BATCH = 128
_SMALL_BATCH = 32
_EXPIRES = 5.0
_SILENCE = _EXPIRES + 3.0
_STALL = 3.0
_ACK_WAIT = 60.0
_DRAINED_INTERVAL = 1.0
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_SECOND = 1_000_000_000


@dataclass(slots=True)
class _Slot:
    """A pull request: the messages and bytes that it may still bring."""

    inbox: str
    left: int = 0
    bytes_left: int = 0
    brought: int = 0
    active_at: float = 0.0


@dataclass(slots=True)
class _Message:
    """What acknowledges a message, and where it is in the stream."""

    reply: str
    sequence: int


@dataclass(slots=True)
class _Handed:
    """A payload that was handed over and is not released."""

    tag: int
    size: int
    messages: list[_Message]


class InboundLink:
    """Reads the stream of one neighbour, and hands over as much as the credit allows."""

    def __init__(
        self,
        neighbour: str,
        settings: TransportSettings,
        connection: Connection,
        acknowledge: Callable[[str], None],
        on_payload: Callable[[str, bytes, int], None],
        on_drained: Callable[[str], None],
    ) -> None:
        self.neighbour = neighbour
        self.stream = settings.stream(neighbour, settings.broker)
        self.payloads = 0
        self.bytes = 0
        self.redelivered = 0
        self.error: str | None = None
        self._settings = settings
        self._connection = connection
        self._acknowledge = acknowledge
        self._on_payload = on_payload
        self._on_drained = on_drained
        self._assembler: Assembler[_Message] = Assembler()
        self._handed: deque[_Handed] = deque()
        self._handed_messages = 0
        self._handed_bytes = 0
        self._tag = 0
        self._last_sequence = 0
        self._next_delivery = 1
        self._early: dict[int, Msg] = {}
        self._generation = 0
        self._slots: list[_Slot] = []
        self._subscriptions: list[Subscription] = []
        self._trouble: str | None = None
        self._wake = asyncio.Event()
        self._drained = False
        self._drained_at = float("-inf")
        self._checked_at = float("-inf")

    @property
    def unreleased(self) -> int:
        return len(self._handed)

    @property
    def dropped_parts(self) -> int:
        return self._assembler.dropped

    async def run(self) -> None:
        """Make the stream and its consumer, read them, and begin again after any trouble, until cancelled."""
        delay, logged = _FIRST_DELAY, ""
        try:
            while True:
                client = await self._connection.wait()
                began = asyncio.get_running_loop().time()
                trouble = await self._read(client)
                if asyncio.get_running_loop().time() - began > _SILENCE:
                    delay, logged = _FIRST_DELAY, ""
                if self._connection.client is client:  # else the connection has told
                    level = logging.WARNING if trouble != logged else logging.DEBUG
                    _log.log(level, "the stream %s is opened again: %s", self.stream, trouble)
                    logged = trouble
                await self._close()
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
        finally:
            await self._close()

    def interrupt(self) -> None:
        """Look at once whether the connection is still there."""
        self._wake.set()

    def release(self, tag: int) -> None:
        """Acknowledge all payloads up to the tag; what was opened again since has nothing to acknowledge."""
        while self._handed and self._handed[0].tag <= tag:
            handed = self._handed.popleft()
            self._handed_messages -= max(len(handed.messages), 1)
            self._handed_bytes -= handed.size
            for message in handed.messages:
                self._acknowledge(message.reply)
        self._wake.set()

    async def _read(self, client: NatsClient) -> str:
        """Open the stream and pull from it; return why that ended."""
        try:
            await self._open(client)
            self.error = None
            while self._trouble is None and client.is_connected:
                await self._pull(client)
                self._report_drained()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAINED_INTERVAL):
                        await self._wake.wait()
                self._wake.clear()
                self._check_silence()
            return self._trouble or "the connection was lost"
        except (JetStreamError, MeshUnavailable, nats.errors.Error, OSError, TimeoutError) as error:
            self.error = describe(error)
        except Exception as error:
            _log.exception("the stream %s cannot be read", self.stream)
            self.error = describe(error)
        return self.error

    async def _open(self, client: NatsClient) -> None:
        jetstream = JetStream(client, self._settings.domain)
        await self._make_stream(jetstream)
        durable = self._settings.broker
        try:
            await jetstream.request(f"CONSUMER.DELETE.{self.stream}.{durable}")
        except JetStreamError as error:
            if error.code != NOT_FOUND:
                raise
        self._generation += 1
        self._trouble = None
        self._last_sequence, self._next_delivery = 0, 1
        inbox = client.new_inbox()
        for number in range(_SLOTS):
            slot = _Slot(f"{inbox}.{number}")
            self._slots.append(slot)
            receive = partial(self._receive, self._generation, slot)
            self._subscriptions.append(
                await client.subscribe(slot.inbox, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0)
            )
        config = {
            "durable_name": durable,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "ack_wait": int(_ACK_WAIT * _SECOND),
            "max_ack_pending": max(2 * MOST_PARTS, 2 * self._settings.credit),
            "max_waiting": 16,
        }
        body = {"stream_name": self.stream, "config": config}
        info = await jetstream.request(f"CONSUMER.DURABLE.CREATE.{self.stream}.{durable}", body)
        self._drained = not info.get("num_pending")

    async def _make_stream(self, jetstream: JetStream) -> None:
        config: dict[str, Any] = {
            "name": self.stream,
            "subjects": [self._settings.inbound_subject(self.neighbour)],
            "retention": "workqueue",
            "discard": "new",
            "storage": "file",
            "max_bytes": self._settings.spill,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_age": 0,
            "num_replicas": self._settings.replicas,
        }
        try:
            await jetstream.request(f"STREAM.CREATE.{self.stream}", config)
        except JetStreamError as error:
            if error.number != STREAM_DIFFERS:
                raise
            await jetstream.request(f"STREAM.UPDATE.{self.stream}", config)

    async def _close(self) -> None:
        """Forget the requests, and what would acknowledge messages of this consumer."""
        self._generation += 1
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with suppress(nats.errors.Error):  # the connection, and with it the subscription, has ended
                await subscription.unsubscribe()
        self._slots.clear()
        self._early.clear()
        self._assembler.clear()
        for handed in self._handed:
            handed.messages = []
        self._handed_messages = len(self._handed)

    async def _pull(self, client: NatsClient) -> None:
        """Request more, in slots that are free, if the credit is worth a request."""
        for slot in self._slots:
            if slot.left:
                continue
            others = [each for each in self._slots if each.left]
            free = self._settings.credit - self._handed_messages - sum(each.left for each in others)
            bytes_free = (
                self._settings.credit_bytes - self._handed_bytes - sum(each.bytes_left for each in others)
            )
            # A request that cannot hold the next message would be refused.
            least_bytes = min(2 * client.max_payload, self._settings.credit_bytes)
            if free < (min(_SMALL_BATCH, self._settings.credit // 4) if others else 1):
                continue
            if bytes_free < least_bytes and (others or self._handed):
                continue
            slot.left = min(free, _BATCH)
            slot.bytes_left = max(
                min(bytes_free, self._settings.credit_bytes // _SLOTS), 2 * client.max_payload
            )
            slot.brought = 0
            slot.active_at = asyncio.get_running_loop().time()
            body = {"batch": slot.left, "expires": int(_EXPIRES * _SECOND), "max_bytes": slot.bytes_left}
            api = f"$JS.{self._settings.domain}.API" if self._settings.domain else "$JS.API"
            subject = f"{api}.CONSUMER.MSG.NEXT.{self.stream}.{self._settings.broker}"
            await client.publish(subject, json.dumps(body).encode(), reply=slot.inbox)

    async def _receive(self, generation: int, slot: _Slot, message: Msg) -> None:
        if generation != self._generation:
            return
        slot.active_at = asyncio.get_running_loop().time()
        if not message.reply:
            self._receive_status(slot, message)
            return
        slot.left -= 1
        slot.brought += 1
        slot.bytes_left -= len(message.data)
        if not slot.left:
            self._wake.set()
        delivery = parse_delivery(message.reply)
        if delivery.consumer_sequence != self._next_delivery:
            self._early[delivery.consumer_sequence] = message
            return
        self._next_delivery += 1
        self._take(message, delivery)
        while self._early and (early := self._early.pop(self._next_delivery, None)) is not None:
            self._next_delivery += 1
            self._take(early, parse_delivery(early.reply))

    def _receive_status(self, slot: _Slot, message: Msg) -> None:
        """A request ended: by time, since the next message is too large for it, or with the consumer."""
        headers = message.headers or {}
        status, reason = headers.get("Status", ""), headers.get("Description", "")
        if status == "408" or (status == "409" and "MaxBytes" in reason):
            if status == "408" and not slot.brought and not self._early:
                self._drained = True
            slot.left = slot.bytes_left = 0
        elif status != "100":  # of a heartbeat
            self._trouble = f"JetStream ended a request ({status} {reason})".replace(" )", ")")
        self._wake.set()

    def _take(self, message: Msg, delivery: Delivery) -> None:
        sequence = delivery.stream_sequence
        if sequence <= self._last_sequence:
            if delivery.attempt > 1:
                self._take_again(message.reply, sequence)
                return
            _log.warning("the stream %s was rolled back to message %d", self.stream, sequence)
        self._last_sequence = sequence
        self._drained = not delivery.pending
        if self._drained:
            self._wake.set()
        if delivery.attempt > 1:
            self.redelivered += 1
        part = message.headers.get(PART) if message.headers else None
        payload, messages, dropped = self._assembler.add(
            message.data, part, _Message(message.reply, sequence)
        )
        for each in dropped:
            self._acknowledge(each.reply)
        if payload is None:
            return
        size = len(payload)
        self._tag += 1
        self._handed.append(_Handed(self._tag, size, messages))
        self._handed_messages += len(messages)
        self._handed_bytes += size
        self.payloads += 1
        self.bytes += size
        self._on_payload(self.neighbour, payload, self._tag)

    def _take_again(self, reply: str, sequence: int) -> None:
        """One that came before: its acknowledgement was lost, or it has waited longer than `ack_wait`."""
        self.redelivered += 1
        held = [message for handed in self._handed for message in handed.messages]
        if all(message.sequence != sequence for message in [*held, *self._assembler.tokens]):
            self._acknowledge(reply)

    def _check_silence(self) -> None:
        """A request that is not even ended in time has no consumer any more; nor has a missing message."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at > _STALL:  # this process stood still: answers may wait in the socket
            for slot in self._slots:
                slot.active_at = now
        self._checked_at = now
        oldest = min((slot.active_at for slot in self._slots if slot.left), default=now)
        if now - oldest > _SILENCE:
            self._trouble = "JetStream does not answer requests: the stream or its consumer is gone"
        elif self._early and now - max(slot.active_at for slot in self._slots) > _SILENCE:
            self._trouble = f"delivery {self._next_delivery} is missing"

    def _report_drained(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._drained and now - self._drained_at >= _DRAINED_INTERVAL:
            self._drained = False
            self._drained_at = now
            self._on_drained(self.neighbour)
