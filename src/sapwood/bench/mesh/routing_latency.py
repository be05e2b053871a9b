"""The time that a message takes through an inner broker, by the local work that it makes there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.engine_chain import EngineChain
from sapwood.bench.mesh.mesh_workload import make_message
from sapwood.engine.limits import Limits
from sapwood.serve.mesh.node.local_work import DEPENDENCIES, FCFS, PRIORITY
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

_RATE = 25.0
"""messages a second: local work of 10 ms takes a quarter of a core"""
_WARM_UP = 20
_SEED = 7
_REGULAR, _RANDOM = "regular", "random"


class RoutingRun(NamedTuple):
    """Milliseconds from the arrival of a message at a broker to its last send."""

    median: float
    most: float
    """99 %"""
    load: float


@experiment("routing-latency", "time through an inner broker by local work and scheduling")
def measure_routing_latency(
    bench: Bench,
    messages: int = scale(500, 500, 200, 10),
    milliseconds: tuple[int, ...] = scale((0, 1, 10), (0, 1, 10), (0, 1, 10), (0, 1)),
) -> Iterator[str]:
    """Measure all policies with local work of some milliseconds, messages coming regularly or at random."""
    title = "arrival at an inner broker to the last send, ms"
    columns = tuple(f"{part}, {work} ms" for work in milliseconds for part in ("median", "99 %"))
    listing = bench.listing("routing-latency", title, columns, f"{_RATE:g} messages/s")
    queries = {work: make_work(work) for work in milliseconds}
    for arrivals in (_REGULAR, _RANDOM):
        for policy in (FCFS, PRIORITY, DEPENDENCIES):
            found: dict[int, RoutingRun] = {}
            for work in milliseconds:
                yield f"{policy}, {arrivals} arrivals, {work} ms"
                folder = bench.folder / f"routing-{policy}-{arrivals}-{work}"
                found[work] = yield from run_isolated(
                    run_routing_latency, folder, policy, queries[work], messages, arrivals
                )
            listing.add(f"{policy}, {arrivals} arrivals", *(ms for run in found.values() for ms in run[:2]))
            most, none = found[milliseconds[-1]], found[0]
            is_promised = policy == DEPENDENCIES and arrivals == _REGULAR
            bench.ratio(
                "time through a broker with local work",
                f"{policy}, {arrivals} arrivals, 99 %, {milliseconds[-1]} ms against none",
                at_most(1.25, promised=is_promised),
                "times",
                work_ms=most.most,
                none_ms=none.most,
                work_median_ms=most.median,
                none_median_ms=none.median,
                load_average=most.load,
            )


def make_work(milliseconds: float) -> list[str]:
    """Return transformations that take so long for a message, together, and return nothing."""
    if not milliseconds:
        return []
    some = 20
    taken = _time_queries(_make_queries(some))
    return _make_queries(max(1, round(some * milliseconds / 1e3 / taken)))


def _make_queries(count: int) -> list[str]:
    return [f"for $s in /story where count($s/body/p) > {1_000 + n} return <x/>" for n in range(count)]


def _time_queries(queries: list[str]) -> float:
    """Return the seconds that a message takes, without what it takes with no query."""
    message = Publication("", "news", "m", make_message(0))
    seconds: list[float] = []
    for some in ([], queries):
        engine = TenantEngine(Limits())
        for place, query in enumerate(some):
            engine.put(place, query, inbox=1)
        times: list[float] = []
        for _ in range(30):
            started = time.perf_counter()
            list(engine.evaluate([message]))
            times.append(time.perf_counter() - started)
        seconds.append(float(np.median(times)))
        engine.close()
    return max(seconds[1] - seconds[0], 1e-6)


def run_routing_latency(
    folder: Path, policy: str, queries: list[str], messages: int, arrivals: str
) -> Iterator[str | RoutingRun]:
    """Publish at one end of a chain at a fixed rate, and measure in the middle."""
    rng = Random(_SEED)
    chain = EngineChain(folder, policy, queries)
    try:
        for count in (_WARM_UP, messages):
            yield f"{count} messages"
            chain.restart_clock()
            due = time.perf_counter()
            for number in range(count):
                chain.publish(f"m{count}-{number}", make_message(number))
                due += 1 / _RATE if arrivals == _REGULAR else rng.expovariate(_RATE)
                time.sleep(max(0.0, due - time.perf_counter()))
            chain.wait(count)
        taken = [1e3 * (chain.sent[key] - arrived) for key, arrived in chain.arrived.items()]
    finally:
        chain.stop()
    yield RoutingRun(float(np.median(taken)), float(np.percentile(taken, 99)), os.getloadavg()[0])
