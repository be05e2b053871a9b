"""Start with very many subscriptions, and restart after a crash with a backlog."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.serve.http_load import HttpConnection, HttpConnections
from sapwood.bench.serve.serve_workload import LOG, STREAM, to_lines, write_store
from sapwood.serve.server_process import ServerProcess

_BATCH = 500


class Start(NamedTuple):
    """Seconds until a server is ready: from queries, and from the snapshot that it leaves."""

    compiled: float
    packed: float
    snapshot_megabytes: float


@experiment("start", "ready with very many subscriptions, from the packed index")
def measure_start(bench: Bench, queries: int = scale(500_000, 500_000, 50_000, 500)) -> Iterator[str]:
    """Measure a first start, which compiles queries, and a second one."""
    texts = bench.dataset.queries("repeated", queries)
    yield f"starting with {len(texts):,} subscriptions"
    found = yield from run_isolated(run_start, bench.folder / "start", texts)
    workload = f"{len(texts):,} subscriptions"
    details = {"compiling_seconds": found.compiled, "snapshot_megabytes": found.snapshot_megabytes}
    bench.figure("start of the server", workload, found.packed, "s", at_most(5), **details)


def run_start(folder: Path, queries: list[str]) -> Iterator[str | Start]:
    """Start a server twice."""
    yield "writing the store"
    write_store(folder, queries)
    server = ServerProcess(folder, f'[log]\nlocation = "{folder / LOG}"\n')
    yield "compiling"
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        server.start()
        seconds.append(time.perf_counter() - started)
        yield "stopping"
        server.stop()
    snapshot = folder / f"{LOG}-snapshot"
    yield Start(seconds[0], seconds[1], snapshot.stat().st_size / 1e6)


@experiment("restart", "the first delivery after a kill, with a backlog")
def measure_restart(
    bench: Bench,
    queries: int = scale(10_000, 10_000, 1_000, 50),
    messages: int = scale(100_000, 100_000, 5_000, 100),
) -> Iterator[str]:
    """Measure how soon a listener gets its first delivery after the server was killed and started again."""
    texts = bench.dataset.queries("predicates", queries)
    lines = to_lines(bench.dataset.messages(200))
    yield f"publishing {messages:,} messages"
    seconds = yield from run_isolated(run_restart, bench.folder / "restart", texts, lines, messages)
    workload = f"backlog of {messages:,} messages"
    bench.figure("kill to first delivery", workload, seconds, "s", at_most(5))


def run_restart(folder: Path, queries: list[str], lines: list[bytes], messages: int) -> Iterator[str | float]:
    """Fill a log, kill the server, and start it again with a listener."""
    write_store(folder, queries)
    server = ServerProcess(folder, f'[log]\nlocation = "{folder / LOG}"\n').start()
    asyncio.run(_fill(server.port, lines, messages))
    yield "killing"
    server.kill()
    started = time.perf_counter()
    server.start()
    asyncio.run(_first_delivery(server.port))
    seconds = time.perf_counter() - started
    server.stop()
    yield seconds


async def _fill(port: int, lines: list[bytes], messages: int) -> None:
    async with HttpConnections(port) as connections:
        await _fill_by(connections.open(), lines, messages)


async def _fill_by(control: HttpConnection, lines: list[bytes], messages: int) -> None:
    subscription = {"id": "all", "query": "/*", "subscriber": "all"}
    await control.call("POST", "/v1/subscriptions", json.dumps(subscription).encode())
    batch = min(_BATCH, messages)
    for turn in range(messages // batch):
        some = [lines[(turn * batch + i) % len(lines)] for i in range(batch)]
        await control.publish(STREAM, b"\n".join(some), f"fill-{turn}")


async def _first_delivery(port: int) -> None:
    async with HttpConnections(port) as connections:
        async for _ in connections.open().events("/v1/subscribers/all/events"):
            return
