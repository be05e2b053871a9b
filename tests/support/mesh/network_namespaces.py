"""A site in a network namespace of its own, which can be cut off from the others."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from sapwood.mesh.nats.local_servers import HUB, _free_ports
from sapwood.serve.mesh.local_mesh import LocalMesh
from sapwood.serve.server_process import ServerProcess

_CLONE_NEWNET = 0x40000000
_NETWORK = "10.213.77"
Value = TypeVar("Value")


class NetworkNamespace:
    """A namespace with a cable to this machine, and a thread in it; what the thread starts is there, too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cable = f"sw{os.getpid() % 100_000}"
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def __enter__(self) -> Self:
        inside = f"{self._cable}i"
        try:
            _ip("netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces are not allowed here: {error}")
        try:
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", inside)
            _ip("link", "set", inside, "netns", self.name)
            _ip("addr", "add", f"{self.outside_address}/30", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            for arguments in (
                ("addr", "add", f"{_NETWORK}.2/30", "dev", inside),
                ("link", "set", inside, "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", self.name, *arguments)
        except subprocess.CalledProcessError as error:
            self._remove()
            pytest.skip(f"network namespaces are not allowed here: {error}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._remove()

    def _remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._cable)
        _ip("netns", "del", self.name)

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/var/run/netns/{self.name}").open() as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    @property
    def outside_address(self) -> str:
        """The address of this machine, as seen from inside."""
        return f"{_NETWORK}.1"

    def run(self, work: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Return the result of a call that is made inside."""
        return self._thread.submit(work, *arguments, **named).result()

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self._cable, "down")

    def heal(self) -> None:
        """Plug the cable in again."""
        _ip("link", "set", self._cable, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class CutMesh(LocalMesh):
    """A mesh with one site, its NATS server and its broker, in a namespace."""

    def __init__(
        self, folder: Path, parents: Mapping[str, str | None], site: str, namespace: NetworkNamespace
    ) -> None:
        super().__init__(folder, parents)
        self.site, self.namespace = site, namespace

    def start(self) -> Self:
        """Start everything, and wait until all brokers are linked."""
        self._hub = self.nats.start_hub()
        self._hub.config = self._hub.config.replace(
            "leafnodes { listen: 127.0.0.1:", "leafnodes { listen: 0.0.0.0:"
        )
        self.nats.restart(HUB)
        for name in self.parents:
            if name != self.site:
                self.nats.start_site(name)
        self.namespace.run(self._start_inside)
        for name in self.parents:
            self.brokers[name] = ServerProcess(self.folder / name, self.configure(name))
            self.run_at(name, self.brokers[name].start)
        self.wait_ready()
        return self

    def _start_inside(self) -> None:
        """Start the NATS server of the site; it ends with the thread of the namespace at the latest."""
        [port] = _free_ports(1)
        url = f"nats://{self.namespace.outside_address}:{self.nats._leaf_ports[0]}"
        remotes = f'leafnodes {{ reconnect: 1, remotes: [ {{ urls: ["{url}"] }} ] }}'
        server = self.nats._add(self.site, port, self.site, [remotes], leaf=True)
        self.nats._launch(server)
        self.nats._wait(server, "Leafnode connection created")

    def run_at(self, name: str, work: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Return the result of a call that is made where a broker is."""
        if name == self.site:
            return self.namespace.run(work, *arguments, **named)
        return work(*arguments, **named)

    def status(self, name: str) -> dict[str, Any]:
        """Return what a broker tells of itself."""
        return self.run_at(name, super().status, name)
