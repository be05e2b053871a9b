"""Streams of links that lose what they accepted, or have it again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from sapwood.serve.mesh.local_mesh import LocalMesh
from tests.support.mesh.jetstream_admin import JetStreamAdmin, link_stream
from tests.support.mesh.mesh_clients import MeshClients
from tests.support.mesh.mesh_load import HostedRow
from tests.support.mesh.trees import CHAIN, need_nats
from tests.support.requirements import FULL, SLOWDOWN
from tests.support.service.broker_oracle import Row

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    need_nats()
    with LocalMesh(tmp_path_factory.mktemp("mesh"), CHAIN) as mesh:
        yield mesh


@pytest.fixture
def clients(mesh: LocalMesh) -> Iterator[MeshClients]:
    with MeshClients(mesh) as clients:
        yield clients


class _Numbers:
    """Messages with numbers, published at the first broker for a subscriber at the last one."""

    def __init__(self, clients: MeshClients, name: str) -> None:
        self._clients, self._name = clients, name
        self.published = 0
        clients.put(HostedRow("last", Row(name, f"/{name}", name)))

    def publish(self, count: int) -> None:
        for number in range(self.published, self.published + count):
            headers = {"Sapwood-Message-Id": f"{self._name}-{number}"}
            body = f"<{self._name}>{number}</{self._name}>"
            answer = self._clients.call(
                "first", "POST", "/v1/streams/numbers/messages", content=body, headers=headers
            )
            assert answer.status_code == 201, answer.text
        self.published += count

    def check(self) -> None:
        """Check that all have come, in order, and once."""
        self._clients.wait_for("last", self._name, self.published)
        received = [each.message for each in self._clients.read("last", self._name)]
        assert received == [f"{self._name}-{number}" for number in range(self.published)]


def _wait_for_stream(admin: JetStreamAdmin, before: int) -> None:
    """Wait until the middle broker has put something into the stream of the last one, and all of it."""
    name = link_stream("middle", "last")
    deadline = time.monotonic() + 20 * SLOWDOWN
    seen = before
    while True:
        time.sleep(0.5)
        now = admin.last_sequence("last", name)
        if now > before and now == seen:
            return
        seen = now
        assert time.monotonic() < deadline, "nothing comes into the stream"


@pytest.mark.parametrize("operation", [pytest.param("delete", marks=pytest.mark.long), "purge"])
def test_what_a_stream_has_lost_is_reported_and_sent_again(
    mesh: LocalMesh, clients: MeshClients, operation: str
) -> None:
    """B.11: a stream is deleted, or purged, with messages that it had accepted for a broker that is away."""
    numbers = _Numbers(clients, operation)
    numbers.publish(20)
    numbers.check()
    with JetStreamAdmin(mesh) as admin:
        stream = link_stream("middle", "last")
        sequence = admin.last_sequence("last", stream)
        mesh.brokers["last"].kill()
        numbers.publish(100)
        _wait_for_stream(admin, sequence)
        if operation == "delete":
            admin.delete("last", stream)
        else:
            assert admin.purge("last", stream)
    mesh.brokers["last"].start()
    started = time.monotonic()
    while not _count_lost(clients.status("last").get("counters", {})):
        assert time.monotonic() - started < 10 * SLOWDOWN, "the loss is not reported"
        time.sleep(0.1)
    numbers.check()
    numbers.publish(20)
    numbers.check()


def _count_lost(counters: dict[str, int]) -> int:
    """The loss shows by a frame after those that are gone, or by what the sender says that it has sent."""
    return counters.get("lost", 0) + counters.get("gap", 0)


def test_a_stream_that_is_deleted_under_traffic_loses_nothing(mesh: LocalMesh, clients: MeshClients) -> None:
    """B.11: the streams of both links of the middle broker are deleted again and again while both ends
    publish."""
    numbers = _Numbers(clients, "deleted")
    with JetStreamAdmin(mesh) as admin:
        for turn in range(6):
            numbers.publish(30)
            sender, receiver = (("first", "middle"), ("middle", "last"))[turn % 2]
            admin.delete(receiver, link_stream(sender, receiver))
    numbers.check()
    clients.wait_quiet()
    numbers.check()


def test_a_stream_that_is_rolled_back_repeats_nothing(mesh: LocalMesh, clients: MeshClients) -> None:
    """B.10, B.11: what was handled long ago comes again, and what was accepted since is gone from the stream;
    there is no duplicate, and nothing is missing. No window of JetStream helps: a link has none."""
    numbers = _Numbers(clients, "rolled")
    numbers.publish(20)
    numbers.check()
    store, copy = mesh.nats["last"].folder / "store", mesh.folder / "copy"
    with JetStreamAdmin(mesh) as admin:
        sequence = admin.last_sequence("last", link_stream("middle", "last"))
        mesh.brokers["last"].kill()
        numbers.publish(100)
        _wait_for_stream(admin, sequence)
    mesh.nats.stop_server("last")
    shutil.copytree(store, copy)
    mesh.nats.restart("last")
    mesh.brokers["last"].start()
    numbers.check()
    numbers.publish(50)
    numbers.check()
    mesh.nats.stop_server("last")
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    mesh.nats.restart("last")
    numbers.publish(50)
    numbers.check()
    clients.wait_quiet()
    numbers.check()


@pytest.mark.long
def test_brokers_that_send_everything_again_double_nothing(mesh: LocalMesh, clients: MeshClients) -> None:
    """B.10: sender and receiver of a link are killed when the receiver has stored what it has not
    acknowledged, and start again much later than messages are on their way."""
    numbers = _Numbers(clients, "again")
    for _ in range(5 if FULL else 1):
        numbers.publish(60)
        mesh.brokers["last"].kill()
        mesh.brokers["middle"].kill()
        time.sleep(5)
        mesh.brokers["middle"].start()
        mesh.brokers["last"].start()
        numbers.check()
    clients.wait_quiet()
    numbers.check()


def test_a_link_keeps_nothing_that_was_stored(mesh: LocalMesh, clients: MeshClients) -> None:
    """What the receiver has stored leaves the stream."""
    numbers = _Numbers(clients, "kept")
    numbers.publish(50)
    numbers.check()
    clients.wait_quiet()
    links = clients.status("last")["links"].values()
    assert [link["transport"]["backlog"]["messages"] for link in links] == [0]
