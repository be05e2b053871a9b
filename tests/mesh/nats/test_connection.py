"""Connections with passwords and TLS, listeners that fail, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood.mesh.nats.local_servers import LocalServer, LocalServers
from tests.support.nats import Mesh, Recorder, running, settings, until
from tests.support.service.certificate import make_certificate

pytestmark = pytest.mark.server


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    with running(tmp_path) as servers:
        yield servers


def start(servers: LocalServers, configuration: str) -> LocalServer:
    server = servers.start_single()
    server.config += configuration
    return servers.restart("single")


def test_a_wrong_password_is_told_and_tried_again(servers: LocalServers) -> None:
    server = start(servers, "authorization { user: broker, password: hush }\n")

    async def main() -> None:
        wrong, right = Recorder(), Recorder()
        async with Mesh() as mesh:
            await mesh.add(settings(server, "a", user="broker", password="loud"), wrong, "b")
            transport = await mesh.add(settings(server, "b", user="broker", password="hush"), right, "a")
            await until(lambda: bool(wrong.connections) and transport.connected)
            [(connected, reason)] = wrong.connections
            assert not connected and "authorization" in reason.lower()
            assert "loud" not in reason
            await asyncio.sleep(0.5)
            assert len(wrong.connections) == 1

    asyncio.run(main())


def test_a_connection_with_tls(servers: LocalServers, tmp_path: Path) -> None:
    pem = make_certificate(tmp_path, "localhost")  # with its key
    server = start(
        servers, f'tls {{ cert_file: "{pem}", key_file: "{pem}", ca_file: "{pem}", verify: true }}\n'
    )
    urls = [server.url.replace("nats://127.0.0.1", "tls://localhost")]

    async def main() -> None:
        known, unknown = Recorder(), Recorder()
        async with Mesh() as mesh:
            own = settings(server, "a", servers=urls, tls_ca=pem, tls_certificate=pem, tls_key=pem)
            await mesh.add(own, known, "b")
            await mesh.add(settings(server, "b", servers=urls, tls_ca=pem), unknown, "a")
            await until(lambda: bool(known.drained) and bool(unknown.connections))
            assert known.connections == [(True, urls[0])]
            assert not unknown.connections[0][0]

    asyncio.run(main())


def test_a_listener_that_fails_is_logged_and_called_again(
    servers: LocalServers, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.start_single()

    class Failing(Recorder):
        def on_payload(self, neighbour: str, payload: bytes, tag: int) -> None:
            super().on_payload(neighbour, payload, tag)
            raise TimeoutError(f"no time for {tag}")

    async def main() -> None:
        sender, receiver = Recorder(), Failing()
        async with Mesh() as mesh:
            await mesh.add(settings(server, "b"), receiver, "a")
            out = await mesh.add(settings(server, "a"), sender, "b")
            await until(lambda: bool(receiver.drained) and out.connected)
            out.send("b", b"1", 1)
            out.send("b", b"2", 2)
            await until(lambda: receiver.bodies == [b"1", b"2"])

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "no time for 1" in caplog.text and "no time for 2" in caplog.text


def test_a_broker_that_is_interrupted_leaves_no_task(servers: LocalServers) -> None:
    server = servers.start_single()

    async def main() -> None:
        sender, receiver = Recorder(), Recorder()
        started = asyncio.Event()

        async def serve() -> None:
            async with Mesh() as mesh:
                await mesh.add(settings(server, "b"), receiver, "a")
                out = await mesh.add(settings(server, "a"), sender, "b")
                await until(lambda: bool(receiver.drained) and out.connected)
                for tag in range(500):
                    out.send("b", b"x" * 10_000, tag)
                started.set()
                await asyncio.sleep(60)

        serving = asyncio.create_task(serve())
        await started.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(main())
