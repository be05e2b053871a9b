"""A server of the broker in a process of its own, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from sapwood.serve.server_process import ServerProcess


class RunningServer(ServerProcess):
    """A server, its engine, and clients of it."""

    @property
    def engine_id(self) -> int:
        """The process id of the engine, the server's child."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        return int(children[0])

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """Return an HTTP client of the server."""
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)
