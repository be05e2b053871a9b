"""The scale experiment: many brokers and subscriptions, and what messages cost compared with flooding.

    flooding    every message crosses every link of the tree: one frame less than there are brokers
    optimum     the links on the ways from a message's source to the brokers where it is delivered

Interests are local, as those of sites are: the patterns of subscriptions belong to areas, brokers near each
other in the tree are of the same area, and most subscriptions are to the patterns of the own one. Within an
area, some patterns are much more frequent than others. The routes are exact, so the mesh should reach the
optimum.
"""

from __future__ import annotations

import resource
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from random import Random
from time import perf_counter

from sapwood.mesh.core.frames import Route
from sapwood.mesh.core.topology import Topology, build_tree
from sapwood.mesh.sim.check import find_unrest
from sapwood.mesh.sim.faults import Faults
from sapwood.mesh.sim.world import World

DEPTH = 10
_AREAS = 25
_LOCAL = 0.9
"""share of subscriptions to patterns of the own area"""
_SECONDS_PER_MESSAGE = 0.01
_LONGEST = 600.0
"""virtual seconds until the mesh has to be at rest"""


class ScaleError(Exception):
    """Raised if the simulated mesh does not come to rest, or delivers what it should not: a bug."""


@dataclass(frozen=True, slots=True)
class PatternRoute:
    """A pattern of the scale experiment."""

    key: int


class LocalWorkload:
    """Patterns by area, and documents of one area each, which match a few of its patterns."""

    def __init__(self, patterns: int, documents: int, random: Random) -> None:
        self.queries = patterns
        self.documents = documents
        self._random = random
        self._routes = [(PatternRoute(random.getrandbits(128)),) for _ in range(patterns)]
        self._in_area = patterns // _AREAS
        self._weights = list(accumulate(1.0 / (rank + 1) ** 0.7 for rank in range(self._in_area)))
        self.areas = [random.randrange(_AREAS) for _ in range(documents)]
        """by document"""
        self._matching = [self._make_document(area) for area in self.areas]

    def choose_pattern(self, area: int) -> int:
        """Return a pattern of an area, frequent ones more often."""
        rank = bisect(self._weights, self._random.random() * self._weights[-1])
        return area * self._in_area + min(rank, self._in_area - 1)

    def _make_document(self, area: int) -> tuple[int, ...]:
        return tuple({self.choose_pattern(area): None for _ in range(self._random.randint(1, 6))})

    def matching(self, document: int) -> Collection[int]:
        """Return the queries that a document matches."""
        return self._matching[document]

    def results(self, document: int, query: int) -> tuple[bytes, ...]:
        """Return the bodies of what a query delivers of a document: none is made."""
        return ()

    def routes(self, query: int) -> tuple[PatternRoute, ...]:
        """Return necessary conditions of a query."""
        return self._routes[query]

    def holding(self, document: int) -> Collection[int]:
        """Return the keys of the routes whose condition holds of a document."""
        return [self._routes[query][0].key for query in self._matching[document]]

    def learn(self, route: Route) -> None:
        """Learn nothing: nodes of the experiment make no routes."""

    def is_refused(self, document: int) -> bool:
        """Return whether a document is not accepted as a message."""
        return False


