"""An inner broker that dies and does not come back, and a publisher that is far too fast."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from sapwood.bench.serve.http_load import HttpConnections
from sapwood.serve.mesh.local_mesh import LocalMesh
from tests.support.mesh.mesh_clients import MeshClients
from tests.support.mesh.mesh_load import HostedRow
from tests.support.mesh.trees import CHAIN, FOUR, need_nats
from tests.support.requirements import SLOWDOWN
from tests.support.service.broker_oracle import Row

pytestmark = [pytest.mark.long, pytest.mark.server]


def _publish(clients: MeshClients, broker: str, id: str) -> None:
    body, headers = f"<m>{id}</m>", {"Sapwood-Message-Id": id}
    answer = clients.call(broker, "POST", "/v1/streams/s/messages", content=body, headers=headers)
    assert answer.status_code == 201, answer.text


def _ids(clients: MeshClients, broker: str) -> list[str]:
    return [each.message for each in clients.read(broker, broker)]


def test_messages_pass_by_a_dead_inner_broker(tmp_path: Path) -> None:
    """B.20: without an operator, within 20 s; when it comes back, it gets what it missed, and what it had
    accepted goes to everybody."""
    need_nats()
    with LocalMesh(tmp_path, FOUR) as mesh, MeshClients(mesh) as clients:
        for host in FOUR:
            clients.put(HostedRow(host, Row(host, "/m", host)))
        for number in range(20):
            for source in FOUR:
                _publish(clients, source, f"{source}-{number}")
        mesh.brokers["inner"].kill()
        killed = time.monotonic()
        for number in range(20, 30):
            for source in ("root", "host1", "host2"):
                _publish(clients, source, f"{source}-{number}")
        for host in ("root", "host1", "host2"):
            clients.wait_for_message(host, host, {f"{s}-29" for s in ("root", "host1", "host2")}, 40)
        seconds = time.monotonic() - killed
        print(f"messages flow again after {seconds:.1f} s")
        mesh.brokers["inner"].start()
        for number in range(30, 35):
            for source in FOUR:
                _publish(clients, source, f"{source}-{number}")
        for host in FOUR:
            clients.wait_for(host, host, 3 * 35 + 25, 60)
        clients.wait_quiet()
        for host in FOUR:
            received = _ids(clients, host)
            for source in FOUR:
                expected = [n for n in range(35) if source != "inner" or not 20 <= n < 30]
                found = [id for id in received if id.startswith(f"{source}-")]
                assert found == [f"{source}-{n}" for n in expected], f"of {source} at {host}"
        assert seconds < 20 * SLOWDOWN


def test_a_publisher_far_above_capacity_costs_no_memory_and_no_message(tmp_path: Path) -> None:
    """B.21: requests in parallel, as fast as they are answered, of messages that pass two links."""
    need_nats()
    seconds = 60.0
    with LocalMesh(tmp_path, CHAIN) as mesh, MeshClients(mesh) as clients:
        clients.put(HostedRow("last", Row("last", "/flood", "last")))
        before, _ = asyncio.run(_flood(mesh.brokers["first"].port, "warm", seconds / 3))
        warm = _memory(mesh)
        accepted, refused = asyncio.run(_flood(mesh.brokers["first"].port, "flood", seconds))
        full = _memory(mesh)
        clients.wait_for("last", "last", before + accepted, 300)
        clients.wait_quiet(300)
        ids = [each.message for each in clients.read("last", "last")]
        links = [clients.status("last")["links"]["middle"], clients.status("middle")["links"]["first"]]
    print(f"{accepted} accepted, {refused} refused, memory {warm} then {full}")
    assert len(ids) == len(set(ids)) == before + accepted
    for process, size in full.items():
        assert size < 1.3 * warm[process] + 60, f"{process}: {warm[process]} MB, then {size} MB"
    for link in links:
        transport = link["transport"]
        assert transport["redelivered"] <= 0.001 * transport["payloads_in"]


def _memory(mesh: LocalMesh) -> dict[str, float]:
    """Return the resident memory in MB of each broker's server and engine, and of the NATS servers."""
    found: dict[str, float] = {}
    for name, broker in mesh.brokers.items():
        server = psutil.Process(broker.process_id)
        for place, process in enumerate([server, *server.children()]):
            found[f"{name} {place}"] = round(process.memory_info().rss / 2**20, 1)
    for name in mesh.nats.names:
        process = mesh.nats[name].process
        assert process is not None
        found[f"nats {name}"] = round(psutil.Process(process.pid).memory_info().rss / 2**20, 1)
    return found


async def _flood(port: int, name: str, seconds: float) -> tuple[int, int]:
    """Publish batches over several connections; return how many messages were accepted and refused."""
    accepted = refused = 0
    lines = b"\n".join(b"<flood>%s</flood>" % (b"x" * 4_000) for _ in range(100))
    ends = time.monotonic() + seconds

    async def publish(number: int) -> None:
        nonlocal accepted, refused
        connection, turn = connections.open(), 0
        headers = {"content-type": "application/x-xmll"}
        while time.monotonic() < ends:
            key = {"idempotency-key": f"{name}-{number}-{turn}"}
            status, _ = await connection.send("POST", "/v1/streams/s/messages", lines, headers | key)
            if status in (429, 503):
                refused += 100
                await asyncio.sleep(0.2)
                continue
            assert status in (200, 201), status
            accepted += 100
            turn += 1

    async with HttpConnections(port) as connections:
        await asyncio.gather(*map(publish, range(8)))
    return accepted, refused
