"""Starting the process of an engine, which needs no other module of the server.

A server starts its engine before it imports what it needs itself: both take a second or two.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass

from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.frames import encode_frame

_MODULE = "sapwood.serve.engine.engine_process"
REFUSED = 3
"""the exit code of an engine that cannot start, which has written why"""


@dataclass(frozen=True, slots=True)
class SpawnedEngine:
    """A process that was started, and the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    def abandon(self) -> None:
        """End an engine that is not used."""
        self.connection.close()
        self.process.wait()


def spawn_engine(settings: EngineSettings) -> SpawnedEngine:
    """Start the process of an engine, and give it its settings."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(theirs.fileno())], pass_fds=(theirs.fileno(),)
        )
    ours.sendall(encode_frame(settings))
    return SpawnedEngine(process, ours)
