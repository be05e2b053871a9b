"""A connection to one of several NATS servers that is made again whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import cycle
from typing import Any, ParamSpec

import nats.errors
from nats.aio.client import Client

from sapwood.mesh.nats.settings import TransportSettings

_log = logging.getLogger(__name__)

_CANCEL_AGAIN = 1.0
"""seconds after which tasks that have not ended are cancelled once more"""
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 2.0
_LONGEST_CONNECT = 10.0
_CHECK_INTERVAL = 1.0

Arguments = ParamSpec("Arguments")


class NatsClient(Client):
    """A client of nats-py that closes completely while its server is gone, and tells the server's name."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Close; what cannot be written any more is dropped.

        nats-py leaves the method at the first error of a broken socket, and with it sockets and tasks behind.
        """
        if self._flush_queue is None:  # it was never opened, and has nothing to close
            self._status = status
            return
        if not self.is_connected:
            self._drop_pending()
        try:
            await super()._close(status, do_cbs)
        except OSError:
            self._drop_pending()
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_data_size = 0

    @property
    def server_name(self) -> str:
        return str(self._server_info.get("server_name", ""))

    @property
    def server_version(self) -> str:
        return str(self._server_info.get("version", ""))


class Connection:
    """Keeps a client connected, by a new one after every failure.

    A new client, in place of nats-py's own reconnection, has no publications and requests of before: what was
    under way when the connection broke has failed, and its owner has been told so.
    """

    def __init__(
        self,
        settings: TransportSettings,
        label: str,
        prepare: Callable[[NatsClient], Awaitable[None]],
        on_change: Callable[[bool, str], None],
    ) -> None:
        """`prepare` is awaited with each new client before `on_change` reports that it is there."""
        self.client: NatsClient | None = None
        self._settings = settings
        self._label = label
        self._prepare = prepare
        self._on_change = guard(on_change)
        self._tls = settings.tls_context()
        self._task: asyncio.Task[None] | None = None
        self._present = asyncio.Event()
        self._last_error = ""

    def start(self) -> None:
        self._task = spawn(self._run(), f"connection of {self._label}")

    async def stop(self) -> None:
        await cancel(self._task)
        self._task = None

    async def wait(self) -> NatsClient:
        """Return the client, as soon as there is one that is connected."""
        while self.client is None:
            await self._present.wait()
        return self.client

    async def _run(self) -> None:
        delay, failures = _FIRST_DELAY, 0
        for server in cycle(self._settings.servers):
            client = NatsClient()
            closed = asyncio.Event()
            try:
                reason = await self._open(client, server, closed)
                if reason is None:
                    delay, failures = _FIRST_DELAY, 0
                    self._set_client(client, server)
                    await self._watch(client, closed)
                    reason = self._last_error or "the connection was closed"
                    self._set_client(None, f"{server}: {reason}")
                else:
                    failures += 1
                    if failures == 1:
                        self._on_change(False, f"{server}: {reason}")
                    level = logging.WARNING if failures in (1, 10, 100) else logging.DEBUG
                    _log.log(level, "%s cannot connect to %s: %s", self._label, server, reason)
            except Exception:
                _log.exception("the connection of %s fails; it is made again", self._label)
            finally:
                if self.client is client:  # stopped
                    self.client = None
                    self._present.clear()
                await client.close()
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _open(self, client: NatsClient, server: str, closed: asyncio.Event) -> str | None:
        """Connect; return None, or why that is not possible."""

        async def note_close() -> None:
            closed.set()

        async def note_error(error: Exception) -> None:
            self._last_error = describe(error)
            if isinstance(error, (OSError, nats.errors.Error, TimeoutError)):
                _log.debug("%s at %s: %s", self._label, server, self._last_error)
            else:  # of a callback: a defect, which must be seen
                _log.error("%s fails to handle a message", self._label, exc_info=error)

        settings = self._settings
        options: dict[str, Any] = {
            "user": settings.user,
            "password": settings.password,
            "token": settings.token,
            "user_credentials": settings.credentials_file and str(settings.credentials_file),
            "tls": self._tls,
        }
        self._last_error = ""
        try:
            async with asyncio.timeout(_LONGEST_CONNECT):
                await client.connect(
                    server,
                    name=self._label,
                    error_cb=note_error,
                    closed_cb=note_close,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    **{name: value for name, value in options.items() if value is not None},
                )
                await self._prepare(client)
        except nats.errors.NoServersError as error:
            return self._last_error or describe(error)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            return describe(error)
        return None

    def _set_client(self, client: NatsClient | None, reason: str) -> None:
        self.client = client
        if client is not None:
            self._present.set()
            _log.info("%s is connected to %s", self._label, reason)
        else:
            self._present.clear()
            _log.warning("%s has lost its connection to %s", self._label, reason)
        self._on_change(client is not None, reason)

    @staticmethod
    async def _watch(client: NatsClient, closed: asyncio.Event) -> None:
        """Wait until the client is closed, also if it does not tell."""
        while client.is_connected and not closed.is_set():
            try:
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await closed.wait()
            except TimeoutError:
                continue


def describe(error: BaseException) -> str:
    """Return the text of an error of NATS or of a socket, never an empty one."""
    return str(error).removeprefix("nats: ") or type(error).__name__


def guard(report: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Return a call whose errors are logged: those of a listener must not end what reports to it."""

    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        try:
            report(*arguments, **named)
        except Exception:
            _log.exception("%s fails", getattr(report, "__qualname__", report))

    return call


def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task whose unexpected end is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("the task %r ended by an error", task.get_name(), exc_info=error)


async def cancel(*tasks: asyncio.Task[None] | None) -> None:
    """End tasks, and wait until they have ended; their errors have been logged."""
    left = {task for task in tasks if task is not None}
    while left:  # a call that ends at the very moment of its cancellation may have swallowed it
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)
