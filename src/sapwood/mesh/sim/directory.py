"""The simulated directory of a mesh: one register for the tree, with compare-and-set, and the leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.mesh.core.membership import HEARTBEAT, Proposal
from sapwood.mesh.core.topology import Topology

if TYPE_CHECKING:
    from sapwood.mesh.sim.world import World

_ANNOUNCEMENT = 0.5
"""seconds until a broker learns of a tree, at most"""


class Directory:
    """The tree and the leases, as far as brokers can see them."""

    def __init__(self, world: World, topology: Topology) -> None:
        self._world = world
        self.topology = topology
        world.after(HEARTBEAT, self._renew)

    def is_visible(self, name: str) -> bool:
        """Return whether a broker can reach the directory."""
        return name not in self._world.network.cut

    def _renew(self) -> None:
        world = self._world
        alive = [name for name, broker in world.brokers.items() if broker.is_up and self.is_visible(name)]
        for name in alive:
            world.brokers[name].membership.renew(alive)
        world.after(HEARTBEAT, self._renew)
        self.announce()

    def announce(self) -> None:
        """Tell all brokers that can see it of the tree, each after a while."""
        world = self._world
        for broker in world.brokers.values():
            if broker.is_up and broker.storage.topology.version < self.topology.version:
                world.after(world.random.random() * _ANNOUNCEMENT, self._tell, broker.name, self.topology)

    def _tell(self, name: str, topology: Topology) -> None:
        broker = self._world.brokers.get(name)
        if broker is not None and broker.is_up and self.is_visible(name):
            broker.adopt(topology)

    def propose(self, name: str, proposal: Proposal) -> None:
        """Put a tree in place of the one before, unless that was changed or is out of reach."""
        if self.is_visible(name) and self.put(proposal.before, proposal.topology):
            self._world.count("repair")

    def put(self, before: int, topology: Topology) -> bool:
        """Put a tree in place of the version before it; return whether that was still there."""
        if before != self.topology.version:
            return False
        self.topology = topology
        self._world.count("tree change")
        self._world.trace("directory", f"topology {topology.version}")
        self.announce()
        return True
