"""The ends of a link without brokers: a sender that keeps the window full, and a receiver that releases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sapwood.bench.harness import BenchError
from sapwood.mesh.nats.link_transport import LinkTransport
from sapwood.mesh.nats.local_servers import HUB, LocalServer
from sapwood.mesh.nats.settings import TransportSettings

_WINDOW = 64
_PATIENCE = 60.0


class LinkEnd:
    """A broker that only sends and receives payloads."""

    def __init__(self, settings: TransportSettings) -> None:
        self.transport = LinkTransport(settings, self)
        self.received = self._accepted = 0
        self._changed = asyncio.Event()

    async def send_all(self, neighbour: str, payloads: Sequence[bytes], receiver: LinkEnd) -> None:
        """Send payloads, and wait until the other end has them."""
        wanted, accepted = receiver.received + len(payloads), self._accepted
        for number, payload in enumerate(payloads):
            while number - (self._accepted - accepted) >= _WINDOW:
                await self._wait(self)
            self.transport.send(neighbour, payload, number)
        while receiver.received < wanted:
            await self._wait(receiver)

    async def _wait(self, end: LinkEnd) -> None:
        end._changed.clear()
        try:
            async with asyncio.timeout(_PATIENCE):
                await end._changed.wait()
        except TimeoutError:
            raise BenchError(f"nothing moves on a link for {_PATIENCE:g} s") from None

    def on_connection(self, connected: bool, reason: str) -> None:
        """The connection was made, or lost."""
        self._changed.set()

    def on_accepted(self, neighbour: str, tag: int) -> None:
        """The neighbour's stream has a payload."""
        self._accepted += 1
        self._changed.set()

    def on_send_failed(self, neighbour: str, tag: int, reason: str) -> None:
        """A payload could not be sent."""
        raise BenchError(f"a payload could not be sent: {reason}")

    def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
        """A payload has come."""
        self.received += 1
        self.transport.release(neighbour, tag)
        self._changed.set()

    def on_control(self, neighbour: str, payload: bytes) -> None:
        """A control has come."""

    def on_drained(self, neighbour: str) -> None:
        """Nothing waits."""


@asynccontextmanager
async def open_link_ends(one: LocalServer, other: LocalServer) -> AsyncIterator[tuple[LinkEnd, LinkEnd]]:
    """Yield both ends of a link between two sites."""
    ends: list[LinkEnd] = []
    try:
        for server, neighbour in ((one, other), (other, one)):
            settings = TransportSettings(
                "bench", server.name, [server.url], domain=server.domain, hub_domain=HUB
            )
            end = LinkEnd(settings)
            end.transport.set_neighbours({neighbour.name})
            await end.transport.start()
            ends.append(end)
        while not all(end.transport.connected for end in ends):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)  # until the streams are made
        yield ends[0], ends[1]
    finally:
        for end in ends:
            await end.transport.stop()
