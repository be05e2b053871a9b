"""Eight brokers: the CPU of a message against that of its parts, measured alone in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.chain_throughput import run_transport
from sapwood.bench.mesh.mesh_workload import (
    EIGHT,
    make_message,
    make_paths,
    publish,
    read_cpu,
    subscribe,
    subtract,
    wait_for_deliveries,
)
from sapwood.bench.serve.serve_workload import publish_for
from sapwood.serve.mesh.local_mesh import LocalMesh
from sapwood.serve.server_process import ServerProcess

_BATCH = 50
_TRANSPORT_BATCH = 8


class PartsRun(NamedTuple):
    """CPU of a message in microseconds: at all brokers of a mesh, at one server, and on a link."""

    mesh: float
    server: float
    link: float
    links: int
    load: float


@experiment("parts", "eight brokers, against the parts of their work alone", "psutil")
def measure_parts(
    bench: Bench,
    messages: int = scale(6_000, 6_000, 1_500, 50),
    paths: int = scale(1_000, 1_000, 1_000, 20),
) -> Iterator[str]:
    """Measure messages that all brokers want: each matches and logs it, and seven links carry it."""
    yield f"eight brokers, {messages:,} messages"
    run = yield from run_isolated(run_parts, bench.folder / "parts", messages, paths)
    parts = len(EIGHT) * run.server + run.links * run.link
    bench.ratio(
        "CPU of a message against its parts",
        f"8 brokers, {paths:,} paths at each",
        at_most(1.3),
        "times",
        mesh_us=run.mesh,
        parts_us=parts,
        server_us=run.server,
        link_us=run.link,
        load_average=run.load,
    )


def run_parts(folder: Path, messages: int, paths: int) -> Iterator[str | PartsRun]:
    """Measure a server alone, a link alone, and the mesh."""
    yield "a server alone"
    server = _measure_server(folder / "server", messages, paths)
    for step in run_transport(folder / "link", 4 * messages, _TRANSPORT_BATCH):
        if isinstance(step, str):
            yield step
        else:
            link = step.client + step.server
    with LocalMesh(folder / "mesh", EIGHT) as mesh:
        yield "subscribing"
        for name in EIGHT:
            asyncio.run(subscribe(mesh, name, ["/story"]))
            asyncio.run(subscribe(mesh, name, make_paths(paths), "nobody"))
        some = [make_message(number) for number in range(messages)]
        warm = some[: max(messages // 10, 10)]
        yield "publishing"
        _publish_everywhere(mesh, warm, "warm", 0)
        before = read_cpu(mesh)
        _publish_everywhere(mesh, some, "run", len(warm))
        total = subtract(read_cpu(mesh), before) * 1e6 / messages
    yield PartsRun(total, server, link, len(EIGHT) - 1, os.getloadavg()[0])


def _publish_everywhere(mesh: LocalMesh, messages: list[bytes], key: str, before: int) -> None:
    """Publish an eighth of messages at each broker, and wait until all have all."""

    async def run() -> None:
        shares = [messages[number :: len(EIGHT)] for number in range(len(EIGHT))]
        names = list(EIGHT)
        await asyncio.gather(
            *(publish(mesh, names[n], share, _BATCH, f"{key}-{n}") for n, share in enumerate(shares) if share)
        )
        for name in names:
            await wait_for_deliveries(mesh, name, "desk", before + len(messages))

    asyncio.run(run())


def _measure_server(folder: Path, messages: int, paths: int) -> float:
    """Return the CPU microseconds of a message at one server, which is no broker of a mesh."""
    import httpx
    import psutil  # type: ignore[import-untyped]

    lines = [make_message(number) for number in range(min(messages, 500))]
    with ServerProcess(folder) as server:
        rows = [{"id": "all", "query": "/story", "subscriber": "desk"}]
        rows += [{"id": f"s{n}", "query": q, "subscriber": "nobody"} for n, q in enumerate(make_paths(paths))]
        httpx.post(f"{server.url}/v1/imports", content="\n".join(map(json.dumps, rows)), timeout=120)
        process = psutil.Process(server.process_id)
        everything = [process, *process.children(recursive=True)]

        def read() -> float:
            return float(sum(sum(each.cpu_times()[:2]) for each in everything))

        asyncio.run(publish_for(server.port, lines, 0.5, _BATCH))
        before, started = read(), time.perf_counter()
        rate, _ = asyncio.run(publish_for(server.port, lines, max(messages / 3_000, 0.3), _BATCH))
        elapsed = time.perf_counter() - started
        return (read() - before) * 1e6 / (rate * elapsed)
