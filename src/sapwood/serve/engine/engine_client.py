"""The server's side of its engine: starts it, sends commands, and starts it again if it dies."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from sapwood.errors import SapwoodError
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.engine_spawn import REFUSED, SpawnedEngine, spawn_engine
from sapwood.serve.engine.frames import (
    LENGTH,
    Acknowledge,
    AddDeadLetter,
    Answer,
    Command,
    Committed,
    ConfigureInbox,
    DeleteDeadLetters,
    EngineStatus,
    LogState,
    Publish,
    Started,
    Stop,
    encode_frame,
)
from sapwood.serve.mesh.mesh_frames import MeshOutput, MeshStatus

_log = logging.getLogger(__name__)
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_REPEATABLE = Publish | Acknowledge | AddDeadLetter | DeleteDeadLetters | ConfigureInbox
"""commands that may be done twice: ids and numbers tell the engine what it has done"""


class EngineUnavailable(SapwoodError):
    """Raised for a request that the engine could not answer, because it ended or does not run."""


class EngineListener(Protocol):
    """Gets the events of an engine."""

    def on_started(self, event: Started) -> None:
        """The engine is ready, for the first time or again."""

    def on_ready(self) -> None:
        """The engine takes commands."""

    def on_committed(self, event: Committed, publications: Callable[[int], Publish | None]) -> None:
        """A transaction is in the log; called before its answers are given."""

    def on_status(self, event: EngineStatus) -> None:
        """The engine reports."""

    def on_mesh(self, event: MeshOutput | MeshStatus) -> None:
        """The node of a mesh wants something to be sent, or reports."""


@dataclass(slots=True)
class _Request:
    command: Any
    future: asyncio.Future[Any]


class EngineClient:
    """Sends commands to the engine, and resolves them when it answers."""

    def __init__(
        self, settings: EngineSettings, listener: EngineListener, spawned: SpawnedEngine | None = None
    ) -> None:
        """Use an engine that was started with these settings, or start one."""
        self._settings = settings
        self._spawned = spawned
        self._listener = listener
        self._requests: dict[int, _Request] = {}
        self._numbers = count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._stopping = False
        self._first_start: asyncio.Future[None] | None = None
        self.is_ready = False
        """whether the engine takes commands at present"""
        self.log_problem: str | None = None
        """why the log cannot be written at present"""
        self.restarts = 0

    @property
    def process_id(self) -> int | None:
        """The process id of the engine, if it runs."""
        return self._process.pid if self._process is not None else None

    # -- start and end ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine, and wait until it is ready; raises the error for which it cannot start."""
        self._first_start = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(), name="engine")
        await self._first_start

    async def stop(self) -> None:
        """Let the engine finish, and wait for its end."""
        self._stopping = True
        if self._writer is not None:
            self._writer.write(encode_frame(Stop()))
        if self._runner is not None:
            await self._runner

    async def _run(self) -> None:
        """Run engines, one after the other, until the server stops."""
        delay = _FIRST_DELAY
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._run_once()
            except SapwoodError as error:
                if self._first_start is not None and not self._first_start.done():
                    self._first_start.set_exception(error)
                    return
                _log.error("the engine cannot start: %s", error)
            except Exception:
                _log.exception("the connection to the engine has failed")
            self.is_ready = False
            self.log_problem = None
            self._writer = None
            self._fail_unrepeatable()
            if self._stopping:
                self._fail_all()
                return
            if self._first_start is not None and not self._first_start.done():
                self._first_start.set_exception(EngineUnavailable("the engine ended while it started"))
                return
            if asyncio.get_running_loop().time() - started > 10 * _LONGEST_DELAY:
                delay = _FIRST_DELAY
            _log.error("the engine has ended; it is started again in %.1f s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
            self.restarts += 1

    async def _run_once(self) -> None:
        spawned = self._spawned or spawn_engine(self._settings)
        self._spawned = None
        process = self._process = spawned.process
        reader, writer = await asyncio.open_connection(sock=spawned.connection, limit=2**20)
        try:
            self._writer = writer
            await self._read(reader)
        finally:
            self.is_ready = False  # before anything is awaited: what comes now is for the next engine
            self._writer = None
            writer.close()
            code = await asyncio.to_thread(process.wait)
            if code not in (0, REFUSED):
                _log.error("the engine's process %d ended with code %d", process.pid, code)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                event = pickle.loads(await reader.readexactly(size))
                if isinstance(event, SapwoodError):
                    raise event
                self._receive(event)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _receive(self, event: Any) -> None:
        if isinstance(event, Committed):
            self._listener.on_committed(event, self._find_publish)
            for request, result in event.answers:
                self._resolve(request, result)
        elif isinstance(event, Answer):
            self._resolve(event.request, event.result)
        elif isinstance(event, LogState):
            self.log_problem = event.problem
        elif isinstance(event, EngineStatus):
            self._listener.on_status(event)
        elif isinstance(event, MeshOutput | MeshStatus):
            self._listener.on_mesh(event)
        elif isinstance(event, Started):
            self._listener.on_started(event)
            self._repeat()
            self.is_ready = True
            self._listener.on_ready()
            if self._first_start is not None and not self._first_start.done():
                self._first_start.set_result(None)

    # -- requests --------------------------------------------------------------------------------------

    async def request(self, build: Callable[[int], Command]) -> Any:
        """Send a command, built with the number of the request, and return its result.

        Raises the error that the engine answers with, or EngineUnavailable.
        """
        if self._stopping:
            raise EngineUnavailable("the server is stopping")
        number = next(self._numbers)
        command = build(number)
        if not self.is_ready and not isinstance(command, _REPEATABLE):
            raise EngineUnavailable("the engine is starting")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(command, future)
        if self.is_ready:
            self._send(command)
        result = await future
        if isinstance(result, Exception):
            raise result
        return result

    def tell(self, command: Command) -> None:
        """Send a command that has no answer; it is lost if the engine ends."""
        self._send(command)

    def _send(self, command: Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_frame(command))

    def _find_publish(self, request: int) -> Publish | None:
        found = self._requests.get(request)
        return found.command if found is not None and isinstance(found.command, Publish) else None

    def _resolve(self, request: int, result: Any) -> None:
        found = self._requests.pop(request, None)
        if found is not None and not found.future.done():
            found.future.set_result(result)

    def _repeat(self) -> None:
        """Send again what the engine before this one has not answered."""
        for request in self._requests.values():
            command = request.command
            if isinstance(command, Publish):
                for message in command.messages:
                    message.is_new = False  # the log may have it
            self._send(command)

    def _fail_unrepeatable(self) -> None:
        """Fail the requests of which nobody knows whether they were done."""
        for number, request in list(self._requests.items()):
            if not isinstance(request.command, _REPEATABLE):
                self._resolve(
                    number, EngineUnavailable("the engine has ended; look whether the change was made")
                )

    def _fail_all(self) -> None:
        for number in list(self._requests):
            self._resolve(number, EngineUnavailable("the server is stopping"))
