"""How soon all brokers have a subscription, and how many a second."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, BenchError, at_least, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.mesh_workload import CHAIN, SIX, import_queries, make_paths, wait_confirmed
from sapwood.bench.serve.http_load import HttpConnections
from sapwood.serve.mesh.local_mesh import LocalMesh

_BATCH = 1_000
_CONNECTIONS = 2
"""that import at the same time, so that one request is read while another is carried out"""


class Confirmed(NamedTuple):
    """Milliseconds until subscriptions are confirmed."""

    median: float
    p99: float
    load: float


class ImportRate(NamedTuple):
    """Subscriptions a second that all brokers have."""

    rate: float
    load: float


@experiment("confirm", "from a subscription to the confirmation of six brokers")
def measure_confirmation(bench: Bench, subscriptions: int = scale(600, 600, 120, 6)) -> Iterator[str]:
    """Measure one subscription after the other, at all brokers in turn."""
    yield f"{subscriptions:,} subscriptions at six brokers"
    found = yield from run_isolated(run_confirmation, bench.folder / "confirm", subscriptions)
    details = {"load_average": found.load}
    workload = "6 brokers, one at a time"
    bench.figure("subscribe to confirmed, median", workload, found.median, "ms", **details)
    bench.figure("subscribe to confirmed, 99 %", workload, found.p99, "ms", at_most(1_000), **details)


def run_confirmation(folder: Path, subscriptions: int) -> Iterator[str | Confirmed]:
    """Subscribe at brokers in turn."""
    with LocalMesh(folder, SIX) as mesh:
        yield "subscribing"
        seconds = asyncio.run(_subscribe_each(mesh, subscriptions))
    median, p99 = np.percentile(np.array(seconds) * 1e3, [50, 99]).tolist()
    yield Confirmed(median, p99, os.getloadavg()[0])


async def _subscribe_each(mesh: LocalMesh, subscriptions: int) -> list[float]:
    seconds: list[float] = []
    for number, query in enumerate(make_paths(subscriptions)):
        port = mesh.brokers[list(SIX)[number % len(SIX)]].port
        async with HttpConnections(port) as connections:
            connection = connections.open()
            body = json.dumps({"query": query, "subscriber": "desk"}).encode()
            headers = {"content-type": "application/json"}
            started = time.perf_counter()
            path = f"/v1/subscriptions/s{number}"
            status, answer = await connection.send("PUT", path, body, headers)
            if status >= 300:
                raise BenchError(f"a subscription is answered with {status}: {answer[:500]!r}")
            await wait_confirmed(connection, json.loads(answer)["version"])
            seconds.append(time.perf_counter() - started)
    return seconds


@experiment("import", "subscriptions in batches of 1,000, confirmed by three brokers")
def measure_imports(bench: Bench, subscriptions: int = scale(60_000, 60_000, 10_000, 100)) -> Iterator[str]:
    """Measure imports over two connections, until all brokers have the last of them.

    In published workloads, queries repeat; all different with a predicate each is the worst case.
    """
    workloads = {
        "as published": bench.dataset.queries("repeated", subscriptions),
        "all different": make_paths(subscriptions),
    }
    for kind, queries in workloads.items():
        yield f"importing {len(queries):,} subscriptions, {kind}"
        folder = bench.folder / f"import {kind}"
        found = yield from run_isolated(run_imports, folder, queries)
        bench.figure(
            "subscriptions confirmed",
            f"3 brokers, {len(queries):,} by imports of {min(_BATCH, len(queries)):,}, {kind}",
            found.rate,
            "/s",
            at_least(5_000),
            distinct=len(set(queries)),
            load_average=found.load,
        )


def run_imports(folder: Path, queries: Sequence[str]) -> Iterator[str | ImportRate]:
    """Import at one end of a chain."""
    with LocalMesh(folder, CHAIN) as mesh:
        yield "importing"
        yield asyncio.run(_import(mesh, queries))


async def _import(mesh: LocalMesh, queries: Sequence[str]) -> ImportRate:
    async with HttpConnections(mesh.brokers["last"].port) as connections:

        async def import_some(number: int) -> int:
            connection, version = connections.open(), 0
            for first in range(number * _BATCH, len(queries), _CONNECTIONS * _BATCH):
                some = queries[first : first + _BATCH]
                version = await import_queries(connection, some, "desk", prefix=f"i{first}")
            return version

        started = time.perf_counter()
        versions = await asyncio.gather(*map(import_some, range(_CONNECTIONS)))
        await wait_confirmed(connections.open(), max(versions))
        return ImportRate(len(queries) / (time.perf_counter() - started), os.getloadavg()[0])
