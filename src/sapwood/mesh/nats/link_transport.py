"""The links of a broker over NATS: payloads through streams, control messages beside them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import nats.errors
from nats.aio.msg import Msg

from sapwood.errors import ArgumentError
from sapwood.mesh.nats.connection import Connection, NatsClient, cancel, describe, guard, spawn
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.mesh.nats.inbound_link import InboundLink
from sapwood.mesh.nats.jetstream import JetStream, JetStreamError
from sapwood.mesh.nats.link_state import Backlog, LinkState, ServerInfo, read_backlog
from sapwood.mesh.nats.outbound_link import OutboundLink, PubAcks
from sapwood.mesh.nats.parts import PART, Assembler, check_size, part_size, split
from sapwood.mesh.nats.settings import TransportSettings, check_name, is_name

__all__ = ["LinkListener", "LinkTransport", "TransportSettings"]

_log = logging.getLogger(__name__)

_FROM = "Sapwood-From"
_CHECK_INTERVAL = 0.5
_STALL = 2.0
_CLEAN_INTERVAL = 30.0
_MOST_CONTROLS = 4_096
_MOST_SENDERS = 64


class LinkListener(Protocol):
    """What a `LinkTransport` reports, by plain calls in its event loop, never from within a call to it."""

    def on_connection(self, connected: bool, reason: str) -> None:
        """The connection to the site's server was made, or lost, or cannot be made yet."""

    def on_accepted(self, neighbour: str, tag: int) -> None:
        """The neighbour's stream has the payload; that its broker has stored it is another matter."""

    def on_send_failed(self, neighbour: str, tag: int, reason: str) -> None:
        """The payload, and all that were sent after it, are dropped: they have to be sent again."""

    def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
        """The next payload of the neighbour's stream; it may be one that came before."""

    def on_control(self, neighbour: str, payload: bytes) -> None:
        """A control message; `neighbour` is any broker that knows this one's name."""

    def on_drained(self, neighbour: str) -> None:
        """The neighbour's stream has nothing more at present; reported about once a second at most."""


