"""Three engine processes in a chain, without servers and NATS, and the time of messages in the middle one.

first ─► payload ─► this process ─► middle ─► payload ─► this process ─► last
                       └ arrival: clock           └ last send: clock
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from sapwood.bench.harness import BenchError
from sapwood.mesh.core.frames import MessageFrame, MessageKey
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.wire.frame_codec import decode_payload
from sapwood.mesh.wire.topology_codec import encode_topology
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.engine_spawn import spawn_engine
from sapwood.serve.engine.frames import Publish, Started, Stop, encode_frame, receive_frame
from sapwood.serve.mesh.mesh_frames import (
    ControlArrived,
    ControlOut,
    MeshInput,
    MeshItem,
    MeshOutput,
    PayloadAccepted,
    PayloadArrived,
    PayloadOut,
    StreamDrained,
    TopologySeen,
)
from sapwood.serve.mesh.mesh_settings import MeshSettings
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store import NewSubscription, SubscriptionStore

FIRST, MIDDLE, LAST = "first", "middle", "last"
_TOPOLOGY = build_tree({FIRST: None, MIDDLE: FIRST, LAST: MIDDLE})
_PATIENCE = 60.0


class EngineChain:
    """The engines, and the clock of messages in the middle."""

    def __init__(self, folder: Path, policy: str, queries: Sequence[str]) -> None:
        """`queries` are those of the subscriptions in the middle; the last broker wants all messages."""
        self.arrived: dict[MessageKey, float] = {}
        self.sent: dict[MessageKey, float] = {}
        self._engines: dict[str, _ChainedEngine] = {}
        try:
            for name, wanted in ((FIRST, []), (MIDDLE, queries), (LAST, ["/story"])):
                self._engines[name] = _ChainedEngine(self, name, folder / name, policy, wanted)
            self._link()
        except BaseException:
            self.stop()
            raise

    def _link(self) -> None:
        """Wait until messages pass the chain."""
        deadline = time.monotonic() + _PATIENCE
        number = 0
        while not self.sent:
            if time.monotonic() > deadline:
                raise BenchError(f"the engines are not linked after {_PATIENCE:g} s")
            for name, engine in self._engines.items():
                engine.put(*(StreamDrained(link) for link in _TOPOLOGY.neighbours(name)))
            self.publish(f"link-{number}", b"<story/>")
            number += 1
            time.sleep(0.5)
        self.wait()

    def publish(self, id: str, body: bytes) -> None:
        """Publish a message at the first broker."""
        self._engines[FIRST].send(Publish(1, [Publication("", "news", id, body)]))

    def wait(self, count: int = 1) -> None:
        """Wait until so many messages have passed the middle, and none is on its way."""
        deadline = time.monotonic() + _PATIENCE
        while len(self.sent) < count or self.arrived.keys() - self.sent.keys():
            if time.monotonic() > deadline:
                raise BenchError(f"{len(self.sent):,} messages of {count:,} have passed the broker")
            time.sleep(0.05)

    def restart_clock(self) -> None:
        """Forget the messages that have passed."""
        self.arrived.clear()
        self.sent.clear()

    def carry(self, sender: str, payload: PayloadOut) -> None:
        """Carry a payload to a neighbour, and look at the clock for its messages."""
        frames = decode_payload(payload.payload, {}).frames
        keys = [frame.key for frame in frames if isinstance(frame, MessageFrame)]
        clock = self.sent if sender == MIDDLE else self.arrived
        if (sender, payload.link) in ((FIRST, MIDDLE), (MIDDLE, LAST)):
            clock.update(dict.fromkeys(keys, time.perf_counter()))
        self._engines[payload.link].arrive(sender, payload.payload)

    def carry_control(self, sender: str, control: ControlOut) -> None:
        """Carry a control to a neighbour."""
        if control.link in self._engines:
            self._engines[control.link].put(ControlArrived(sender, control.payload))

    def stop(self) -> None:
        """End the engines."""
        for engine in self._engines.values():
            engine.stop()


class _ChainedEngine:
    """The process of an engine, with a thread that takes what it sends."""

    def __init__(
        self, chain: EngineChain, name: str, folder: Path, policy: str, queries: Sequence[str]
    ) -> None:
        folder.mkdir(parents=True)
        self._chain = chain
        self._name = name
        self._sending = Lock()
        self._tags = 0
        self._is_started = False
        location = str(folder / "log.db")
        with SubscriptionStore(location) as store:
            store.import_many([NewSubscription(f"s{n}", query, "desk") for n, query in enumerate(queries)])
        settings = MeshSettings("bench", name, format="text", skeletons="never", scheduling=policy)
        self._spawned = spawn_engine(
            EngineSettings(
                location,
                location,
                str(folder / "snapshot"),
                separate_results=True,
                mesh=settings,
                log_level="WARNING",
            )
        )
        self._thread = Thread(target=self._receive, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE
        while not self._is_started:
            if time.monotonic() > deadline:
                raise BenchError(f"the engine of {name} has not started after {_PATIENCE:g} s")
            time.sleep(0.02)
        self.put(TopologySeen(encode_topology(_TOPOLOGY)))

    def send(self, command: Any) -> None:
        """Give the engine a command."""
        with self._sending:
            self._spawned.connection.sendall(encode_frame(command))

    def put(self, *items: MeshItem) -> None:
        """Give the engine what comes over the mesh."""
        self.send(MeshInput(list(items)))

    def arrive(self, sender: str, payload: bytes) -> None:
        """Give the engine a payload of a neighbour."""
        self._tags += 1
        self.put(PayloadArrived(sender, payload, self._tags))

    def _receive(self) -> None:
        with suppress(OSError):  # of engines that have ended before this one
            self._carry_all()

    def _carry_all(self) -> None:
        while (event := receive_frame(self._spawned.connection)) is not None:
            if isinstance(event, Started):
                self._is_started = True
            elif isinstance(event, MeshOutput):
                for item in event.items:
                    if isinstance(item, PayloadOut):
                        self._chain.carry(self._name, item)
                        self.put(PayloadAccepted(item.link, item.epoch, item.number))
                    elif isinstance(item, ControlOut):
                        self._chain.carry_control(self._name, item)

    def stop(self) -> None:
        """End the process."""
        with suppress(OSError):  # of one that has ended by itself
            self.send(Stop())
        self._thread.join(_PATIENCE)
        self._spawned.abandon()
