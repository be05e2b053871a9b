"""Messages that links carry by content, against flooding and against the fewest possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from sapwood.bench.harness import Bench, ChartAxis, Role, at_most, experiment, run_isolated, scale
from sapwood.bench.mesh.mesh_workload import EIGHT, make_message, publish, subscribe, wait_for_deliveries
from sapwood.engine.limits import Limits
from sapwood.mesh.core.topology import Topology, build_tree
from sapwood.mesh.routing.route import routes_of
from sapwood.serve.mesh.local_mesh import LocalMesh
from sapwood.serve.tenants.evaluation import Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

_TENANT = "default"
_SEED = 5


class Traffic(NamedTuple):
    """Messages on all links: by routes, by what is delivered beyond, and by flooding."""

    routed: int
    fewest: int
    flooded: int


@experiment("routing", "messages on links against flooding and the fewest, by queries a broker")
def measure_routing(
    bench: Bench,
    messages: int = scale(400, 400, 100, 10),
    counts: tuple[int, ...] = scale((1, 10, 100, 1_000), (1, 10, 100, 1_000), (1, 10, 100), (1, 5)),
) -> Iterator[str]:
    """Compute for eight brokers which links each message passes, for interests of places and random ones."""
    title = "messages on a link: each site its own interests, and random ones"
    axis = ChartAxis("share of flooding", "%")
    chart = bench.chart("links", title, "queries at each broker", axis, log_x=True)
    for count in counts:
        yield f"{count} queries at each broker"
        local = count_traffic(*make_local(count, messages))
        random = count_traffic(*_draw_random(bench, count, messages))
        for label, traffic, role in (("local", local, Role.SAPWOOD), ("random", random, Role.OTHER)):
            workload = f"8 brokers, {label} interests, {count} queries each"
            details = {"routed": traffic.routed, "fewest": traffic.fewest, "flooded": traffic.flooded}
            share = 100 * traffic.routed / traffic.flooded
            least = 100 * traffic.fewest / traffic.flooded
            chart.curve(f"{label} interests", role).add(count, max(share, 0.1), **details)
            chart.curve(f"{label}, fewest possible", Role.BASELINE).add(count, max(least, 0.1))
            if traffic.fewest:
                bar = at_most(1.02, promised=label == "local")
                bench.figure(
                    "link messages against the fewest",
                    workload,
                    traffic.routed / traffic.fewest,
                    "times",
                    bar,
                    **details,
                )
            bar = at_most(0.2, promised=label == "local")
            bench.figure("link messages against flooding", workload, share / 100, "times", bar, **details)


@experiment("links", "the same with processes, for interests of places")
def measure_links(bench: Bench, messages: int = scale(2_000, 2_000, 400, 40)) -> Iterator[str]:
    """Count what links of eight real brokers carry."""
    yield "eight brokers"
    traffic = yield from run_isolated(run_links, bench.folder / "links", messages)
    details = {"routed": traffic.routed, "fewest": traffic.fewest, "flooded": traffic.flooded}
    bench.figure(
        "link messages of processes against the fewest",
        "8 brokers, local interests, 10 queries each",
        traffic.routed / max(traffic.fewest, 1),
        "times",
        at_most(1.02),
        **details,
    )


def run_links(folder: Path, messages: int) -> Iterator[str | Traffic]:
    """Publish at all brokers, and read the counters of the links."""
    queries, bodies, sources = make_local(10, messages)
    expected = count_traffic(queries, bodies, sources)
    names = list(EIGHT)
    with LocalMesh(folder, EIGHT) as mesh:
        yield "subscribing"
        for name in names:
            asyncio.run(subscribe(mesh, name, queries[name]))
        yield "publishing"
        for name in names:
            own = [body for body, source in zip(bodies, sources, strict=True) if source == name]
            if own:
                asyncio.run(publish(mesh, name, own, 20, f"run-{name}"))
        engine = _build_engine(queries)
        wanted = dict.fromkeys(names, 0)
        for body in bodies:
            for bit in _find_bits(engine, body):
                wanted[names[bit]] += 1
        for name in names:
            asyncio.run(wait_for_deliveries(mesh, name, "desk", wanted[name]))
        time.sleep(2)  # until the status is that of the end
        routed = sum(
            link.get("messages out", 0) for name in names for link in mesh.status(name)["links"].values()
        )
    yield Traffic(routed, expected.fewest, expected.flooded)


Workload = tuple[dict[str, list[str]], list[bytes], list[str]]
"""queries of each broker, messages, and the broker that each message is published at"""


def make_local(count: int, messages: int) -> Workload:
    """Make interests in topics of a place each, and messages about one topic."""
    rng, names = Random(_SEED), list(EIGHT)
    queries = {name: [f"/story[@topic = '{name}-{number}']" for number in range(count)] for name in names}
    bodies = [make_message(n, f"{rng.choice(names)}-{rng.randrange(2 * count)}") for n in range(messages)]
    return queries, bodies, [rng.choice(names) for _ in bodies]


def _draw_random(bench: Bench, count: int, messages: int) -> Workload:
    rng, names = Random(_SEED), list(EIGHT)
    drawn = bench.dataset.queries("predicates", count * len(names))
    queries = {name: drawn[number :: len(names)] for number, name in enumerate(names)}
    bodies = list(bench.dataset.messages(messages))
    return queries, bodies, [rng.choice(names) for _ in bodies]


def count_traffic(queries: dict[str, list[str]], bodies: Sequence[bytes], sources: Sequence[str]) -> Traffic:
    """Count the links that each message passes."""
    topology = build_tree(EIGHT)
    names = list(EIGHT)
    engine = _build_engine(queries)
    routed = fewest = 0
    for number, (body, source) in enumerate(zip(bodies, sources, strict=True)):
        message = Publication(_TENANT, "news", str(number), body)
        wanted = {names[bit] for bit in _find_bits(engine, body)}
        [evaluation] = engine.evaluate([message])
        assert not isinstance(evaluation, Exception)
        hosts = {names[int(place) % len(names)] for place in evaluation.places}
        routed += _count_links(topology, source, wanted)
        fewest += _count_links(topology, source, hosts)
    engine.close()
    return Traffic(routed, fewest, len(bodies) * (len(names) - 1))


def _build_engine(queries: dict[str, list[str]]) -> TenantEngine:
    """Return an engine with all subscriptions, and their routes by the broker that has them."""
    engine = TenantEngine(Limits())
    for bit, name in enumerate(queries):
        routes = [route for query in queries[name] for route in routes_of(query, {}, _TENANT)]
        engine.set_routes(bit, routes)
        for number, query in enumerate(queries[name]):
            engine.put(number * len(queries) + bit, query, inbox=1)
    return engine


def _find_bits(engine: TenantEngine, body: bytes) -> list[int]:
    mask = engine.find_links(Publication(_TENANT, "news", "", body))
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _count_links(topology: Topology, source: str, wanted: set[str]) -> int:
    """Return how many links lie between a broker and others, each counted once."""
    passed: set[tuple[str, str]] = set()
    for name in wanted:
        at = source
        while at != name:
            after = topology.next_hops(at)[name]
            passed.add((at, after))
            at = after
    return len(passed)
