"""A server of the broker in a process of its own, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

_START = 60.0


class RunningServer:
    """A server on a free port, with its files in a folder; it may be killed and restarted."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        environment: Mapping[str, str] | None = None,
        listen: str = "",
    ) -> None:
        """`config` is TOML, without `[listen]`, of which `listen` has further lines."""
        self._listen = listen
        self.folder = folder
        self._config = config
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.url = ""
        self.output = folder / "server.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server, at the port that it had before, and wait until it is ready."""
        path = self.folder / "server.toml"
        listen = f'[listen]\nport = {self._port}\ndrain = "2 s"\n{self._listen}\n'
        path.write_text(f"{self._config}\n{listen}")
        before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sapwood.cli", "serve", "--config", str(path)],
                stderr=output,
                stdout=output,
                env=os.environ | self._environment,
            )
        self._wait(before)
        return self

    def _wait(self, before: int) -> None:
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"the server has ended:\n{self.output.read_text()[before:]}")
            for line in self.output.read_text()[before:].splitlines():
                if line.startswith("Sapwood serves at "):
                    self.url = line.split()[3].rstrip(",")
                    self._port = int(self.url.rpartition(":")[2])
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the server is not ready:\n{self.output.read_text()[before:]}")

    @property
    def process_id(self) -> int:
        """The process id of the server."""
        assert self._process is not None
        return self._process.pid

    @property
    def engine_id(self) -> int:
        """The process id of the engine, the server's child."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        return int(children[0])

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """Return an HTTP client of the server."""
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def kill(self) -> None:
        """End the server at once; its engine sees that, and ends, too."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, wait: float = 30) -> int:
        """Ask the server to end, and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(wait)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
