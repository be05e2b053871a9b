"""A server in a process of its own, for demos, experiments and tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sapwood.errors import SapwoodError

_LONGEST_START = 600.0
_READY = "Sapwood serves at "


class ServerStartError(SapwoodError):
    """Raised for a server that does not start."""


class ServerProcess:
    """A server on a free port of this machine, with its files in a folder; it may be killed and restarted."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        environment: Mapping[str, str] | None = None,
        listen: str = "",
    ) -> None:
        """`config` is TOML, without `[listen]`, of which `listen` has further lines."""
        self.folder = folder
        self.output = folder / "server.log"
        self.port = 0
        self.url = ""
        self._config = config
        self._environment = dict(environment or {})
        self._listen = listen
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server, at the port that it had before, and wait until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "server.toml"
        listen = f'[listen]\nport = {self.port}\ndrain = "2 s"\n{self._listen}\n'
        path.write_text(f"{self._config}\n{listen}")
        before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sapwood.cli", "serve", "--config", str(path)],
                stdout=output,
                stderr=output,
                env=os.environ | self._environment,
            )
        deadline = time.monotonic() + _LONGEST_START
        while not self._find_port(before):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said = self.output.read_text()[before:][-2_000:]
                raise ServerStartError(f"the server does not start:\n{said}")
            time.sleep(0.01)
        return self

    def _find_port(self, before: int) -> bool:
        for line in self.output.read_text()[before:].splitlines():
            if line.startswith(_READY):
                self.url = line.removeprefix(_READY).split()[0].rstrip(",")
                self.port = int(self.url.rpartition(":")[2])
                return True
        return False

    @property
    def is_running(self) -> bool:
        """Whether the process was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """The process id of the server."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End the server at once; its engine sees that, and ends, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, wait: float = 120) -> int:
        """Ask the server to end, and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(wait)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
