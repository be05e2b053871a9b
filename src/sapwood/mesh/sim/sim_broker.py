"""A simulated broker: the runtime around a node, with storage that survives crashes and one that does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sapwood.mesh.core import actions, events
from sapwood.mesh.core.frames import Beat, Content, Control, Epoch, Frame, MessageFrame, MessageKey, Route
from sapwood.mesh.core.membership import Membership
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.wire.bodies.dictionary_controls import DictionaryControl

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_wire import SimWire
    from sapwood.mesh.sim.world import World
    from sapwood.mesh.wire.message_content import Hits

NodeFactory = Callable[[NodeState, Topology, int], Node]


@dataclass(frozen=True, slots=True)
class SimDelivery:
    """A delivery in a subscription's inbox."""

    subscription: int
    key: MessageKey
    document: int
    """of which parts may have been cut"""
    query: int


@dataclass(slots=True)
class StreamedFrame:
    """A frame in the stream of an inbound link."""

    epoch: Epoch
    number: int
    frame: Frame
    payload: bytes | None = None
    """the frame as bytes, if brokers send such"""


@dataclass(slots=True)
class Storage:
    """What survives a crash: the log, subscriptions, and the streams of inbound links."""

    state: NodeState
    incarnation: int = 0
    topology: Topology = field(default_factory=Topology)
    contents: dict[MessageKey, int] = field(default_factory=dict)
    """by message, its document"""
    deliveries: list[SimDelivery] = field(default_factory=list)
    subscriptions: dict[int, int] = field(default_factory=dict)
    """by subscription, its query"""
    streams: dict[str, deque[StreamedFrame]] = field(default_factory=dict)


