"""Links over real NATS servers: order, completeness, sizes, and what they report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood.errors import ArgumentError
from sapwood.mesh.nats.local_servers import LocalServers
from tests.support.nats import Mesh, Peer, Recorder, running, settings, until

pytestmark = pytest.mark.server


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    with running(tmp_path) as servers:
        yield servers


def test_payloads_arrive_in_order_between_two_sites(servers: LocalServers) -> None:
    servers.start_hub()
    a, b = servers.start_site("a"), servers.start_site("b")

    async def main() -> None:
        sender, receiver = Recorder(), Recorder()
        async with Mesh() as mesh:
            await mesh.add(settings(b, "b"), receiver, "a")
            await until(lambda: bool(receiver.drained))
            out = await mesh.add(settings(a, "a"), sender, "b")
            await until(lambda: out.connected)
            bodies = [f"payload {number}".encode() for number in range(2_000)]
            for tag, body in enumerate(bodies):
                out.send("b", body, tag)
            await until(lambda: len(receiver.payloads) >= len(bodies))
            await until(lambda: len(sender.accepted) >= len(bodies))
            assert receiver.bodies == bodies
            assert [tag for _, _, tag in receiver.payloads] == list(range(1, 2_001))
            assert sender.accepted == [("b", tag) for tag in range(2_000)]
            assert sender.failed == []
            state = (await out.link_state())["b"]
            assert (state.payloads_out, state.bytes_out) == (2_000, sum(map(len, bodies)))
            assert (state.in_flight, state.queued, state.send_failures) == (0, 0, 0)

    asyncio.run(main())


def test_large_payloads_travel_in_parts(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            bodies = [b"first", b"x" * 3_000_000, b"", b"y" * 3_000_000, b"z" * 1_048_576, b"last"]
            for tag, body in enumerate(bodies):
                out.send("b", body, tag)
            out.send_control("b", b"c" * 2_500_000)
            out.send_control("b", b"small")
            await until(lambda: len(receiver.payloads) == len(bodies) and len(receiver.controls) == 2)
            assert receiver.bodies == bodies
            assert receiver.controls == [("a", b"c" * 2_500_000), ("a", b"small")]
            assert sender.accepted == [("b", tag) for tag in range(len(bodies))]
            backlog = (await into.link_state())["a"].backlog
            assert backlog is not None
            assert backlog.messages == 1 + 3 + 1 + 3 + 2 + 1  # none is acknowledged
            assert backlog.oldest_age is not None
            into.release("a", len(bodies))
            async with asyncio.timeout(10):
                while (backlog := (await into.link_state())["a"].backlog) is None or backlog.messages:
                    await asyncio.sleep(0.01)
            assert backlog.oldest_age is None

    asyncio.run(main())


def test_no_more_is_handed_over_than_the_credit(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b", credit=10), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            for tag in range(100):
                out.send("b", b"%d" % tag, tag)
            await until(lambda: len(sender.accepted) == 100)
            await asyncio.sleep(0.2)
            assert len(receiver.payloads) == 10
            into.release("a", 4)
            await until(lambda: len(receiver.payloads) == 14)
            await asyncio.sleep(0.1)
            assert len(receiver.payloads) == 14
            receiver.release = True
            into.release("a", 14)
            await until(lambda: len(receiver.payloads) == 100)
            assert receiver.bodies == [b"%d" % tag for tag in range(100)]

    asyncio.run(main())


def test_large_payloads_do_not_exceed_the_credit_of_bytes(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b", credit_bytes=4_000_000), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            for tag in range(40):
                out.send("b", bytes([tag]) * 500_000, tag)
            await until(lambda: len(sender.accepted) == 40)
            await asyncio.sleep(0.3)
            assert 4 <= len(receiver.payloads) <= 10
            receiver.release = True
            into.release("a", len(receiver.payloads))
            await until(lambda: len(receiver.payloads) == 40)
            assert [body[0] for body in receiver.bodies] == list(range(40))

    asyncio.run(main())


def test_a_full_stream_refuses_and_all_later_payloads_are_dropped(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder(release=False)
        async with Mesh() as mesh:
            await mesh.add(settings(server, "b", spill=100_000), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            for tag in range(40):
                out.send("b", b"x" * 10_000, tag)
            await until(lambda: bool(sender.failed))
            await asyncio.sleep(0.2)
            [(neighbour, tag, reason)] = sender.failed
            assert (neighbour, tag) == ("b", len(sender.accepted))
            assert 0 < tag < 10
            assert "maximum bytes exceeded" in reason
            state = (await out.link_state())["b"]
            assert (state.in_flight, state.queued, state.send_failures) == (0, 0, 1)

    asyncio.run(main())


def test_a_link_without_a_stream_fails(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender = Recorder()
        async with Mesh() as mesh:
            out = await mesh.add(settings(server, "a"), sender, "b")
            out.send("b", b"too early", 1)
            out.send("b", b"too early", 2)
            await until(lambda: len(sender.failed) == 1)
            assert "no connection" in sender.failed[0][2]
            await until(lambda: out.connected)
            out.send("b", b"nobody", 3)
            out.send("b", b"nobody", 4)
            await until(lambda: len(sender.failed) == 2)
            assert sender.failed[1][:2] == ("b", 3)
            assert "no stream takes it" in sender.failed[1][2]

    asyncio.run(main())


def test_a_receiver_that_was_away_gets_all_in_order(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, first, second = Recorder(), Recorder(release=False), Recorder()
        async with Mesh() as mesh:
            away = await mesh.add(settings(server, "b"), first, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(first.drained) and out.connected)
            for tag in range(50):
                out.send("b", b"%d" % tag, tag)
            await until(lambda: len(first.payloads) == 50)
            away.release("a", 20)
            await away.stop()
            for tag in range(50, 500):
                out.send("b", b"%d" % tag, tag)
            await until(lambda: len(sender.accepted) == 500)
            await mesh.add(settings(server, "b"), second, "a")
            await until(lambda: len(second.payloads) >= 480)
            # What was released is not given again, and what was only handed over is.
            assert second.bodies == [b"%d" % tag for tag in range(20, 500)]
            await until(lambda: bool(second.drained))

    asyncio.run(main())


def test_eight_sites_send_to_all_others(servers: LocalServers) -> None:
    servers.start_hub()
    sites = {name: servers.start_site(name) for name in "abcdefgh"}

    async def main() -> None:
        peers = {name: Peer() for name in sites}
        async with Mesh() as mesh:
            for name, peer in peers.items():
                await mesh.add(settings(sites[name], name), peer, *(sites.keys() - {name}))
            for name, peer in peers.items():
                for other in sites.keys() - {name}:
                    peer.say(other, *(f"{name} to {other}: {n}".encode() for n in range(20)))
            await until(lambda: all(peer.done(other) for peer in peers.values() for other in peer.outbox))
            for name, peer in peers.items():
                for other in sites.keys() - {name}:
                    assert peer.received[other] == [f"{other} to {name}: {n}".encode() for n in range(20)]

    asyncio.run(main())


def test_neighbours_can_be_changed(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder()
        async with Mesh() as mesh:
            into = await mesh.add(settings(server, "b", linger=0.4), receiver)
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: out.connected and into.connected)
            into.set_neighbours(["a"])
            await until(lambda: receiver.drained == ["a"])
            out.send("b", b"1", 1)
            await until(lambda: receiver.bodies == [b"1"])
            into.set_neighbours([])
            out.send("b", b"2", 2)
            await until(lambda: sender.accepted == [("b", 1), ("b", 2)])
            await asyncio.sleep(1)
            out.send("b", b"3", 3)  # the stream has been deleted meanwhile
            await until(lambda: len(sender.failed) == 1)
            assert receiver.bodies == [b"1"]
            with pytest.raises(ArgumentError, match="no neighbour"):
                into.send("a", b"", 1)

    asyncio.run(main())


def test_the_server_is_described(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        listener = Recorder()
        async with Mesh() as mesh:
            transport = await mesh.add(settings(server, "a"), listener)
            assert not (await transport.server_info()).connected
            await until(lambda: transport.connected)
            info = await transport.server_info()
            assert (info.name, info.url, info.max_payload) == ("single", server.url, 1_048_576)
            assert info.rtt is not None and 0 < info.rtt < 2
            assert info.version and info.version[0].isdigit()
            assert listener.connections == [(True, server.url)]

    asyncio.run(main())
