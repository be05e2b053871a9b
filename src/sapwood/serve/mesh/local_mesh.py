"""A whole mesh on this machine: NATS servers and brokers as processes, for demos, experiments and tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from sapwood.errors import SapwoodError
from sapwood.mesh.nats.local_servers import LocalServers
from sapwood.serve.server_process import ServerProcess

_LONGEST_JOIN = 60.0


class MeshNotReady(SapwoodError):
    """Raised for a mesh whose brokers are not linked in time."""


class LocalMesh:
    """A hub, and for each broker of a tree a site: a NATS server as leaf node, and a server of Sapwood.

    Brokers and NATS servers are processes, which can be killed and started again one by one.
    """

    def __init__(
        self,
        folder: Path,
        parents: Mapping[str, str | None],
        config: str = "",
        mesh: str = "",
        hub_servers: int = 1,
    ) -> None:
        """`config` has further tables of TOML for all brokers, and `mesh` lines of their table `[mesh]`."""
        self.folder = folder
        self.parents = dict(parents)
        self._config = config
        self._mesh = mesh
        self._hub_servers = hub_servers
        self.nats = LocalServers(folder / "nats")
        self.brokers: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything, and wait until all brokers are linked."""
        self._hub = self.nats.start_hub(self._hub_servers)
        for name in self.parents:
            self.nats.start_site(name)
            self.brokers[name] = ServerProcess(self.folder / name, self.configure(name))
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.start(), self.brokers.values()))
        self.wait_ready()
        return self

    def configure(self, name: str) -> str:
        """Return the configuration of a broker, as TOML."""
        site, hub = self.nats[name], self._hub
        parent = self.parents[name]
        lines = [
            self._config,
            "[mesh]",
            f'broker = "{name}"',
            f'servers = ["{site.url}"]',
            f'domain = "{site.domain}"',
            f'hub_domain = "{hub.domain}"',
            *([f'parent = "{parent}"'] if parent is not None else []),
            self._mesh,
        ]
        return "\n".join(lines)

    def url(self, name: str) -> str:
        """Return the address of a broker's HTTP API."""
        return self.brokers[name].url

    def status(self, name: str) -> dict[str, Any]:
        """Return what a broker tells of itself."""
        answer = httpx.get(f"{self.url(name)}/v1/mesh", timeout=10.0)
        answer.raise_for_status()
        status: dict[str, Any] = answer.json()
        return status

    def wait_ready(self, wait: float = _LONGEST_JOIN) -> None:
        """Wait until all brokers are in the tree, with open links and known tables."""
        deadline = time.monotonic() + wait
        for name in self.brokers:
            while (problem := self._find_problem(name)) is not None:
                if time.monotonic() > deadline:
                    raise MeshNotReady(f"the broker {name} is not linked after {wait:g} s: {problem}")
                time.sleep(0.05)

    def _find_problem(self, name: str) -> str | None:
        try:
            status = self.status(name)
        except httpx.HTTPError as error:
            return str(error)
        if status["problem"] is not None:
            return str(status["problem"])
        links = status.get("links", {})
        expected = {other for other, parent in self.parents.items() if parent == name}
        expected |= {parent} if (parent := self.parents[name]) is not None else set()
        for other in expected:
            state = links.get(other, {})
            if not state.get("open") or not state.get("knows table"):
                return f"the link to {other} is not open"
        return None

    def stop(self) -> None:
        """End everything."""
        running = [broker for broker in self.brokers.values() if broker.is_running]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda broker: broker.stop(), running))
        self.nats.stop()
