"""Three brokers in a chain: messages and durable deliveries a second, and the CPU of each hop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sapwood.bench.harness import Bench, at_least, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.mesh_workload import (
    CHAIN,
    make_message,
    make_paths,
    publish,
    read_cpu,
    subscribe,
    subtract,
    wait_for_deliveries,
)
from sapwood.serve.mesh.local_mesh import LocalMesh

_BATCH = 50
_FANOUT = 10
"""deliveries of a message, where deliveries are measured"""


class ChainRun(NamedTuple):
    """Messages a second through a chain, and the CPU of one message in microseconds."""

    rate: float
    servers: float
    engines: float
    nats: float
    frames_per_payload: float
    load: float


@experiment("chain", "three brokers in a chain, messages of 4 KB", "psutil")
def measure_chain(
    bench: Bench,
    messages: int = scale(20_000, 20_000, 4_000, 100),
    paths: int = scale(1_000, 1_000, 1_000, 20),
) -> Iterator[str]:
    """Measure messages through to the last broker, and deliveries with fan-out."""
    for fanout in (1, _FANOUT):
        workload = f"{paths:,} paths, {fanout} deliveries a message"
        yield f"three brokers, {workload}"
        folder = bench.folder / f"chain-{fanout}"
        run = yield from run_isolated(run_chain, folder, messages, paths, fanout)
        cpu = {"server_us": run.servers, "engine_us": run.engines, "nats_us": run.nats}
        details = {"frames_per_payload": run.frames_per_payload, "load_average": run.load, **cpu}
        if fanout == 1:
            bench.figure("messages through two links", workload, run.rate, "/s", at_least(1_000), **details)
            hop = (run.servers + run.engines + run.nats) / 3
            bench.figure("CPU of a message and broker", workload, hop, "µs", **cpu)
        else:
            rate = run.rate * fanout
            bench.figure("durable deliveries", workload, rate, "/s", at_least(5_000), **details)


def run_chain(folder: Path, messages: int, paths: int, fanout: int) -> Iterator[str | ChainRun]:
    """Publish at one end, and wait for the last delivery at the other."""
    with LocalMesh(folder, CHAIN) as mesh:
        yield "subscribing"
        for number in range(fanout):
            asyncio.run(subscribe(mesh, "last", ["/story"], f"desk-{number}"))
        asyncio.run(subscribe(mesh, "last", make_paths(paths), "nobody"))
        warm = [make_message(number) for number in range(max(messages // 10, 10))]
        asyncio.run(publish(mesh, "first", warm, _BATCH, "warm"))
        asyncio.run(wait_for_deliveries(mesh, "last", "desk-0", len(warm)))
        some = [make_message(number) for number in range(messages)]
        yield "publishing"
        before, started = read_cpu(mesh), time.perf_counter()
        asyncio.run(publish(mesh, "first", some, _BATCH, "run"))
        for number in range(fanout):
            asyncio.run(wait_for_deliveries(mesh, "last", f"desk-{number}", len(warm) + messages))
        elapsed = time.perf_counter() - started
        after = read_cpu(mesh)
        time.sleep(1.5)  # until the status is that of the end
        link = mesh.status("last")["links"]["middle"]
        each = 1e6 / messages
        yield ChainRun(
            messages / elapsed,
            subtract(after, before, "server") * each,
            subtract(after, before, "engine") * each,
            subtract(after, before, "nats") * each,
            link["frames in"] / max(link["transport"]["payloads_in"], 1),
            os.getloadavg()[0],
        )


class LinkCost(NamedTuple):
    """CPU of a message on a link in microseconds: of both clients, and of both NATS servers."""

    client: float
    server: float
    load: float


@experiment("transport", "the transport of a link alone, messages of 4 KB in batches", "psutil")
def measure_transport(
    bench: Bench,
    messages: int = scale(40_000, 40_000, 8_000, 200),
    batches: tuple[int, ...] = scale((1, 8, 32), (1, 8, 32), (1, 8, 32), (8,)),
) -> Iterator[str]:
    """Measure payloads from a site to another, and their release."""
    for batch in batches:
        yield f"payloads of {batch} messages"
        cost = yield from run_isolated(run_transport, bench.folder / f"transport-{batch}", messages, batch)
        workload = f"{batch} messages of 4 KB in a payload"
        details = {"client_us": cost.client, "server_us": cost.server, "load_average": cost.load}
        bar = at_most(100, promised=batch > 1)
        bench.figure("transport of a message", workload, cost.client + cost.server, "µs", bar, **details)


def run_transport(folder: Path, messages: int, batch: int) -> Iterator[str | LinkCost]:
    """Send payloads over a link of two transports in this process, through NATS servers of two sites."""
    from sapwood.mesh.nats.local_servers import LocalServers

    yield "sending"
    with LocalServers(folder) as servers:
        servers.start_hub()
        for name in ("one", "other"):
            servers.start_site(name)
        yield asyncio.run(_measure_transport(servers, messages, batch))


async def _measure_transport(servers: object, messages: int, batch: int) -> LinkCost:
    import psutil  # type: ignore[import-untyped]

    from sapwood.bench.mesh.link_end import open_link_ends
    from sapwood.mesh.nats.local_servers import LocalServers

    assert isinstance(servers, LocalServers)
    payload = b"".join(make_message(number) for number in range(batch))
    processes = [psutil.Process(servers[name].process.pid) for name in servers.names]  # type: ignore[union-attr]

    def read_servers() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    async with open_link_ends(servers["one"], servers["other"]) as (sender, receiver):
        await sender.send_all("other", [payload] * 10, receiver)
        before, started = read_servers(), time.process_time()
        await sender.send_all("other", [payload] * (messages // batch), receiver)
        client, server = time.process_time() - started, read_servers() - before
    each = 1e6 / messages
    return LinkCost(client * each, server * each, os.getloadavg()[0])
