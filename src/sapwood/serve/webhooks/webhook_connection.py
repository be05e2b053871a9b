"""The connection to the target of one webhook, and the bounds that all of them share.

Every webhook has a connection of its own, and sends one request at a time on it. A target that hangs holds
that one connection; a pool that webhooks share would let it hold those of others. httpcore is used without
httpx's client: no cookies, no proxies from the environment, no redirects, and no decompression of what a
stranger sends.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import anyio
import httpcore
import httpx

from sapwood.errors import ArgumentError

_log = logging.getLogger(__name__)

_BODY_READ = 4096
"""bytes of an answer's body that are read, so that the connection can be used again"""
_BODY_SECONDS = 1.0
_DROPPED = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)
"""how a connection ends that the target has closed meanwhile"""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one attempt: a status, or why there is none."""

    status: int | None
    failure: str | None
    """None if the target has accepted the delivery"""
    retry_after: float | None = None
    """seconds that the target asks to wait"""


class _Limit:
    """A semaphore that knows how many wait for it."""

    def __init__(self, count: int) -> None:
        self.semaphore = asyncio.Semaphore(count)
        self.waiting = 0
        self.users = 0
        """how many wait for it, or hold it"""

    async def acquire(self) -> None:
        self.waiting += 1
        try:
            await self.semaphore.acquire()
        finally:
            self.waiting -= 1


class ConnectionLimits:
    """Bounds how many connections there are at once, to one host and altogether."""

    def __init__(self, total: int = 500, per_host: int = 20) -> None:
        self._total = _Limit(total)
        self._per_host = per_host
        self._hosts: dict[str, _Limit] = {}

    async def acquire(self, host: str) -> None:
        """Wait until there may be one more connection to a host."""
        limit = self._hosts.get(host)
        if limit is None:
            limit = self._hosts[host] = _Limit(self._per_host)
        limit.users += 1
        try:
            # The host's first: those who wait for a slow host must not hold what others could use.
            await limit.acquire()
            try:
                await self._total.acquire()
            except BaseException:
                limit.semaphore.release()
                raise
        except BaseException:
            self._leave(host)
            raise

    def release(self, host: str) -> None:
        """Return a connection that is closed."""
        self._total.semaphore.release()
        self._hosts[host].semaphore.release()
        self._leave(host)

    def _leave(self, host: str) -> None:
        limit = self._hosts[host]
        limit.users -= 1
        if not limit.users:
            del self._hosts[host]

    def contended(self, host: str) -> bool:
        """Return whether somebody waits for what a connection to a host would give back."""
        return self._total.waiting > 0 or self._hosts[host].waiting > 0


class WebhookConnection:
    """Sends requests to one URL over a connection that is kept while it is used."""

    def __init__(
        self,
        url: httpx.URL,
        backend: httpcore.AsyncNetworkBackend,
        ssl_context: ssl.SSLContext,
        limits: ConnectionLimits,
    ) -> None:
        self._host = url.host
        self._url = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        self._host_header = url.netloc
        self._backend = backend
        self._ssl_context = ssl_context
        self._limits = limits
        self._reserved = False
        self._connection: httpcore.AsyncHTTPConnection | None = None

    @property
    def is_open(self) -> bool:
        """Whether a connection is kept, and counts against the limits."""
        return self._reserved

    async def reserve(self) -> None:
        """Wait until there may be a connection."""
        if not self._reserved:
            await self._limits.acquire(self._host)
            self._reserved = True

    async def close(self) -> None:
        """Close the connection and return what was reserved."""
        try:
            await self._drop()
        finally:
            if self._reserved:
                self._reserved = False
                self._limits.release(self._host)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await connection.aclose()

    async def post(
        self, headers: dict[str, str], body: bytes, timeout: float, connect_timeout: float
    ) -> Answer:
        """Send one request, and return what became of it; nothing but cancellation is raised."""
        assert self._reserved
        request = self._request(headers, body, connect_timeout)
        try:
            answer = await self._attempt(request, timeout)
        except TimeoutError:
            answer = _failed(f"no answer within {timeout:g} s")
        except httpcore.ConnectTimeout as error:
            answer = _failed(str(error) or f"no connection within {connect_timeout:g} s")
        except httpcore.ConnectError as error:
            answer = _failed(f"no connection: {error}")
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            answer = _failed(f"the connection ended without an answer: {error or type(error).__name__}")
        except ArgumentError as error:
            answer = _failed(str(error))
        except Exception as error:
            # Whatever a stranger's answer provokes is a failed attempt, so that attempts come to an end.
            _log.exception("unexpected error while a webhook was sent to %s", self._host)
            answer = _failed(f"{type(error).__name__}: {error}")
        except BaseException:
            await self.close()
            raise
        if answer.failure is not None or self._limits.contended(self._host):
            await self.close()
        return answer

    def _request(self, headers: dict[str, str], body: bytes, connect_timeout: float) -> httpcore.Request:
        raw = [(b"Host", self._host_header), (b"Content-Length", b"%d" % len(body))]
        raw += [(name.encode(), value.encode()) for name, value in headers.items()]
        limits = {"connect": connect_timeout}
        return httpcore.Request("POST", self._url, headers=raw, content=body, extensions={"timeout": limits})

    async def _attempt(self, request: httpcore.Request, timeout: float) -> Answer:
        kept = self._connection
        reused = kept is not None and kept.is_available() and not kept.has_expired()
        if not reused:
            await self._drop()
        async with asyncio.timeout(timeout):
            try:
                response = await self._open().handle_async_request(request)
            except _DROPPED:
                if not reused:
                    raise
                # Closing an idle connection is not a fault of the target: try a new one at once.
                await self._drop()
                response = await self._open().handle_async_request(request)
        # The status decides; a body that hangs or never ends only costs the connection.
        try:
            await _drain(response)
        finally:
            await response.aclose()
        return read_answer(response.status, dict(response.headers))

    def _open(self) -> httpcore.AsyncHTTPConnection:
        if self._connection is None:
            self._connection = httpcore.AsyncHTTPConnection(
                self._url.origin, ssl_context=self._ssl_context, network_backend=self._backend
            )
        return self._connection


async def _drain(response: httpcore.Response) -> None:
    read = 0
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in response.aiter_stream():
                read += len(part)
                if read > _BODY_READ:
                    return


def _failed(reason: str) -> Answer:
    return Answer(None, reason)


def read_answer(status: int, headers: dict[bytes, bytes], now: datetime | None = None) -> Answer:
    """Return what a status means: 2xx accepts a delivery, everything else does not."""
    if 200 <= status < 300:
        return Answer(status, None)
    phrase = f" {_PHRASES[status]}" if status in _PHRASES else ""
    if 300 <= status < 400:
        return Answer(
            status, f"status {status}{phrase}: redirects are not followed; set the url that it leads to"
        )
    retry_after = None
    if status in (429, 503):
        lower = {name.lower(): value for name, value in headers.items()}
        retry_after = _parse_retry_after(lower.get(b"retry-after", b"").decode("ascii", "replace"), now)
    return Answer(status, f"status {status}{phrase}", retry_after)


def _parse_retry_after(value: str, now: datetime | None) -> float | None:
    """Return the seconds of a Retry-After header, which has a number of them or a date."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
