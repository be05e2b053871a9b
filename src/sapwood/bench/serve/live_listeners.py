"""Many listeners at once: deliveries a second over server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, BenchError, at_least, experiment, run_isolated, scale
from sapwood.bench.serve.http_load import HttpConnections, read_message_id
from sapwood.bench.serve.serve_workload import LOG, STREAM
from sapwood.serve.server_process import ServerProcess
from sapwood.store import NewSubscription, SubscriptionStore

_SHARE = 10
"""a listener gets one message of so many"""
_BATCH = 10
_PADDING = 500
"""bytes of a message beside what is matched"""


class Fanout(NamedTuple):
    """Deliveries a second to all listeners, and milliseconds from request to listener."""

    rate: float
    median: float
    p99: float
    deliveries: int


@experiment("listeners", "listeners over server-sent events, each with every tenth message")
def measure_listeners(
    bench: Bench,
    listeners: int = scale(1_000, 1_000, 200, 10),
    messages: int = scale(1_000, 1_000, 300, 20),
) -> Iterator[str]:
    """Measure how fast listeners get what is published as fast as the server takes it."""
    yield f"{listeners:,} listeners"
    found = yield from run_isolated(run_listeners, bench.folder / "listeners", listeners, messages)
    workload = f"{listeners:,} listeners, {messages:,} messages"
    details = {"deliveries": found.deliveries, "median_ms": found.median, "p99_ms": found.p99}
    bench.figure("deliveries over SSE", workload, found.rate, "/s", at_least(5_000), **details)


def run_listeners(folder: Path, listeners: int, messages: int) -> Iterator[str | Fanout]:
    """Start a server with a subscription for each listener, and publish."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server inherits it
    folder.mkdir(parents=True)
    with SubscriptionStore(str(folder / LOG)) as store:
        store.import_many(
            NewSubscription(f"s{number}", f"/item[@group = '{number % _SHARE}']", f"u{number}")
            for number in range(listeners)
        )
    yield "listening"
    with ServerProcess(folder, f'[log]\nlocation = "{folder / LOG}"\n') as server:
        yield asyncio.run(_measure(server.port, listeners, messages))


async def _measure(port: int, listeners: int, messages: int) -> Fanout:
    async with HttpConnections(port) as connections:
        return await _run(connections, listeners, messages)


async def _run(connections: HttpConnections, listeners: int, messages: int) -> Fanout:
    expected = sum(len(range(number % _SHARE, messages, _SHARE)) for number in range(listeners))
    sent: dict[str, float] = {}
    seconds: list[float] = []
    done = asyncio.Event()
    ready = 0
    all_ready = asyncio.Event()

    async def listen(number: int) -> None:
        nonlocal ready
        events = connections.open().events(f"/v1/subscribers/u{number}/events")
        ready += 1
        if ready == listeners:
            all_ready.set()
        async for data in events:
            seconds.append(time.perf_counter() - sent[read_message_id(data)])
            if len(seconds) == expected:
                done.set()

    tasks = [asyncio.create_task(listen(number)) for number in range(listeners)]
    await all_ready.wait()
    await _wait_for_listeners(connections, listeners)
    publisher = connections.open()
    padding = b"x" * _PADDING
    started = time.perf_counter()
    for first in range(0, messages, _BATCH):
        key = f"batch-{first}"
        numbers = range(first, min(first + _BATCH, messages))
        lines = [b'<item group="%d">%s</item>' % (number % _SHARE, padding) for number in numbers]
        sent.update((f"{key}-{i}", time.perf_counter()) for i in range(1, len(lines) + 1))
        await publisher.publish(STREAM, b"\n".join(lines), key)
    try:
        await asyncio.wait_for(done.wait(), 120)
    except TimeoutError:
        raise BenchError(f"listeners got {len(seconds):,} of {expected:,} deliveries") from None
    elapsed = time.perf_counter() - started
    for task in tasks:
        task.cancel()
    median, p99 = np.percentile(np.array(seconds) * 1e3, [50, 99]).tolist()
    return Fanout(expected / elapsed, median, p99, expected)


async def _wait_for_listeners(connections: HttpConnections, listeners: int) -> None:
    """Wait until the server has all connections."""
    control = connections.open()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stats = await control.call("GET", "/v1/stats")
        if stats["listeners"]["sse"] >= listeners:
            return
        await asyncio.sleep(0.1)
    raise BenchError(f"the server has {json.dumps(stats['listeners'])} of {listeners:,} listeners")
