"""The simulated network: delays, loss, repetition, reordering and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.mesh.core import events
from sapwood.mesh.core.frames import Control
from sapwood.mesh.wire.bodies.dictionary_controls import DictionaryControl

if TYPE_CHECKING:
    from sapwood.mesh.sim.sim_broker import SimBroker, StreamedFrame
    from sapwood.mesh.sim.world import World

SEND_TIMEOUT = 1.0
_LONG_DELAY = 0.05
"""seconds beyond the latency from which on a delay is counted"""


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
        world = self._world
        delay = world.faults.network_delay(world.random)
        if delay > 1.5 * world.faults.latency + _LONG_DELAY:
            world.count("delay")
        return delay

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
        there = world.brokers.get(receiver)
        if there is None or self.is_cut(sender.name, receiver):
            world.after(SEND_TIMEOUT, self._failed, sender, life, receiver, item)
            return
        there.put_in_stream(sender.name, item)
        if world.random.random() < world.faults.loss:  # of the acknowledgement
            world.count("loss")
            world.after(SEND_TIMEOUT, self._failed, sender, life, receiver, item)
        else:
            world.after(self._delay(), self._accepted, sender, life, receiver, item)

    def _accepted(self, sender: SimBroker, life: int, receiver: str, item: StreamedFrame) -> None:
        if sender.life == life:
            sender.handle(events.Accepted(receiver, item.epoch, item.number))

    def _failed(self, sender: SimBroker, life: int, receiver: str, item: StreamedFrame) -> None:
        if sender.life == life:
            sender.handle(events.SendFailed(receiver, item.epoch))

    def send_control(self, sender: str, receiver: str, control: Control | DictionaryControl) -> None:
        """Carry a control, which may get lost."""
        world = self._world
        for copy in range(2):
            if copy and world.random.random() >= world.faults.repetition:
                return
            if self.is_cut(sender, receiver) or world.random.random() < world.faults.loss:
                world.count("loss")
            else:
                world.after(self._delay(), self._control, sender, receiver, control)

    def _control(self, sender: str, receiver: str, control: Control | DictionaryControl) -> None:
        broker = self._world.brokers.get(receiver)
        if broker is not None and broker.is_up and not self.is_cut(sender, receiver):
            broker.receive_control(sender, control)
