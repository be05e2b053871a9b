"""Targets of webhooks on loopback that behave as they are told, and an inbox in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from sapwood.serve.webhooks.webhook_sender import WebhookDelivery

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, headers: str = "", body: bytes = b"") -> Behaviour:
    """Return a behaviour that answers with a status."""

    async def send(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return send


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def hang_in_body(writer: asyncio.StreamWriter) -> None:
    """Accept, begin a body, and send no more of it."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
    await asyncio.Event().wait()


async def send_endless_body(writer: asyncio.StreamWriter) -> None:
    """Accept, and send a body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + 4096 * b"x" + b"\r\n")
        await writer.drain()


async def send_endless_headers(writer: asyncio.StreamWriter) -> None:
    """Send a header without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        writer.write(4096 * b"x")
        await writer.drain()


async def send_garbage(writer: asyncio.StreamWriter) -> None:
    """Answer with what is not HTTP."""
    writer.write(b"\x00\x01\x02 hello\r\n\r\n")
    writer.close()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""
    writer.close()


async def answer_and_close(writer: asyncio.StreamWriter) -> None:
    """Accept, and close the connection, which keep-alive had allowed to use again."""
    await answer(200)(writer)
    writer.close()


@dataclass
class Request:
    """A request that a target has received."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    time: float

    @property
    def id(self) -> str:
        """The id of the delivery."""
        return self.headers["webhook-id"]


@dataclass
class Target:
    """A server that treats each request by the next of its behaviours; the last one is repeated."""

    behaviours: list[Behaviour]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """A URL of this server."""
        return f"http://127.0.0.1:{self.port}/hook?a=b"

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._handlers)

    @property
    def ids(self) -> list[str]:
        """The ids of the deliveries in the order of requests."""
        return [request.id for request in self.requests]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections += 1
        number = self.connections
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
                body = await reader.readexactly(int(headers["content-length"]))
                now = asyncio.get_running_loop().time()
                self.requests.append(Request(head[0], headers, body, number, now))
                behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                await behaviour(writer)
        writer.transport.abort()
        self._handlers.discard(task)

    async def stop(self) -> None:
        """End all connections."""
        for task in self._handlers:
            task.cancel()
        await asyncio.sleep(0)


@asynccontextmanager
async def serve(*behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[Target]:
    """Run a target that behaves in a given way."""
    target = Target(list(behaviours) or [answer(200)])
    server = await asyncio.start_server(target.accept, "127.0.0.1", 0, ssl=tls)
    target.port = server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        await target.stop()


def make_deliveries(count: int, first: int = 1) -> list[WebhookDelivery]:
    """Return deliveries with consecutive numbers."""
    return [
        WebhookDelivery(f"in-{n}", n, 1_800_000_000.5, {"id": f"in-{n}", "number": n, "body": "<é/>"})
        for n in range(first, first + count)
    ]


class Inbox:
    """An inbox in memory, which records what a sender reports."""

    def __init__(self, deliveries: Sequence[WebhookDelivery] = (), *, limit: int = 10) -> None:
        self.deliveries = list(deliveries)
        self.limit = limit
        self.acknowledged = 0
        self.dead: list[tuple[str, int, str]] = []
        self.disabled: str | None = None
        self.failing: set[str] = set()
        """methods whose next call fails"""
        self._changed = asyncio.Condition()

    async def add(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Put deliveries into the inbox."""
        async with self._changed:
            self.deliveries += deliveries
            self._changed.notify_all()

    async def next(self) -> Sequence[WebhookDelivery]:
        """Return the first deliveries that are not acknowledged."""
        self._fail("next")
        async with self._changed:
            await self._changed.wait_for(self._rest)
            return self._rest()[: self.limit]

    def _rest(self) -> list[WebhookDelivery]:
        return [each for each in self.deliveries if each.number > self.acknowledged]

    async def acknowledge(self, upto: int) -> None:
        """Acknowledge deliveries."""
        self._fail("acknowledge")
        async with self._changed:
            assert upto == self.acknowledged + 1, "in order, without gaps"
            self.acknowledged = upto
            self._changed.notify_all()

    async def dead_letter(self, delivery: WebhookDelivery, attempts: int, reason: str) -> None:
        """Record a dead letter."""
        self._fail("dead_letter")
        self.dead.append((delivery.id, attempts, reason))
        await self.acknowledge(delivery.number)

    async def disable(self, reason: str) -> None:
        """Record that the webhook is disabled."""
        async with self._changed:
            self.disabled = reason
            self._changed.notify_all()

    async def wait(self, upto: int | None = None, seconds: float = 5.0) -> None:
        """Wait until deliveries are acknowledged, all unless said otherwise, or the webhook is disabled."""
        wanted = len(self.deliveries) if upto is None else upto
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: self.acknowledged >= wanted or self.disabled is not None)

    def _fail(self, method: str) -> None:
        if method in self.failing:
            self.failing.remove(method)
            raise OSError("the database is away")


class VirtualTime:
    """A clock that advances when somebody sleeps, and takes no time."""

    def __init__(self, jitter: float = 1.0) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self.jitter = jitter

    def now(self) -> float:
        """Return seconds since the epoch."""
        return 1_800_000_000.0 + self.seconds

    def monotonic(self) -> float:
        """Return seconds."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Advance."""
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    def uniform(self, low: float, high: float) -> float:
        """Return a fixed fraction of a range."""
        return low + (high - low) * self.jitter
