"""The process of the engine: commands come by a socket from the server, whose end is its end."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from sapwood.errors import SapwoodError
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.engine_spawn import REFUSED
from sapwood.serve.engine.frames import Command, Event, Publish, Stop, encode_frame, receive_frame
from sapwood.serve.engine.message_engine import MessageEngine
from sapwood.serve.log.log_database import lock_log, open_log
from sapwood.serve.mesh.mesh_frames import MeshInput
from sapwood.serve.server_log import configure_logging

_log = logging.getLogger(__name__)
_MOST_MESSAGES, _MOST_BYTES = 512, 8 * 1024 * 1024
"""of one batch: enough that a commit costs little, few enough that nobody waits long"""
_SWITCH = 0.001
"""seconds after which a thread lets another one run: commits should not wait long for matching"""
_IDLE = 0.05
"""seconds without a command after which the engine does what else is due"""


class EngineProcess:
    """Takes commands from a socket, as many as are there, and lets the engine handle them as one batch."""

    def __init__(self, connection: socket.socket, settings: EngineSettings) -> None:
        self._connection = connection
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._sending = Lock()
        self._engine = MessageEngine(settings, self._send, self._commands.put)
        self._idled = 0.0

    def run(self) -> None:
        """Handle commands until the server says stop, or has ended."""
        self._engine.start()
        Thread(target=self._receive, name="receive", daemon=True).start()
        while True:
            commands, is_last = self._take()
            if commands:
                self._engine.handle(commands)
            if is_last:
                return
            if not commands or time.monotonic() - self._idled > _IDLE:
                self._engine.idle()
                self._idled = time.monotonic()

    def _take(self) -> tuple[list[Command], bool]:
        """Return the commands that have come, and whether they are the last."""
        taken: list[Command] = []
        messages = size = 0
        try:
            command = self._commands.get(timeout=0.0 if self._engine.has_local_work else _IDLE)
            while True:
                if command is None or isinstance(command, Stop):
                    self._stop(orderly=command is not None, last=taken)
                    return [], True
                taken.append(command)
                if isinstance(command, Publish):
                    messages += len(command.messages)
                    size += sum(len(message.body) for message in command.messages)
                elif isinstance(command, MeshInput):
                    size += command.size
                if messages >= _MOST_MESSAGES or size >= _MOST_BYTES:
                    break
                command = self._commands.get_nowait()
        except Empty:
            pass
        return taken, False

    def _stop(self, orderly: bool, last: list[Command]) -> None:
        if last:
            self._engine.handle(last)
        if not orderly:
            _log.warning("the server has ended without a word; the engine ends, too")
        self._engine.stop(save=orderly)

    def _receive(self) -> None:
        try:
            while (command := receive_frame(self._connection)) is not None:
                if isinstance(command, Stop):
                    self._engine.prepare_stop()
                self._commands.put(command)
        except OSError as error:
            _log.debug("the connection to the server has ended: %s", error)
        self._engine.prepare_stop()
        self._commands.put(None)

    def _send(self, event: Event) -> None:
        frame = encode_frame(event)
        try:
            with self._sending:
                self._connection.sendall(frame)
        except OSError as error:  # the end of the server, which `_receive` sees, too
            _log.debug("an event could not be sent: %s", error)


def main() -> int:
    """Run an engine on the socket whose file descriptor is the argument; its first frame has the settings."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides when the engine ends
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        settings = receive_frame(connection)
        if not isinstance(settings, EngineSettings):
            return REFUSED
        configure_logging(settings.log_level, settings.log_format)
        try:
            database = open_log(settings.log)
            with lock_log(database, settings.lock_wait):
                EngineProcess(connection, settings).run()
        except SapwoodError as error:
            connection.sendall(encode_frame(error))
            return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
