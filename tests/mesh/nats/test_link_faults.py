"""Links whose servers are killed, restarted, or changed by an operator while payloads are on their way."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood.mesh.nats.connection import NatsClient
from sapwood.mesh.nats.jetstream import JetStream
from sapwood.mesh.nats.local_servers import LocalServer, LocalServers
from tests.support.nats import Mesh, Peer, Recorder, running, settings, until

pytestmark = pytest.mark.server

_STREAM = "SAPWOOD_test_LINK_a_b"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    with running(tmp_path) as servers:
        yield servers


async def operate(server: LocalServer, *operations: str) -> None:
    """Send requests to the JetStream of a server, as an operator would."""
    client = NatsClient()
    await client.connect(server.url, allow_reconnect=False)
    for operation in operations:
        await JetStream(client, server.domain).request(operation)
    await client.close()


def bodies(count: int) -> list[bytes]:
    return [b"%d " % number * 50 for number in range(count)]


@pytest.mark.parametrize("name", ["a", "b", "hub"])
def test_a_server_that_is_killed_and_restarted_loses_nothing(servers: LocalServers, name: str) -> None:
    servers.start_hub()
    a, b = servers.start_site("a"), servers.start_site("b")

    async def main() -> None:
        sender, receiver = Peer(), Peer()
        async with Mesh() as mesh:
            await mesh.add(settings(b, "b"), receiver, "a")
            await mesh.add(settings(a, "a", ack_timeout=1.0), sender, "b")
            await until(lambda: bool(receiver.drained))
            sender.say("b", *bodies(3_000))
            await until(lambda: len(receiver.received["a"]) >= 1_000)
            servers.kill(name)
            await asyncio.sleep(0.5)
            assert not sender.done("b")
            servers.restart(name)
            await until(lambda: sender.done("b"))
            assert receiver.received["a"] == bodies(3_000)
            assert sender.failed

    asyncio.run(main())


def test_a_server_that_comes_later_is_waited_for(servers: LocalServers) -> None:
    server = servers.start_single()
    servers.kill("single")

    async def main() -> None:
        sender, receiver = Peer(), Peer()
        async with Mesh() as mesh:
            await mesh.add(settings(server, "b"), receiver, "a")
            await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(sender.connections))
            [(connected, reason)] = sender.connections
            assert not connected and server.url in reason
            sender.say("b", *bodies(100))
            servers.restart("single")
            await until(lambda: sender.done("b"))
            assert receiver.received["a"] == bodies(100)
            assert sender.connections[1:] == [(True, server.url)]

    asyncio.run(main())


def test_a_transport_stops_while_its_server_is_away(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        listener = Recorder()
        async with Mesh() as mesh:
            transport = await mesh.add(settings(server, "a"), listener, "b")
            await until(lambda: transport.connected)
            servers.kill("single")
            transport.send("b", b"x" * 500_000, 1)
            await until(lambda: not transport.connected)
            assert [connected for connected, _ in listener.connections] == [True, False]
            assert [tag for _, tag, _ in listener.failed] == [1]

    asyncio.run(main())


@pytest.mark.parametrize(
    "operations",
    [[f"STREAM.DELETE.{_STREAM}"], [f"CONSUMER.DELETE.{_STREAM}.b"]],
    ids=["stream", "consumer"],
)
def test_what_an_operator_deletes_is_made_again(
    servers: LocalServers, operations: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder()
        async with Mesh() as mesh:
            await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            out.send("b", b"before", 1)
            await until(lambda: receiver.bodies == [b"before"])
            await operate(server, *operations)
            await until(lambda: "opened again" in caplog.text)
            await asyncio.sleep(0.3)
            out.send("b", b"after", 2)
            await until(lambda: receiver.bodies == [b"before", b"after"])
            assert sender.accepted == [("b", 1), ("b", 2)]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_a_consumer_that_vanishes_without_a_word_is_noticed(
    servers: LocalServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sapwood.mesh.nats.inbound_link._SILENCE", 1.0)
    monkeypatch.setattr("sapwood.mesh.nats.inbound_link._EXPIRES", 0.5)
    servers.start_hub()
    server = servers.start_site("b")

    async def main() -> None:
        sender, receiver = Recorder(), Recorder()
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            # Requests go to a consumer that does not exist, as after a restore of the server's files.
            [link] = into._inbound.values()
            link.stream = "SAPWOOD_test_LINK_x_b"
            await until(lambda: "does not answer requests" in caplog.text)
            link.stream = _STREAM
            out.send("b", b"after", 1)
            await until(lambda: receiver.bodies == [b"after"])

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_payloads_that_wait_longer_than_the_server_allows_come_once(
    servers: LocalServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.mesh.nats.inbound_link._ACK_WAIT", 0.3)
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            for tag in range(5):
                out.send("b", b"%d" % tag, tag)
            out.send("b", b"x" * 1_500_000, 5)
            await until(lambda: len(receiver.payloads) == 6)
            await asyncio.sleep(1)
            assert len(receiver.payloads) == 6
            assert (await into.link_state())["a"].redelivered >= 5
            into.release("a", 6)
            async with asyncio.timeout(10):
                while (backlog := (await into.link_state())["a"].backlog) is None or backlog.messages:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_server_that_is_rolled_back_goes_on(servers: LocalServers, tmp_path: Path) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            for tag in range(10):
                out.send("b", b"%d" % tag, tag)
            await until(lambda: len(receiver.payloads) == 10)
            servers.stop_server("single")
            shutil.copytree(server.folder / "store", tmp_path / "copy")
            servers.restart("single")
            await until(lambda: len(receiver.payloads) == 20)  # none was released: all come again
            receiver.release = True
            into.release("a", 20)
            for tag in range(10, 20):
                out.send("b", b"%d" % tag, tag)
            await until(lambda: len(receiver.payloads) == 30)
            servers.stop_server("single")
            shutil.rmtree(server.folder / "store")
            shutil.copytree(tmp_path / "copy", server.folder / "store")
            servers.restart("single")
            await until(lambda: len(receiver.payloads) == 40)
            out.send("b", b"after", 20)
            await until(lambda: len(receiver.payloads) == 41)
            again = [b"%d" % tag for tag in range(10)]
            later = [b"%d" % tag for tag in range(10, 20)]
            assert receiver.bodies == [*again, *again, *later, *again, b"after"]
            assert [tag for _, _, tag in receiver.payloads] == list(range(1, 42))

    asyncio.run(main())


def test_a_stream_of_another_configuration_is_adapted(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main(spill: int) -> None:
        receiver = Recorder()
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b", spill=spill), receiver, "a")
            await until(lambda: bool(receiver.drained))
            assert (await into.link_state())["a"].error is None

    asyncio.run(main(1_000_000))
    asyncio.run(main(2_000_000))


def test_a_stream_that_cannot_be_made_is_told(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        receiver = Recorder()
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b", spill=10**15), receiver, "a")
            async with asyncio.timeout(10):
                while (error := (await into.link_state())["a"].error) is None:
                    await asyncio.sleep(0.01)
            assert "insufficient storage resources" in error

    asyncio.run(main())


@pytest.mark.slow
def test_the_killed_leader_of_a_cluster_loses_nothing(servers: LocalServers) -> None:
    servers.start_hub(servers=3)
    urls = [servers[name].url for name in servers.names]

    async def main() -> None:
        sender, receiver = Peer(), Peer()
        first = servers["hub-1"]
        async with Mesh() as mesh:
            await mesh.add(settings(first, "b", replicas=3, servers=urls), receiver, "a")
            await mesh.add(settings(first, "a", ack_timeout=1.0, servers=urls), sender, "b")
            await until(lambda: bool(receiver.drained))
            sender.say("b", *bodies(2_000))
            await until(lambda: len(receiver.received["a"]) >= 500)
            client = NatsClient()
            await client.connect(first.url, allow_reconnect=False)
            info = await JetStream(client, "hub").request(f"STREAM.INFO.{_STREAM}")
            await client.close()
            servers.kill(info["cluster"]["leader"])
            await until(lambda: sender.done("b"), 120)  # an election takes long on a busy machine
            assert receiver.received["a"] == bodies(2_000)

    asyncio.run(main())
