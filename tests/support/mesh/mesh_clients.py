"""Calls of the brokers of a mesh, which are repeated while a broker is away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from sapwood.serve.mesh.local_mesh import LocalMesh
from tests.support.mesh.mesh_load import HostedRow, SourcedMessage
from tests.support.mesh.network_namespaces import CutMesh
from tests.support.requirements import PATIENCE
from tests.support.service.listeners import Received, to_received
from tests.support.service.random_load import NAMESPACES

_PAUSE = 0.05
_PAGE = 1_000


class MeshClients:
    """A client of each broker."""

    def __init__(self, mesh: LocalMesh) -> None:
        self.mesh = mesh
        self._client = httpx.Client(timeout=15)
        self.repeated = 0
        """requests that had to be repeated"""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, broker: str, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request, again and again until the broker answers it."""
        deadline = time.monotonic() + 120 * PATIENCE
        while True:
            try:
                answer = self._send(broker, method, self.mesh.url(broker) + path, **request)
                if answer.status_code not in (429, 503):
                    return answer
                said = answer.text
            except httpx.HTTPError as error:
                said = repr(error)
            assert time.monotonic() < deadline, f"{broker} does not answer {method} {path}: {said}"
            self.repeated += 1
            time.sleep(_PAUSE)

    def _send(self, broker: str, method: str, url: str, **request: Any) -> httpx.Response:
        if isinstance(self.mesh, CutMesh):
            return self.mesh.run_at(broker, self._client.request, method, url, **request)
        return self._client.request(method, url, **request)

    # -- subscriptions -----------------------------------------------------------------------------------

    def declare(self) -> None:
        """Declare the prefixes of random queries everywhere."""
        for broker in self.mesh.brokers:
            self.call(broker, "PUT", "/v1/namespaces", json={"namespaces": NAMESPACES}).raise_for_status()

    def import_all(self, rows: Iterable[HostedRow]) -> None:
        """Make subscriptions at their hosts, and wait until all brokers have them."""
        by_host: dict[str, list[HostedRow]] = {}
        for hosted in rows:
            by_host.setdefault(hosted.host, []).append(hosted)
        versions: dict[str, int] = {}
        for host, some in by_host.items():
            lines = "\n".join(json.dumps({"id": each.row.id, **_fields(each)}) for each in some)
            answer = self.call(host, "POST", "/v1/imports", content=lines).json()
            assert answer["added"] == len(some), answer["errors"][:3]
            versions[host] = answer["version"]
        for host, version in versions.items():
            self.wait_confirmed(host, version)

    def put(self, hosted: HostedRow, confirm: bool = True) -> None:
        """Make or change a subscription, and wait until all brokers have it."""
        path = f"/v1/subscriptions/{quote(hosted.row.id, safe='')}"
        answer = self.call(hosted.host, "PUT", path, json=_fields(hosted))
        assert answer.status_code in (200, 201), answer.text
        if confirm:
            self.wait_confirmed(hosted.host, int(answer.headers["Sapwood-Version"]))

    def remove(self, hosted: HostedRow) -> None:
        """Remove a subscription."""
        path = f"/v1/subscriptions/{quote(hosted.row.id, safe='')}"
        answer = self.call(hosted.host, "DELETE", path)
        assert answer.status_code in (200, 404), answer.text

    def wait_confirmed(self, broker: str, version: int, wait: float = 60) -> None:
        """Wait until all brokers have the subscriptions of a version."""
        self._wait(
            lambda: self.call(broker, "GET", "/v1/mesh").json()["confirmed"] >= version,
            wait,
            lambda: f"version {version} of {broker} is not confirmed: {self._describe()}",
        )

    # -- messages ----------------------------------------------------------------------------------------

    def publish(self, sent: SourcedMessage) -> int:
        """Publish a message, and return the status of the answer."""
        message = sent.message
        headers = {"Sapwood-Message-Id": message.id, "Sapwood-Time": repr(message.time)}
        path = f"/v1/streams/{message.stream}/messages"
        answer = self.call(sent.source, "POST", path, content=message.body, headers=headers)
        assert answer.status_code in (200, 201, 422), f"{answer.status_code} {answer.text}"
        return answer.status_code

    def publish_many(self, messages: Sequence[SourcedMessage]) -> None:
        """Publish messages of one source and one stream in one request."""
        parts = [
            ("m", (m.message.id, m.message.body, "application/xml", {"Sapwood-Time": repr(m.message.time)}))
            for m in messages
        ]
        path = f"/v1/streams/{messages[0].message.stream}/messages"
        answer = self.call(messages[0].source, "POST", path, files=parts)
        assert answer.status_code in (200, 201, 207, 422), f"{answer.status_code} {answer.text}"

    # -- deliveries --------------------------------------------------------------------------------------

    def last(self, broker: str, subscriber: str) -> int:
        """Return the number of a subscriber's last delivery."""
        answer = self.call(broker, "GET", f"/v1/subscribers/{subscriber}")
        return int(answer.json()["last"]) if answer.status_code == 200 else 0

    def wait_for(self, broker: str, subscriber: str, number: int, wait: float = 60) -> None:
        """Wait until a subscriber has a number of deliveries."""
        self._wait(
            lambda: self.last(broker, subscriber) >= number,
            wait,
            lambda: (
                f"{subscriber} at {broker} has {self.last(broker, subscriber)} of {number} deliveries: "
                + self._describe()
            ),
        )

    def wait_for_message(self, broker: str, subscriber: str, ids: set[str], wait: float) -> None:
        """Wait until a subscriber has messages."""
        self._wait(
            lambda: ids <= {each.message for each in self.read(broker, subscriber)},
            wait,
            lambda: f"{subscriber} at {broker} lacks some of {sorted(ids)}: {self._describe()}",
        )

    def read(self, broker: str, subscriber: str) -> list[Received]:
        """Return all deliveries of a subscriber."""
        found: list[Received] = []
        while True:
            after = found[-1].number if found else 0
            path = f"/v1/subscribers/{subscriber}/deliveries"
            answer = self.call(broker, "GET", path, params={"after": after, "limit": _PAGE})
            if answer.status_code == 404:
                return found
            page = answer.json()
            assert not page["gaps"], page["gaps"]
            if not page["deliveries"]:
                return found
            found += map(to_received, page["deliveries"])

    def rejects(self, broker: str) -> list[str]:
        """Return the ids of the messages that a broker has refused."""
        found: list[str] = []
        params: dict[str, Any] = {"limit": _PAGE}
        while True:
            page = self.call(broker, "GET", "/v1/rejects", params=params).json()
            found += [each["id"] for each in page["rejects"]]
            if page.get("next") is None or not page["rejects"]:
                return found
            params["before"] = page["next"]

    # -- the mesh ----------------------------------------------------------------------------------------

    def status(self, broker: str) -> dict[str, Any]:
        """Return what a broker tells of itself."""
        found: dict[str, Any] = self.call(broker, "GET", "/v1/mesh").json()
        return found

    def counter(self, name: str) -> int:
        """Return the sum of a counter of all brokers."""
        return sum(self.status(broker).get("counters", {}).get(name, 0) for broker in self.mesh.brokers)

    def wait_quiet(self, wait: float = 60) -> None:
        """Wait until nothing is under way: each broker says so thrice, in reports of different times."""
        quiet = 0

        def is_quiet() -> bool:
            nonlocal quiet
            statuses = [self.status(broker) for broker in self.mesh.brokers]
            busy = [s for s in statuses if "links" not in s or s["waiting"] or s["unsettled"]]
            quiet = 0 if busy else quiet + 1
            time.sleep(1.1)  # the interval of reports, and a little more
            return quiet >= 3

        self._wait(is_quiet, wait, lambda: f"the mesh is not quiet: {self._describe()}")

    def _wait(self, condition: Callable[[], bool], wait: float, describe: Callable[[], str]) -> None:
        deadline = time.monotonic() + wait * PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(describe())
            time.sleep(0.02)

    def _describe(self) -> str:
        running = [name for name, broker in self.mesh.brokers.items() if broker.is_running]
        return json.dumps({broker: self.status(broker) for broker in running}, default=str)


