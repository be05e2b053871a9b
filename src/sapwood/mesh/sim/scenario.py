"""Random scenarios: trees, subscribers, publishers and faults from a seed, and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import TopologyError, build_tree
from sapwood.mesh.sim.check import check_deliveries, check_routing, find_due, find_unrest
from sapwood.mesh.sim.faults import Faults
from sapwood.mesh.sim.sim_broker import NodeFactory
from sapwood.mesh.sim.workload import Workload
from sapwood.mesh.sim.world import SimSubscription, World

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_wire import WireFactory

QUIET = 150.0
"""seconds after which everything must have come to rest"""


@dataclass(frozen=True, slots=True)
class Profile:
    """What goes wrong in a kind of scenario."""

    seconds: float
    """of subscribing, publishing and faults"""
    kinds: tuple[str, ...]
    """of faults, one of which is chosen at a time"""
    breaks: float
    """faults a second, besides those of the network"""
    crash: float
    """the greatest probability of a crash before an action"""


_MIXED = ("crash", "long crash", "cut", "move", "stream loss", "join", "leave")
PROFILES = (
    Profile(12.0, _MIXED, 0.3, 0.004),
    Profile(12.0, _MIXED, 0.3, 0.004),
    Profile(10.0, ("crash", "crash", "stream loss", "move"), 0.6, 0.02),
    Profile(12.0, ("move", "move", "join", "leave", "bypass", "crash", "remove"), 0.8, 0.001),
    Profile(26.0, ("outage", "outage", "long cut", "crash", "join"), 0.15, 0.001),
)


@dataclass(slots=True)
class Outcome:
    """What became of a scenario."""

    seed: int
    brokers: int
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """faults, and other things of interest, by kind"""
    messages: int = 0
    deliveries: int = 0
    due: int = 0
    """deliveries that had to be made"""
    trace: str = ""
    """the hash of all that has happened"""
    seconds: float = 0.0
    """virtual ones"""
    steps: int = 0


def run_scenario(
    seed: int,
    workload: Workload,
    make_node: NodeFactory = Node,
    largest: int = 30,
    is_exact: bool = True,
) -> Outcome:
    """Run a random scenario, and check what came of it; with tables that are not exact, messages may cross
    links that they need not."""
    return Scenario(seed, workload, make_node, largest, is_exact).run()


class Scenario:
    """One random scenario."""

    def __init__(
        self,
        seed: int,
        workload: Workload,
        make_node: NodeFactory = Node,
        largest: int = 30,
        is_exact: bool = True,
        make_wire: WireFactory | None = None,
    ) -> None:
        random = self._random = Random(f"scenario {seed}")
        self._is_exact = is_exact
        self.seed = seed
        self._profile = random.choice(PROFILES)
        names = [f"b{i:02d}" for i in range(random.choice((3, 4, 5, 6, 8, 12, random.randint(3, largest))))]
        parents: dict[str, str | None] = {names[0]: None}
        for i, name in enumerate(names[1:], 1):
            parents[name] = names[random.randrange(max(0, i - 4), i)]
        severity = random.choice((0.0, 0.3, 1.0, 1.0))
        self._faults = Faults(
            loss=0.05 * severity * random.random(),
            repetition=0.05 * severity * random.random(),
            reordering=0.05 * severity * random.random(),
            crash=self._profile.crash * severity * random.random() ** 2,
            latency=random.choice((0.001, 0.02, 0.1)),
            delay=random.choice((0.0, 0.2, 1.0)) * severity,
            store=random.choice((0.001, 0.02, 0.2)),
            match=random.choice((0.0, 0.001, 0.05)),
            batching=random.choice((0.0, 0.0, 0.3)),
        )
        self._severity = severity
        self.world = World(seed, build_tree(parents), workload, self._faults, make_node, make_wire=make_wire)
        self._standing: list[SimSubscription] = []
        self._leaving: set[str] = set()
        self._joined = 0

    def run(self) -> Outcome:
        """Let people and faults act, then let everything come to rest, and check it."""
        world = self.world
        rate = self._random.choice((2.0, 10.0, 30.0))
        world.at(0.5, self._act, rate)
        world.run(self._profile.seconds)
        world.faults = replace(self._faults, loss=0.0, repetition=0.0, reordering=0.0, crash=0.0)
        self._heal()
        problems: list[str] = []
        while (unrest := find_unrest(world)) is not None:
            if world.now > self._profile.seconds + QUIET:
                problems.append(f"no rest after {QUIET:.0f} s: {unrest}")
                break
            for name in list(world.brokers):
                world.restart(name)
            world.run(world.now + 2.0)
        problems += check_deliveries(world)
        if not problems:
            problems += self._check_routing()
        outcome = Outcome(self.seed, len(world.brokers), problems, world.counts)
        outcome.messages = len(world.publications)
        brokers = (*world.former, *world.brokers.values())
        outcome.deliveries = sum(len(broker.storage.deliveries) for broker in brokers)
        outcome.due = len(find_due(world))
        outcome.trace, outcome.seconds, outcome.steps = world.trace_hash, world.now, world.steps
        return outcome

    def _names(self) -> list[str]:
        """Return the brokers that people use."""
        return [name for name in self.world.brokers if name not in self._leaving]

    def _check_routing(self) -> list[str]:
        """Publish some more, and compare what crosses links with what has to."""
        world = self.world
        world.frames.clear()
        before = set(world.publications)
        for i in range(6):
            world.publish(
                self._random.choice(self._names()), self._random.randrange(world.workload.documents)
            )
            world.run(world.now + 0.2 * i)
        world.run(world.now + 10.0)
        keys = set(world.publications) - before
        return check_routing(world, keys, self._is_exact) or check_deliveries(world)

    # -- people ----------------------------------------------------------------------------------------

    def _act(self, rate: float) -> None:
        world, random = self.world, self._random
        if world.now >= self._profile.seconds - 1.0:
            return
        world.after(random.expovariate(rate), self._act, rate)
        name = random.choice(self._names())
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
        elif self._severity and chance < 0.86 + self._profile.breaks / rate:
            self._break_something(name)

    # -- faults ----------------------------------------------------------------------------------------

    def _break_something(self, name: str) -> None:
        world, random = self.world, self._random
        kind = random.choice(self._profile.kinds)
        if kind in ("crash", "long crash", "outage"):
            shortest, longest = {"crash": (0.0, 2.0), "long crash": (0.0, 14.0), "outage": (11.0, 18.0)}[kind]
            if kind == "outage":  # of a broker that others need
                name = max(self._names(), key=lambda each: len(world.directory.topology.neighbours(each)))
            world.crash(name)
            world.after(random.uniform(shortest, longest), world.restart, name)
        elif kind in ("cut", "long cut"):
            self._cut(4.0 if kind == "cut" else 16.0)
        elif kind in ("move", "bypass"):
            self._change_tree(kind, name)
        elif kind == "join":
            self._join(name)
        elif kind in ("leave", "remove"):
            self._leave(kind, name)
        else:
            streams = world.brokers[name].storage.streams
            if streams:
                world.count("stream loss")
                world.brokers[name].lose_stream(random.choice(list(streams)), random.randint(1, 50))

    def _cut(self, longest: float) -> None:
        names = self._names()
        self.world.count("partition")
        self.world.network.cut = frozenset(
            self._random.sample(names, self._random.randint(1, len(names) // 2))
        )
        self.world.after(self._random.random() * longest, self._heal)

    def _heal(self) -> None:
        self.world.network.cut = frozenset()

    def _change_tree(self, kind: str, name: str) -> None:
        directory, tree = self.world.directory, self.world.directory.topology
        other = self._random.choice(self._names())
        try:
            changed = tree.bypass(name) if kind == "bypass" else tree.move(name, other)
        except TopologyError:
            return
        directory.put(tree.version, changed)

    def _join(self, parent: str) -> None:
        """Let a broker join: one that was never there, or one that has left, with nothing stored."""
        world, random = self.world, self._random
        gone = [broker.name for broker in world.former if broker.name not in world.brokers]
        name = random.choice(gone) if gone and random.random() < 0.5 else f"j{self._joined:02d}"
        if parent in world.directory.topology and name not in world.directory.topology:
            self._joined += name.startswith("j")
            self._leaving.discard(name)
            world.join(name, parent)
            world.count("join")

    def _leave(self, kind: str, name: str) -> None:
        if len(self._names()) <= 3:
            return
        self._leaving.add(name)
        if kind == "leave":
            self.world.drain(name)
        else:
            self.world.count("removal")
            self.world.crash(name)
            self.world.remove(name)
