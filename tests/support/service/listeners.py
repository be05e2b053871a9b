"""Subscribers of a running server, one for each way of delivery: they collect what they get, and go on after
a crash of the server."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

_PAUSE = 0.05
"""seconds before a connection is made again"""


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery as a subscriber got it."""

    id: str
    number: int
    subscriptions: tuple[str, ...]
    message: str
    stream: str
    time: float | None
    body: bytes


def to_received(fields: dict[str, Any]) -> Received:
    """Return a delivery from its JSON."""
    body = base64.b64decode(fields["body_base64"]) if "body_base64" in fields else fields["body"].encode()
    return Received(
        fields["id"],
        fields["number"],
        tuple(fields["subscriptions"]),
        fields["message"],
        fields["stream"],
        fields["time"],
        body,
    )


class Listener:
    """A subscriber in a thread of its own; to be entered."""

    def __init__(self, url: str, name: str, acknowledges: bool = True) -> None:
        self.url, self.name = url, name
        self.acknowledges = acknowledges
        self.deliveries: dict[int, Received] = {}
        """by number, in the order received"""
        self.repeated = 0
        """deliveries that came more than once"""
        self.gaps: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"listener {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self.failure is not None and error is None:
            raise self.failure

    @property
    def last(self) -> int:
        """The number of the last delivery."""
        return next(reversed(self.deliveries), 0)

    def wait_for(self, number: int, seconds: float = 60) -> None:
        """Wait until all up to a delivery have come."""
        deadline = time.monotonic() + seconds
        while self.last < number:
            if self.failure is not None:
                raise self.failure
            assert time.monotonic() < deadline, f"{self.name} has {self.last} of {number} deliveries"
            time.sleep(0.01)

    def take(self, fields: dict[str, Any]) -> None:
        """Take a delivery: new ones come in order, and one that comes again is as before."""
        new = to_received(fields)
        old = self.deliveries.get(new.number)
        if old is not None:
            self.repeated += 1
            assert new == old, f"two deliveries have the id {new.id}"
            return
        assert new.number > self.last, f"{self.name} got number {new.number} after {self.last}"
        self.deliveries[new.number] = new

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.listen()
            except (httpx.HTTPError, OSError, WebSocketException, EOFError):
                self._stopping.wait(_PAUSE)
            except BaseException as error:
                self.failure = error
                return

    def listen(self) -> None:
        """Receive deliveries until the connection or the test ends."""
        raise NotImplementedError

    def _path(self, what: str) -> str:
        return f"{self.url}/v1/subscribers/{self.name}/{what}"

    def _acknowledge(self, client: httpx.Client) -> None:
        if self.acknowledges and self.deliveries:
            client.post(self._path("ack"), json={"upto": self.last})


class PullListener(Listener):
    """Pulls deliveries; one that does not acknowledge goes on after the last it has."""

    def listen(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._stopping.is_set():
                query = {"wait": 0.5, "limit": 500} | ({} if self.acknowledges else {"after": self.last})
                answer = client.get(self._path("deliveries"), params=query)
                if answer.status_code != 200:
                    time.sleep(_PAUSE)
                    continue
                page = answer.json()
                self.gaps += page["gaps"]
                for fields in page["deliveries"]:
                    self.take(fields)
                if page["deliveries"]:
                    self._acknowledge(client)


class EventListener(Listener):
    """Listens to server-sent events, and acknowledges what it has every so often."""

    def listen(self) -> None:
        with httpx.Client(timeout=10) as client:
            for kind, data in iter_events(self._iter_pieces()):
                if kind == "delivery":
                    self.take(data)
                    if len(self.deliveries) % 50 == 0:
                        self._acknowledge(client)
                elif kind == "gap":
                    self.gaps.append(data)
            self._acknowledge(client)

    def _iter_pieces(self) -> Iterator[bytes]:
        """Yield the body of the answer as it comes; a socket can be read on after a timeout."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        path = f"/v1/subscribers/{self.name}/events"
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            connection.settimeout(0.2)
            received = b""
            while not self._stopping.is_set():
                try:
                    piece = connection.recv(1 << 20)
                except TimeoutError:
                    continue
                if not piece:
                    raise EOFError("the server has closed the connection")
                received += piece
                if received.startswith(b"HTTP/1.1"):
                    if b"\r\n\r\n" not in received:
                        continue
                    head, _, received = received.partition(b"\r\n\r\n")
                    if b" 200 " not in head.split(b"\r\n")[0]:
                        raise EOFError(head.decode())
                while (end := received.find(b"\r\n")) >= 0:
                    size = int(received[:end], 16)
                    if len(received) < end + size + 4:
                        break
                    yield received[end + 2 : end + 2 + size]
                    received = received[end + size + 4 :]


def iter_events(pieces: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream: their kind, and their data."""
    rest = b""
    for piece in pieces:
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            if b"event" in fields:
                yield fields[b"event"].decode(), json.loads(fields[b"data"])


class SocketListener(Listener):
    """Listens to a WebSocket, and gives credit as it takes deliveries."""

    CREDIT = 100

    def listen(self) -> None:
        address = self._path("socket").replace("http", "ws", 1)
        with connect(f"{address}?credit={self.CREDIT}", max_size=None, close_timeout=1) as connection:
            taken = 0
            while not self._stopping.is_set():
                try:
                    fields = json.loads(connection.recv(timeout=0.3))
                except TimeoutError:
                    continue
                kind = fields.pop("type")
                if kind == "gap":
                    self.gaps.append(fields)
                elif kind == "error":
                    raise EOFError(fields["detail"])
                else:
                    self.take(fields)
                    taken += 1
                    if taken % (self.CREDIT // 2) == 0:
                        command = {"credit": self.CREDIT // 2}
                        connection.send(
                            json.dumps(command | ({"ack": self.last} if self.acknowledges else {}))
                        )
            if self.acknowledges and self.deliveries:
                connection.send(json.dumps({"ack": self.last}))


class WebhookListener(Listener):
    """A target of webhooks on loopback."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                body = self.rfile.read(size)
                if len(body) < size:  # the server was killed while it sent this
                    self.close_connection = True
                    return
                status = 204
                try:
                    listener.take(json.loads(body)["data"])
                except BaseException as error:
                    listener.failure, status = error, 500
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:
                """Write nothing."""

        class Target(ThreadingHTTPServer):
            def handle_error(self, request: object, address: object) -> None:
                """Write nothing: a server that is killed resets its connections."""

        self._target = Target(("127.0.0.1", 0), Handler)
        self._target.daemon_threads = True

    @property
    def settings(self) -> dict[str, Any]:
        """The webhook in the settings of the subscriber."""
        url = f"http://127.0.0.1:{self._target.server_address[1]}/"
        return {"url": url, "first_delay": 0.05, "max_delay": 0.5, "attempts": 1_000, "timeout": 5}

    def listen(self) -> None:
        self._target.timeout = 0.2
        try:
            while not self._stopping.is_set():
                self._target.handle_request()
        finally:
            self._target.server_close()