class LinkTransport:
    """Sends payloads to neighbours in order, and hands over theirs until they are released.

    The link from `a` to `b` is a stream in the JetStream domain of `b`. It keeps the order and, while `b` is
    away, the payloads; it promises no more. A server that loses data, or a payload that is sent again after a
    failure, shows as a gap or a repetition, which the brokers recognise by the numbers of their frames.
    (`Nats-Msg-Id` is not used: JetStream would drop what is sent again.)

    The stream of a neighbour that is gone is kept for `settings.linger` seconds, ten minutes by default, and
    then deleted, since its maximal size counts against the server's limits. Nothing is lost: a sender keeps
    what the receiver has not confirmed.
    """

    def __init__(self, settings: TransportSettings, listener: LinkListener) -> None:
        self.settings = settings
        self._listener = listener
        self._on_control = guard(listener.on_control)
        self._connection = Connection(
            settings, f"sapwood broker {settings.broker}", self._prepare, self._on_change
        )
        self._acks = PubAcks()
        self._outbound: dict[str, OutboundLink] = {}
        self._inbound: dict[str, InboundLink] = {}
        self._link_tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: set[asyncio.Task[None]] = set()
        self._replies: deque[tuple[str, bytes, dict[str, str] | None]] = deque()
        self._reply_wake = asyncio.Event()
        self._controls: dict[str, Assembler[None]] = {}
        self._unused_since: dict[str, float] = {}
        self._neighbours_known = False
        self._running = False

    @property
    def connected(self) -> bool:
        return self._connection.client is not None

    async def start(self) -> None:
        """Begin to connect; returns at once, whether a server is there or not."""
        if self._running:
            raise ArgumentError("the transport has been started already")
        self._running = True
        for neighbour in self._inbound:
            self._start_link(neighbour)
        self._tasks = [
            spawn(self._publish_replies(), "acknowledgements and control messages"),
            spawn(self._check_timeouts(), "timeouts of links"),
            spawn(self._clean_streams(), "streams of neighbours that are gone"),
        ]
        self._connection.start()

    async def stop(self) -> None:
        """End all tasks and the connection, after the acknowledgements that were asked for."""
        self._running = False
        links = [task for tasks in self._link_tasks.values() for task in tasks]
        await cancel(*links, *self._tasks, *self._ended)
        self._link_tasks.clear()
        self._tasks.clear()
        if (client := self._connection.client) is not None:
            try:
                await self._publish_pending(client)
            except (nats.errors.Error, OSError, TimeoutError) as error:
                _log.debug("acknowledgements are lost at the end: %s", describe(error))
        await self._connection.stop()

    def set_neighbours(self, names: Iterable[str]) -> None:
        """Make these the neighbours: those that are new get a stream, of those that are gone none is read.

        What was in flight or queued for one that is gone is dropped without a report.
        """
        wanted = set(names)
        for name in wanted:
            check_name("neighbour", name)
            if name == self.settings.broker:
                raise ArgumentError(f"the broker {name!r} cannot be its own neighbour")
        self._neighbours_known = True
        for name in self._inbound.keys() - wanted:
            del self._inbound[name], self._outbound[name]
            for task in self._link_tasks.pop(name, []):
                self._ended.add(task)
                task.add_done_callback(self._ended.discard)
                task.cancel()
        for name in sorted(wanted - self._inbound.keys()):
            self._inbound[name] = InboundLink(
                name,
                self.settings,
                self._connection,
                self._acknowledge,
                guard(self._listener.on_payload),
                guard(self._listener.on_drained),
            )
            self._outbound[name] = OutboundLink(
                name,
                self.settings,
                self._connection,
                self._acks,
                guard(self._listener.on_accepted),
                guard(self._listener.on_send_failed),
            )
            if self._running:
                self._start_link(name)

    def send(self, neighbour: str, payload: bytes, tag: int) -> None:
        """Queue a payload; `on_accepted` or `on_send_failed` reports what became of it.

        Without a connection it fails at once, so that nothing is sent late.
        """
        check_size(payload)
        if neighbour not in self._outbound:
            raise ArgumentError(
                f"{neighbour!r} is no neighbour of {self.settings.broker!r}: set_neighbours first"
            )
        self._outbound[neighbour].send(payload, tag)

    def send_control(self, neighbour: str, payload: bytes) -> None:
        """Send a message that may be lost, to any broker of the mesh; without a connection it is."""
        check_size(payload)
        check_name("neighbour", neighbour)
        client = self._connection.client
        if client is None or len(self._replies) > _MOST_CONTROLS:
            _log.debug("a control message to %s is dropped", neighbour)
            return
        subject = self.settings.control_subject(neighbour)
        for data, part in split(payload, part_size(client.max_payload)):
            headers = {_FROM: self.settings.broker} | ({} if part is None else {PART: part})
            self._replies.append((subject, data, headers))
        self._reply_wake.set()

    def release(self, neighbour: str, tag: int) -> None:
        """Acknowledge all payloads of the neighbour up to the tag: the broker has stored them."""
        if (link := self._inbound.get(neighbour)) is not None:  # else it is gone, and its stream with it
            link.release(tag)

    async def link_state(self) -> dict[str, LinkState]:
        """Return the counters of all links, and what their streams hold for this broker."""
        client = self._connection.client
        jetstream = None if client is None else JetStream(client, self.settings.domain)
        backlogs: dict[str, Backlog | None] = {}
        for name, link in self._inbound.items():
            backlogs[name] = None if jetstream is None else await read_backlog(jetstream, link.stream)
        return {
            name: LinkState.of(link, self._outbound[name], backlogs.get(name))
            for name, link in self._inbound.items()
        }

    async def server_info(self) -> ServerInfo:
        """Return which server the broker is connected to, and how far away it is."""
        return await ServerInfo.read(self._connection.client)

    def _start_link(self, name: str) -> None:
        self._link_tasks[name] = [
            spawn(self._inbound[name].run(), f"link from {name}"),
            spawn(self._outbound[name].run(), f"link to {name}"),
        ]

    def _acknowledge(self, reply: str) -> None:
        self._replies.append((reply, b"", None))
        self._reply_wake.set()

    async def _prepare(self, client: NatsClient) -> None:
        self._replies.clear()
        await self._acks.subscribe(client)
        await client.subscribe(self.settings.control_subject(self.settings.broker), cb=self._receive_control)

    def _on_change(self, connected: bool, reason: str) -> None:
        if not connected:
            self._replies.clear()
            for link in list(self._outbound.values()):
                link.fail(f"there is no connection ({reason})")
            for each in self._inbound.values():
                each.interrupt()
        self._listener.on_connection(connected, reason)

    async def _receive_control(self, message: Msg) -> None:
        headers = message.headers or {}
        sender = headers.get(_FROM)
        if sender is None or not is_name(sender):
            _log.warning("a control message without the name of its sender is dropped")
            return
        part = headers.get(PART)
        payload: bytes | None = message.data
        if part is not None or sender in self._controls:
            if len(self._controls) > _MOST_SENDERS:  # each holds memory until its group is complete
                self._controls.clear()
            payload, _, _ = self._controls.setdefault(sender, Assembler()).add(message.data, part, None)
            if payload is not None:
                del self._controls[sender]
        if payload is not None:
            self._on_control(sender, payload)

    async def _publish_replies(self) -> None:
        while True:
            await self._reply_wake.wait()
            self._reply_wake.clear()
            client = self._connection.client
            try:
                if client is not None:
                    await self._publish_pending(client)
            except (nats.errors.Error, OSError, TimeoutError) as error:
                _log.debug("acknowledgements are lost: %s", describe(error))

    async def _publish_pending(self, client: NatsClient) -> None:
        while self._replies:
            subject, data, headers = self._replies.popleft()
            await client.publish(subject, data, headers=headers)

    async def _check_timeouts(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_CHECK_INTERVAL)
            now = loop.time()
            if now - before > _STALL:  # this process stood still: acknowledgements may wait in the socket
                continue
            for link in list(self._outbound.values()):
                try:
                    link.check_timeout(now)
                except Exception:
                    _log.exception("the link to %s cannot report a timeout", link.neighbour)

    async def _clean_streams(self) -> None:
        while True:
            await asyncio.sleep(min(_CLEAN_INTERVAL, self.settings.linger / 2))
            client = self._connection.client
            if client is None or not self._neighbours_known:
                continue
            try:
                await self._delete_unused(JetStream(client, self.settings.domain))
            except (JetStreamError, MeshUnavailable) as error:
                _log.debug("streams of neighbours that are gone cannot be deleted: %s", describe(error))

    async def _delete_unused(self, jetstream: JetStream) -> None:
        """Delete the streams of former neighbours which have been unused for long."""
        answer = await jetstream.request("STREAM.NAMES", {"subject": self.settings.inbound_subject("*")})
        prefix, _, suffix = self.settings.stream("*", self.settings.broker).partition("*")
        streams = {name for name in answer.get("streams") or [] if name.startswith(prefix)}
        used = {link.stream for link in self._inbound.values()}
        unused = {name for name in streams if name.endswith(suffix)} - used
        now = asyncio.get_running_loop().time()
        self._unused_since = {name: self._unused_since.get(name, now) for name in unused}
        for name, since in self._unused_since.items():
            if now - since >= self.settings.linger:
                _log.info("the stream %s of a former neighbour is deleted", name)
                await jetstream.request(f"STREAM.DELETE.{name}")
