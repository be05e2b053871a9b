"""The server process: HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from sapwood.config_file import ConfigError
from sapwood.errors import SapwoodError
from sapwood.lang.literals.durations import parse_duration
from sapwood.serve.api.app import create_app
from sapwood.serve.config import ServerConfig
from sapwood.serve.engine.engine_spawn import SpawnedEngine
from sapwood.serve.service import Service
from sapwood.serve.tracing import configure_tracing

_log = logging.getLogger(__name__)
_BACKLOG = 2_048
_KEEP_ALIVE = 75
"""seconds that a connection is kept without requests: longer than clients keep theirs, or they would find it
closed while they send"""
OnReady = Callable[[str], None]
Companion = Callable[[str], Coroutine[None, None, None]]
"""what runs beside the server, given its address, until that is told to stop"""


class ListenError(SapwoodError):
    """Raised if the address of a server is in use, or is none of this machine."""


class Server(uvicorn.Server):
    """A server that lets listeners end when it is told to stop, and reports when it is ready."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        on_ready: OnReady | None,
        companion: Companion | None = None,
    ) -> None:
        super().__init__(config)
        self._service = service
        self._on_ready = on_ready
        self._companion = companion
        self._beside: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started and self._service.mesh is not None:
            self._service.mesh.url = self.url
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)
        if self.started and self._companion is not None:
            self._beside = asyncio.create_task(self._companion(self.url))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: no more messages, listeners are let go, and what was begun is finished."""
        if self._beside is not None:
            self._beside.cancel()
            with suppress(asyncio.CancelledError):
                await self._beside
        self._service.begin_stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM, which are not raised again afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    @property
    def url(self) -> str:
        """The address that the server listens at."""
        scheme = "https" if self.config.ssl_certfile else "http"
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"{scheme}://{name}:{port}"


def check_access(config: ServerConfig, service: Service) -> str | None:
    """Return a remark for the operator if there are no keys; raise ConfigError if that is not allowed."""
    service.key_ring.refresh()
    if len(service.key_ring):
        if config.listen.tls_certificate is None and not config.listen.is_loopback:
            return "keys and messages cross the network in plain text: set listen.tls_certificate and tls_key"
        return None
    if not config.listen.is_loopback:
        raise ConfigError(
            f"listen.host is {config.listen.host!r}, and there are no keys: anybody could connect\n"
            "  make one with 'sapwood keys add --scope admin', or listen on 127.0.0.1"
        )
    return "there are no keys: only this machine can connect, and everything is allowed"


async def serve(
    config: ServerConfig,
    spawned: SpawnedEngine | None = None,
    on_ready: OnReady | None = None,
    companion: Companion | None = None,
) -> None:
    """Serve until the process is told to stop by SIGINT or SIGTERM.

    With an engine that was started with the same settings, or one that is started now.
    """
    configure_tracing(config.monitoring.traces)
    service = Service(config, spawned)
    remark = check_access(config, service)
    if remark is not None:
        _log.warning(remark)
    await service.start()
    try:
        await _serve_http(config, service, on_ready, companion)
    finally:
        await service.stop()


async def _serve_http(
    config: ServerConfig, service: Service, on_ready: OnReady | None, companion: Companion | None
) -> None:
    listen = config.listen
    settings = uvicorn.Config(
        create_app(service),
        host=listen.host,
        port=listen.port,
        http="httptools",
        ws="websockets-sansio",
        loop="none",
        ssl_certfile=listen.tls_certificate,
        ssl_keyfile=listen.tls_key,
        limit_concurrency=listen.connections,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(parse_duration(listen.drain)),
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=65_536,
    )
    server = Server(settings, service, on_ready, companion)
    try:
        await server.serve()
    except SystemExit:  # which uvicorn raises after it has logged why
        raise ListenError(f"the server cannot listen at {listen.host}, port {listen.port}") from None
