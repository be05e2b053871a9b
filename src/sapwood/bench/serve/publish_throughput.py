"""Durable publishing in batches, against a broker in one process; and latency at half of that load."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, at_least, at_most, experiment, run_isolated, scale
from sapwood.bench.serve.http_load import HttpConnection, HttpConnections
from sapwood.bench.serve.serve_workload import (
    LOG,
    STREAM,
    measure_broker,
    prepare_queries,
    publish_for,
    to_lines,
    write_store,
)
from sapwood.serve.server_process import ServerProcess

_BATCH = 250
"""messages in a request, at full load"""
_SMALL_BATCH = 10
"""messages in a request, where latency is measured"""
_PROBE = "probe"
_PROMISED = 0.4
"""of the rate of a broker in one process"""


class Rates(NamedTuple):
    """Messages a second of a broker in one process and of a server, and deliveries of a message."""

    broker: float
    server: float
    deliveries: float


class Latency(NamedTuple):
    """Milliseconds from a publisher's request to a listener, at a number of messages a second."""

    median: float
    p99: float
    rate: float
    probes: int


@experiment("publish", "durable publishing in batches, against a broker in one process")
def measure_publishing(
    bench: Bench,
    queries: int = scale(10_000, 10_000, 2_000, 100),
    messages: int = scale(500, 500, 200, 20),
    seconds: float = scale(15.0, 15.0, 4.0, 0.3),
) -> Iterator[str]:
    """Measure the rate of both, and the latency of live delivery at half of it, promised and reached."""
    workload = f"{queries:,} subscriptions"
    yield f"publishing with {queries:,} subscriptions"
    folder = bench.folder / "publish"
    texts = prepare_queries(bench.dataset, queries)
    lines = to_lines(bench.dataset.messages(messages))
    rates = yield from run_isolated(run_publishing, folder, texts, lines, seconds)
    bench.ratio(
        "durable publishing against one process",
        workload,
        at_least(_PROMISED),
        "times",
        server_messages_per_second=rates.server,
        broker_messages_per_second=rates.broker,
        deliveries_per_message=rates.deliveries,
        batch=_BATCH,
    )
    bench.figure(
        "deliveries into the log",
        workload,
        rates.server * rates.deliveries,
        "/s",
        at_least(100_000),
    )
    for promised, rate in ((True, _PROMISED * rates.broker / 2), (False, rates.server / 2)):
        load = "half of the promised load" if promised else "half of the reached load"
        yield f"latency at {load}"
        folder = bench.folder / f"latency-{int(promised)}"
        latency = yield from run_isolated(run_latency, folder, texts, lines, seconds, rate)
        details = {"messages_per_second": latency.rate, "probes": latency.probes}
        bench.figure("publish to SSE, median", load, latency.median, "ms", at_most(15, promised), **details)
        bench.figure("publish to SSE, 99 %", load, latency.p99, "ms", at_most(60, promised), **details)


def run_publishing(
    folder: Path, queries: list[str], lines: list[bytes], seconds: float
) -> Iterator[str | Rates]:
    """Publish the same messages in one process and to a server."""
    yield "in one process"
    broker, deliveries = measure_broker(queries, lines, seconds)
    yield "to a server"
    write_store(folder, queries)
    with ServerProcess(folder, _config(folder)) as server:
        asyncio.run(publish_for(server.port, lines, min(seconds, 2.0), _BATCH))
        rate, _ = asyncio.run(publish_for(server.port, lines, seconds, _BATCH))
    yield Rates(broker, rate, deliveries)


def _config(folder: Path) -> str:
    return f'[log]\nlocation = "{folder / LOG}"\n'


def run_latency(
    folder: Path, queries: list[str], lines: list[bytes], seconds: float, rate: float
) -> Iterator[str | Latency]:
    """Publish at a rate, with a message for one listener in each request, and time its way."""
    write_store(folder, queries)
    yield "listening"
    with ServerProcess(folder, _config(folder)) as server:
        yield asyncio.run(_measure_latency(server.port, lines, seconds, rate))


async def _measure_latency(port: int, lines: list[bytes], seconds: float, rate: float) -> Latency:
    async with HttpConnections(port) as connections:
        return await _time_probes(connections, lines, seconds, rate)


async def _time_probes(
    connections: HttpConnections, lines: list[bytes], seconds: float, rate: float
) -> Latency:
    control = connections.open()
    subscription = {"id": _PROBE, "query": f"/{_PROBE}", "subscriber": _PROBE}
    await control.call("POST", "/v1/subscriptions", json.dumps(subscription).encode())
    sent: dict[str, float] = {}
    found: list[float] = []

    async def listen() -> None:
        async for data in connections.open().events(f"/v1/subscribers/{_PROBE}/events"):
            found.append(time.perf_counter() - sent[json.loads(data)["message"]])

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0.2)
    interval = _SMALL_BATCH / rate
    idle = [connections.open()]
    tasks: set[asyncio.Task[None]] = set()
    published = 0

    async def publish(turn: int, connection: HttpConnection) -> None:
        nonlocal published
        first = turn * _SMALL_BATCH
        some = [lines[(first + i) % len(lines)] for i in range(_SMALL_BATCH - 1)]
        key = f"{started}-{turn}"
        sent[f"{key}-{_SMALL_BATCH}"] = time.perf_counter()
        answer = await connection.publish(STREAM, b"\n".join([*some, b"<probe/>"]), key)
        published += answer["published"]
        idle.append(connection)

    started = time.perf_counter()
    turn = 0
    while (now := time.perf_counter()) - started < seconds:
        due = started + turn * interval
        if due > now:
            await asyncio.sleep(due - now)
        connection = idle.pop() if idle else connections.open()
        task = asyncio.create_task(publish(turn, connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        turn += 1
    await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - started
    await asyncio.sleep(0.2)
    listener.cancel()
    median, p99 = np.percentile(np.array(found) * 1e3, [50, 99]).tolist()
    return Latency(median, p99, published / elapsed, len(found))
