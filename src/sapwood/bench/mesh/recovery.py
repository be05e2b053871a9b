"""How long messages do not flow when an inner broker dies, or the leader of the hub."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sapwood.bench.harness import Bench, BenchError, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.mesh_workload import (
    CHAIN,
    FOUR,
    STREAM,
    count_deliveries,
    make_message,
    subscribe,
    wait_for_deliveries,
)
from sapwood.bench.serve.http_load import HttpConnections
from sapwood.serve.mesh.local_mesh import LocalMesh

_PATIENCE = 60.0


class Outage(NamedTuple):
    """Seconds from a kill until a message that was published afterwards has arrived."""

    seconds: float
    load: float


@experiment("repair", "an inner broker dies and does not come back")
def measure_repair(bench: Bench, runs: int = scale(3, 3, 1, 1)) -> Iterator[str]:
    """Measure until messages pass by it."""
    for number in range(runs):
        yield "killing an inner broker"
        outage = yield from run_isolated(run_repair, bench.folder / f"repair-{number}")
        workload = f"4 brokers, run {number + 1}"
        bench.figure(
            "inner broker dead to flow", workload, outage.seconds, "s", at_most(20), load_average=outage.load
        )


def run_repair(folder: Path) -> Iterator[str | Outage]:
    """Kill the broker between the others."""
    with LocalMesh(folder, FOUR) as mesh:
        yield "killing"
        yield asyncio.run(_measure(mesh, "root", "host1", lambda: mesh.brokers["inner"].kill()))


@experiment("hub", "the leader of the hub's three NATS servers dies")
def measure_hub(bench: Bench, runs: int = scale(3, 3, 1, 1)) -> Iterator[str]:
    """Measure until messages pass two links again."""
    for number in range(runs):
        yield "killing the hub's leader"
        outage = yield from run_isolated(run_hub, bench.folder / f"hub-{number}")
        workload = f"3 brokers, hub of 3, run {number + 1}"
        bench.figure(
            "hub leader dead to flow", workload, outage.seconds, "s", at_most(10), load_average=outage.load
        )


def run_hub(folder: Path) -> Iterator[str | Outage]:
    """Kill the NATS server that leads the bucket of the directory."""
    with LocalMesh(folder, CHAIN, mesh="hub_replicas = 3\n", hub_servers=3) as mesh:
        leader = asyncio.run(_find_leader(mesh))
        yield f"killing {leader}"
        yield asyncio.run(_measure(mesh, "first", "last", lambda: mesh.nats.kill(leader)))


async def _find_leader(mesh: LocalMesh) -> str:
    import nats

    from sapwood.mesh.nats.jetstream import JetStream

    client = await nats.connect(mesh.nats["hub-1"].url)
    try:
        info = await JetStream(client, None).request("STREAM.INFO.KV_sapwood_mesh")
    finally:
        await client.close()
    return str(info["cluster"]["leader"])


async def _measure(mesh: LocalMesh, source: str, host: str, kill: object) -> Outage:
    """Publish, kill, and publish until the first message since has arrived."""
    assert callable(kill)
    await subscribe(mesh, host, ["/story"])
    async with (
        HttpConnections(mesh.brokers[source].port) as sources,
        HttpConnections(mesh.brokers[host].port) as hosts,
    ):
        publisher, reader = sources.open(), hosts.open()
        await publisher.publish(STREAM, make_message(0), "before")
        await wait_for_deliveries(mesh, host, "desk", 1)
        kill()
        started = time.perf_counter()
        for number in range(1, 4):
            await publisher.publish(STREAM, make_message(number), f"after-{number}")
        while await count_deliveries(reader, "desk") < 4:
            if time.perf_counter() - started > _PATIENCE:
                raise BenchError(f"messages do not flow again after {_PATIENCE:g} s")
            await asyncio.sleep(0.02)
        return Outage(time.perf_counter() - started, os.getloadavg()[0])
