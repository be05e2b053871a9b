"""The simulated world: virtual time, one source of randomness, brokers, and what people do to them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from sapwood.mesh.core.actions import Reply
from sapwood.mesh.core.frames import Frame, MessageFrame, MessageKey, Route
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.sim.network import Directory, Faults, Network
from sapwood.mesh.sim.sim_broker import NodeFactory, SimBroker
from sapwood.mesh.sim.workload import Workload


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
    published_at: float
    is_answered: bool = False


class World:
    """Brokers, network and directory, driven by one heap of events."""

    def __init__(
        self,
        seed: int,
        topology: Topology,
        workload: Workload,
        faults: Faults | None = None,
        make_node: NodeFactory = Node,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.workload = workload
        self.faults = faults or Faults()
        self.counts: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hash = blake2b(digest_size=16)
        self.steps = 0
        self.network = Network(self)
        self.directory = Directory(self, topology)
        self.publications: dict[MessageKey, SimPublication] = {}
        self._published_at: dict[object, float] = {}
        self.refused = 0
        self.subscriptions: dict[int, SimSubscription] = {}
        self._next = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        self.frames: Counter[tuple[str, str, MessageKey]] = Counter()
        """message frames with content by sender and receiver"""
        self.brokers: dict[str, SimBroker] = {}
        self._make_node = make_node
        for name in sorted(topology.parents):
            self.brokers[name] = SimBroker(self, name, topology, make_node)
        for broker in self.brokers.values():
            broker.start()

    # -- time ------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
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

    def restart(self, name: str) -> None:
        """Start a broker that has crashed."""
        if not self.brokers[name].is_up:
            self.count("restart")
            self.brokers[name].start()

    def on_crash(self, name: str) -> None:
        """Note that those who waited for a broker have no answer."""
        for token in [t for t in self._waiting if isinstance(t, tuple) and t[0] == name]:
            del self._waiting[token]

    # -- publishers ------------------------------------------------------------------------------------

    def publish(self, name: str, document: int) -> bool:
        """Publish a document at a broker; returns whether it runs."""
        broker = self.brokers[name]
        if not broker.is_up:
            return False
        from sapwood.mesh.core.events import Published

        self._next += 1
        token = "publish", self._next
        self._published_at[token] = self.now
        broker.handle(Published((token, document), document))
        return True

    def on_stored(self, name: str, key: MessageKey, document: int) -> None:
        """Note a message that is in the log of its root broker."""
        if key.source == name and key not in self.publications:
            self.publications[key] = SimPublication(key, document, -1.0)

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
            publication.published_at = self._published_at[asked]
            publication.is_answered = True
        elif isinstance(token, tuple) and token[0] == "restart":
            for number, query in token[1]:
                self._confirm(self.subscriptions[number], query)
        else:
            done = self._waiting.pop(token, None)
            if done is not None:
                done()

    # -- subscribers -----------------------------------------------------------------------------------

    def subscribe(self, name: str, query: int) -> SimSubscription | None:
        """Subscribe at a broker, if it runs."""
        broker = self.brokers[name]
        if not broker.is_up:
            return None
        self._next += 1
        number = self._next
        subscription = self.subscriptions[number] = SimSubscription(number, name, [Period(query, self.now)])
        broker.storage.subscriptions[number] = query
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
        broker = self.brokers[subscription.host]
        if broker.is_up and subscription.removed_at is None:
            routes = self.workload.routes(query)
            self._ask(broker, routes, (), lambda: self._switch(broker, subscription, query))

    def _switch(self, broker: SimBroker, subscription: SimSubscription, query: int) -> None:
        if subscription.removed_at is not None:
            self._ask(broker, (), self.workload.routes(query))
            return
        old = subscription.periods[-1]
        old.until = self.now
        subscription.periods.append(Period(query, self.now, self.now))
        broker.storage.subscriptions[subscription.number] = query
        self.count("replaced")
        self._ask(broker, (), self.workload.routes(old.query))

    def unsubscribe(self, subscription: SimSubscription) -> None:
        """End a subscription."""
        broker = self.brokers[subscription.host]
        if broker.is_up and subscription.removed_at is None:
            subscription.removed_at = subscription.periods[-1].until = self.now
            query = broker.storage.subscriptions.pop(subscription.number)
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