def make_tree(brokers: int, depth: int, random: Random) -> Topology:
    """Return a random tree of a depth that two branches have from the root on, with most brokers far down."""
    names = [f"b{i:04d}" for i in range(brokers)]
    parents: dict[str, str | None] = {names[0]: None}
    levels = [[names[0]]]
    for name in names[1 : depth + 1]:  # a first branch of full depth
        parents[name] = levels[-1][-1]
        levels.append([name])
    second = levels[0][0]
    for level, name in enumerate(names[depth + 1 : 2 * depth + 1], 1):  # and another, beside it
        parents[name] = second
        levels[level].append(name)
        second = name
    for name in names[2 * depth + 1 :]:
        level = random.randrange(depth // 2, depth) if random.random() < 0.9 else random.randrange(depth)
        parents[name] = random.choice(levels[level])
        levels[level + 1].append(name)
    return build_tree(parents)


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """What the experiment has measured."""

    brokers: int
    subscriptions: int
    patterns: int
    """distinct ones"""
    messages: int
    deliveries: int
    wall_seconds: float
    virtual_seconds: float
    steps: int
    """events of the simulation"""
    megabytes: float
    """the most memory of the process"""
    table_frames: int
    frames: float
    """per message"""
    flooding: float
    optimum: float
    trace: str

    def to_dict(self) -> Mapping[str, object]:
        """Return all figures by name."""
        return asdict(self)


def run_scale(
    brokers: int = 1_000, subscriptions: int = 100_000, messages: int = 1_000, seed: int = 1
) -> ScaleReport:
    """Build a mesh with subscriptions, let it come to rest, publish messages, and count what crosses links.

    Raises ScaleError if it does not come to rest, or deliveries are not those of a single broker.
    """
    began = perf_counter()
    random = Random(f"scale {seed}")
    workload = LocalWorkload(max(_AREAS, subscriptions // 8), messages, random)
    tree = make_tree(brokers, min(DEPTH, (brokers - 1) // 2), random)
    areas = _assign_areas(tree)
    world = World(seed, tree, workload, Faults(), starts=False)
    hosts: dict[int, Counter[str]] = {}
    """by pattern, the brokers with subscriptions to it"""
    names = sorted(tree.parents)
    for _ in range(subscriptions):
        host = random.choice(names)
        area = areas[host] if random.random() < _LOCAL else random.randrange(_AREAS)
        pattern = workload.choose_pattern(area)
        world.place(host, pattern)
        hosts.setdefault(pattern, Counter())[host] += 1
    for broker in world.brokers.values():
        broker.start()
    _rest(world)
    table_frames = world.counts["table frames"]
    by_area = {area: [name for name in names if areas[name] == area] for area in set(areas.values())}
    for document in range(messages):
        source = random.choice(by_area.get(workload.areas[document], names))
        world.after(document * _SECONDS_PER_MESSAGE, world.publish, source, document)
    world.run(world.now + messages * _SECONDS_PER_MESSAGE)
    _rest(world)
    deliveries = _check(world, hosts, messages)
    optimum = sum(
        len(
            _links_to(
                tree, key.source, {h for p in workload.matching(made.document) for h in hosts.get(p, ())}
            )
        )
        for key, made in world.publications.items()
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return ScaleReport(
        brokers=brokers,
        subscriptions=subscriptions,
        patterns=len(hosts),
        messages=messages,
        deliveries=deliveries,
        wall_seconds=perf_counter() - began,
        virtual_seconds=world.now,
        steps=world.steps,
        megabytes=memory / (2**20 if sys.platform == "darwin" else 2**10),
        table_frames=table_frames,
        frames=world.frames.total() / messages,
        flooding=brokers - 1,
        optimum=optimum / messages,
        trace=world.trace_hash,
    )


def _assign_areas(tree: Topology) -> dict[str, int]:
    """Return the area of each broker: neighbours in a walk through the tree are of the same one."""
    order: list[str] = []
    waiting = [tree.root]
    while waiting:
        at = waiting.pop()
        if at is not None:
            order.append(at)
            waiting += sorted(name for name in tree.neighbours(at) if tree.parents[name] == at)
    return {name: place * _AREAS // len(order) for place, name in enumerate(order)}


def _rest(world: World) -> None:
    """Let time pass until nothing happens any more."""
    end = world.now + _LONGEST
    while (unrest := find_unrest(world)) is not None:
        if world.now >= end:
            raise ScaleError(f"the mesh is not at rest after {_LONGEST:.0f} virtual seconds: {unrest}")
        world.run(world.now + 1.0)


def _check(world: World, hosts: Mapping[int, Counter[str]], messages: int) -> int:
    """Return the number of deliveries; raise ScaleError if it is not what one broker would deliver."""
    made = Counter(
        (name, delivery.key)
        for name, broker in world.brokers.items()
        for delivery in broker.storage.deliveries
    )
    due: Counter[tuple[str, object]] = Counter()
    for key, publication in world.publications.items():
        for pattern in world.workload.matching(publication.document):
            for host, count in hosts.get(pattern, Counter()).items():
                due[host, key] += count
    if made != due or len(world.publications) != messages:
        messages = len(world.publications)
        raise ScaleError(f"{made.total()} deliveries of {messages} messages, not {due.total()}")
    return made.total()


def _links_to(tree: Topology, source: str, targets: Collection[str]) -> set[tuple[str, str]]:
    """Return the links on the ways from a broker to others."""
    links: set[tuple[str, str]] = set()
    parents: dict[str, str] = {}
    waiting = [source]
    while waiting:
        at = waiting.pop()
        for name in tree.neighbours(at):
            if name != parents.get(at):
                parents[name] = at
                waiting.append(name)
    for target in targets:
        at = target
        while at != source and (parents[at], at) not in links:
            links.add((parents[at], at))
            at = parents[at]
    return links
