"""Engines of several brokers in this process, linked without NATS: what one sends, the other gets."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from sapwood.mesh.core.topology import Topology, build_tree
from sapwood.mesh.wire.topology_codec import encode_topology
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.frames import Answer, ChangeStore, Command, Committed, Event, Publish
from sapwood.serve.engine.message_engine import MessageEngine
from sapwood.serve.log.log_database import open_log
from sapwood.serve.log.log_reader import LogReader
from sapwood.serve.mesh.mesh_frames import (
    ControlArrived,
    ControlOut,
    MeshInput,
    MeshOutput,
    MeshRequest,
    MeshStatus,
    PayloadAccepted,
    PayloadArrived,
    PayloadFailed,
    PayloadOut,
    RequestDone,
    RoutesConfirmed,
    StreamDrained,
    TopologySeen,
)
from sapwood.serve.mesh.mesh_settings import MeshSettings
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store import NewSubscription


class LinkedEngine:
    """The engine of one broker."""

    def __init__(
        self, mesh: LinkedEngines, name: str, folder: Path, lateness: float = 0.0, **settings: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.location = str(folder / "log.db")
        self.name = name
        self._mesh = mesh
        self.settings = EngineSettings(
            self.location,
            self.location,
            str(folder / "snapshot"),
            lateness=lateness,
            separate_results=True,
            mesh=MeshSettings("test", name, **settings),
        )
        self.answers: dict[int, Any] = {}
        self.confirmed = -1
        self.done: set[int] = set()
        self.status: MeshStatus | None = None
        self._request = 0
        self.start()

    def start(self) -> None:
        """Start the engine, from what is stored."""
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._posted: SimpleQueue[Command] = SimpleQueue()
        self._arrived: deque[Any] = deque()
        self._tags = 0
        self.confirmed = -1
        self.engine = MessageEngine(self.settings, self._events.put, self._posted.put)
        self.engine.start()
        self.tell(MeshInput([TopologySeen(encode_topology(self._mesh.topology))]))

    def stop(self, save: bool = True) -> None:
        """End the engine."""
        self.engine.stop(save)

    def tell(self, *commands: Command) -> None:
        """Give the engine commands."""
        self.engine.handle(commands)

    def step(self) -> bool:
        """Give the engine what has come, and carry away what it sends; return whether there was anything."""
        commands: list[Command] = []
        while True:
            try:
                commands.append(self._posted.get_nowait())
            except Empty:
                break
        if self._arrived:
            commands.append(MeshInput(list(self._arrived)))
            self._arrived.clear()
        if commands:
            self.engine.handle(commands)
        self.engine.idle()
        busy = bool(commands)
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return busy
            busy |= self._take(event)

    def _take(self, event: Event) -> bool:
        if isinstance(event, Committed):
            self.answers.update(event.answers)
        elif isinstance(event, Answer):
            self.answers[event.request] = event.result
        elif isinstance(event, MeshStatus):
            self.status = event
        elif isinstance(event, MeshOutput):
            for item in event.items:
                if isinstance(item, PayloadOut):
                    if self._mesh.carry(self.name, item.link, item.payload):
                        self._arrived.append(PayloadAccepted(item.link, item.epoch, item.number))
                    else:
                        self._arrived.append(PayloadFailed(item.link, item.epoch))
                elif isinstance(item, ControlOut):
                    self._mesh.carry_control(self.name, item.link, item.payload)
                elif isinstance(item, RoutesConfirmed):
                    self.confirmed = item.version
                elif isinstance(item, RequestDone):
                    self.done.add(item.request)
            return True
        return False

    def arrive(self, sender: str, payload: bytes) -> None:
        """Take a payload of a neighbour."""
        self._tags += 1
        self._arrived.append(PayloadArrived(sender, payload, self._tags))

    def drain(self) -> None:
        """Note that nothing of any neighbour waits."""
        self._arrived += [StreamDrained(link) for link in self._mesh.topology.neighbours(self.name)]

    def arrive_control(self, sender: str, payload: bytes) -> None:
        """Take a control of a neighbour."""
        self._arrived.append(ControlArrived(sender, payload))

    def call(self, build: Callable[[int], Command]) -> Any:
        """Return the answer to a command."""
        self._request += 1
        self.engine.handle([build(self._request)])
        self._mesh.run(lambda: self._request in self.answers)
        return self.answers[self._request]

    # -- what tests do ---------------------------------------------------------------------------------

    def subscribe(self, id: str, query: str, streams: tuple[str, ...] = (), tenant: str = "") -> None:
        """Subscribe, and wait until all brokers know."""
        row = NewSubscription(id, query, "desk", streams=streams)
        changed = self.call(lambda n: ChangeStore(n, tenant, "put", {"row": row}))
        assert not isinstance(changed, Exception), changed
        self._mesh.run(lambda: self.confirmed >= changed.version)

    def unsubscribe(self, id: str) -> None:
        """End a subscription."""
        self.call(lambda n: ChangeStore(n, "", "remove", {"id": id}))

    def publish(
        self,
        *bodies: bytes,
        stream: str = "news",
        times: tuple[float, ...] = (),
        ids: tuple[str, ...] = (),
        tenant: str = "",
    ) -> Any:
        """Publish messages, and return what became of each."""
        messages = [
            Publication(tenant, stream, ids[i] if ids else f"{self.name}-{self._request}-{i}", body)
            for i, body in enumerate(bodies)
        ]
        for message, time_ in zip(messages, times, strict=False):
            message.time = time_
        return self.call(lambda n: Publish(n, messages))

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Return the result of an operation of the node."""
        return self.call(lambda n: MeshRequest(n, operation, arguments))

    def counters(self) -> dict[str, int]:
        """Return what the node has counted."""
        assert self.engine._mesh is not None
        return self.engine._mesh.describe().counters

    def link(self, name: str) -> dict[str, Any]:
        """Return what is known of the link to a neighbour."""
        assert self.engine._mesh is not None
        return self.engine._mesh.describe().links[name]

    def deliveries(self, subscriber: str = "desk", tenant: str = "") -> list[tuple[str, bytes]]:
        """Return the messages and bodies in an inbox."""
        log = open_log(self.location)
        reader = LogReader(log)
        number = self.engine._inboxes.find(tenant, subscriber)
        if number is None:
            return []
        found = []
        for entry in reader.read_entries(number, 0, 10_000):
            row = reader.read_messages({entry.seq})[entry.seq]
            if entry.output < 0:
                found.append((row.id, bytes(row.body)))
            else:
                name, body = reader.read_outputs({(entry.seq, entry.output)})[entry.seq, entry.output]
                found.append((name, bytes(body)))
        log.close()
        return found


