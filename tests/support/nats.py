"""NATS servers of tests, and brokers that only send and receive numbered payloads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sapwood.mesh.nats.errors import NatsServerError
from sapwood.mesh.nats.link_transport import LinkTransport, TransportSettings
from sapwood.mesh.nats.local_servers import LocalServer, LocalServers, find_program
from tests.support.requirements import SLOWDOWN, missing


@contextmanager
def running(folder: Path) -> Iterator[LocalServers]:
    """Servers that are ended after the block; the test is skipped where nats-server is missing."""
    try:
        find_program()
    except NatsServerError as error:
        missing(str(error))
    with LocalServers(folder) as servers:
        yield servers


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds * SLOWDOWN):
        while not condition():
            await asyncio.sleep(0.005)


def tasks_left() -> list[str]:
    """The tasks that a transport or a directory has not ended: all but those of tests."""
    own = {task: getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
    return [str(task) for task, name in own.items() if not name.startswith("test_")]


class Recorder:
    """A listener that writes down all that it is told, and releases payloads if asked to."""

    def __init__(self, release: bool = True) -> None:
        self.transport: LinkTransport | None = None
        self.release = release
        self.connections: list[tuple[bool, str]] = []
        self.accepted: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int, str]] = []
        self.payloads: list[tuple[str, bytes, int]] = []
        self.controls: list[tuple[str, bytes]] = []
        self.drained: list[str] = []

    @property
    def bodies(self) -> list[bytes]:
        return [payload for _, payload, _ in self.payloads]

    def on_connection(self, connected: bool, reason: str) -> None:
        self.connections.append((connected, reason))

    def on_accepted(self, neighbour: str, tag: int) -> None:
        self.accepted.append((neighbour, tag))

    def on_send_failed(self, neighbour: str, tag: int, reason: str) -> None:
        self.failed.append((neighbour, tag, reason))

    def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
        self.payloads.append((neighbour, payload, tag))
        if self.release and self.transport is not None:
            self.transport.release(neighbour, tag)

    def on_control(self, neighbour: str, payload: bytes) -> None:
        self.controls.append((neighbour, payload))

    def on_drained(self, neighbour: str) -> None:
        self.drained.append(neighbour)


class Peer(Recorder):
    """A broker with the simplest go-back-N: what a neighbour has not confirmed is sent again."""

    WINDOW = 200

    def __init__(self, release: bool = True) -> None:
        super().__init__(release)
        self.outbox: dict[str, list[bytes]] = defaultdict(list)
        self.next: dict[str, int] = defaultdict(int)
        self.confirmed: dict[str, int] = defaultdict(int)
        self.received: dict[str, list[bytes]] = defaultdict(list)
        self.repeated = 0
        self._told: dict[str, int] = defaultdict(int)

    def say(self, neighbour: str, *bodies: bytes) -> None:
        self.outbox[neighbour].extend(bodies)
        self._fill(neighbour)

    def done(self, neighbour: str) -> bool:
        return self.confirmed[neighbour] == len(self.outbox[neighbour])

    def _fill(self, neighbour: str) -> None:
        assert self.transport is not None
        outbox = self.outbox[neighbour]
        limit = min(len(outbox), self.confirmed[neighbour] + self.WINDOW)
        while self.next[neighbour] < limit:
            number = self.next[neighbour]
            self.next[neighbour] += 1
            self.transport.send(neighbour, number.to_bytes(8) + outbox[number], number)

    def on_send_failed(self, neighbour: str, tag: int, reason: str) -> None:
        super().on_send_failed(neighbour, tag, reason)
        self.next[neighbour] = min(self.next[neighbour], tag)
        asyncio.get_running_loop().call_later(0.1, self._fill, neighbour)

    def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
        assert self.transport is not None
        received = self.received[neighbour]
        if int.from_bytes(payload[:8]) == len(received):
            received.append(payload[8:])
        else:
            self.repeated += 1
        if self.release:
            self.transport.release(neighbour, tag)
        if len(received) >= self._told[neighbour] + self.WINDOW // 4:
            self._confirm(neighbour, b"")

    def on_drained(self, neighbour: str) -> None:
        super().on_drained(neighbour)
        self._confirm(neighbour, b"!")

    def _confirm(self, neighbour: str, last: bytes) -> None:
        assert self.transport is not None
        self._told[neighbour] = len(self.received[neighbour])
        self.transport.send_control(neighbour, self._told[neighbour].to_bytes(8) + last)

    def on_control(self, neighbour: str, payload: bytes) -> None:
        confirmed = int.from_bytes(payload[:8])
        self.confirmed[neighbour] = max(self.confirmed[neighbour], confirmed)
        in_stream = {tag for name, tag in self.accepted if name == neighbour}
        if payload[8:] and confirmed in in_stream and confirmed < self.next[neighbour]:
            # The stream is empty, but what it accepted did not arrive: the server lost it.
            self.accepted.clear()
            self.next[neighbour] = confirmed
        self._fill(neighbour)


def settings(server: LocalServer, broker: str, hub: str | None = None, **more: object) -> TransportSettings:
    """The settings of a broker at a server, in the mesh `test`."""
    values = {"servers": [server.url], "domain": server.domain, "hub_domain": hub, **more}
    return TransportSettings("test", broker, **values)  # type: ignore[arg-type]


class Mesh:
    """Transports that are started together and stopped at the end of a block."""

    def __init__(self) -> None:
        self.transports: list[LinkTransport] = []

    async def add(self, settings: TransportSettings, listener: Recorder, *neighbours: str) -> LinkTransport:
        transport = LinkTransport(settings, listener)
        listener.transport = transport
        transport.set_neighbours(neighbours)
        await transport.start()
        self.transports.append(transport)
        return transport

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in self.transports:
            await transport.stop()
        assert not (left := tasks_left()), f"tasks are left: {left}"
