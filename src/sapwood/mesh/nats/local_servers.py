"""nats-server processes on loopback, for demos, benchmarks and tests."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from sapwood.mesh.nats.errors import NatsServerError

HUB = "hub"
"""The name of the hub, and of its JetStream domain."""

_LONGEST_START = 30.0
_READY = "Server is ready"
_LEAF_READY = "Leafnode connection created"
_PR_SET_PDEATHSIG = 1


@dataclass
class LocalServer:
    """One nats-server: where clients reach it, and its JetStream domain, None where it has no domain."""

    name: str
    url: str
    domain: str | None
    folder: Path
    config: str
    leaf: bool
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


class LocalServers:
    """Servers with their files in one folder: a hub with sites as leaf nodes, or a single one.

    The calls wait until a server is ready, for tens of milliseconds. On Linux the servers end with the thread
    that started them, however it ends; elsewhere `stop` has to be called.
    """

    def __init__(self, folder: Path | str, max_payload: int | None = None) -> None:
        """`max_payload` is the limit of a message in bytes, in place of the server's own, 1 MB."""
        self.folder = Path(folder)
        self._max_payload = max_payload
        self._servers: dict[str, LocalServer] = {}
        self._leaf_ports: list[int] = []
        self._program = find_program()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> LocalServer:
        return self._servers[name]

    @property
    def names(self) -> list[str]:
        return list(self._servers)

    def start_hub(self, servers: int = 1) -> LocalServer:
        """Start the hub, and return its first server.

        A hub of several servers is a cluster: `hub-1`, `hub-2`, …, on which streams can have replicas.
        """
        names = [HUB] if servers == 1 else [f"{HUB}-{number}" for number in range(1, servers + 1)]
        ports = _free_ports(3 * servers)
        leaf_ports, routes = ports[servers : 2 * servers], ports[2 * servers :]
        self._leaf_ports = leaf_ports
        for index, name in enumerate(names):
            lines = [f"leafnodes {{ listen: 127.0.0.1:{leaf_ports[index]} }}"]
            if servers > 1:
                peers = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
                lines.append(
                    f"cluster {{ name: {HUB}, listen: 127.0.0.1:{routes[index]}, routes: [{peers}] }}"
                )
            self._add(name, ports[index], HUB, lines)
        for name in names:
            self._launch(self._servers[name])
        for name in names:
            self._wait(self._servers[name], _READY)
        if servers > 1:
            self._wait_for_leader(names)
        return self._servers[names[0]]

    def start_site(self, name: str) -> LocalServer:
        """Start the server of a site: a leaf node of the hub, with a JetStream domain of its own name."""
        if not self._leaf_ports:
            raise NatsServerError("there is no hub for the site to connect to: call start_hub() first")
        hubs = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._leaf_ports)
        remotes = f"leafnodes {{ reconnect: 1, remotes: [ {{ urls: [{hubs}] }} ] }}"
        server = self._add(name, _free_ports(1)[0], name, [remotes], leaf=True)
        self._launch(server)
        self._wait(server, _READY)
        self._wait(server, _LEAF_READY)
        return server

    def start_single(self, name: str = "single") -> LocalServer:
        """Start a plain server without a domain and without leaf nodes."""
        server = self._add(name, _free_ports(1)[0], None, [])
        self._launch(server)
        self._wait(server, _READY)
        return server

    def kill(self, name: str) -> None:
        """End a server at once, as a crash would: SIGKILL."""
        server = self._servers[name]
        if server.process is not None:
            server.process.kill()
            server.process.wait()
            server.process = None

    def stop_server(self, name: str) -> None:
        """End a server in order; `restart` starts it again."""
        self._terminate(self._servers[name])

    def restart(self, name: str) -> LocalServer:
        """Start a server again, with its port and its folder; one that runs is ended in order before."""
        server = self._servers[name]
        self._terminate(server)
        start = server.log.stat().st_size if server.log.exists() else 0
        self._launch(server)
        self._wait(server, _READY, start)
        if server.leaf and any(each.running for each in self._hubs()):
            self._wait(server, _LEAF_READY, start)
        return server

    def stop(self) -> None:
        """End all servers; their folders stay."""
        for server in self._servers.values():
            if server.process is not None:
                server.process.send_signal(signal.SIGTERM)
        for server in reversed(self._servers.values()):
            self._terminate(server)
        self._servers.clear()
        self._leaf_ports = []

    def _hubs(self) -> list[LocalServer]:
        return [each for name, each in self._servers.items() if name == HUB or name.startswith(f"{HUB}-")]

    def _add(
        self, name: str, port: int, domain: str | None, lines: list[str], leaf: bool = False
    ) -> LocalServer:
        if name in self._servers:
            raise NatsServerError(f"there is a server {name!r} already: take another name")
        folder = self.folder.resolve() / name
        folder.mkdir(parents=True, exist_ok=True)
        store = f'store_dir: "{folder / "store"}", max_file_store: 64GB, max_memory_store: 256MB'
        if domain is not None:
            store += f', domain: "{domain}"'
        if self._max_payload is not None:
            lines = [*lines, f"max_payload: {self._max_payload}"]
        text = [f'server_name: "{name}"', f"listen: 127.0.0.1:{port}", f"jetstream {{ {store} }}", *lines]
        config = "\n".join(text) + "\n"
        server = LocalServer(name, f"nats://127.0.0.1:{port}", domain, folder, config, leaf)
        self._servers[name] = server
        return server

    def _launch(self, server: LocalServer) -> None:
        path = server.folder / "server.conf"
        path.write_text(server.config)
        with server.log.open("ab") as log:
            server.process = subprocess.Popen(
                [self._program, "-c", str(path)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C on a terminal is for the broker, which ends its servers
                preexec_fn=_end_with_parent(),
            )

    def _wait(self, server: LocalServer, line: str, start: int = 0) -> None:
        deadline = time.monotonic() + _LONGEST_START
        while True:
            with server.log.open("rb") as log:
                log.seek(start)
                text = log.read().decode(errors="replace")
            if line in text:
                return
            if not server.running or time.monotonic() > deadline:
                self._terminate(server)
                raise NatsServerError(f"nats-server {server.name!r} does not start:\n{text[-2_000:]}")
            time.sleep(0.01)

    def _wait_for_leader(self, names: list[str]) -> None:
        """A cluster without a leader refuses to make streams."""
        deadline = time.monotonic() + _LONGEST_START
        logs = [self._servers[name].log for name in names]
        while not any("JetStream cluster new metadata leader" in log.read_text() for log in logs):
            if time.monotonic() > deadline:
                raise NatsServerError("the servers of the hub did not elect a leader; their logs tell more")
            time.sleep(0.01)

    @staticmethod
    def _terminate(server: LocalServer) -> None:
        process, server.process = server.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_program() -> str:
    """Return the path of the nats-server program, or raise `NatsServerError` which says how to install it."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NatsServerError(
            "nats-server is not installed: `apt-get install nats-server` (Debian, Ubuntu), "
            "`brew install nats-server` (macOS), or a release from https://github.com/nats-io/nats-server"
        )
    return found


def _end_with_parent() -> Callable[[], None] | None:
    """What the child runs before the server, so that the kernel ends it when its parent dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: the child must not allocate much

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask


def _free_ports(count: int) -> list[int]:
    """Ports that are free at present; all are held until the last is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
