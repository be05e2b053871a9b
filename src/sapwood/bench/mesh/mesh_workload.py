"""Messages, subscriptions and clients of the mesh's experiments, and the CPU that its processes take."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence

from sapwood.bench.harness import BenchError
from sapwood.bench.serve.http_load import HttpConnection, HttpConnections
from sapwood.serve.mesh.local_mesh import LocalMesh

STREAM = "news"
SIZE = 4_096
"""bytes of a message"""
_CONNECTIONS = 3
_PATIENCE = 120.0

CHAIN = {"first": None, "middle": "first", "last": "middle"}
SIX = {"b1": None, "b2": "b1", "b3": "b1", "b4": "b2", "b5": "b2", "b6": "b3"}
EIGHT = {"b1": None, "b2": "b1", "b3": "b1", "b4": "b2", "b5": "b2", "b6": "b3", "b7": "b3", "b8": "b4"}
FOUR = {"root": None, "inner": "root", "host1": "inner", "host2": "inner"}


def make_message(number: int, topic: str = "all") -> bytes:
    """Return a message of the usual size in one line."""
    head = f'<story n="{number}" topic="{topic}"><head><title>Number {number}</title></head><body>'
    tail = "</body></story>"
    filling = "<p>The quick brown fox jumps over the lazy dog, and then again.</p>"
    room = SIZE - len(head) - len(tail)
    paragraphs = filling * (room // len(filling))
    return f"{head}{paragraphs}{'x' * (room - len(paragraphs))}{tail}".encode()


def make_paths(count: int) -> list[str]:
    """Return queries that no message of this workload matches, as many different ones."""
    return [f"/story[@topic = 'none-{number}']/body/p" for number in range(count)]


async def import_queries(
    connection: HttpConnection, queries: Iterable[str], subscriber: str, prefix: str = "s"
) -> int:
    """Make subscriptions by an import, and return the version of the store, which need not be confirmed."""
    lines = "\n".join(
        json.dumps({"id": f"{prefix}-{number}", "query": query, "subscriber": subscriber})
        for number, query in enumerate(queries)
    )
    headers = {"content-type": "application/x-ndjson"}
    status, answer = await connection.send("POST", "/v1/imports?wait=false", lines.encode(), headers)
    if status >= 300:
        raise BenchError(f"an import is answered with {status}: {answer[:500]!r}")
    found = json.loads(answer)
    if found["errors"]:
        raise BenchError(f"an import is refused: {found['errors'][0]}")
    return int(found["version"])


async def wait_confirmed(connection: HttpConnection, version: int) -> None:
    """Wait until all brokers have the subscriptions of a version."""
    deadline = time.monotonic() + _PATIENCE
    while (await connection.call("GET", "/v1/mesh"))["confirmed"] < version:
        if time.monotonic() > deadline:
            raise BenchError(f"version {version} is not confirmed after {_PATIENCE:g} s")
        await asyncio.sleep(0.005)


async def subscribe(mesh: LocalMesh, broker: str, queries: Sequence[str], subscriber: str = "desk") -> None:
    """Make subscriptions at a broker, and wait until all brokers have them."""
    async with HttpConnections(mesh.brokers[broker].port) as connections:
        connection = connections.open()
        version = await import_queries(connection, queries, subscriber, prefix=f"{broker}-{subscriber}")
        await wait_confirmed(connection, version)


async def publish(mesh: LocalMesh, broker: str, messages: Sequence[bytes], batch: int, key: str) -> None:
    """Publish messages in batches over some connections."""
    async with HttpConnections(mesh.brokers[broker].port) as connections:

        async def publish_some(first: int) -> None:
            connection = connections.open()
            for start in range(first * batch, len(messages), _CONNECTIONS * batch):
                some = b"\n".join(messages[start : start + batch])
                await connection.publish(STREAM, some, f"{key}-{start}")

        await asyncio.gather(*map(publish_some, range(_CONNECTIONS)))


async def count_deliveries(connection: HttpConnection, subscriber: str) -> int:
    """Return the number of a subscriber's last delivery."""
    status, answer = await connection.send("GET", f"/v1/subscribers/{subscriber}")
    return int(json.loads(answer)["last"]) if status == 200 else 0


async def wait_for_deliveries(mesh: LocalMesh, broker: str, subscriber: str, count: int) -> None:
    """Wait until a subscriber has a number of deliveries."""
    deadline = time.monotonic() + _PATIENCE
    async with HttpConnections(mesh.brokers[broker].port) as connections:
        connection = connections.open()
        while (found := await count_deliveries(connection, subscriber)) < count:
            if time.monotonic() > deadline:
                raise BenchError(f"{subscriber} at {broker} has {found:,} of {count:,} deliveries")
            await asyncio.sleep(0.01)


def read_cpu(mesh: LocalMesh) -> dict[str, float]:
    """Return the CPU seconds of all processes: by broker of server and engine, and by NATS server."""
    import psutil  # type: ignore[import-untyped]

    found: dict[str, float] = {}
    for name, broker in mesh.brokers.items():
        server = psutil.Process(broker.process_id)
        found[f"server {name}"] = _seconds(server)
        found[f"engine {name}"] = sum(map(_seconds, server.children(recursive=True)))
    for name in mesh.nats.names:
        process = mesh.nats[name].process
        if process is not None:
            found[f"nats {name}"] = _seconds(psutil.Process(process.pid))
    return found


def _seconds(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def subtract(after: dict[str, float], before: dict[str, float], kind: str = "") -> float:
    """Return the CPU seconds between two readings, of all processes or of one kind."""
    return sum(seconds - before.get(name, 0.0) for name, seconds in after.items() if name.startswith(kind))
