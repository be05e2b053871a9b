"""A subscriber that is slow: whether another one at the same broker notices."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, BenchError, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.mesh_workload import CHAIN, STREAM, make_message, subscribe
from sapwood.bench.serve.http_load import HttpConnection, HttpConnections, read_message_id
from sapwood.serve.mesh.local_mesh import LocalMesh

_PAUSE = 0.01
"""seconds between two messages"""
_SLOW = 1.0
"""seconds that the slow subscriber takes for a message"""
_PATIENCE = 60.0


class SlowRun(NamedTuple):
    """Milliseconds from the request to a subscriber, 99 %, beside a slow one and a fast one."""

    slow: float
    fast: float
    load: float


@experiment("slow", "a subscriber beside one that takes a message a second")
def measure_slow_subscriber(
    bench: Bench,
    messages: int = scale(500, 500, 200, 20),
    rounds: int = scale(5, 5, 3, 1),
) -> Iterator[str]:
    """Measure rounds in turn, beside a slow subscriber and a fast one, with the same messages."""
    yield f"{rounds} rounds of {messages:,} messages"
    found = yield from run_isolated(run_slow_subscriber, bench.folder / "slow", messages, rounds)
    bench.ratio(
        "latency beside a slow subscriber",
        f"3 brokers, 99 % of {messages:,} messages, median of {rounds} rounds",
        at_most(1.2),
        "times",
        slow_ms=found.slow,
        fast_ms=found.fast,
        load_average=found.load,
    )


def run_slow_subscriber(folder: Path, messages: int, rounds: int) -> Iterator[str | SlowRun]:
    """Publish at one end of a chain, and listen at the other."""
    with LocalMesh(folder, CHAIN) as mesh:
        yield "subscribing"
        for name in ("other", "measured"):
            asyncio.run(subscribe(mesh, "last", ["/story"], name))
        found: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * rounds):
            is_slow = number % 2 == 1
            yield f"round {number + 1} of {2 * rounds}"
            seconds = asyncio.run(_run_round(mesh, f"round{number}", messages, is_slow))
            found[is_slow].append(float(np.percentile(np.array(seconds) * 1e3, 99)))
    yield SlowRun(median(found[True]), median(found[False]), os.getloadavg()[0])


async def _run_round(mesh: LocalMesh, name: str, messages: int, is_slow: bool) -> list[float]:
    """Return the seconds from the request of each message to the subscriber that is measured."""
    sent: dict[str, float] = {}
    seconds: list[float] = []
    done = asyncio.Event()

    async def listen(connection: HttpConnection) -> None:
        async for data in connection.events("/v1/subscribers/measured/events"):
            started = sent.get(read_message_id(data))
            if started is not None:  # of this round
                seconds.append(time.perf_counter() - started)
                if len(seconds) == messages:
                    done.set()

    async def listen_beside(connection: HttpConnection) -> None:
        async for _ in connection.events("/v1/subscribers/other/events"):
            if is_slow:
                await asyncio.sleep(_SLOW)

    ports = mesh.brokers["first"].port, mesh.brokers["last"].port
    async with HttpConnections(ports[0]) as at_first, HttpConnections(ports[1]) as at_last:
        tasks = [
            asyncio.create_task(listen(at_last.open())),
            asyncio.create_task(listen_beside(at_last.open())),
        ]
        await asyncio.sleep(0.5)
        publisher = at_first.open()
        for number in range(messages):
            key = f"{name}-{number}"
            sent[f"{key}-1"] = time.perf_counter()
            await publisher.publish(STREAM, make_message(number), key)
            await asyncio.sleep(_PAUSE)
        try:
            async with asyncio.timeout(_PATIENCE):
                await done.wait()
        except TimeoutError:
            raise BenchError(f"{len(seconds):,} of {messages:,} messages have come") from None
        finally:
            for task in tasks:
                task.cancel()
    return seconds
