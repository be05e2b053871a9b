"""A simulated broker: the runtime around a node, with storage that survives crashes and one that does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sapwood.mesh.core import actions, events
from sapwood.mesh.core.frames import Content, Epoch, Frame, MessageFrame, MessageKey, Route
from sapwood.mesh.core.membership import Membership
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import Topology

if TYPE_CHECKING:
    from sapwood.mesh.sim.world import World

NodeFactory = Callable[[NodeState, Topology, int], Node]


@dataclass(frozen=True, slots=True)
class SimDelivery:
    """A delivery in a subscription's inbox."""

    subscription: int
    key: MessageKey
    document: int


@dataclass(slots=True)
class StreamedFrame:
    """A frame in the stream of an inbound link."""

    epoch: Epoch
    number: int
    frame: Frame


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
        self.storage = Storage(NodeState(name), topology=topology)
        self.node: Node | None = None
        self.membership = Membership(name, topology)
        self.life = 0
        """raised by every start and crash: what was begun before is void"""
        self._evaluated: dict[int, tuple[int, list[int]]] = {}
        self._unstored: list[actions.Store] = []
        self._routes: dict[str, dict[int, Route]] = {}
        self._delivered: dict[str, int] = {}
        """by neighbour, how many frames of its stream the node was given"""
        self._events: deque[events.Event] = deque()
        self._is_running = False
        self.late = 0

    # -- life ------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self.node is not None

    def start(self) -> None:
        """Start the process, from what is stored."""
        if self.node is not None:
            return
        self.life += 1
        self.storage.incarnation += 1
        state = self.storage.state
        self._evaluated, self._unstored, self._routes, self._delivered = {}, [], {}, {}
        self._events.clear()
        self.membership = Membership(self.name, self.storage.topology)
        self.node = self._make_node(state, self.storage.topology, self.storage.incarnation)
        self.handle(events.Tick(self.world.now))
        routes = [
            r for query in self.storage.subscriptions.values() for r in self.world.workload.routes(query)
        ]
        standing = tuple(self.storage.subscriptions.items())
        self.handle(events.RoutesChanged(("restart", standing), tuple(routes)))
        self._tick(self.life)

    def crash(self) -> None:
        """End the process at once."""
        if self.node is not None:
            self.late += self.node.late
            self.node = None
            self.life += 1
            self._events.clear()
            self.world.count("crash")
            self.world.trace(self.name, "crash")
            self.world.on_crash(self.name)

    def _tick(self, life: int) -> None:
        if life != self.life or self.node is None:
            return
        world = self.world
        self.handle(events.Tick(world.now))
        for name in list(self.storage.streams):
            self._feed(name)
            if self._delivered.get(name, 0) >= len(self.storage.streams[name]):
                self.handle(events.Drained(name))
        proposal = self.membership.tick(world.now, world.directory.is_visible(self.name))
        if proposal is not None:
            world.directory.propose(self.name, proposal)
        world.after(world.faults.tick, self._tick, life)

    # -- events and actions ----------------------------------------------------------------------------

    def handle(self, event: events.Event) -> None:
        """Give the node an event, and do what it asks for."""
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
            if isinstance(frame, MessageFrame) and frame.content is Content.STORED:
                document = self.storage.contents[frame.key]
                frame = MessageFrame(frame.key, document, frame.table, frame.floor)
            world.network.send(self, action.link, StreamedFrame(action.epoch, action.number, frame))
        elif isinstance(action, actions.SendControl):
            world.network.send_control(self.name, action.link, action.control)
        elif isinstance(action, actions.Release):
            self._release(action)
        elif isinstance(action, actions.SetRoutes):
            table = self._routes.setdefault(action.link, {})
            for route in action.added:
                table[route.key] = route
            for key in action.removed:
                table.pop(key, None)
        elif isinstance(action, actions.Reply):
            world.on_reply(self.name, action)
        else:
            world.count(f"report {action.kind}")

    def _match(self, action: actions.Match) -> None:
        """Match at once, with the routes of this moment; the result comes later."""
        workload = self.world.workload
        if action.content is None:
            assert action.key is not None
            document = self.storage.contents.get(action.key)
            if document is None:
                document = next(d for s in self._unstored if (d := self._document(s, action.key)) is not None)
        else:
            assert isinstance(action.content, int)
            document = action.content
        if action.is_new:
            standing = self.storage.subscriptions.items() if action.is_local else ()
            found = [s for s, query in standing if workload.matches(query, document)]
            self._evaluated[action.token] = document, found
        links = frozenset(
            link
            for link, table in self._routes.items()
            if any(workload.holds(route, document) for route in table.values())
        )
        problem = "not well-formed" if workload.is_refused(document) else None
        delay = self.world.faults.match_delay(self.world.random)
        self.world.after(delay, self._matched, self.life, events.Matched(action.token, links, problem))

    def _document(self, store: actions.Store, key: MessageKey) -> int | None:
        if store.message is not None and store.message.key == key and store.match is not None:
            return self._evaluated[store.match][0]
        return None

    def _matched(self, life: int, event: events.Matched) -> None:
        if life == self.life:
            self.handle(event)

    def _stored(self, life: int, number: int) -> None:
        """Make everything up to a `Store` durable."""
        if life != self.life:
            return
        while self._unstored and self._unstored[0].number <= number:
            self.store(self._unstored.pop(0))
        self.handle(events.Stored(number))

    def store(self, store: actions.Store) -> None:
        """Make one `Store` durable, with the deliveries that belong to it."""
        storage = self.storage
        storage.state.apply(store)
        if store.message is not None and store.match is not None:
            key = store.message.key
            document, found = self._evaluated.pop(store.match)
            storage.contents[key] = document
            storage.deliveries += [SimDelivery(s, key, document) for s in found]
            self.world.on_stored(self.name, key, document)

    # -- streams ---------------------------------------------------------------------------------------

    def put_in_stream(self, sender: str, frame: StreamedFrame) -> None:
        """Add a frame to the stream of an inbound link."""
        self.storage.streams.setdefault(sender, deque()).append(frame)
        self.world.after(0.0, self._feed, sender)

    def _feed(self, sender: str) -> None:
        """Give the node what it has not seen of a stream."""
        stream = self.storage.streams.get(sender, deque())
        while self.node is not None and self._delivered.get(sender, 0) < len(stream):
            at = self._delivered.get(sender, 0)
            self._delivered[sender] = at + 1
            item = stream[at]
            self.handle(events.Received(sender, item.epoch, item.number, item.frame))

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
        stream = self.storage.streams.get(sender)
        for _ in range(min(count, len(stream) if stream else 0)):
            assert stream is not None
            stream.pop()
        if stream is not None:
            self._delivered[sender] = min(self._delivered.get(sender, 0), len(stream))

    # -- subscriptions ---------------------------------------------------------------------------------

    def change_routes(self, token: object, added: tuple[Route, ...], removed: tuple[Route, ...]) -> None:
        """Tell the node of routes."""
        self.handle(events.RoutesChanged(token, added, removed))

    def adopt(self, topology: Topology) -> None:
        """Learn of a tree from the directory."""
        if topology.version > self.storage.topology.version and self.node is not None:
            self.storage.topology = topology
            self.membership.change_topology(topology)
            self.handle(events.TopologyChanged(topology))
