"""A stub of the broker service on a loopback port, which can be stopped and started again."""

from __future__ import annotations

import asyncio
import socket
import time
from threading import Thread

import uvicorn

from tests.support.service.stub_api import StubApi
from tests.support.service.stub_state import ProblemError, StubState


class StubServer:
    """The stub in a thread; its state outlives a restart."""

    def __init__(self) -> None:
        self.state = StubState()
        self.api = StubApi(self.state)
        self._port = 0
        self._thread: Thread | None = None
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.api.app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1
        )
        self._server = server = uvicorn.Server(config)
        self._thread = Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        self._thread.start()
        while not server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        """End event streams and stop listening."""
        self.drop_streams()
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()

    def drop_streams(self) -> None:
        """End all event streams, as a broker does that restarts."""
        self.api.epoch += 1

    def fail(self, *statuses: int, slug: str = "unavailable", retry_after: int = 0) -> None:
        """Answer the next requests with these statuses."""
        for status in statuses:
            self.api.faults.append(ProblemError(status, slug, f"ordered: {status}", retry_after=retry_after))

    def lose_answers(self, count: int) -> None:
        """Do the work of the next requests, and lose the answers."""
        self.api.faults += ["lost"] * count