class SimBroker:
    """A broker that may crash between any two actions."""

    def __init__(self, world: World, name: str, topology: Topology, make_node: NodeFactory) -> None:
        self.world = world
        self.name = name
        self._make_node = make_node
        self._wire: SimWire | None = None
        self._routes: dict[int, Route] = {}
        """by key, those that links want"""
        self.storage = Storage(NodeState(name), topology=topology)
        self.node: Node | None = None
        self.membership = Membership(name, topology)
        self.life = 0
        """raised by every start and crash: what was begun before is void"""
        self._evaluated: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        """by match, the document and the subscriptions that it is delivered to, if it is new"""
        self._met: dict[int, dict[str, Hits]] = {}
        """by match, which routes of neighbours the message meets"""
        self._unstored: deque[actions.Store] = deque()
        self._bits: dict[str, int] = {}
        self._wanted: dict[int, int] = {}
        """by the key of a route, the links that want it, as bits"""
        self._by_query: dict[int, dict[int, None]] = {}
        """by query, the subscriptions that have it"""
        self._delivered: dict[str, int] = {}
        """by neighbour, how many frames of its stream the node was given"""
        self._drained: set[str] = set()
        """neighbours of which the node was told that their stream has no more"""
        self._events: deque[events.Event] = deque()
        self._held: list[events.SingleEvent] = []
        """what the node gets with its next event"""
        self._is_running = False
        self._late = 0

    # -- life ------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self.node is not None

    @property
    def late(self) -> int:
        """The number of messages that were routed by a table that was too old, in all lives."""
        return self._late + (self.node.late if self.node is not None else 0)

    def start(self) -> None:
        """Start the process, from what is stored."""
        if self.node is not None:
            return
        self.life += 1
        self.storage.incarnation += 1
        directory = self.world.directory
        if (
            directory.is_visible(self.name) and self.world.random.random() < 0.5
        ):  # it is read before the start
            self._take_over(directory.topology)
        self._evaluated, self._bits, self._wanted, self._delivered = {}, {}, {}, {}
        self._met = {}
        self._unstored.clear()
        self._drained.clear()
        self._routes.clear()
        self._wire = self.world.make_wire(self.world, self.name) if self.world.make_wire is not None else None
        if self._wire is not None:
            self._wire.set_neighbours(self.storage.topology)
            self._wire.mark_partial(self.storage)
        self.membership = Membership(self.name, self.storage.topology)
        self.node = self._make_node(self.storage.state, self.storage.topology, self.storage.incarnation)
        self.handle(events.Tick(self.world.now))
        workload = self.world.workload
        routes = [r for query in self.storage.subscriptions.values() for r in workload.routes(query)]
        standing = tuple(self.storage.subscriptions.items())
        self.change_routes(("restart", standing), tuple(routes), ())
        self._tick(self.life)

    def stop(self) -> None:
        """End the process at once."""
        if self.node is not None:
            self._late = self.late
            self.node = None
            self.life += 1
            self._events.clear()
            self._held.clear()

    def crash(self) -> None:
        """End the process at once, as a fault."""
        if self.node is not None:
            self.stop()
            self.world.on_crash(self.name)

    def _tick(self, life: int) -> None:
        if life != self.life or self.node is None:
            return
        world = self.world
        self.handle(events.Tick(world.now))
        if self._wire is not None:
            self._wire.tick()
        for name, stream in list(self.storage.streams.items()):
            self._feed(name)
            if name not in self._drained and self._delivered.get(name, 0) >= len(stream):
                self._drained.add(name)
                self.handle(events.Drained(name))
        proposal = self.membership.tick(world.now, world.directory.is_visible(self.name))
        if proposal is not None:
            world.directory.propose(self.name, proposal)
        world.after(world.faults.tick, self._tick, life)

    # -- events and actions ----------------------------------------------------------------------------

    def handle(self, event: events.SingleEvent) -> None:
        """Give the node an event, if it runs, and do what it asks for."""
        if self.node is None:
            return
        if isinstance(event, events.Received | events.Matched) and self.world.is_batching():
            self._held.append(event)
            return
        if self._held:
            self._events.append(events.Batch((*self._held, event)))
            self._held.clear()
        else:
            self._events.append(event)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._events and self.node is not None:
                for action in self.node.handle(self._events.popleft()):
                    if self.world.crashes_now(self.name):
                        self.crash()
                        return
                    self._do(action)
        finally:
            self._is_running = False

    def _do(self, action: actions.Action) -> None:
        world = self.world
        if isinstance(action, actions.Match):
            self._match(action)
        elif isinstance(action, actions.Store):
            self._unstored.append(action)
            world.after(world.faults.store_delay(world.random), self._stored, self.life, action.number)
        elif isinstance(action, actions.Send):
            frame = action.frame
            may_cut = isinstance(frame, MessageFrame) and frame.content is Content.STORED
            if isinstance(frame, MessageFrame) and isinstance(frame.content, Content):
                document = self.storage.contents[frame.key]
                frame = MessageFrame(frame.key, document, frame.table, frame.floor)
            item = StreamedFrame(action.epoch, action.number, frame)
            if self._wire is not None:
                item.payload = self._wire.encode(action.link, item, may_cut)
            world.network.send(self, action.link, item)
        elif isinstance(action, actions.SendControl):
            world.network.send_control(self.name, action.link, action.control)
        elif isinstance(action, actions.Release):
            self._release(action)
        elif isinstance(action, actions.SetRoutes):
            self._set_routes(action)
        elif isinstance(action, actions.Reply):
            world.on_reply(self.name, action)
        else:
            world.count(f"report {action.kind}")

    def _set_routes(self, action: actions.SetRoutes) -> None:
        bit = self._bits.setdefault(action.link, 1 << len(self._bits))
        wanted = self._wanted
        if self._wire is not None:
            self._set_wire_routes(self._wire, action, bit)
        for route in action.added:
            self.world.workload.learn(route)
            wanted[route.key] = wanted.get(route.key, 0) | bit
        for key in action.removed:
            wanted[key] &= ~bit
            if not wanted[key]:
                del wanted[key]

    def _set_wire_routes(self, wire: SimWire, action: actions.SetRoutes, bit: int) -> None:
        added = [route for route in action.added if not self._wanted.get(route.key, 0) & bit]
        self._routes.update((route.key, route) for route in added)
        number = bit.bit_length() - 1
        wire.set_bit(action.link, number)
        wire.change_routes(action.link, number, added, [self._routes[key] for key in action.removed])

    def _match(self, action: actions.Match) -> None:
        """Match at once, with the routes of this moment; the result comes later."""
        workload = self.world.workload
        document = self._find_document(action)
        wire = self._wire
        by_hits = wire.decide_by_hits(action, document) if wire is not None else None
        decided = None
        if wire is not None and by_hits is None:
            decided = wire.decide(action.key, document, action.is_local)
        if action.is_new:
            is_evaluated = action.is_local and decided is None and by_hits is None
            self._evaluated[action.token] = document, self._evaluate(document) if is_evaluated else []
        elif action.content is not None:
            self._evaluated[action.token] = document, []
        mask = 0
        for key in workload.holding(document):
            mask |= self._wanted.get(key, 0)
        mask = mask if decided is None else decided
        links = frozenset(link for link, bit in self._bits.items() if mask & bit)
        links = links if by_hits is None else by_hits
        if wire is not None and action.is_new:
            self._met[action.token] = wire.find_hits(workload.holding(document), action.link)
        problem = "not well-formed" if workload.is_refused(document) else None
        delay = self.world.faults.match_delay(self.world.random)
        self.world.after(delay, self._matched, self.life, events.Matched(action.token, links, problem))

    def _evaluate(self, document: int) -> list[tuple[int, int]]:
        """Return the subscriptions that a document is delivered to, with their queries."""
        queries = self.world.workload.matching(document)
        found = [(number, query) for query in queries for number in self._by_query.get(query, ())]
        if self._wire is None:
            return found
        wanted = set(self._wire.withhold(document, queries))
        kept = [each for each in found if each[1] in wanted]
        self.world.counts["withheld delivery"] += len(found) - len(kept)
        return kept

    def _find_document(self, action: actions.Match) -> int:
        if action.content is not None:
            assert isinstance(action.content, int)
            return action.content
        assert action.key is not None
        for store in reversed(self._unstored):
            if store.message is not None and store.message.key == action.key:
                match = store.match or store.replaces
                if match is not None:
                    return self._evaluated[match][0]
        return self.storage.contents[action.key]

    def _matched(self, life: int, event: events.Matched) -> None:
        if life == self.life:
            self.handle(event)

    def _stored(self, life: int, number: int) -> None:
        """Make everything up to a `Store` durable."""
        if life != self.life:
            return
        while self._unstored and self._unstored[0].number <= number:
            self._store(self._unstored.popleft())
        self.handle(events.Stored(number))

    def _store(self, store: actions.Store) -> None:
        """Make one `Store` durable, with the deliveries that belong to it."""
        storage = self.storage
        storage.state.apply(store)
        if store.message is not None and store.match is not None:
            key = store.message.key
            document, found = self._evaluated.pop(store.match)
            storage.contents[key] = document
            if self._wire is not None:
                self._wire.keep_hits(key, self._met.pop(store.match))
            storage.deliveries += [SimDelivery(number, key, document, query) for number, query in found]
            self.world.on_stored(self.name, key, document)
            if self._wire is not None and key.source == self.name:
                self._wire.learn(key, document)
        elif store.message is not None and store.replaces is not None:
            document, _ = self._evaluated.pop(store.replaces)
            storage.contents[store.message.key] = document
            self.world.count("partial message again" if store.message.is_partial else "whole message again")
        if self.name in store.floors:
            self.world.on_settled(self.name, store.floors[self.name])

    # -- streams ---------------------------------------------------------------------------------------

    def put_in_stream(self, sender: str, frame: StreamedFrame) -> None:
        """Add a frame to the stream of an inbound link."""
        self.storage.streams.setdefault(sender, deque()).append(frame)
        self._feed(sender)

    def _feed(self, sender: str) -> None:
        """Give the node what it has not seen of a stream."""
        stream = self.storage.streams[sender]
        while self.node is not None and (at := self._delivered.get(sender, 0)) < len(stream):
            item = stream[at]
            frame: Frame | None = item.frame
            if self._wire is not None and item.payload is not None:
                frame, waits = self._wire.decode(sender, item.payload)
                if waits:
                    return
            self._delivered[sender] = at + 1
            self._drained.discard(sender)
            if frame is not None:
                self.handle(events.Received(sender, item.epoch, item.number, frame))

    def receive_control(self, sender: str, control: Control | DictionaryControl) -> None:
        """Take a control of a neighbour."""
        if not isinstance(control, DictionaryControl):
            holds = self._wire is not None and self._wire.holds(sender)
            if not (holds and isinstance(control, Beat)):  # what is held is not lost
                self.handle(events.Controlled(sender, control))
        elif self._wire is not None:
            self._wire.receive(sender, control)
            if sender in self.storage.streams:
                self._feed(sender)

    def _release(self, action: actions.Release) -> None:
        stream = self.storage.streams.get(action.link)
        while stream and self._delivered.get(action.link, 0):
            first = stream[0]
            if (first.epoch, first.number) > (action.epoch, action.number):
                return
            stream.popleft()
            self._delivered[action.link] -= 1

    def lose_stream(self, sender: str, count: int) -> None:
        """Lose the last frames of a stream, as if the server had lost its power."""
        stream = self.storage.streams[sender]
        for _ in range(min(count, len(stream))):
            stream.pop()
        self._delivered[sender] = min(self._delivered.get(sender, 0), len(stream))

    # -- subscriptions and the tree --------------------------------------------------------------------

    def set_query(self, number: int, query: int | None) -> int | None:
        """Give a subscription a query, or end it; return the query that it had."""
        before = self.storage.subscriptions.pop(number, None)
        if before is not None:
            del self._by_query[before][number]
        if query is not None:
            self.storage.subscriptions[number] = query
            self._by_query.setdefault(query, {})[number] = None
        return before

    def change_routes(self, token: object, added: tuple[Route, ...], removed: tuple[Route, ...]) -> None:
        """Tell the node of routes."""
        if self._wire is not None:
            self._wire.change_local(added, removed)
        self.handle(events.RoutesChanged(token, added, removed))

    def adopt(self, topology: Topology) -> None:
        """Learn of a tree from the directory."""
        if topology.version <= self.storage.topology.version or self.node is None:
            return
        if self.name in topology:
            self._take_over(topology)
            self.membership.change_topology(topology)
            self.handle(events.TopologyChanged(topology))
            if self._wire is not None:
                self._wire.set_neighbours(topology)
        else:
            self.world.retire(self.name)

    def _take_over(self, topology: Topology) -> None:
        """Store a tree that the broker is in."""
        if self.name in topology:
            self.storage.topology = topology
