"""The simulated network and directory: delays, loss, repetition, reordering and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from sapwood.mesh.core import events
from sapwood.mesh.core.frames import Control
from sapwood.mesh.core.membership import HEARTBEAT, Proposal
from sapwood.mesh.core.topology import Topology

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_broker import SimBroker, StreamedFrame
    from sapwood.mesh.sim.world import World

SEND_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong, as probabilities, and how long what takes, in seconds."""

    loss: float = 0.0
    repetition: float = 0.0
    reordering: float = 0.0
    crash: float = 0.0
    """before an action"""
    latency: float = 0.02
    delay: float = 0.0
    """added to the latency, at most"""
    tick: float = 0.2
    store: float = 0.01
    match: float = 0.002

    def store_delay(self, random: Random) -> float:
        """Return the seconds that storing takes."""
        return self.store * (0.5 + random.random())

    def match_delay(self, random: Random) -> float:
        """Return the seconds that matching takes."""
        return self.match * (0.5 + random.random())


class Network:
    """Carries frames into the streams of neighbours, in order unless it is faulty, and controls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut: frozenset[str] = frozenset()
        """brokers that reach only each other"""
        self._arrival: dict[tuple[str, str], float] = {}

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether a partition is between two brokers."""
        return (one in self.cut) != (other in self.cut)

    def _delay(self) -> float:
        faults, random = self._world.faults, self._world.random
        return faults.latency * (0.5 + random.random()) + faults.delay * random.random() ** 4

    def send(self, sender: SimBroker, receiver: str, item: StreamedFrame) -> None:
        """Carry a frame into a stream, and tell the sender that it is there, or that it failed."""
        world, faults, random = self._world, self._world.faults, self._world.random
        world.on_frame(sender.name, receiver, item.frame)
        if self.is_cut(sender.name, receiver) or random.random() < faults.loss:
            world.count("loss")
            world.after(SEND_TIMEOUT, self._failed, sender, sender.life, receiver, item)
            return
        delay = self._delay()
        way = sender.name, receiver
        arrival = max(world.now + delay, self._arrival.get(way, 0.0))
        if random.random() < faults.reordering:
            world.count("reordering")
            arrival = world.now + delay + faults.latency * 3 * random.random()
        else:
            self._arrival[way] = arrival
        world.at(arrival, self._arrive, sender, sender.life, receiver, item)
        if random.random() < faults.repetition:
            world.count("repetition")
            world.at(arrival + self._delay(), self._arrive, sender, sender.life, receiver, item)

    def _arrive(self, sender: SimBroker, life: int, receiver: str, item: StreamedFrame) -> None:
        world = self._world
        if self.is_cut(sender.name, receiver):
            world.after(SEND_TIMEOUT, self._failed, sender, life, receiver, item)
            return
        world.brokers[receiver].put_in_stream(sender.name, item)
        if world.random.random() < world.faults.loss:  # of the acknowledgement
            world.after(SEND_TIMEOUT, self._failed, sender, life, receiver, item)
        else:
            world.after(self._delay(), self._accepted, sender, life, receiver, item)

    def _accepted(self, sender: SimBroker, life: int, receiver: str, item: StreamedFrame) -> None:
        if sender.life == life:
            sender.handle(events.Accepted(receiver, item.epoch, item.number))

    def _failed(self, sender: SimBroker, life: int, receiver: str, item: StreamedFrame) -> None:
        if sender.life == life:
            sender.handle(events.SendFailed(receiver, item.epoch))

    def send_control(self, sender: str, receiver: str, control: Control) -> None:
        """Carry a control, which may get lost."""
        world = self._world
        for copy in range(2):
            if copy and world.random.random() >= world.faults.repetition:
                return
            if self.is_cut(sender, receiver) or world.random.random() < world.faults.loss:
                world.count("loss")
            else:
                world.after(self._delay(), self._control, sender, receiver, control)

    def _control(self, sender: str, receiver: str, control: Control) -> None:
        broker = self._world.brokers[receiver]
        if broker.is_up and not self.is_cut(sender, receiver):
            broker.handle(events.Controlled(sender, control))


class Directory:
    """The directory of the mesh: one register for the tree, with compare-and-set, and the leases."""

    def __init__(self, world: World, topology: Topology) -> None:
        self._world = world
        self.topology = topology
        self.changes = 0
        world.after(HEARTBEAT, self._renew)

    def is_visible(self, name: str) -> bool:
        """Return whether a broker can reach the directory."""
        return name not in self._world.network.cut

    def _renew(self) -> None:
        world = self._world
        alive = [b for b in world.brokers.values() if b.is_up and self.is_visible(b.name)]
        for broker in alive:
            for other in alive:
                other.membership.renewed(broker.name)
        world.after(HEARTBEAT, self._renew)
        self.announce()

    def announce(self) -> None:
        """Tell all brokers that can see it of the tree, each after a while."""
        world = self._world
        for broker in world.brokers.values():
            if broker.is_up and broker.storage.topology.version < self.topology.version:
                world.after(world.random.random() * 0.5, self._tell, broker.name, self.topology)

    def _tell(self, name: str, topology: Topology) -> None:
        broker = self._world.brokers[name]
        if broker.is_up and self.is_visible(name):
            broker.adopt(topology)

    def propose(self, name: str, proposal: Proposal) -> None:
        """Put a tree in place of the one before, unless that was changed or is out of reach."""
        if self.is_visible(name):
            self.put(proposal.before, proposal.topology)
            self._world.count("repair")

    def put(self, before: int, topology: Topology) -> None:
        """Put a tree in place of the version before it."""
        if before == self.topology.version:
            self.topology = topology
            self.changes += 1
            self._world.count("tree change")
            self._world.trace("directory", f"topology {topology.version}")
            self.announce()
