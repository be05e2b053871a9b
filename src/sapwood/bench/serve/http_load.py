"""A plain HTTP client on asyncio, which costs little beside the server that it measures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from sapwood.bench.harness import BenchError

_LIMIT = 64 * 2**20
_XMLL = {"content-type": "application/x-xmll"}


class HttpConnections:
    """The connections of a measurement to a server, which are closed with it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[HttpConnection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open:
            await connection.close()

    def open(self) -> HttpConnection:
        """Return a new connection."""
        self._open.append(HttpConnection(self._port))
        return self._open[-1]


class HttpConnection:
    """A connection that is kept for one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request; returns the status and the body of the answer."""
        try:
            status, length = await _read_head(await self._write(method, path, body, headers))
        except (asyncio.IncompleteReadError, ConnectionError):  # closed by the server, since it was idle
            self._writer = None
            status, length = await _read_head(await self._write(method, path, body, headers))
        reader = self._reader
        assert reader is not None
        if length is None:
            raise BenchError("the answer has no length")
        return status, await reader.readexactly(length)

    async def call(self, method: str, path: str, body: bytes = b"") -> Any:
        """Send JSON, and return the JSON of the answer; BenchError if it is refused."""
        status, answer = await self.send(method, path, body, {"content-type": "application/json"})
        if status >= 300:
            raise BenchError(f"{method} {path} is answered with {status}: {answer[:500]!r}")
        return json.loads(answer) if answer else None

    async def publish(self, stream: str, lines: bytes, key: str) -> Any:
        """Publish a message in each line; returns the answer."""
        headers = {**_XMLL, "idempotency-key": key}
        status, answer = await self.send("POST", f"/v1/streams/{stream}/messages", lines, headers)
        if status >= 300:
            raise BenchError(f"publishing is answered with {status}: {answer[:500]!r}")
        return json.loads(answer)

    async def events(self, path: str) -> AsyncIterator[bytes]:
        """Yield the data of server-sent events as they come."""
        reader = await self._write("GET", path, b"", None)
        status, _ = await _read_head(reader)
        if status != 200:
            raise BenchError(f"GET {path} is answered with {status}")
        while True:
            size = int(await reader.readline(), 16)
            chunk = await reader.readexactly(size + 2)
            for line in chunk[:-2].split(b"\n"):
                if line.startswith(b"data: "):
                    yield line[6:]

    async def _write(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None
    ) -> asyncio.StreamReader:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_LIMIT)
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        await self._writer.drain()
        return self._reader

    async def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()


def read_message_id(data: bytes) -> str:
    """Return the id of the message in a server-sent event; parsing all of it would take the time measured."""
    message = data[data.index(b'"message":"') + 11 :]
    return message[: message.index(b'"')].decode()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = None
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return int(head[0].split()[1]), length