class LinkedEngines:
    """All engines of a mesh."""

    def __init__(
        self, folder: Path, parents: Mapping[str, str | None], lateness: float = 0.0, **settings: Any
    ) -> None:
        """`settings` are those of the nodes beside their names."""
        self.damage: Callable[[bytes], bytes] = lambda payload: payload
        """what becomes of a payload on its way"""
        self.lose_control: Callable[[bytes], bool] = lambda payload: False
        self.topology = build_tree(parents)
        self.cut: set[frozenset[str]] = set()
        """links that are down"""
        self.engines: dict[str, LinkedEngine] = {}
        for name in parents:
            self.engines[name] = LinkedEngine(self, name, folder / name, lateness, **settings)
        self.run(self.is_linked)

    def __getitem__(self, name: str) -> LinkedEngine:
        return self.engines[name]

    def is_linked(self) -> bool:
        """Return whether all links are open and all tables known."""
        for name, engine in self.engines.items():
            node = engine.engine._mesh.node  # type: ignore[union-attr]
            if any(not node.is_open(other) for other in self.topology.neighbours(name)):
                return False
            if node.table.unknown_links():
                return False
        return True

    def is_settled(self) -> bool:
        """Return whether every message is stored wherever it is wanted, and all know."""
        nodes = [engine.engine._mesh.node for engine in self.engines.values()]  # type: ignore[union-attr]
        if any(engine.engine._deferred for engine in self.engines.values()):
            return False
        return all(not node.waiting and not node.unsettled() for node in nodes)

    def carry(self, sender: str, receiver: str, payload: bytes) -> bool:
        """Carry a payload over a link; return whether it has arrived."""
        if frozenset((sender, receiver)) in self.cut or receiver not in self.engines:
            return False
        self.engines[receiver].arrive(sender, self.damage(payload))
        return True

    def carry_control(self, sender: str, receiver: str, payload: bytes) -> None:
        """Carry a control over a link."""
        is_cut = frozenset((sender, receiver)) in self.cut or self.lose_control(payload)
        if not is_cut and receiver in self.engines:
            self.engines[receiver].arrive_control(sender, payload)

    def run(self, until: Callable[[], bool], wait: float = 60.0, only: Collection[str] | None = None) -> None:
        """Let all engines, or only some, work until something is so."""
        engines = [self.engines[name] for name in (self.engines if only is None else only)]
        deadline = time.monotonic() + wait
        while not until():
            assert time.monotonic() < deadline, "the engines have not come so far in time"
            busy = [engine.step() for engine in engines]
            if not any(busy):
                time.sleep(0.005)
                for engine in engines:
                    engine.drain()

    def settle(self) -> None:
        """Let all messages arrive."""
        self.run(self.is_settled)
        for engine in self.engines.values():
            engine.engine._commits.drain()

    def change(self, topology: Topology) -> None:
        """Tell all engines of another tree."""
        self.topology = topology
        for engine in self.engines.values():
            engine.tell(MeshInput([TopologySeen(encode_topology(topology))]))
        self.run(self.is_linked)

    def stop(self) -> None:
        """End all engines."""
        for engine in self.engines.values():
            engine.stop()
