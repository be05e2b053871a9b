"""The simulated world: virtual time, one source of randomness, brokers, and what people do to them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any

from sapwood.mesh.core.actions import Reply
from sapwood.mesh.core.events import Published
from sapwood.mesh.core.frames import Frame, MessageFrame, MessageKey, Route
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.sim.directory import Directory
from sapwood.mesh.sim.faults import Faults
from sapwood.mesh.sim.network import Network
from sapwood.mesh.sim.sim_broker import NodeFactory, SimBroker
from sapwood.mesh.sim.workload import Workload

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_wire import WireFactory


@dataclass(slots=True)
class SimSubscription:
    """A subscription, and since when it must be served."""

    number: int
    host: str
    periods: list[Period] = field(default_factory=list)
    """one for each query that it had"""
    removed_at: float | None = None


@dataclass(slots=True)
class Period:
    """A query of a subscription, and when all brokers had it."""

    query: int
    since: float
    confirmed_at: float | None = None
    until: float | None = None
    """when another query took its place, or it was removed"""


@dataclass(slots=True)
class SimPublication:
    """A message that was published: when, and what became of it."""

    key: MessageKey
    document: int
    published_at: float | None = None
    """None: the publisher got no answer"""
    settled_at: float | None = None
    """when its source knew that it is stored wherever it is wanted"""


class World:
    """Brokers, network and directory, driven by one heap of events."""

    def __init__(
        self,
        seed: int,
        topology: Topology,
        workload: Workload,
        faults: Faults | None = None,
        make_node: NodeFactory = Node,
        starts: bool = True,
        make_wire: WireFactory | None = None,
    ) -> None:
        """Make the brokers of a tree, and start them unless somebody else does; without `make_wire`, they
        hand each other frames as objects."""
        self.random = Random(seed)
        self.now = 0.0
        self.workload = workload
        self.make_wire = make_wire
        self.faults = faults or Faults()
        self.counts: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._hash = blake2b(digest_size=16)
        self.steps = 0
        self.network = Network(self)
        self.directory = Directory(self, topology)
        self.publications: dict[MessageKey, SimPublication] = {}
        self._unsettled: dict[str, list[SimPublication]] = {}
        self._published_at: dict[object, float] = {}
        self.refused = 0
        self.subscriptions: dict[int, SimSubscription] = {}
        self._next = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        self.frames: Counter[tuple[str, str, MessageKey]] = Counter()
        """message frames with content by sender and receiver"""
        self.brokers: dict[str, SimBroker] = {}
        self.former: list[SimBroker] = []
        """those that have left"""
        self.removed: set[str] = set()
        """names of brokers that were removed with unsettled messages"""
        self._make_node = make_node
        for name in sorted(topology.parents):
            self.brokers[name] = SimBroker(self, name, topology, make_node)
        if starts:
            for broker in self.brokers.values():
                broker.start()

    # -- time ------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, action, arguments))

    def after(self, delay: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something after some seconds."""
        self.at(self.now + delay, action, *arguments)

    def run(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, number, action, arguments = heapq.heappop(heap)
            self.steps += 1
            self._hash.update(b"%d %.9f" % (number, self.now))
            action(*arguments)
        self.now = until

    def trace(self, who: str, what: str) -> None:
        """Add something to the trace, of which equal runs have equal hashes."""
        self._hash.update(f"{self.now:.9f} {who} {what}".encode())

    @property
    def trace_hash(self) -> str:
        """The hash of all that has happened."""
        return self._hash.hexdigest()

    def count(self, kind: str) -> None:
        """Count a fault, or something else of interest."""
        self.counts[kind] += 1

    # -- faults ----------------------------------------------------------------------------------------

    def crashes_now(self, name: str) -> bool:
        """Return whether a broker crashes before its next action."""
        if not self.faults.crash or self.random.random() >= self.faults.crash:
            return False
        self.after(0.1 + 3 * self.random.random() ** 2, self.restart, name)
        return True

    def is_batching(self) -> bool:
        """Return whether a broker's node gets an event only with its next one."""
        return self.faults.batching > 0.0 and self.random.random() < self.faults.batching

    def crash(self, name: str) -> None:
        """End the process of a broker at once."""
        self.brokers[name].crash()

    def restart(self, name: str) -> None:
        """Start a broker that has crashed, unless it has left."""
        broker = self.brokers.get(name)
        if broker is not None and not broker.is_up:
            self.count("restart")
            broker.start()

    def on_crash(self, name: str) -> None:
        """Note that those who waited for a broker have no answer."""
        self.count("crash")
        self.trace(name, "crash")
        for token in [t for t in self._waiting if isinstance(t, tuple) and t[0] == name]:
            del self._waiting[token]

    # -- the tree --------------------------------------------------------------------------------------

    def join(self, name: str, parent: str) -> bool:
        """Add a broker as a leaf, with nothing stored."""
        tree = self.directory.topology
        if not self.directory.put(tree.version, tree.join(name, parent)):
            return False
        self.brokers[name] = SimBroker(self, name, self.directory.topology, self._make_node)
        self.brokers[name].start()
        return True

    def drain(self, name: str) -> None:
        """End all subscriptions of a broker, at which nobody publishes any more, and let it leave when what
        it has published is settled everywhere."""
        for subscription in self.subscriptions.values():
            if subscription.host == name:
                self.unsubscribe(subscription)
        broker = self.brokers.get(name)
        if broker is None:
            return
        tree, node = self.directory.topology, broker.node
        is_drained = (
            node is not None
            and not broker.storage.subscriptions
            and not node.waiting
            and node.floors[name] == node.positions.get(name, 0)
        )
        if is_drained and self.directory.is_visible(name):
            self.directory.put(tree.version, tree.leave(name))
            self.count("leave")
        else:
            self.after(0.5, self.drain, name)

    def remove(self, name: str) -> None:
        """Remove a broker that does not run and never will: what only it has is given up."""
        self.removed.add(name)
        for subscription in self.subscriptions.values():
            if subscription.host == name and subscription.removed_at is None:
                subscription.removed_at = subscription.periods[-1].until = self.now
        tree = self.directory.topology
        self.directory.put(tree.version, tree.leave(name))
        self.retire(name)

    def retire(self, name: str) -> None:
        """End a broker that is not in the tree any more."""
        broker = self.brokers.pop(name)
        broker.stop()
        self.former.append(broker)

    # -- publishers ------------------------------------------------------------------------------------

    def publish(self, name: str, document: int) -> bool:
        """Publish a document at a broker; returns whether it runs."""
        broker = self.brokers[name]
        if not broker.is_up:
            return False
        self._next += 1
        token = "publish", self._next
        self._published_at[token] = self.now
        broker.handle(Published((token, document), document))
        return True

    def on_stored(self, name: str, key: MessageKey, document: int) -> None:
        """Note a message that is in the log of its root broker."""
        if key.source == name and key not in self.publications:
            made = self.publications[key] = SimPublication(key, document)
            self._unsettled.setdefault(name, []).append(made)

    def on_settled(self, name: str, floor: int) -> None:
        """Note that the messages of a source up to a number are settled."""
        waiting = self._unsettled.get(name, [])
        for publication in waiting:
            if publication.key.number <= floor:
                publication.settled_at = self.now
        self._unsettled[name] = [each for each in waiting if each.settled_at is None]

    def on_reply(self, name: str, reply: Reply) -> None:
        """Note an answer, or wake the one who waits for it."""
        token = reply.token
        if isinstance(token, tuple) and isinstance(token[0], tuple):
            (asked, _document) = token
            if reply.key is None:
                self.refused += 1
                return
            publication = self.publications.get(reply.key)
            assert publication is not None, f"{name} has answered for {reply.key}, which is not stored"
            publication.published_at = self._published_at.pop(asked)
        elif isinstance(token, tuple) and token[0] == "restart":
            for number, query in token[1]:
                self._confirm(self.subscriptions[number], query)
        else:
            done = self._waiting.pop(token, None)
            if done is not None:
                done()

    # -- subscribers -----------------------------------------------------------------------------------

    def place(self, name: str, query: int) -> SimSubscription:
        """Add a subscription to what a broker has stored."""
        self._next += 1
        number = self._next
        subscription = self.subscriptions[number] = SimSubscription(number, name, [Period(query, self.now)])
        self.brokers[name].set_query(number, query)
        return subscription

    def subscribe(self, name: str, query: int) -> SimSubscription | None:
        """Subscribe at a broker, if it runs."""
        broker = self.brokers[name]
        if not broker.is_up:
            return None
        subscription = self.place(name, query)
        self._ask(broker, self.workload.routes(query), (), lambda: self._confirm(subscription, query))
        return subscription

    def _ask(
        self,
        broker: SimBroker,
        added: tuple[Route, ...],
        removed: tuple[Route, ...],
        done: Callable[[], None] | None = None,
    ) -> None:
        token: object = None
        if done is not None:
            self._next += 1
            token = broker.name, self._next
            self._waiting[token] = done
        broker.change_routes(token, added, removed)

    def _confirm(self, subscription: SimSubscription, query: int) -> None:
        period = subscription.periods[-1]
        if subscription.removed_at is None and period.query == query and period.confirmed_at is None:
            period.confirmed_at = self.now
            self.count("confirmed")

    def replace(self, subscription: SimSubscription, query: int) -> None:
        """Give a subscription another query: it changes when all brokers have that."""
        broker = self.brokers.get(subscription.host)
        if broker is not None and broker.is_up and subscription.removed_at is None:
            routes = self.workload.routes(query)
            self._ask(broker, routes, (), lambda: self._switch(broker, subscription, query))

    def _switch(self, broker: SimBroker, subscription: SimSubscription, query: int) -> None:
        if subscription.removed_at is not None:
            self._ask(broker, (), self.workload.routes(query))
            return
        old = subscription.periods[-1]
        old.until = self.now
        subscription.periods.append(Period(query, self.now, self.now))
        broker.set_query(subscription.number, query)
        self.count("replaced")
        self._ask(broker, (), self.workload.routes(old.query))

    def unsubscribe(self, subscription: SimSubscription) -> None:
        """End a subscription."""
        broker = self.brokers.get(subscription.host)
        if broker is not None and broker.is_up and subscription.removed_at is None:
            subscription.removed_at = subscription.periods[-1].until = self.now
            query = broker.set_query(subscription.number, None)
            assert query is not None
            self._ask(broker, (), self.workload.routes(query))

    # -- what crosses links ----------------------------------------------------------------------------

    def on_frame(self, sender: str, receiver: str, frame: Frame) -> None:
        """Count a frame that is sent."""
        if isinstance(frame, MessageFrame):
            self.counts["message frames"] += 1
            if frame.content is not None:
                self.frames[sender, receiver, frame.key] += 1
        else:
            self.counts["table frames"] += 1
