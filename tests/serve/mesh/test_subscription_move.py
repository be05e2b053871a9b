"""The move of subscriptions between brokers, with real processes: no delivery is lost, none is made twice."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sapwood.serve.mesh.local_mesh import LocalMesh
from tests.support.mesh.trees import need_nats

pytestmark = [pytest.mark.server, pytest.mark.slow]
TREE = {"main": None, "north": "main", "south": "main"}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    need_nats()
    with LocalMesh(tmp_path_factory.mktemp("move"), TREE) as running:
        yield running


def call(mesh: LocalMesh, broker: str, method: str, path: str, **options: Any) -> Any:
    answer = httpx.request(method, f"{mesh.url(broker)}{path}", timeout=60, **options)
    assert answer.is_success, (answer.status_code, answer.text)
    return answer.json()


class Publishers:
    """Threads that publish numbered messages at all brokers until they are stopped."""

    def __init__(self, mesh: LocalMesh, stream: str) -> None:
        self._mesh = mesh
        self._stream = stream
        self._stopped = threading.Event()
        self.counts: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._publish, args=(name,)) for name in mesh.parents]

    def _publish(self, broker: str) -> None:
        with httpx.Client(base_url=self._mesh.url(broker), timeout=60) as client:
            for number in itertools.count(1):
                if self._stopped.is_set():
                    return
                body = f'<m s="{broker}" n="{number}"/>'
                answer = client.post(f"/v1/streams/{self._stream}/messages", content=body)
                assert answer.status_code == 201, answer.text
                self.counts[broker] = number
                time.sleep(0.005)

    def __enter__(self) -> Publishers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def read_inbox(mesh: LocalMesh, broker: str, subscriber: str) -> list[tuple[str, int]]:
    """Return sources and numbers of all that a subscriber has at a broker, in order."""
    found: list[tuple[str, int]] = []
    after = 0
    while True:
        path = f"/v1/subscribers/{subscriber}/deliveries"
        answer = httpx.get(f"{mesh.url(broker)}{path}", params={"after": after, "limit": 1_000}, timeout=30)
        if answer.status_code == 404:
            return found
        page = answer.json()["deliveries"]
        if not page:
            return found
        for delivery in page:
            source, number = delivery["body"].split('"')[1::2][:2]
            found.append((source, int(number)))
        after = page[-1]["number"]


def wait_for(mesh: LocalMesh, subscriber: str, count: int) -> dict[str, list[tuple[str, int]]]:
    deadline = time.monotonic() + 30
    while True:
        inboxes = {broker: read_inbox(mesh, broker, subscriber) for broker in mesh.parents}
        if sum(map(len, inboxes.values())) >= count or time.monotonic() > deadline:
            return inboxes
        time.sleep(0.2)


def check_exactly_once(inboxes: dict[str, list[tuple[str, int]]], counts: Counter[str]) -> None:
    got = Counter(itertools.chain.from_iterable(inboxes.values()))
    expected = Counter((source, number) for source, last in counts.items() for number in range(1, last + 1))
    assert {key: got[key] for key in got | expected if got[key] != expected[key]} == {}
    for broker, entries in inboxes.items():
        for source in counts:
            numbers = [number for each, number in entries if each == source]
            assert numbers == sorted(numbers), (broker, source)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        pytest.param("filter", "/m", marks=pytest.mark.long),
        ("transformation", 'for $m in /m return <t s="{$m/@s}" n="{$m/@n}"/>'),
    ],
)
def test_back_and_forth_under_load(mesh: LocalMesh, name: str, query: str) -> None:
    body = {"query": query, "subscriber": name, "streams": [name]}
    made = call(mesh, "north", "PUT", f"/v1/subscriptions/{name}", json=body)
    assert made["confirmed"] is True
    with Publishers(mesh, name) as publishers:
        for target, leader in (("south", "main"), ("north", "south"), ("main", "north"), ("south", "south")):
            time.sleep(0.7)
            request = {"ids": [name], "to": target}
            moved = call(mesh, leader, "POST", "/v1/mesh/subscriptions/move", json=request)["moved"]
            assert [each["target"] for each in moved] == [target]
        time.sleep(0.5)
    inboxes = wait_for(mesh, name, publishers.counts.total())
    check_exactly_once(inboxes, publishers.counts)
    assert all(inboxes.values())  # each of them has hosted it for a while
    (host,) = call(mesh, "main", "GET", f"/v1/mesh/explain/{name}")["hosts"]
    assert (host["broker"], host["subscriber"], host["streams"]) == ("south", name, [name])
    assert host["active"] and host["confirmed"] and all(each["has"] for each in host["brokers"])


def test_what_cannot_be_moved(mesh: LocalMesh) -> None:
    join = "a/x[@i->p] FOLLOWED BY{p = q, 1 min} b/y[@i->q]"
    call(mesh, "north", "PUT", "/v1/subscriptions/joined", json={"query": join, "subscriber": "desk"})
    for ids, to, status, told in (
        (["joined"], "south", 409, "is a join"),
        (["absent"], "south", 409, "no broker that answers has"),
        (["joined"], "west", 404, "there is no broker 'west'"),
    ):
        body = {"ids": ids, "to": to}
        answer = httpx.post(f"{mesh.url('main')}/v1/mesh/subscriptions/move", json=body, timeout=60)
        assert answer.status_code == status and told in answer.json()["detail"], answer.text
    (host,) = call(mesh, "main", "GET", "/v1/mesh/explain/joined")["hosts"]
    assert host["broker"] == "north" and host["active"]


def test_a_paused_subscription_stays_paused(mesh: LocalMesh) -> None:
    body = {"query": "/p", "subscriber": "paused", "active": False}
    call(mesh, "north", "PUT", "/v1/subscriptions/paused", json=body)
    call(mesh, "main", "POST", "/v1/mesh/subscriptions/move", json={"ids": ["paused"], "to": "south"})
    (host,) = call(mesh, "main", "GET", "/v1/mesh/explain/paused")["hosts"]
    assert (host["broker"], host["active"], host["subscriber"]) == ("south", False, "paused")


def test_a_move_that_was_interrupted_is_finished(mesh: LocalMesh) -> None:
    """The state after the old host has paused the subscription, as a leader that ended leaves it."""
    body = {"query": "/i", "subscriber": "late", "streams": ["i"]}
    call(mesh, "north", "PUT", "/v1/subscriptions/halfway", json=body)
    call(mesh, "main", "POST", "/v1/streams/i/messages", content='<i s="main" n="1"/>')
    deadline = time.monotonic() + 10
    while not read_inbox(mesh, "north", "late") and time.monotonic() < deadline:
        time.sleep(0.1)
    copy = body | {"subscriber": ""}
    call(mesh, "south", "PUT", "/v1/subscriptions/halfway", json=copy)
    call(mesh, "north", "PATCH", "/v1/subscriptions/halfway", json={"active": False})
    call(mesh, "main", "POST", "/v1/streams/i/messages", content='<i s="main" n="2"/>')
    moved = call(
        mesh, "main", "POST", "/v1/mesh/subscriptions/move", json={"ids": ["halfway"], "to": "south"}
    )
    assert moved["moved"] == [{"id": "halfway", "source": "north", "target": "south", "deliveries": 1}]
    assert read_inbox(mesh, "north", "late") == [("main", 1)]
    assert read_inbox(mesh, "south", "late") == [("main", 2)]
