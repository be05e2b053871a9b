"""A server of the broker in a process of its own, to be measured."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from sapwood.bench.harness import BenchError

_LONGEST_START = 600.0
_READY = "Sapwood serves at "


class ServerProcess:
    """A server on a free port of this machine, with its files in a folder."""

    def __init__(self, folder: Path, config: str = "") -> None:
        """`config` is TOML, without `[listen]`."""
        self._folder = folder
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._output = folder / "server.log"
        self.port = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server, and wait until it is ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "server.toml"
        path.write_text(f'{self._config}\n[listen]\nport = {self.port}\ndrain = "1 s"\n')
        before = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sapwood.cli", "serve", "--config", str(path)],
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + _LONGEST_START
        while not self._find_port(before):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BenchError(f"the server does not start:\n{self._output.read_text()[before:][-2_000:]}")
            time.sleep(0.01)
        return self

    def _find_port(self, before: int) -> bool:
        for line in self._output.read_text()[before:].splitlines():
            if line.startswith(_READY):
                self.port = int(line.removeprefix(_READY).split()[0].rstrip(",").rpartition(":")[2])
                return True
        return False

    def kill(self) -> None:
        """End the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ask the server to end, and wait for that."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)