def _fields(hosted: HostedRow) -> dict[str, object]:
    row = hosted.row
    return {"query": row.query, "subscriber": row.subscriber, "streams": list(row.streams)}


class SourcePublisher(threading.Thread):
    """Publishes the messages of one source in order, each until it is answered."""

    def __init__(
        self, mesh: LocalMesh, messages: Sequence[SourcedMessage], pause: float = 0, several: int = 1
    ) -> None:
        super().__init__(daemon=True, name=f"publisher at {messages[0].source}")
        self._mesh, self._messages = mesh, messages
        self._pause, self._several = pause, several
        self.done = self.repeated = 0
        self.slowest = 0.0
        """seconds of the request that took longest"""
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with MeshClients(self._mesh) as clients:
                at = 0
                while at < len(self._messages):
                    started = time.monotonic()
                    some = self._next(at)
                    if len(some) > 1:
                        clients.publish_many(some)
                    else:
                        clients.publish(some[0])
                    at += len(some)
                    self.done, self.repeated = at, clients.repeated
                    self.slowest = max(self.slowest, time.monotonic() - started)
                    time.sleep(self._pause)
        except BaseException as error:
            self.failure = error

    def _next(self, at: int) -> Sequence[SourcedMessage]:
        end = at + 1
        stream = self._messages[at].message.stream
        limit = min(at + self._several, len(self._messages))
        while end < limit and self._messages[end].message.stream == stream:
            end += 1
        return self._messages[at:end]

    def finish(self, wait: float = 300) -> None:
        """Wait until all is published."""
        self.join(wait * PATIENCE)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.name} has published {self.done} of {len(self._messages)}"


def publish_all(
    mesh: LocalMesh, messages: Sequence[SourcedMessage], pause: float = 0, several: int = 1
) -> list[SourcePublisher]:
    """Publish messages, those of each source in order, and of all sources at the same time."""
    by_source: dict[str, list[SourcedMessage]] = {}
    for message in messages:
        by_source.setdefault(message.source, []).append(message)
    return [SourcePublisher(mesh, some, pause, several) for some in by_source.values()]
