"""Random scenarios: trees, subscribers, publishers and faults from a seed, and the check of what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import Topology, TopologyError, build_tree
from sapwood.mesh.sim.network import Faults
from sapwood.mesh.sim.sim_broker import NodeFactory
from sapwood.mesh.sim.workload import Workload
from sapwood.mesh.sim.world import SimSubscription, World

SECONDS = 12.0
"""of subscribing, publishing and faults"""
QUIET = 150.0
"""seconds after which everything must have come to rest"""


@dataclass(slots=True)
class Outcome:
    """What became of a scenario."""

    seed: int
    brokers: int
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    deliveries: int = 0
    due: int = 0
    """deliveries that had to be made"""
    trace: str = ""
    seconds: float = 0.0
    """virtual ones"""
    steps: int = 0


def run_scenario(seed: int, workload: Workload, make_node: NodeFactory = Node, largest: int = 30) -> Outcome:
    """Run a random scenario, and check what came of it."""
    return Scenario(seed, workload, make_node, largest).run()


class Scenario:
    """One random scenario."""

    def __init__(self, seed: int, workload: Workload, make_node: NodeFactory, largest: int) -> None:
        random = self._random = Random(f"scenario {seed}")
        self.seed = seed
        self._names = [
            f"b{i:02d}" for i in range(random.choice((3, 4, 5, 6, 8, 12, random.randint(3, largest))))
        ]
        parents: dict[str, str | None] = {self._names[0]: None}
        for i, name in enumerate(self._names[1:], 1):
            parents[name] = self._names[random.randrange(max(0, i - 4), i)]
        severity = random.choice((0.0, 0.3, 1.0, 1.0))
        self._faults = Faults(
            loss=0.05 * severity * random.random(),
            repetition=0.05 * severity * random.random(),
            reordering=0.05 * severity * random.random(),
            crash=0.004 * severity * random.random() ** 2,
            latency=random.choice((0.001, 0.02, 0.1)),
            delay=random.choice((0.0, 0.2, 1.0)) * severity,
            store=random.choice((0.001, 0.02, 0.2)),
            match=random.choice((0.0, 0.001, 0.05)),
        )
        self._severity = severity
        self.world = World(seed, build_tree(parents), workload, self._faults, make_node)
        self._standing: list[SimSubscription] = []

    def run(self) -> Outcome:
        """Let people and faults act, then let everything come to rest, and check it."""
        world = self.world
        rate = self._random.choice((2.0, 10.0, 30.0))
        world.at(0.5, self._act, rate)
        world.run(SECONDS)
        world.faults = replace(self._faults, loss=0.0, repetition=0.0, reordering=0.0, crash=0.0)
        world.network.cut = frozenset()
        problems: list[str] = []
        end = SECONDS
        while not self._is_quiet():
            for name in self._names:
                world.restart(name)
            end += 2.0
            if end > SECONDS + QUIET:
                problems.append(f"no rest after {QUIET:.0f} s: {self._describe_unrest()}")
                break
            world.run(end)
        problems += check_deliveries(world)
        if not problems:
            problems += self._check_routing()
        outcome = Outcome(self.seed, len(self._names), problems, world.counts)
        outcome.messages = len(world.publications)
        outcome.deliveries = sum(len(b.storage.deliveries) for b in world.brokers.values())
        outcome.due = len(find_due(world))
        outcome.trace, outcome.seconds, outcome.steps = world.trace_hash, world.now, world.steps
        return outcome

    # -- people and faults -----------------------------------------------------------------------------

    def _act(self, rate: float) -> None:
        world, random = self.world, self._random
        if world.now >= SECONDS - 1.0:
            return
        world.after(random.expovariate(rate), self._act, rate)
        name = random.choice(self._names)
        chance = random.random()
        if chance < 0.6:
            for _ in range(random.choice((1, 1, 1, 5))):
                world.publish(name, random.randrange(world.workload.documents))
        elif chance < 0.75:
            made = world.subscribe(name, random.randrange(world.workload.queries))
            if made is not None:
                self._standing.append(made)
        elif chance < 0.81 and self._standing:
            world.replace(random.choice(self._standing), random.randrange(world.workload.queries))
        elif chance < 0.86 and self._standing:
            gone = random.choice(self._standing)
            world.unsubscribe(gone)
            if gone.removed_at is not None:
                self._standing.remove(gone)
        elif self._severity and chance < 0.86 + 0.3 / rate:
            self._break_something(name)

    def _break_something(self, name: str) -> None:
        world, random = self.world, self._random
        kind = random.choice(("crash", "cut", "tree", "stream", "long crash"))
        if kind in ("crash", "long crash"):
            world.brokers[name].crash()
            longest = 14.0 if kind == "long crash" else 2.0
            world.after(random.random() * longest, world.restart, name)
        elif kind == "cut":
            world.count("partition")
            world.network.cut = frozenset(
                random.sample(self._names, random.randint(1, len(self._names) // 2))
            )
            world.after(random.random() * 4.0, self._heal)
        elif kind == "tree":
            self._change_tree()
        else:
            others = [sender for sender in world.brokers[name].storage.streams]
            if others:
                world.count("stream loss")
                world.brokers[name].lose_stream(random.choice(others), random.randint(1, 50))

    def _heal(self) -> None:
        self.world.network.cut = frozenset()

    def _change_tree(self) -> None:
        directory, random = self.world.directory, self._random
        tree = directory.topology
        try:
            name, parent = random.sample(self._names, 2)
            changed: Topology = tree.move(name, parent)
        except TopologyError:
            return
        directory.put(tree.version, changed)

    # -- rest ------------------------------------------------------------------------------------------

    def _is_quiet(self) -> bool:
        world = self.world
        for broker in world.brokers.values():
            node = broker.node
            if node is None or node.topology.version != world.directory.topology.version:
                return False
            if node.waiting or node.unsettled() or node.unconfirmed:
                return False
            if any(not node.is_open(n) or node.outbox(n) for n in node.topology.neighbours(broker.name)):
                return False
            if node.table.unknown_links() or any(t.stale for t in node.table.told.values()):
                return False
        return True

    def _describe_unrest(self) -> str:
        for name, broker in self.world.brokers.items():
            node = broker.node
            if node is None:
                return f"{name} does not run"
            shut = [n for n in node.topology.neighbours(name) if not node.is_open(n) or node.outbox(n)]
            numbers = node.waiting, node.unsettled(), node.unconfirmed
            if any(numbers) or shut or node.table.unknown_links():
                return (
                    f"{name}: waiting {numbers[0]}, unsettled {numbers[1]}, unconfirmed {numbers[2]}, links {shut}"
                    f", without table {node.table.unknown_links()}"
                )
        return "the trees differ"

    # -- routing ---------------------------------------------------------------------------------------

    def _check_routing(self) -> list[str]:
        """Publish some more, and compare what crosses links with what has to."""
        world = self.world
        world.frames.clear()
        before = set(world.publications)
        for i in range(6):
            world.publish(self._random.choice(self._names), self._random.randrange(world.workload.documents))
            world.run(world.now + 0.2 * i)
        world.run(world.now + 10.0)
        tree, workload = world.directory.topology, world.workload
        expected: Counter[tuple[str, str, MessageKey]] = Counter()
        for key in set(world.publications) - before:
            document = world.publications[key].document
            for name, broker in world.brokers.items():
                queries = set(broker.storage.subscriptions.values())
                routes = {r.key: r for query in queries for r in workload.routes(query)}
                if any(workload.holds(route, document) for route in routes.values()):
                    at = key.source
                    while at != name:
                        hop = tree.next_hops(at)[name]
                        expected[at, hop, key] = 1
                        at = hop
        if expected != world.frames:
            extra, missing = world.frames - expected, expected - world.frames
            return [
                f"messages on links: {len(extra)} too many, {len(missing)} too few: {[*extra, *missing][:3]}"
            ]
        return check_deliveries(world)


# -- the check ----------------------------------------------------------------------------------------------


def find_due(world: World) -> set[tuple[int, MessageKey]]:
    """Return the deliveries that must have been made: of messages that were published after a subscription
    was confirmed, and before it was changed."""
    due: set[tuple[int, MessageKey]] = set()
    for key, publication in world.publications.items():
        at = publication.published_at
        if at < 0:
            continue
        for subscription in world.subscriptions.values():
            for period in subscription.periods:
                if period.confirmed_at is None or not period.confirmed_at < at:
                    continue
                if period.until is None and world.workload.matches(period.query, publication.document):
                    due.add((subscription.number, key))
    return due


def check_deliveries(world: World) -> list[str]:
    """Return what is wrong with the deliveries: missing, repeated, unwanted, out of order, or late."""
    problems: list[str] = []
    made: Counter[tuple[int, MessageKey]] = Counter()
    last: dict[tuple[int, str], int] = {}
    for name, broker in world.brokers.items():
        for delivery in broker.storage.deliveries:
            subscription = world.subscriptions[delivery.subscription]
            made[delivery.subscription, delivery.key] += 1
            order = delivery.subscription, delivery.key.source
            if delivery.key.number < last.get(order, 0):
                problems.append(f"order: {delivery} comes after number {last[order]} at {name}")
            last[order] = max(delivery.key.number, last.get(order, 0))
            queries = [period.query for period in subscription.periods]
            if not any(world.workload.matches(query, delivery.document) for query in queries):
                problems.append(f"unwanted: {delivery}")
        late = broker.late + (broker.node.late if broker.node is not None else 0)
        if late:
            problems.append(f"late: {late} messages at {name}")
    problems += [f"twice: {key} of subscription {number}" for (number, key), n in made.items() if n > 1]
    for number, key in sorted(find_due(world)):
        if not made[number, key]:
            document = world.publications[key].document
            problems.append(
                f"missing: {key}, document {document}, for subscription {number}"
                f" at {world.subscriptions[number].host}"
            )
    return problems
